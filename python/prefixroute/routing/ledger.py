"""The ledger: every request in flight, and what each end of it gives back.

An attempt's own fields are what is known for sure: ``open``, ``started``, ``hit``, where it was booked. All else, the load
book's counters, the table of open attempts and that of keys, follows from them and can be rebuilt: a step that an
exception cuts off, such as a signal handler's, is repaired by the next call (see :class:`RouterState`).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

from prefixroute.routing.fleet import DRAINING
from prefixroute.routing.sessions import short

if TYPE_CHECKING:
    from prefixroute.belief import Belief, Booked
    from prefixroute.routing.active import ActiveBlocks
    from prefixroute.routing.book import LoadBook
    from prefixroute.routing.decision import Decision
    from prefixroute.routing.fleet import Fleet, Member, Process
    from prefixroute.routing.sessions import Bindings

REMEMBERED = 256
"""Keyed requests that can be explained after they have ended."""
_CONTINUES = frozenset({"retried", "hedge_lost"})
"""Ends of an attempt that are no end of its request: the followers go on."""

NONE_TRIED: frozenset[Process] = frozenset()
"""Processes that a first attempt has tried: one object for all, since an empty set takes 216 bytes."""


class Follower(Protocol):
    """What follows a request to its end, such as the same request in a shadow."""

    def finish(self, output: Any, now: float) -> None:
        """The request has ended normally."""

    def abort(self) -> None:
        """The request has ended without an answer."""


class Attempt:
    """One booked attempt of a request.

    Attributes:
        ident: its number.
        decision: what was decided.
        member: the replica that has it.
        slot: the replica's slot.
        name: the replica's name.
        generation: of the process that it was booked on.
        key: the caller's name for the request, as the ledger keeps it.
        hit: leading prompt tokens that the replica was believed to hold.
        begun: when it was booked.
        progress: when it was booked or last heard of.
        booked: what the belief said when the prompt was inserted.
        epoch: the router's epoch when it was booked.
        ahead: what the replica had to compute then, this request included, in tokens.
        open: whether it is in flight.
        started: whether it has had its first token.
        outcome: what became of it, in words.
        followers: what follows the request.
        tried: processes that earlier attempts have tried.
        handle: weak reference to its ticket; once it is dead, the attempt is given up.
        group: all attempts of a hedged request that may still answer first; ``None`` = it is alone.
    """

    __slots__ = (
        "ahead",
        "begun",
        "booked",
        "decision",
        "epoch",
        "followers",
        "generation",
        "group",
        "handle",
        "hit",
        "ident",
        "key",
        "member",
        "name",
        "open",
        "outcome",
        "progress",
        "slot",
        "started",
        "tried",
    )

    def __init__(self, ident: int, decision: Decision, member: Member, now: float) -> None:
        """Describe an attempt that is going to be booked."""
        view, slot = decision.view, member.slot
        self.ident, self.decision, self.member = ident, decision, member
        self.slot, self.name, self.generation = slot, member.name, member.generation
        key = view.request.key
        self.key = key if key is None else short(key)
        self.hit = view.hits[slot] if slot < len(view.names) and view.names[slot] == member.name else 0
        self.begun = self.progress = now
        self.booked: Booked | None = None
        self.open, self.started, self.outcome = True, False, "in flight"
        self.epoch = self.ahead = 0
        self.followers: Sequence[Follower] = ()
        self.tried = NONE_TRIED
        self.handle: ref[Any] | None = None
        self.group: list[Attempt] | None = None

    @property
    def process(self) -> Process:
        """The process that it was booked on."""
        return self.member, self.generation

    @property
    def alive(self) -> bool:
        """Whether that process still has its replica's slot."""
        return self.member.generation == self.generation

    @property
    def queued(self) -> int:
        """Uncached tokens that it waits for, as on the load book."""
        return 0 if self.started else self.decision.view.prompt_tokens - self.hit

    @property
    def decoding(self) -> int:
        """Context tokens that it decodes behind, as on the load book."""
        return self.decision.view.prompt_tokens if self.started else 0


