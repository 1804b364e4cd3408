"""What a router is made of: a frozen configuration, one state, a pure decision, and the steps that change the state.

:class:`RouterConfig` holds every option, :class:`RouterState` everything that changes, :func:`decide` reads a state and
changes nothing, and the functions of :mod:`~prefixroute.routing.steps` and :mod:`~prefixroute.routing.membership` are
the only ones that change a state. None of them locks: :class:`prefixroute.router.Router` does.
"""

from prefixroute.routing.config import RouterConfig, RouterOptions
from prefixroute.routing.decide import Query, decide
from prefixroute.routing.decision import Decision
from prefixroute.routing.loads import BOOKED, DEFAULT_LOAD, LOADS
from prefixroute.routing.state import RouterState

__all__ = [
    "BOOKED",
    "DEFAULT_LOAD",
    "LOADS",
    "Decision",
    "Query",
    "RouterConfig",
    "RouterOptions",
    "RouterState",
    "decide",
]
