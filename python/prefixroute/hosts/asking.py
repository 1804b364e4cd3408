"""What adapters share before an answer begins.

The prompt and the session in a request, and a router that takes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from prefixroute.bodies import prompt_of
from prefixroute.errors import ConfigError, TokensError
from prefixroute.router import Router

T = TypeVar("T")


def check_kind(router: Router, host: str) -> None:
    """Raise ConfigError for a router that does not take messages.

    Args:
        router: of the adapter.
        host: what the error calls the adapter's host.
    """
    if router.config.prompt_kind != "messages":
        raise ConfigError(f"a router for {host} takes prompts of kind 'messages', got {router.config.prompt_kind!r}")


def json_of(content: bytes) -> Any:
    """Return a body's JSON, or ``None`` where it is none."""
    try:
        return json.loads(content) if content else None
    except (ValueError, RecursionError):
        return None


def by_body(ask: Callable[..., T], body: Any, path: str | None = None, **options: Any) -> T:
    """Ask a router by the prompt in a body.

    One without a prompt, or with one that cannot be hashed, by session and load.

    Whoever answers the request says what is wrong with it.

    Args:
        ask: :meth:`Router.route` or :meth:`Router.choose`.
        body: the parsed JSON, or ``None``.
        path: of the URL, see :func:`~prefixroute.bodies.prompt_of`.
        options: what else to ask with.
    """
    try:
        prompt, kind = prompt_of(body, path)
        return ask(prompt, prompt_kind=kind, **options)
    except TokensError:
        return ask([], prompt_kind="tokens", **options)
