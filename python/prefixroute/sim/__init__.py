"""Simulate the production Router on a workload: recomputed tokens, TTFT, skew and dollars, per policy.

:func:`simulate` is one run, :func:`sweep` policies x fleets x seeds. A :class:`Scenario` says what is simulated; with
an :class:`EngineModel` in it, on a clock. See ``docs/design/simulator.md``.
"""

from __future__ import annotations

from prefixroute.sim.engine import EngineModel
from prefixroute.sim.floor import floor
from prefixroute.sim.grid import Cell, Grid, Results
from prefixroute.sim.metrics import Outcome, ResultRow, Timings
from prefixroute.sim.observe import Events, History, Perfect
from prefixroute.sim.request_log import RequestLog
from prefixroute.sim.run import Run, simulate
from prefixroute.sim.scenario import FleetChange, Promise, Scenario, replica_names
from prefixroute.sim.split import Split
from prefixroute.sim.stores import Tier
from prefixroute.sim.sweep import Sweep, sweep

__all__ = [
    "Cell",
    "EngineModel",
    "Events",
    "FleetChange",
    "Grid",
    "History",
    "Outcome",
    "Perfect",
    "Promise",
    "RequestLog",
    "ResultRow",
    "Results",
    "Run",
    "Scenario",
    "Split",
    "Sweep",
    "Tier",
    "Timings",
    "floor",
    "replica_names",
    "simulate",
    "sweep",
]
