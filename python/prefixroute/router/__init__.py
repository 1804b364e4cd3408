"""The Router and what comes out of it."""

from prefixroute.belief import Belief
from prefixroute.router.router import Router
from prefixroute.router.tickets import Ticket
from prefixroute.routing import LOADS, Decision, RouterConfig
from prefixroute.telemetry import Regret, replay

__all__ = ["LOADS", "Belief", "Decision", "Regret", "Router", "RouterConfig", "Ticket", "replay"]
