"""vLLM's production-stack: its router with policies of prefixroute, in the place of its prefix-aware one.

Its list of policies is closed, so that :func:`install` takes the place of ``prefixaware`` before its application
starts::

    python -c "from prefixroute.hosts import production_stack as p; p.install(policy='cache-aware'); \
        from vllm_router.app import main; main()" --routing-logic prefixaware ...

The stack has no release with a version on a registry: this follows commit 008a23b, and was not run beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import finalize

from prefixroute.bodies import session_of
from prefixroute.errors import HostError
from prefixroute.hosts.asking import by_body
from prefixroute.router import Router

try:
    from vllm_router.routers import routing_logic
    from vllm_router.service_discovery import get_service_discovery
except ImportError as error:
    raise HostError(
        "vllm_router is not installed: this runs in the process of vLLM's production-stack router"
    ) from error

_LOADS = {"num_running_requests": "running", "num_queuing_requests": "waiting", "gpu_cache_usage_perc": "kv_use"}


class PrefixRouter(routing_logic.PrefixAwareRouter):  # type: ignore[misc]  # not seen by the type checker
    """Routes requests by prefix, session and load, with any policy of prefixroute.

    The stack tells its router of no end of a request: one counts as in flight for as long as the stack holds its
    request object. A retry is routed as a request of its own.

    Attributes:
        options: of the Router, see :func:`install`.
        router: the Router. Its replicas are the endpoints, under their URLs.
    """

    options: Mapping[str, Any] = {}

    def __init__(self) -> None:
        self.router = Router(**{"prompt_kind": "messages", **self.options})

    async def route_request(
        self,
        endpoints: Sequence[Any],
        engine_stats: Mapping[str, Any],
        request_stats: Mapping[str, Any],
        request: Any,
        request_json: Mapping[str, Any],
    ) -> str:
        """Return the URL of the endpoint that a request goes to.

        Args:
            endpoints: those that serve the request's model.
            engine_stats: what the engines report, by URL.
            request_stats: what the stack counts, by URL: the Router counts the same.
            request: from the client.
            request_json: its body.
        """
        del request_stats
        urls = [endpoint.url for endpoint in endpoints]
        self._follow({*urls, *(endpoint.url for endpoint in get_service_discovery().get_endpoint_info())})
        for url in urls:
            if url in engine_stats:
                self._report(url, engine_stats[url])
        session = session_of(request.headers, request_json)
        ticket = by_body(self.router.route, request_json, session=session, candidates=urls)
        finalize(request, ticket.finish).atexit = False
        return ticket.replica

    def _follow(self, urls: set[str]) -> None:
        """Make the fleet equal to all endpoints, of whichever model."""
        if urls != set(self.router.replicas):
            self.router.sync(sorted(urls))

    def _report(self, url: str, stats: Any) -> None:
        found = {ours: getattr(stats, theirs, None) for theirs, ours in _LOADS.items()}
        loads = {name: value for name, value in found.items() if value is not None}
        if loads:
            self.router.update_load(url, **loads)


def install(**options: Any) -> None:
    """Take the place of the stack's prefix-aware router, in this process, before its application starts.

    Args:
        options: the fields of :class:`~prefixroute.router.RouterConfig`; ``prompt_kind`` is ``messages`` by default.
    """
    PrefixRouter.options = options
    for name in ("vllm_router.routers.routing_logic", "vllm_router.services.request_service.request"):
        module = sys.modules.get(name)
        if module is not None and hasattr(module, "PrefixAwareRouter"):
            module.PrefixAwareRouter = PrefixRouter  # type: ignore[attr-defined]
