"""The ledger: every request in flight, and the effects that its life has on load, belief and bindings."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Any

from prefixroute.router.fleet import DRAINING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefixroute.belief import Belief, Booked
    from prefixroute.router.book import LoadBook
    from prefixroute.router.decision import Decision
    from prefixroute.router.fleet import Fleet, Member, Process
    from prefixroute.router.sessions import Bindings
    from prefixroute.router.tickets import Ticket
    from prefixroute.types import Timing

REMEMBERED = 256
"""Keyed requests that can be explained after they have ended."""
_CONTINUES = frozenset({"retried", "hedge_lost"})
"""Ends of an attempt that are no end of its request: the shadows follow on."""

NONE_TRIED: frozenset[Process] = frozenset()
"""Replicas, in the life that they had, that a first attempt has tried: one object for all, since an empty set takes 216 bytes."""


class Attempt:
    """One booked attempt of a request.

    ``queued`` and ``decoding`` are what it has on the load book now; ``ahead`` is what its replica had to compute, this
    request included, when it was booked.
    """

    __slots__ = (
        "ahead",
        "begun",
        "booked",
        "decision",
        "decoding",
        "epoch",
        "followers",
        "generation",
        "group",
        "hit",
        "ident",
        "key",
        "member",
        "name",
        "open",
        "outcome",
        "progress",
        "queued",
        "slot",
        "started",
        "tried",
    )

    def __init__(  # noqa: PLR0917  # one caller, on the hot path
        self, ident: int, decision: Decision, slot: int, name: str, member: Member, now: float
    ) -> None:
        """Describe an attempt that is being booked."""
        view = decision.view
        self.ident, self.decision, self.slot, self.name = ident, decision, slot, name
        self.member, self.generation = member, member.generation
        self.key = view.request.key
        self.hit = view.hits[slot] if slot < len(view.names) and view.names[slot] == name else 0
        self.queued, self.decoding = view.prompt_tokens - self.hit, 0
        self.begun = self.progress = now
        self.booked: Booked | None = None
        self.open, self.started, self.outcome = True, False, "in flight"
        self.epoch = self.ahead = 0
        self.followers: Sequence[Ticket] = ()
        self.tried = NONE_TRIED
        self.group: list[Attempt] | None = None

    @property
    def process(self) -> Process:
        """The process that it was booked on."""
        return self.member, self.generation


class Ledger:
    """Open attempts, oldest progress first, by number; keyed ones by key too.

    Not thread-safe, except that :attr:`dropped` may be appended to at any time: the router's lock guards the rest.
    """

    def __init__(self, fleet: Fleet, book: LoadBook, belief: Belief, bindings: Bindings, timing: Timing) -> None:
        """Start empty."""
        self.fleet, self.book, self.belief, self.bindings = fleet, book, belief, bindings
        self.ttl_s = timing.ticket_s
        self.ended: OrderedDict[str, Attempt] = OrderedDict()
        self.attempts: OrderedDict[int, Attempt] = OrderedDict()
        self.keys: dict[str, Attempt] = {}
        self.dropped: deque[int] = deque()
        self.counts: Counter[str] = Counter()
        self._next = 0

    def commit(self, decision: Decision, slot: int, name: str, now: float, epoch: int) -> Attempt:
        """Book an attempt: load up, predicted blocks into the belief. A key in flight is booked anew."""
        view = decision.view
        member = self.fleet.members[name]
        self._next += 1
        attempt = Attempt(self._next, decision, slot, name, member, now)
        attempt.epoch = epoch
        attempt.booked = self.belief.insert(name, decision._blocks, None, now)  # first: it alone may raise
        self.attempts[attempt.ident] = attempt
        self.book.book(slot, attempt.queued, view.prompt_tokens, view.decision_id, missed=attempt.hit == 0)
        attempt.ahead = self.book.queued[slot]
        self.counts["committed"] += 1
        return attempt

    def claim(self, attempt: Attempt) -> None:
        """Let an attempt answer to its key; other requests in flight under it are refunded: charged once."""
        key, own = attempt.key, attempt.group or (attempt,)
        if key is None:
            return
        while (earlier := self.keys.get(key)) is not None and earlier not in own:
            self.abort(earlier, "rebooked")
        self.keys[key] = attempt

    def bind(self, attempt: Attempt, now: float) -> None:
        """Bind the session of an attempt to its replica, unless it is only on a detour."""
        session = attempt.decision.view.request.session
        if not session:
            self.counts["keyless"] += not attempt.tried
            return
        bindings = self.bindings
        bound = bindings.get(session, now)
        if bound is None:
            bindings.moves["assigned"] += 1
        elif bound.slot != attempt.slot or bound.generation != attempt.generation:
            if attempt.decision._detour:
                bindings.moves["detour"] += 1
                bindings.bind(session, bound.slot, bound.generation, now)
                return
            bindings.moves[self._why_moved(bound.slot, bound.generation)] += 1
        bindings.bind(session, attempt.slot, attempt.generation, now)

    def _why_moved(self, slot: int, generation: int) -> str:
        if self.fleet.generation(slot) != generation:
            return "removed"
        member = self.fleet.by_slot[slot]
        return "drained" if member is not None and member.state == DRAINING else "moved"

    def find(self, key: str, what: str) -> Attempt | None:
        """Return the open attempt with this key; count a call that comes too late or for an unknown key."""
        attempt = self.keys.get(key)
        if attempt is None:
            self.counts[f"{what}_unknown"] += 1
        return attempt

    def first_token(self, attempt: Attempt, now: float) -> bool:
        """Note that the engine answers: prefill load becomes decode load, and a hedge is decided."""
        if not attempt.open:
            self.counts["first_token_late"] += 1
            return False
        attempt.progress = now
        self.attempts.move_to_end(attempt.ident)
        if attempt.started:
            return True
        attempt.started = True
        if attempt.member.generation == attempt.generation:
            context = attempt.decision.view.prompt_tokens
            self.book.start(attempt.slot, attempt.queued, context)
            self.book.learn(attempt.slot, attempt.ahead, now - attempt.begun)
            attempt.decoding = context
        attempt.queued = 0
        if attempt.group is not None:
            self._win(attempt, attempt.group, now)
        return True

    def finish(self, attempt: Attempt, context: Any, now: float, epoch: int) -> bool:
        """Note that an attempt is complete; ``context`` = prompt and output as the replica now holds them, if known."""
        if not attempt.open:
            self.counts["finish_late"] += 1
            return False
        member = attempt.member
        alive = member.generation == attempt.generation and not member.replica.events
        if alive and attempt.epoch == epoch:
            namespace = None if context is None else attempt.decision.view.request.namespace
            self.belief.insert(attempt.name, attempt.decision._blocks if context is None else context, namespace, now)
        if attempt.group is not None:
            self._win(attempt, attempt.group, now)
        self._close(attempt, "finished")
        self.counts["finished"] += 1
        return True

    def abort(self, attempt: Attempt, why: str = "aborted") -> bool:
        """Give an attempt up: its load goes back, and before the first token its predicted blocks too."""
        if not attempt.open:
            self.counts["abort_late"] += 1
            return False
        uncached = attempt.queued
        self._close(attempt, why)
        if not attempt.started and attempt.member.generation == attempt.generation:
            self.book.unbook(attempt.slot, uncached)
            if attempt.booked is not None:
                self.belief.retract(attempt.name, attempt.decision._blocks, attempt.booked)
        self.counts[why] += 1
        if why not in _CONTINUES and self._other_attempt(attempt) is None:
            self.give_up(attempt)
        return True

    @staticmethod
    def give_up(attempt: Attempt) -> None:
        """Tell the shadows that the request of an attempt has ended without an answer."""
        for ticket in attempt.followers:
            ticket.abort()

    @staticmethod
    def _other_attempt(attempt: Attempt) -> Attempt | None:
        """Return another open attempt of a hedged request."""
        return next((other for other in attempt.group or () if other is not attempt and other.open), None)

    def pair(self, attempt: Attempt, second: Attempt) -> None:
        """Make two attempts a hedge: the first to answer wins."""
        group = attempt.group or [attempt]
        group.append(second)
        for each in group:
            each.group = group

    def _win(self, attempt: Attempt, group: list[Attempt], now: float) -> None:
        """Decide a hedge: the others are refunded, the winner takes the session."""
        for other in group:
            other.group = None
            if other is not attempt and other.open:
                self.abort(other, "hedge_lost")
        self.claim(attempt)
        self.bind(attempt, now)

    def _close(self, attempt: Attempt, outcome: str) -> None:
        attempt.open, attempt.outcome = False, outcome.replace("_", " ")
        del self.attempts[attempt.ident]
        if attempt.key is not None and self.keys.get(attempt.key) is attempt:
            self._release_key(attempt.key, attempt)
        if attempt.member.generation == attempt.generation:
            self.book.release(attempt.slot, attempt.queued, attempt.decoding)
        attempt.queued = attempt.decoding = 0

    def _release_key(self, key: str, attempt: Attempt) -> None:
        """Let a key go with its attempt, or pass it to the other one of a hedge."""
        other = self._other_attempt(attempt)
        if other is not None:
            self.keys[key] = other
            return
        del self.keys[key]
        self.ended[key] = attempt
        self.ended.move_to_end(key)
        if len(self.ended) > REMEMBERED:
            self.ended.popitem(last=False)

    def sweep(self, now: float) -> None:
        """Refund dropped tickets and attempts without progress."""
        dropped, attempts = self.dropped, self.attempts
        while dropped:
            attempt = attempts.get(dropped.popleft())
            if attempt is not None:
                self.abort(attempt, "dropped")
        while attempts:
            attempt = next(iter(attempts.values()))
            if now - attempt.progress <= self.ttl_s:
                return
            self.abort(attempt, "expired")
