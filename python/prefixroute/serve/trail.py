"""What happened to one request, for its line in the log and for metrics. Nothing of what was said is in it."""

from __future__ import annotations

import logging
import re
import secrets
from itertools import count
from time import monotonic
from typing import Any

from prefixroute.router import Ticket
from prefixroute.serve.downstream import Downstream

ACCESS = logging.getLogger("prefixroute.serve.access")
_ID = re.compile(r"[\x21-\x7e]{1,128}")
"""A request id that is taken over from a client: printable, and short."""
_OWN, _NUMBERS = secrets.token_hex(6), count(1)
"""What ids of our own are made of: random for the process, then counted."""


class Trail:
    """One request's way through the proxy.

    Attributes:
        api: its path.
        request_id: the client's ``x-request-id`` if it can be used, else one of our own.
        outcome: in a few words: ``served``, or why not.
        replica: who answered, or was asked last.
        tried: engines that were asked.
        hedged: whether a second engine was asked beside the first.
        asked_at: when the first engine was asked, on the monotonic clock.
        began_at: when the request came.
    """

    __slots__ = (
        "api",
        "asked_at",
        "began_at",
        "first",
        "hedged",
        "hit_tokens",
        "outcome",
        "prompt_tokens",
        "reason",
        "replica",
        "request_id",
        "tried",
    )

    def __init__(self, api: str, request_id: str | None) -> None:
        """Begin now."""
        self.api, self.began_at = api, monotonic()
        self.request_id = request_id if request_id and _ID.fullmatch(request_id) else f"{_OWN}-{next(_NUMBERS)}"
        self.outcome, self.replica, self.first, self.reason = "served", "", "", ""
        self.hedged = False
        self.tried = self.prompt_tokens = self.hit_tokens = 0
        self.asked_at = 0.0

    def routed(self, ticket: Ticket) -> None:
        """Note the decision."""
        self.asked_at = monotonic()
        decision = ticket.decision
        self.reason, self.prompt_tokens = decision.reason, decision.prompt_tokens
        self.first = self.replica = ticket.replica
        self.hit_tokens, self.tried = ticket.hit_tokens, 1

    def retried(self, ticket: Ticket) -> None:
        """Note that another engine is asked."""
        self.replica, self.tried = ticket.replica, self.tried + 1

    def answered(self, ticket: Ticket) -> None:
        """Note who has answered."""
        self.replica, self.hit_tokens = ticket.replica, ticket.hit_tokens

    def log(self, client: Downstream) -> None:
        """Write the request's line."""
        if not ACCESS.isEnabledFor(logging.INFO):
            return
        now = monotonic()
        fields: dict[str, Any] = {
            "request_id": self.request_id,
            "path": self.api,
            "status": client.status,
            "outcome": self.outcome,
            "replica": self.replica,
            "reason": self.reason,
            "prompt_tokens": self.prompt_tokens,
            "hit_tokens": self.hit_tokens,
            "tried": self.tried,
            "hedged": self.hedged,
            "first_byte_ms": round(1e3 * (client.first_at - self.began_at), 1) if client.first_at else None,
            "duration_ms": round(1e3 * (now - self.began_at), 1),
            "bytes": client.bytes,
        }
        ACCESS.info("request", extra={"fields": fields})
