"""What a router tells of itself.

Its options, loads, statistics, explanations, and what other policies would have done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from prefixroute.belief import Belief
from prefixroute.errors import ConfigError
from prefixroute.live import Subscriber
from prefixroute.policies import Answer, Policy, View
from prefixroute.router.booking import Booking
from prefixroute.router.calls import RouterCalls
from prefixroute.router.pairs import PairTicket
from prefixroute.router.tickets import Ticket
from prefixroute.routing import Decision, RouterConfig, steps
from prefixroute.routing.ledger import Attempt
from prefixroute.routing.loads import balanced
from prefixroute.routing.pairs import PairDecision
from prefixroute.telemetry import Regret, metrics_text, stats
from prefixroute.telemetry.explain import explain_attempt, explain_decision
from prefixroute.telemetry.feeds import Watched
from prefixroute.validation import check_instance, shown


class StatusCalls(RouterCalls):
    """The calls of :class:`~prefixroute.router.Router` that look at it."""

    @property
    def config(self) -> RouterConfig:
        """Every option of the router, with a preset's belief settings applied."""
        return self._state.config

    @property
    def hash_key(self) -> int:
        """Key of the hashes of prompts.

        ``hash_blocks(tokens, hash_key=router.hash_key)`` hashes as this router does.
        """
        return self._state.belief.hash_key

    @property
    def policy(self) -> Policy:
        """The policy that decides."""
        return self._state.policy

    @property
    def notes(self) -> tuple[str, ...]:
        """What a preset changed of the options, in words."""
        return self._state.notes

    def _settled(self, now: float | None) -> float:
        """Give back what is overdue, and take in the peers' loads, with the lock held; return the time."""
        now = self._time(now)
        if self._state.step is not None:
            self._state.repair()
        steps.expire(self._state, now)
        if self._state.listener is not None:
            self._state.listener.refresh()
        return now

    def load(self, *, now: float | None = None) -> dict[str, float]:
        """Return the load signal by replica, as policies see it.

        Args:
            now: time on the router's clock, in seconds.

        Returns:
            The load of each replica by its name, in the units of the signal that the router was made with.
        """
        state = self._state
        with self._lock:
            now = self._settled(now)
            slots = state.fleet.now.slots
            loads = state.fleet.scaled(balanced(state, now, slots), now, slots)
            return {name: loads[member.slot] for name, member in state.fleet.members.items()}

    def stats(self) -> dict[str, Any]:
        """Return counters and gauges as plain data: requests, tokens, sessions, hits, each replica, the index."""
        watched = self._watched()
        with self._lock:
            return stats(self._state, self._settled(None), watched)

    def metrics_text(self) -> str:
        """Return the metrics in the text format of Prometheus, for the host to serve."""
        watched = self._watched()
        with self._lock:
            return metrics_text(self._state, self.shadows, self._settled(None), watched)

    def _watched(self) -> Watched:
        """Return what the feeds and pollers say of each replica, and what else is known beside the state."""
        feeds: dict[str, dict[str, Any]] = {}
        polls: dict[str, dict[str, Any]] = {}
        for watch in self._watching:
            (feeds if isinstance(watch, Subscriber) else polls).update(watch.stats())
        peers = None if self._peers is None else self._peers.stats()
        sample = self.shadows.sample
        if sample is not None:
            sample.look()  # at requests that were given up
        return Watched(feeds, polls, peers, sample)

    def explain(self, request: str | Ticket | PairTicket | Decision | PairDecision) -> str:
        """Return why a request went where it did, in a paragraph.

        Args:
            request: its key (in flight, or among the last 256 keyed ones that ended), its ticket, or a decision.

        Raises:
            ConfigError: no such request is known.
        """
        now = self._time(None)
        with self._lock:
            if isinstance(request, Decision):
                return explain_decision(self._state, request, now)
            if isinstance(request, PairDecision):
                return " ".join(explain_decision(self._state, half, now) for half in request)
            attempt = request.attempt if isinstance(request, Booking) else self._known(request)
            if attempt is None:
                raise ConfigError(
                    f"no request with key {shown(request)} is in flight or among the last ones that ended"
                )
            return explain_attempt(self._state, attempt, now)

    def _known(self, key: str) -> Attempt | None:
        check_instance("request", key, str)
        return self._state.ledger.known(key)

    def shadow(
        self, policy: str | Policy | Callable[[View], Answer], *, name: str | None = None, index: Belief | None = None
    ) -> Self:
        """Let another policy decide on the same traffic from now on, with its own index, load and bindings.

        It never sends anything, and costs one more routing per request.

        Args:
            policy: a name, a preset's name, a policy, or a function of a view.
            name: what :meth:`regret` calls it; by default the policy's name.
            index: its belief; by default a new index.

        Returns:
            Its router, to be looked at only.
        """
        if name is not None:
            check_instance("name", name, str)
        now = self._time(None)
        with self._lock:
            return self.of(self.shadows.add(policy, name, index, now))

    def regret(self) -> dict[str, Regret]:
        """Return, for each shadow, what the live policy cost beyond it in tokens, seconds and dollars."""
        with self._lock:
            return self.shadows.regret()
