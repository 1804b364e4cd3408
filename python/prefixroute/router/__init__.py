"""The Router and what comes out of it."""

from prefixroute.belief import Belief
from prefixroute.messages import canonical
from prefixroute.router.decision import Decision
from prefixroute.router.loads import LOADS
from prefixroute.router.record import replay
from prefixroute.router.router import Router
from prefixroute.router.shadow import Regret
from prefixroute.router.tickets import Ticket

__all__ = ["LOADS", "Belief", "Decision", "Regret", "Router", "Ticket", "canonical", "replay"]
