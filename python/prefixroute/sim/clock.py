"""The simulator's clock: a heap of events ordered by time, then by the order in which they were scheduled."""

from __future__ import annotations

from prefixroute._core import EventQueue

__all__ = ["EventQueue"]
