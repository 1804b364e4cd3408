"""LiteLLM: a callback that narrows the deployments of each call to the one whose cache holds its prompt.

One line beside ``litellm.Router`` or in a module that the proxy's configuration names::

    litellm.callbacks = [PrefixRoute(prefixroute.Router(policy="cache-aware", prompt_kind="messages"))]

LiteLLM keeps its retries, cooldowns and fallbacks: each attempt asks anew, among the deployments that are healthy then.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from prefixroute.bodies import prompt_of, session_of
from prefixroute.errors import ConfigError, NoReplicaError, OverloadedError, TokensError
from prefixroute.hosts.asking import check_kind
from prefixroute.hosts.versions import require
from prefixroute.recent import Recent
from prefixroute.router import Decision, Router, Ticket

require("litellm")

from litellm.integrations.custom_logger import CustomLogger  # noqa: E402  # behind the check of its version

_MARK = "prefixroute"
"""The field of a call's metadata that leads from the filter to the attempt."""
_METADATA = ("metadata", "litellm_metadata")
MOST_PENDING = 10_000
"""Decisions kept between the filter and the attempt; a call whose decision has gone is decided again."""


class PrefixRoute(CustomLogger):  # type: ignore[misc]  # its class is not seen by the type checker
    """Routes the calls of a ``litellm.Router`` by prefix, session and load, with any policy of prefixroute.

    The filter decides; the attempt, which LiteLLM tells a moment later, is booked. Its ticket hangs on LiteLLM's
    logging object of the attempt: cancelled calls and dropped streams, of which LiteLLM tells nothing, are given back
    once that is collected. Synchronous calls are routed and not booked, since LiteLLM tells of no attempt.

    Args:
        router: of kind ``messages``, without replicas: a deployment becomes one when it is first seen, under its id.

    Attributes:
        router: the same.

    Raises:
        ConfigError: the router takes prompts of another kind.
    """

    def __init__(self, router: Router) -> None:
        super().__init__()
        check_kind(router, "LiteLLM")
        self.router = router
        self._marks = count()
        self._decided: Recent[str, Decision] = Recent(MOST_PENDING)
        self._held: WeakKeyDictionary[Any, Ticket] = WeakKeyDictionary()
        self._by_call: WeakValueDictionary[str, Ticket] = WeakValueDictionary()

    def sync(self, litellm_router: Any) -> None:
        """Make the fleet equal to a ``litellm.Router``'s deployments: no hook tells that one was removed."""
        self.router.sync(litellm_router.registry().deployments(), name_of=_deployment_id)

    async def async_filter_deployments(
        self,
        model: str,
        healthy_deployments: list[Any],
        messages: list[Any] | None,
        request_kwargs: dict[str, Any] | None = None,
        parent_otel_span: Any = None,
    ) -> list[Any]:
        """Return the one deployment that the policy picks; all of them where a call has no prompt to route by."""
        del model, parent_otel_span
        call = {**(request_kwargs or {}), **({"messages": messages} if messages else {})}
        named = {_deployment_id(deployment): deployment for deployment in healthy_deployments}
        for name in named:
            self._add(name)
        try:
            decision = self._choose(call, named)
        except (TokensError, NoReplicaError, OverloadedError):
            return healthy_deployments
        self._mark(request_kwargs, decision)
        return [named[decision.replica]]

    def _choose(self, call: Mapping[str, Any], candidates: Mapping[str, Any]) -> Decision:
        prompt, kind = prompt_of(call)
        metadata = _metadata(call) or {}
        session = session_of(metadata.get("headers"), {**call, "metadata": metadata})
        return self.router.choose(
            prompt, prompt_kind=kind, session=session, candidates=candidates, unknown_candidates="ignore"
        )

    def _add(self, name: str) -> None:
        if name not in self.router:
            with suppress(ConfigError):  # another thread was quicker
                self.router.add_replica(name)

    def _mark(self, call: dict[str, Any] | None, decision: Decision) -> None:
        metadata = _metadata(call)
        if metadata is None:
            return
        mark = metadata[_MARK] = str(next(self._marks))
        self._decided[mark] = decision

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> None:
        """Book an attempt where LiteLLM sends it."""
        del call_type
        name, owner = (kwargs.get("model_info") or {}).get("id"), kwargs.get("litellm_logging_obj")
        if name is None or owner is None:  # not of a Router
            return
        self._add(name)
        decision = self._decided.pop((_metadata(kwargs) or {}).get(_MARK, ""), None)
        if decision is None:
            try:
                decision = self._choose(kwargs, {name: None})
            except (TokensError, NoReplicaError, OverloadedError):
                return
        ticket = self.router.commit(decision, name)
        self._held[owner] = ticket
        if kwargs.get("litellm_call_id") is not None:  # else every call without one would be taken for the last
            self._by_call[str(kwargs["litellm_call_id"])] = ticket

    def _ended(self, call: Mapping[str, Any]) -> Ticket | None:
        return self._by_call.pop(str(call.get("litellm_call_id")), None)

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: Any
    ) -> None:
        """Finish an attempt that was answered as a whole."""
        del call_type
        _finish(self._ended(request_data), response)

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """Finish a streamed attempt: LiteLLM tells of its end here alone."""
        del start_time, end_time
        _finish(self._ended(kwargs), response_obj)

    async def async_post_call_failure_deployment_hook(
        self, request_data: Mapping[str, Any], exception: Exception, call_type: Any, fallback_depth: int | None = None
    ) -> None:
        """Give up an attempt that has failed."""
        del exception, call_type, fallback_depth
        self._abort(request_data)

    async def async_log_failure_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """Give up a streamed attempt that has failed on its way."""
        del response_obj, start_time, end_time
        self._abort(kwargs)

    def _abort(self, call: Mapping[str, Any]) -> None:
        ticket = self._ended(call)
        if ticket is not None:
            ticket.abort()


def _finish(ticket: Ticket | None, response: Any) -> None:
    if ticket is None or not ticket.open:
        return
    usage = response.get("usage") if isinstance(response, Mapping) else getattr(response, "usage", None)
    try:
        ticket.finish(output=_answer(response), usage=usage)
    except (ConfigError, TokensError):  # it has ended all the same; what cannot be read is not learned from
        return


def _answer(response: Any) -> str | None:
    """Return the text that the conversation goes on with; ``None`` unless it is a chat's one plain answer."""
    choices = getattr(response, "choices", None)
    message = getattr(choices[0], "message", None) if choices and len(choices) == 1 else None
    if message is None or getattr(message, "tool_calls", None):
        return None
    content = getattr(message, "content", None)
    return content if isinstance(content, str) and content else None


def _metadata(call: Mapping[str, Any] | None) -> dict[str, Any] | None:
    found = ((call or {}).get(name) for name in _METADATA)
    return next((metadata for metadata in found if isinstance(metadata, dict)), None)


def _deployment_id(deployment: Mapping[str, Any]) -> str:
    return str(deployment["model_info"]["id"])
