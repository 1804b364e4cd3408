"""What happened to one request, for its line in the log and for metrics. Nothing of what was said is in it."""

from __future__ import annotations

import logging
import re
import secrets
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import Any, Self

from prefixroute.router import Ticket
from prefixroute.serve.downstream import Downstream

ACCESS = logging.getLogger("prefixroute.serve.access")
_ID = re.compile(r"[\x21-\x7e]{1,128}")
"""A request id that is taken over from a client: printable, and short."""
_OWN, _NUMBERS = secrets.token_hex(6), count(1)
"""What ids of our own are made of: random for the process, then counted."""


@dataclass(slots=True)
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
        reason: why the router has picked the first engine.
        prompt_tokens: of the request, as the router counts them.
        hit_tokens: of them those that the engine was believed to hold.
    """

    api: str
    request_id: str
    outcome: str = "served"
    replica: str = ""
    tried: int = 0
    hedged: bool = False
    asked_at: float = 0.0
    began_at: float = field(default_factory=monotonic)
    reason: str = ""
    prompt_tokens: int = 0
    hit_tokens: int = 0

    @classmethod
    def of(cls, api: str, request_id: str | None) -> Self:
        """Begin now.

        Args:
            api: the path.
            request_id: as the client gives it; ``None`` = not at all.
        """
        return cls(api, request_id if request_id and _ID.fullmatch(request_id) else f"{_OWN}-{next(_NUMBERS)}")

    def routed(self, ticket: Ticket) -> None:
        """Note the decision."""
        self.asked_at = monotonic()
        decision = ticket.decision
        self.reason, self.prompt_tokens = decision.reason, decision.prompt_tokens
        self.replica = ticket.replica
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
