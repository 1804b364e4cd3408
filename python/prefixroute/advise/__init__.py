"""Advice with evidence, as numbers.

Compare policies, test the simulator against the log, size a fleet, walk the decision tree.

:func:`advise` is the whole; :func:`compare`, :func:`backtest`, :func:`size` and :func:`profile` are its parts, each of
use alone. Results are frozen, have ``to_dict`` and ``to_json``, and depend on nothing but their inputs. Sentences,
tables and pages are made of them in :mod:`prefixroute.report`.
"""

from __future__ import annotations

from prefixroute.advise.advice import NO_ROUTER, Advice, Remedy, Saving, UsualLifetime
from prefixroute.advise.advisor import advise
from prefixroute.advise.backtest import Backtest, Nearest, backtest
from prefixroute.advise.bootstrap import Interval
from prefixroute.advise.choice import IN_USE, OBJECTIVES, Choice
from prefixroute.advise.compare import Comparison, ComparisonRow, compare
from prefixroute.advise.deployment import Deployment
from prefixroute.advise.finding import Finding, Step
from prefixroute.advise.fleet import FleetNeed
from prefixroute.advise.profile import Profile, profile
from prefixroute.advise.question import Question
from prefixroute.advise.sensitivity import Flip
from prefixroute.advise.size import EqualFleet, FleetSize, Headroom, Sizing, size
from prefixroute.advise.slo import Slo

__all__ = [
    "IN_USE",
    "NO_ROUTER",
    "OBJECTIVES",
    "Advice",
    "Backtest",
    "Choice",
    "Comparison",
    "ComparisonRow",
    "Deployment",
    "EqualFleet",
    "Finding",
    "FleetNeed",
    "FleetSize",
    "Flip",
    "Headroom",
    "Interval",
    "Nearest",
    "Profile",
    "Question",
    "Remedy",
    "Saving",
    "Sizing",
    "Slo",
    "Step",
    "UsualLifetime",
    "advise",
    "backtest",
    "compare",
    "profile",
    "size",
]
