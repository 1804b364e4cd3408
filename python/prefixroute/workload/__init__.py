"""Workloads: what requests arrive when, what their prompts share; made up from a seed, or read from a trace."""

from __future__ import annotations

from prefixroute.workload.arrivals import Arrivals, Bursty, Even, Poisson, Recorded
from prefixroute.workload.chat import ChatShape, chat
from prefixroute.workload.documents import DocumentsShape, documents
from prefixroute.workload.request import Entry, Request
from prefixroute.workload.statistics import TraceStatistics, floor, measure
from prefixroute.workload.trace import read_trace
from prefixroute.workload.workload import Workload

__all__ = [
    "Arrivals",
    "Bursty",
    "ChatShape",
    "DocumentsShape",
    "Entry",
    "Even",
    "Poisson",
    "Recorded",
    "Request",
    "TraceStatistics",
    "Workload",
    "chat",
    "documents",
    "floor",
    "measure",
    "read_trace",
]