class Ledger:
    """Open attempts, oldest progress first, by number; keyed ones by key too.

    Not thread-safe, except that :meth:`drop` may be called at any time: the router's lock guards the rest.
    """

    def __init__(self, fleet: Fleet, book: LoadBook, belief: Belief, bindings: Bindings, ticket_s: float) -> None:
        """Start empty. ``ticket_s``: seconds without progress after which an attempt is given up."""
        self.fleet, self.book, self.belief, self.bindings, self.ticket_s = fleet, book, belief, bindings, ticket_s
        self.attempts: OrderedDict[int, Attempt] = OrderedDict()
        self.keys: dict[str, Attempt] = {}
        self.ended: OrderedDict[str, Attempt] = OrderedDict()
        self.dropped: dict[int, Any] = {}
        self.counts: Counter[str] = Counter()
        self.idents = 0
        self.active: ActiveBlocks | None = None
        """The blocks of requests in flight, if the policy reads them."""

    def drop(self, attempt: Attempt) -> None:
        """Leave an attempt to be given up by the next call."""
        self.dropped.setdefault(attempt.ident)

    def drop_with(self, holder: object, attempt: Attempt) -> None:
        """Leave an attempt to be given up once its holder has been collected.

        The interpreter itself puts it on the queue: no code of ours runs in the collector, where it might interrupt any
        call, and an exception be lost.
        """
        attempt.handle = ref(holder, partial(self.dropped.setdefault, attempt.ident))

    def rebuild(self) -> None:
        """Make the tables what the attempts themselves say, after a step that was cut off."""
        attempts = list(self.attempts.values())  # a copy each: a signal handler may change the tables meanwhile
        for attempt in attempts:
            if not attempt.open:
                attempt.followers = ()
                self.attempts.pop(attempt.ident, None)
        for key, attempt in list(self.keys.items()):
            if not attempt.open:
                self.keys.pop(key, None)
        for attempt in attempts:
            if attempt.open and attempt.key is not None:
                self.keys.setdefault(attempt.key, attempt)
        still_open = [attempt for attempt in attempts if attempt.open]
        self.book.rebuild(still_open)
        if self.active is not None:
            self.active.rebuild(list(self.fleet.members), still_open)

    def enter(self, attempt: Attempt) -> None:
        """Put an attempt on the books: the table of open attempts and its load."""
        view, hit = attempt.decision.view, attempt.hit
        self.attempts[attempt.ident] = attempt
        context = view.prompt_tokens
        attempt.ahead = self.book.book(attempt.slot, context - hit, context, view.decision_id, missed=not hit)
        if self.active is not None:
            self.active.enter(attempt.name, attempt.decision.blocks)
        self.counts["committed"] += 1

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
            if attempt.decision.detour:
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
        """Return the open attempt with this key; count a call for a key that is not among the latest ones either.

        A call for a request that has ended lately is silent: hosts end by key in several places, to be sure.
        """
        attempt = self.keys.get(short(key))
        if attempt is None and short(key) not in self.ended:
            self.counts[f"{what}_unknown"] += 1
        return attempt

    def known(self, key: str) -> Attempt | None:
        """Return the attempt with this key that is in flight or ended lately."""
        return self.keys.get(short(key)) or self.ended.get(short(key))

    def first_token(self, attempt: Attempt, now: float) -> None:
        """Note that the engine answers: prefill load becomes decode load, and a hedge is decided."""
        attempt.progress = now
        try:
            self.attempts.move_to_end(attempt.ident)
        except KeyError:  # a signal handler has ended it meanwhile
            return
        if attempt.started:
            return
        queued, context = attempt.queued, attempt.decision.view.prompt_tokens
        attempt.started = True
        if attempt.alive:
            self.book.start(attempt.slot, queued, context)
            self.book.learn(attempt.slot, attempt.ahead, now - attempt.begun)
        if attempt.group is not None:
            self.win(attempt, attempt.group, now)

    def finish(self, attempt: Attempt, now: float) -> None:
        """Note that an attempt is complete."""
        if attempt.group is not None:
            self.win(attempt, attempt.group, now)
        if self.close(attempt, "finished"):
            self.counts["finished"] += 1
            if self.book.counts_served and attempt.member.generation == attempt.generation:
                self.book.serve(attempt.slot)

    def abort(self, attempt: Attempt, why: str = "aborted") -> None:
        """Give an attempt up: its load goes back, and before the first token its predicted blocks too."""
        uncached, followers = attempt.queued, attempt.followers
        if not self.close(attempt, why):
            return
        if not attempt.started and attempt.alive:
            self.book.unbook(attempt.slot, uncached)
            if attempt.booked is not None:
                self.belief.retract(attempt.name, attempt.decision.blocks, attempt.booked)
        self.counts[why] += 1
        if why not in _CONTINUES and self.other_attempt(attempt) is None:
            for follower in followers:
                follower.abort()

    def give_up(self, attempt: Attempt) -> None:
        """End the request of an attempt that has been given up for another one, which could not be booked."""
        if not attempt.open and self.other_attempt(attempt) is None:
            followers, attempt.followers = attempt.followers, ()
            for follower in followers:
                follower.abort()

    @staticmethod
    def other_attempt(attempt: Attempt) -> Attempt | None:
        """Return another open attempt of a hedged request."""
        return next((other for other in attempt.group or () if other is not attempt and other.open), None)

    @staticmethod
    def pair(attempt: Attempt, second: Attempt) -> None:
        """Make two attempts a hedge: the first to answer wins."""
        group = attempt.group or [attempt]
        group.append(second)
        for each in group:
            each.group = group

    def win(self, attempt: Attempt, group: list[Attempt], now: float) -> None:
        """Decide a hedge: the others are refunded, the winner takes the session."""
        for other in group:
            other.group = None
            if other is not attempt and other.open:
                self.abort(other, "hedge_lost")
        self.claim(attempt)
        self.bind(attempt, now)

    def close(self, attempt: Attempt, outcome: str) -> bool:
        """End an attempt, once; return whether it was still open."""
        if not attempt.open:
            return False
        context = attempt.decision.view.prompt_tokens
        queued, decoding = (0, context) if attempt.started else (context - attempt.hit, 0)
        attempt.open, attempt.outcome, attempt.handle = False, outcome.replace("_", " "), None
        if outcome not in _CONTINUES:
            attempt.followers = ()  # who still holds them ends them; else they end as dropped tickets do
        self.attempts.pop(attempt.ident, None)
        if attempt.key is not None and self.keys.get(attempt.key) is attempt:
            self._release_key(attempt.key, attempt)
        if attempt.member.generation == attempt.generation:
            self.book.release(attempt.slot, queued, decoding)
            if self.active is not None:
                self.active.leave(attempt.name, attempt.decision.blocks)
        return True

    def _release_key(self, key: str, attempt: Attempt) -> None:
        """Let a key go with its attempt, or pass it to the other one of a hedge."""
        other = self.other_attempt(attempt)
        if other is not None:
            self.keys[key] = other
            return
        self.keys.pop(key, None)
        self.ended[key] = attempt
        self.ended.move_to_end(key)
        while len(self.ended) > REMEMBERED:
            self.ended.popitem(last=False)

    def sweep(self, now: float) -> list[Attempt]:
        """Refund dropped tickets and attempts without progress; return the latter."""
        expired: list[Attempt] = []
        for ident in list(self.dropped):  # one leaves the queue once it is refunded, lest an exception lose it
            attempt = self.attempts.get(ident)
            if attempt is not None:
                self.abort(attempt, "dropped")
            self.dropped.pop(ident, None)
        while self.attempts:
            attempt = next(iter(self.attempts.values()))
            if now - attempt.progress <= self.ticket_s:
                break
            self.abort(attempt, "expired")
            self.attempts.pop(attempt.ident, None)
            expired.append(attempt)
        return expired
