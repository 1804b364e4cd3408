"""Shadows: other policies on live traffic, each with a state of its own, and what they would have saved."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from prefixroute.belief import Belief
from prefixroute.policies import Answer, View
from prefixroute.policies.base import Pick, Policy
from prefixroute.routing import RouterState, membership, pairs, steps
from prefixroute.routing.decide import Query
from prefixroute.routing.decision import DecisionLimits
from prefixroute.routing.fleet import PROMPT
from prefixroute.routing.ledger import Attempt, Follower, Lease
from prefixroute.telemetry.volatile import VolatileSample

_LOG = logging.getLogger("prefixroute")


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


class Followed(Lease):
    """A live request in a shadow: it ends there as it ends live. If this is dropped, the attempt is given up."""

    __slots__ = ()

    host: RouterState

    def finish(self, output: Any, now: float) -> None:
        """End it normally; an output that the shadow cannot hash is not believed there."""
        attempt, state = self.attempt, self.host
        try:
            context = None
            if output is not None:
                decision = attempt.decision
                prompts = state.prompts.of(decision.query.kind)
                context = prompts.context(decision.prompt, output, decision.blocks.token_count)
            steps.finish(state, attempt, context, now, steps.NOTHING_REPORTED)
        except Exception:  # noqa: BLE001  # whatever fails in a shadow, the live request goes on
            _LOG.debug("shadow %r failed", attempt.decision.policy, exc_info=True)
            if attempt.open:
                with suppress(Exception):  # a belief may refuse the prompt too
                    steps.finish(state, attempt, None, now, steps.NOTHING_REPORTED)
                self.abort()

    def abort(self) -> None:
        """End it without an answer."""
        if self.attempt.open:
            steps.abort(self.host, self.attempt)


class Shadow:
    """A state that follows another one's requests and does nothing else.

    Compared with ``live``, a belief-only copy of the live router that was started with it; a copy has none itself.
    Not thread-safe: it is called with the live router's lock held.
    """

    def __init__(self, state: RouterState, live: Shadow | None) -> None:
        """Count from now on what ``state`` would have had computed."""
        self.state, self.live = state, live
        self.last: tuple[int, float] | None = None
        """Tokens and seconds computed for the last request; ``None`` = it was refused."""
        self.requests = self.prompt_tokens = self.failures = 0
        self.recomputed_tokens = self.live_recomputed_tokens = 0
        self.seconds = 0.0
        self._picks: Counter[str] = Counter()

    def follow(self, live: Attempt, limits: Sequence[DecisionLimits], now: float) -> Followed | None:
        """Route the request of a live attempt within limits, of a pair those of each half.

        ``None`` = it was refused.
        """
        state, decision = self.state, live.decision
        self.last = None
        try:
            info = decision.request._replace(key=None)
            query = Query(decision.prompt, info, now, limits[0], kind=decision.query.kind)
            if live.prefill is None:
                attempt = computing = steps.draft(state, steps.choose(state, query), None, now)
                followed = Followed(state, attempt)
                steps.book(state, attempt, now)
            else:
                halves = pairs.draft(state, pairs.choose(state, query._replace(part=PROMPT), limits[1]), now)
                computing, attempt = halves
                followed = Followed(state, attempt)
                pairs.book(state, halves, now)
        except Exception:  # noqa: BLE001  # whatever a shadow's policy does, the live request goes on
            self.failures += 1
            _LOG.debug("shadow %r failed", state.policy.name, exc_info=True)
            return None
        hit, length = computing.hit, computing.decision.prompt_tokens
        self.last = length - hit, state.config.cost.prefill_seconds(length - hit, hit)
        self._compare(computing.name, length)
        return followed

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
        replicas, cost = len(self.state.fleet.members), self.state.config.cost
        mean = self.requests / replicas if replicas else 0.0
        return Regret(
            policy=self.state.policy.name,
            requests=self.requests,
            prompt_tokens=self.prompt_tokens,
            recomputed_tokens=self.recomputed_tokens,
            live_recomputed_tokens=self.live_recomputed_tokens,
            tokens=self.live_recomputed_tokens - self.recomputed_tokens,
            seconds=self.seconds,
            usd=cost.usd(self.seconds),
            skew=max(self._picks.values(), default=0) / mean if mean else 0.0,
            failures=self.failures,
        )


class Shadows:
    """The shadows of one router, by name, and the belief-only copies that they are compared with.

    Shadows that start together share a copy; one that starts later has its own, so that both begin empty.

    Attributes:
        follows: whether anything follows requests.
    """

    def __init__(self, live: RouterState, sample: VolatileSample | None = None) -> None:
        """Start without any.

        Args:
            live: the state whose requests are followed.
            sample: follows some of them beside the shadows; ``None`` = nothing does.
        """
        self._live, self.sample = live, sample
        self.follows = sample is not None
        self._mirrored = -1  # the version of the live fleet that the shadows have
        self.all: dict[str, Shadow] = {}
        self.copies: list[Shadow] = []

    @property
    def states(self) -> list[RouterState]:
        """The state of each shadow and copy."""
        return [shadow.state for shadow in (*self.copies, *self.all.values())]

    def add(
        self, policy: str | Policy | Callable[[View], Answer], name: str | None, index: Belief | None, now: float
    ) -> RouterState:
        """Let a policy follow from now on, beside a belief-only copy of the live router; return its state.

        Args:
            policy: a policy, or the name of one.
            name: under which it is reported; ``None`` = the policy's.
            index: the shadow's own belief; ``None`` = a new one.
            now: time on the router's clock, in seconds.

        Returns:
            The state of the shadow.
        """
        live = self._live
        key = live.belief.hash_key  # a prompt may come hashed, and is matched in every state
        state = RouterState(replace(live.given, policy=policy, hash_key=key), index)
        copy = self._fresh_copy()
        if copy is None:
            followed = replace(live.config, policy=Follow(), decode_policy=Follow(), hash_key=key)
            copy = Shadow(RouterState(followed), None)
            self.copies.append(copy)
        self.all[name or state.config.policy_name] = Shadow(state, copy)
        self.follows = True
        self._mirror(now)
        return state

    def _fresh_copy(self) -> Shadow | None:
        """Return a copy that has not followed a request yet, if there is one."""
        latest = self.copies[-1] if self.copies else None
        return latest if latest is not None and latest.last is None and not latest.failures else None

    def _mirror(self, now: float) -> None:
        for state in self.states:
            membership.mirror(self._live, state, now)
        self._mirrored = self._live.fleet.now.version

    def apply(self, change: Callable[[RouterState], object]) -> None:
        """Make a change of the live state in every shadow, and give each the fleet of the live one.

        Args:
            change: called with each state.
        """
        for state in self.states:
            change(state)
        self._mirrored = self._live.fleet.now.version

    def follow(self, attempt: Attempt, now: float) -> tuple[Follower, ...]:
        """Let every copy and every shadow route the request of a live attempt; return what follows it to its end.

        Args:
            attempt: that was booked just now.
            now: time on the router's clock, in seconds.

        Returns:
            What has to be told of the attempt's end.
        """
        sampled = () if self.sample is None else self.sample.follow(attempt)
        if not self.all:
            return sampled
        if self._mirrored != self._live.fleet.now.version:  # a change was cut off, or a suspension has ended by itself
            self._mirror(now)
        parts = [attempt] if attempt.prefill is None else [attempt.prefill, attempt]
        taken = [DecisionLimits((part.name,)) for part in parts]
        followed = [copy.follow(attempt, taken, now) for copy in self.copies]
        free = [part.decision.query.limits._replace(hard=False) for part in parts]
        followed += [shadow.follow(attempt, free, now) for shadow in self.all.values()]
        return (*sampled, *(each for each in followed if each is not None))

    def regret(self) -> dict[str, Regret]:
        """Return each shadow's regret by name."""
        return {name: shadow.regret() for name, shadow in self.all.items()}
