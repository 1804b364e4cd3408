"""Planners for the prompt caches of LLM APIs: orders of calls, lifetimes, breakpoints, keys, storage, whole traces.

Prices and rules come from :mod:`prefixroute.providers`. Every result is frozen data with ``to_dict``; equal inputs give
equal results.
"""

from __future__ import annotations

from prefixroute.plan.breakpoints import Placement, place_breakpoints
from prefixroute.plan.burst import Burst, Calls, Speed, plan_batch, plan_burst
from prefixroute.plan.lifetimes import LifetimePlan, lifetimes_by_gaps, lifetimes_by_rate
from prefixroute.plan.shards import Load, ShardPlan, plan_shards
from prefixroute.plan.storage import StoragePlan, plan_storage
from prefixroute.plan.traffic import Binding, TracePlan, plan_trace

__all__ = [
    "Binding",
    "Burst",
    "Calls",
    "LifetimePlan",
    "Load",
    "Placement",
    "ShardPlan",
    "Speed",
    "StoragePlan",
    "TracePlan",
    "lifetimes_by_gaps",
    "lifetimes_by_rate",
    "place_breakpoints",
    "plan_batch",
    "plan_burst",
    "plan_shards",
    "plan_storage",
    "plan_trace",
]
