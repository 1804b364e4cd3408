"""The keywords of one request, checked and brought into the form that decisions read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypedDict

from prefixroute.errors import ConfigError
from prefixroute.policies import RequestInfo
from prefixroute.routing.decide import Query
from prefixroute.routing.decision import NO_LIMITS, limits_of
from prefixroute.routing.ledger import NONE_TRIED
from prefixroute.routing.prompts import KINDS
from prefixroute.types import EMPTY_ATTRS, Namespace, new_tuple
from prefixroute.validation import check_choice, check_float, check_instance, check_int, shown

MAX_KEY_CHARACTERS: Final = 65_536
"""Characters of a request's key: the ledger keeps those in flight and the last ones that ended."""


class RequestOptions(TypedDict, total=False):
    """The keywords of :meth:`Router.choose` and :meth:`Router.route`, each optional.

    Attributes:
        session: key of the conversation; ``None`` or ``""`` = none. The router keeps 128 bits of it.
        key: the caller's name for the request, by which the ledger knows it after commit; of at most
            :data:`MAX_KEY_CHARACTERS` characters.
        namespace: what else must be equal for blocks to be shared.
        candidates: names of the only replicas that may take it.
        exclude: names of replicas that may not.
        unknown_candidates: ``ignore`` = a candidate that the fleet does not have (yet, or any more) is left out, as a
            host wants that lists candidates while discovery is at work; the default ``raise`` is an error.
        prompt_kind: kind of this prompt, if it is another than the router's, see
            :class:`~prefixroute.router.RouterConfig`. Token ids and text never match, unless the router has a
            tokenizer.
        affinity: ``hard`` = a bound session goes to its replica or nowhere; the default is ``soft``.
        priority: the request's rank, an int, for policies that look at it.
        slo_ttft_s: wanted time to the first token in seconds, for policies that look at it.
        max_tokens: limit of the output in tokens, 0 or more, for policies that look at it.
        attrs: anything else for policies; ``document`` names the document of a question.
    """

    session: str | None
    key: str | None
    namespace: Namespace | None
    candidates: Iterable[str] | None
    exclude: Iterable[str] | None
    unknown_candidates: str
    prompt_kind: str | None
    affinity: str
    priority: int
    slo_ttft_s: float | None
    max_tokens: int | None
    attrs: Mapping[str, object]


def asked(  # one for each keyword of RequestOptions
    prompt: Any,
    now: float,
    part: int,
    *,
    session: str | None = None,
    key: str | None = None,
    namespace: Namespace | None = None,
    candidates: Iterable[str] | None = None,
    exclude: Iterable[str] | None = None,
    unknown_candidates: str = "raise",
    prompt_kind: str | None = None,
    affinity: str = "soft",
    priority: int = 0,
    slo_ttft_s: float | None = None,
    max_tokens: int | None = None,
    attrs: Mapping[str, object] = EMPTY_ATTRS,
) -> Query:
    """Return what is to be decided on a part of a request.

    Raise :class:`ConfigError` for a keyword that is not allowed.
    """
    if slo_ttft_s is not None or attrs is not EMPTY_ATTRS:
        _check(slo_ttft_s, attrs)
    if max_tokens is not None:
        check_int("max_tokens", max_tokens, 0)
    if type(priority) is not int:
        check_int("priority", priority)
    if session is not None and not isinstance(session, str):
        raise ConfigError(f"a session key must be a string, got {shown(session)}")
    if key is not None:
        check_key(key)
    if prompt_kind is not None:
        check_choice("prompt_kind", prompt_kind, KINDS)
    info = new_tuple(RequestInfo, (session, key, namespace, priority, slo_ttft_s, max_tokens, attrs))
    limits = NO_LIMITS
    if candidates is not None or exclude is not None or affinity != "soft" or unknown_candidates != "raise":
        limits = limits_of(candidates, exclude, affinity, unknown_candidates)
    query: Query = new_tuple(Query, (prompt, info, now, limits, NONE_TRIED, prompt_kind, part, None, None))
    return query


def check_key(key: Any) -> None:
    """Raise :class:`ConfigError` unless a request's key is a string of a bounded length."""
    if not isinstance(key, str):
        raise ConfigError(f"a request's key must be a string, got {shown(key)}")
    if len(key) > MAX_KEY_CHARACTERS:
        most = f"{MAX_KEY_CHARACTERS:,} characters"
        raise ConfigError(f"a request's key must be a string of at most {most}, got one of {len(key):,}")


def _check(slo_ttft_s: Any, attrs: Any) -> None:
    """Raise :class:`ConfigError` for what a caller says about a request and policies would stumble over."""
    if slo_ttft_s is not None:
        check_float("slo_ttft_s", slo_ttft_s, 0, endless=True)
    if type(attrs) is not dict and type(attrs) is not MappingProxyType:  # asking an abstract class takes its time
        check_instance("attrs", attrs, Mapping)
