"""Workloads: what requests arrive when, what their prompts share; made up from a seed, or read from a trace."""

from __future__ import annotations

from prefixroute.workload.arrivals import Arrivals, Bursty, Even, Poisson, Recorded
from prefixroute.workload.chat import ChatShape, chat
from prefixroute.workload.conversion import Converted, convert
from prefixroute.workload.documents import DocumentsShape, documents
from prefixroute.workload.readers.fields import FieldMap
from prefixroute.workload.readers.record import Options
from prefixroute.workload.request import Entry, Request
from prefixroute.workload.statistics import TraceStatistics, floor, measure
from prefixroute.workload.trace import read_arrivals, read_trace
from prefixroute.workload.workload import Workload

__all__ = [
    "Arrivals",
    "Bursty",
    "ChatShape",
    "Converted",
    "DocumentsShape",
    "Entry",
    "Even",
    "FieldMap",
    "Options",
    "Poisson",
    "Recorded",
    "Request",
    "TraceStatistics",
    "Workload",
    "chat",
    "convert",
    "documents",
    "floor",
    "measure",
    "read_arrivals",
    "read_trace",
]
