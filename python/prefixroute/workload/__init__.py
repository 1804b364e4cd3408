"""Workloads: what requests arrive when, what their prompts share; made up from a seed, or read from a trace."""

from __future__ import annotations

from prefixroute.workload.agents import AgentsShape, agents
from prefixroute.workload.arrivals import Arrivals, Bursty, Even, Poisson, Recorded
from prefixroute.workload.chat import ChatShape, chat
from prefixroute.workload.conversion import Converted, convert
from prefixroute.workload.documents import DocumentsShape, documents
from prefixroute.workload.fan_out import FanOutShape, fan_out
from prefixroute.workload.few_shot import FewShotShape, few_shot
from prefixroute.workload.kept import KeptParts, KeptRequests, keep
from prefixroute.workload.losses import HitLosses, LossMeter, Sightings, losses_of
from prefixroute.workload.readers.fields import FieldMap
from prefixroute.workload.readers.record import Options
from prefixroute.workload.readers.source import LogFile, log_files
from prefixroute.workload.request import REPLICA, USER, CacheEntry, Request
from prefixroute.workload.spec import GENERATORS, Spec
from prefixroute.workload.statistics import TraceStatistics, floor, measure
from prefixroute.workload.tenants import TenantsShape, read_shares, tenants
from prefixroute.workload.trace import read_arrivals, read_trace
from prefixroute.workload.workload import Volatile, Workload

__all__ = [
    "GENERATORS",
    "REPLICA",
    "USER",
    "AgentsShape",
    "Arrivals",
    "Bursty",
    "CacheEntry",
    "ChatShape",
    "Converted",
    "DocumentsShape",
    "Even",
    "FanOutShape",
    "FewShotShape",
    "FieldMap",
    "HitLosses",
    "KeptParts",
    "KeptRequests",
    "LogFile",
    "LossMeter",
    "Options",
    "Poisson",
    "Recorded",
    "Request",
    "Sightings",
    "Spec",
    "TenantsShape",
    "TraceStatistics",
    "Volatile",
    "Workload",
    "agents",
    "chat",
    "convert",
    "documents",
    "fan_out",
    "few_shot",
    "floor",
    "keep",
    "log_files",
    "losses_of",
    "measure",
    "read_arrivals",
    "read_shares",
    "read_trace",
    "tenants",
]
