"""Advice with evidence: compare policies, test the simulator against the log, size a fleet, walk the decision tree.

:func:`advise` is the whole; :func:`compare`, :func:`backtest`, :func:`size` and :func:`profile` are its parts, each of
use alone. Results are frozen, have ``to_dict`` and ``to_json``, and depend on nothing but their inputs.
"""

from __future__ import annotations

from prefixroute.advise.advice import Advice, Finding, Flip, Remedy, Saving, Step
from prefixroute.advise.advisor import Question, advise
from prefixroute.advise.backtest import Backtest, backtest
from prefixroute.advise.bootstrap import Interval
from prefixroute.advise.choice import IN_USE
from prefixroute.advise.compare import Comparison, Difference, compare, compare_scenarios
from prefixroute.advise.profile import Profile, profile
from prefixroute.advise.size import Sizing, Slo, size

__all__ = [
    "IN_USE",
    "Advice",
    "Backtest",
    "Comparison",
    "Difference",
    "Finding",
    "Flip",
    "Interval",
    "Profile",
    "Question",
    "Remedy",
    "Saving",
    "Sizing",
    "Slo",
    "Step",
    "advise",
    "backtest",
    "compare",
    "compare_scenarios",
    "profile",
    "size",
]
