"""The Router and what comes out of it."""

from prefixroute.belief import Belief
from prefixroute.router.pairs import PairTicket
from prefixroute.router.router import Router
from prefixroute.router.tickets import Ticket
from prefixroute.routing import LOADS, Decision, RouterConfig
from prefixroute.routing.pairs import PairDecision
from prefixroute.telemetry import Regret, replay

__all__ = [
    "LOADS",
    "Belief",
    "Decision",
    "PairDecision",
    "PairTicket",
    "Regret",
    "Router",
    "RouterConfig",
    "Ticket",
    "replay",
]
