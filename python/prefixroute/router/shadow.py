"""Shadows: other policies on live traffic, each with its own index, load and bindings, and what they would have saved."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from prefixroute.policies.base import Pick, Policy

_LOG = logging.getLogger("prefixroute")

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefixroute.costmodel import CostModel
    from prefixroute.policies.view import View
    from prefixroute.router.decision import Decision
    from prefixroute.router.router import Router
    from prefixroute.router.tickets import Ticket


@dataclass(frozen=True, slots=True)
class Follow(Policy):
    """Take the one candidate: the belief-only copy of the live router, which goes where that one went."""

    name: ClassVar[str] = "live"
    signals: ClassVar[frozenset[str]] = frozenset()

    def decide(self, view: View) -> Pick:
        """Return the first candidate slot."""
        return view.slots[0], "followed"


@dataclass(frozen=True, slots=True)
class Regret:
    """What the live policy cost beyond a shadow, belief against belief. Negative: the shadow would have cost more.

    Attributes:
        policy: the shadow's.
        requests: requests that both routed.
        prompt_tokens: their tokens.
        recomputed_tokens: tokens the shadow would have computed.
        live_recomputed_tokens: tokens the live policy had computed, by a copy of its belief that knows no KV events.
        tokens: the difference.
        seconds: prefill seconds of the difference, by the cost model.
        usd: their price.
        skew: requests at the shadow's busiest replica over the mean.
        failures: requests that the shadow refused or failed on; they are in none of the other figures.
    """

    policy: str
    requests: int
    prompt_tokens: int
    recomputed_tokens: int
    live_recomputed_tokens: int
    tokens: int
    seconds: float
    usd: float
    skew: float
    failures: int


class Shadow:
    """A router that follows another one's requests and does nothing else.

    Compared with ``live``, a belief-only copy of the live router that was started with it; a copy has none itself.
    Not thread-safe: it is called with the live router's lock held.
    """

    def __init__(self, router: Router, cost: CostModel, live: Shadow | None) -> None:
        """Count from now on what ``router`` would have had computed."""
        self.router, self.live, self._cost = router, live, cost
        self.last: tuple[int, float] | None = None
        """Tokens and seconds computed for the last request; ``None`` = it was refused."""
        self.requests = self.prompt_tokens = self.failures = 0
        self.recomputed_tokens = self.live_recomputed_tokens = 0
        self.seconds = 0.0
        self._picks: Counter[str] = Counter()

    def follow(self, decision: Decision, replica: str | None, now: float) -> Ticket | None:
        """Route the request of a live decision; ``replica`` = go where the live one went. ``None`` = it was refused."""
        request = decision.view.request
        candidates, exclude, _ = decision._limits if replica is None else ([replica], None, False)
        self.last = None
        try:
            ticket = self.router.route(
                decision._prompt,
                session=request.session,
                namespace=request.namespace,
                candidates=candidates,
                exclude=exclude,
                priority=request.priority,
                slo_ttft_s=request.slo_ttft_s,
                max_tokens=request.max_tokens,
                attrs=request.attrs,
                now=now,
            )
        except Exception:  # noqa: BLE001  # whatever a shadow's policy does, the live request goes on
            self.failures += 1
            _LOG.debug("shadow %r failed", self.router.policy.name, exc_info=True)
            return None
        hit, length = ticket.hit_tokens, ticket.decision.prompt_tokens
        self.last = length - hit, self._cost.prefill_seconds(length - hit, hit)
        self._compare(ticket.replica, length)
        return ticket

    def _compare(self, replica: str, length: int) -> None:
        """Count a request that both this shadow and the live copy have routed."""
        live = None if self.live is None else self.live.last
        if live is None or self.last is None:
            return
        self.requests += 1
        self.prompt_tokens += length
        self.recomputed_tokens += self.last[0]
        self.live_recomputed_tokens += live[0]
        self.seconds += live[1] - self.last[1]
        self._picks[replica] += 1

    def regret(self) -> Regret:
        """Return what the live policy cost beyond this shadow."""
        mean = self.requests / len(self.router) if len(self.router) else 0.0
        return Regret(
            policy=self.router.policy.name,
            requests=self.requests,
            prompt_tokens=self.prompt_tokens,
            recomputed_tokens=self.recomputed_tokens,
            live_recomputed_tokens=self.live_recomputed_tokens,
            tokens=self.live_recomputed_tokens - self.recomputed_tokens,
            seconds=self.seconds,
            usd=self._cost.usd(self.seconds),
            skew=max(self._picks.values(), default=0) / mean if mean else 0.0,
            failures=self.failures,
        )


class Shadows:
    """The shadows of one router, by name, and the belief-only copies that they are compared with.

    Shadows that start together share a copy; one that starts later has its own, so that both begin empty.
    """

    def __init__(self) -> None:
        """Start without any."""
        self.all: dict[str, Shadow] = {}
        self._copies: list[Shadow] = []

    def fresh_copy(self) -> Shadow | None:
        """Return a copy that has not followed a request yet, if there is one."""
        latest = self._copies[-1] if self._copies else None
        return latest if latest is not None and latest.last is None and not latest.failures else None

    def add(self, name: str, shadow: Shadow) -> None:
        """Let a shadow follow, beside its copy of the live router."""
        self.all[name] = shadow
        if shadow.live is not None and shadow.live not in self._copies:
            self._copies.append(shadow.live)

    def follow(self, decision: Decision, replica: str, now: float) -> Sequence[Ticket]:
        """Let every copy and every shadow route the request of a live decision."""
        tickets = [copy.follow(decision, replica, now) for copy in self._copies]
        tickets += [shadow.follow(decision, None, now) for shadow in self.all.values()]
        return [ticket for ticket in tickets if ticket is not None]

    def finish(self, tickets: Sequence[Ticket], output: Any, now: float) -> None:
        """Finish the shadows' tickets of a request, each in its own belief."""
        for ticket in tickets:
            try:
                ticket.finish(output=output, now=now)
            except Exception:  # noqa: BLE001  # as above
                _LOG.debug("shadow %r failed", ticket.decision.policy, exc_info=True)

    def regret(self) -> dict[str, Regret]:
        """Return each shadow's regret by name."""
        return {name: shadow.regret() for name, shadow in self.all.items()}
