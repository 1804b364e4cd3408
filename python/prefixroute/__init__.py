"""prefixroute: decide which LLM replica a request should go to, so that its prefix cache is reused."""

from __future__ import annotations

import logging
import warnings

from prefixroute._core import DEBUG_BUILD, __version__
from prefixroute.bodies import prompt_of, session_of
from prefixroute.errors import (
    ConfigError,
    EventError,
    NoReplicaError,
    OverloadedError,
    PeerError,
    PrefixRouteError,
    TokensError,
    TraceError,
    UnknownReplicaError,
)
from prefixroute.hashing import BlockHashes, hash_blocks
from prefixroute.index import PrefixIndex
from prefixroute.policies import Policy, View
from prefixroute.providers import PreWarmer, cache_key, fan_out
from prefixroute.router import Decision, PairDecision, PairTicket, Router, Ticket
from prefixroute.types import Caps, Namespace, Replica, Timing

__all__ = [
    "BlockHashes",
    "Caps",
    "ConfigError",
    "Decision",
    "EventError",
    "Namespace",
    "NoReplicaError",
    "OverloadedError",
    "PairDecision",
    "PairTicket",
    "PeerError",
    "Policy",
    "PreWarmer",
    "PrefixIndex",
    "PrefixRouteError",
    "Replica",
    "Router",
    "Ticket",
    "Timing",
    "TokensError",
    "TraceError",
    "UnknownReplicaError",
    "View",
    "__version__",
    "cache_key",
    "fan_out",
    "hash_blocks",
    "prompt_of",
    "session_of",
]

# The host decides what is logged; without its handlers nothing is.
logging.getLogger("prefixroute").addHandler(logging.NullHandler())

if DEBUG_BUILD:
    warnings.warn("prefixroute was built without optimisation: timings mean nothing", RuntimeWarning, stacklevel=2)
