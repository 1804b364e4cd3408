"""The ledger: every request in flight, and the effects that its life has on load, belief and bindings."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Any

from prefixroute.router.fleet import DRAINING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefixroute.router.belief import Belief, Booked
    from prefixroute.router.book import LoadBook
    from prefixroute.router.decision import Decision
    from prefixroute.router.fleet import Fleet, Life, Member
    from prefixroute.router.sessions import Bindings
    from prefixroute.router.tickets import Ticket
    from prefixroute.types import Timing

REMEMBERED = 256
"""Keyed requests that can be explained after they have ended."""
_CONTINUES = frozenset({"retried", "hedge_lost"})
"""Ends of an attempt that are no end of its request: the shadows follow on."""

NONE_TRIED: frozenset[Life] = frozenset()
"""Replicas, in the life that they had, that a first attempt has tried: one object for all, since an empty set takes 216 bytes."""


class Entry:
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
        "fate",
        "followers",
        "generation",
        "group",
        "hit",
        "ident",
        "key",
        "member",
        "name",
        "open",
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
        self.open, self.started, self.fate = True, False, "in flight"
        self.epoch = self.ahead = 0
        self.followers: Sequence[Ticket] = ()
        self.tried = NONE_TRIED
        self.group: list[Entry] | None = None

    @property
    def life(self) -> Life:
        """The process that it was booked on."""
        return self.member, self.generation


class Ledger:
    """Open attempts, oldest progress first, by number; keyed ones by key too.

    Not thread-safe, except that :attr:`dropped` may be appended to at any time: the router's lock guards the rest.
    """

    def __init__(self, fleet: Fleet, book: LoadBook, belief: Belief, bindings: Bindings, timing: Timing) -> None:
        """Start empty."""
        self.fleet, self.book, self.belief, self.bindings = fleet, book, belief, bindings
        self.ttl_s, self.provisional_s = timing.ticket_s, timing.provisional_s
        self.ended: OrderedDict[str, Entry] = OrderedDict()
        self.unconfirmed: deque[tuple[float, Entry]] = deque()
        self.entries: OrderedDict[int, Entry] = OrderedDict()
        self.keys: dict[str, Entry] = {}
        self.dropped: deque[int] = deque()
        self.counts: Counter[str] = Counter()
        self._next = 0

    def commit(self, decision: Decision, slot: int, name: str, now: float, epoch: int) -> Entry:
        """Book an attempt: load up, predicted blocks into the belief. A key in flight is booked anew."""
        view = decision.view
        member = self.fleet.members[name]
        self._next += 1
        entry = Entry(self._next, decision, slot, name, member, now)
        entry.epoch = epoch
        entry.booked = self.belief.insert(name, decision._blocks, None, now)  # first: it alone may raise
        self.entries[entry.ident] = entry
        if member.replica.events:
            self.unconfirmed.append((now + self.provisional_s, entry))
        self.book.book(slot, entry.queued, view.prompt_tokens, view.turn, missed=entry.hit == 0)
        entry.ahead = self.book.queued[slot]
        self.counts["committed"] += 1
        return entry

    def claim(self, entry: Entry) -> None:
        """Let an attempt answer to its key; other requests in flight under it are refunded: charged once."""
        key, own = entry.key, entry.group or (entry,)
        if key is None:
            return
        while (earlier := self.keys.get(key)) is not None and earlier not in own:
            self.abort(earlier, "rebooked")
        self.keys[key] = entry

    def bind(self, entry: Entry, now: float) -> None:
        """Bind the session of an attempt to its replica, unless it is only on a detour."""
        session = entry.decision.view.request.session
        if not session:
            self.counts["keyless"] += not entry.tried
            return
        bindings = self.bindings
        bound = bindings.get(session, now)
        if bound is None:
            bindings.moves["assigned"] += 1
        elif bound.slot != entry.slot or bound.generation != entry.generation:
            if entry.decision._detour:
                bindings.moves["detour"] += 1
                bindings.bind(session, bound.slot, bound.generation, now)
                return
            bindings.moves[self._why_moved(bound.slot, bound.generation)] += 1
        bindings.bind(session, entry.slot, entry.generation, now)

    def _why_moved(self, slot: int, generation: int) -> str:
        if self.fleet.generation(slot) != generation:
            return "removed"
        member = self.fleet.by_slot[slot]
        return "drained" if member is not None and member.state == DRAINING else "moved"

    def find(self, key: str, what: str) -> Entry | None:
        """Return the open attempt with this key; count a call that comes too late or for an unknown key."""
        entry = self.keys.get(key)
        if entry is None:
            self.counts[f"{what}_unknown"] += 1
        return entry

    def first_token(self, entry: Entry, now: float) -> bool:
        """Note that the engine answers: prefill load becomes decode load, and a hedge is decided."""
        if not entry.open:
            self.counts["first_token_late"] += 1
            return False
        entry.progress = now
        self.entries.move_to_end(entry.ident)
        if entry.started:
            return True
        entry.started = True
        if entry.member.generation == entry.generation:
            context = entry.decision.view.prompt_tokens
            self.book.start(entry.slot, entry.queued, context)
            self.book.learn(entry.slot, entry.ahead, now - entry.begun)
            entry.decoding = context
        entry.queued = 0
        if entry.group is not None:
            self._win(entry, entry.group, now)
        return True

    def finish(self, entry: Entry, context: Any, now: float, epoch: int) -> bool:
        """Note that an attempt is complete; ``context`` = prompt and output as the replica now holds them, if known."""
        if not entry.open:
            self.counts["finish_late"] += 1
            return False
        member = entry.member
        alive = member.generation == entry.generation and not member.replica.events
        if alive and entry.epoch == epoch:
            namespace = None if context is None else entry.decision.view.request.namespace
            self.belief.insert(entry.name, entry.decision._blocks if context is None else context, namespace, now)
        if entry.group is not None:
            self._win(entry, entry.group, now)
        self._close(entry, "finished")
        self.counts["finished"] += 1
        return True

    def abort(self, entry: Entry, why: str = "aborted") -> bool:
        """Give an attempt up: its load goes back, and before the first token its predicted blocks too."""
        if not entry.open:
            self.counts["abort_late"] += 1
            return False
        uncached = entry.queued
        self._close(entry, why)
        if not entry.started and entry.member.generation == entry.generation:
            self.book.unbook(entry.slot, uncached)
            if entry.booked is not None:
                self.belief.retract(entry.name, entry.decision._blocks, entry.booked)
        self.counts[why] += 1
        if why not in _CONTINUES and self._heir(entry) is None:
            self.give_up(entry)
        return True

    @staticmethod
    def give_up(entry: Entry) -> None:
        """Tell the shadows that the request of an attempt has ended without an answer."""
        for ticket in entry.followers:
            ticket.abort()

    @staticmethod
    def _heir(entry: Entry) -> Entry | None:
        """Return another open attempt of a hedged request."""
        return next((other for other in entry.group or () if other is not entry and other.open), None)

    def pair(self, entry: Entry, second: Entry) -> None:
        """Make two attempts a hedge: the first to answer wins."""
        group = entry.group or [entry]
        group.append(second)
        for attempt in group:
            attempt.group = group

    def _win(self, entry: Entry, group: list[Entry], now: float) -> None:
        """Decide a hedge: the others are refunded, the winner takes the session."""
        for other in group:
            other.group = None
            if other is not entry and other.open:
                self.abort(other, "hedge_lost")
        self.claim(entry)
        self.bind(entry, now)

    def _close(self, entry: Entry, fate: str) -> None:
        entry.open, entry.fate = False, fate.replace("_", " ")
        del self.entries[entry.ident]
        if entry.key is not None and self.keys.get(entry.key) is entry:
            self._release_key(entry.key, entry)
        if entry.member.generation == entry.generation:
            self.book.release(entry.slot, entry.queued, entry.decoding)
        entry.queued = entry.decoding = 0

    def _release_key(self, key: str, entry: Entry) -> None:
        """Let a key go with its attempt, or pass it to the other one of a hedge."""
        heir = self._heir(entry)
        if heir is not None:
            self.keys[key] = heir
            return
        del self.keys[key]
        self.ended[key] = entry
        self.ended.move_to_end(key)
        if len(self.ended) > REMEMBERED:
            self.ended.popitem(last=False)

    def settle(self, now: float) -> None:
        """Refund dropped tickets and attempts without progress."""
        dropped, entries = self.dropped, self.entries
        while dropped:
            entry = entries.get(dropped.popleft())
            if entry is not None:
                self.abort(entry, "dropped")
        while entries:
            entry = next(iter(entries.values()))
            if now - entry.progress <= self.ttl_s:
                return
            self.abort(entry, "expired")

    def doubt(self, now: float) -> None:
        """Take back provisional blocks that no event has confirmed in time."""
        unconfirmed = self.unconfirmed
        while unconfirmed and unconfirmed[0][0] <= now:
            _, entry = unconfirmed.popleft()
            if entry.booked is not None and entry.member.generation == entry.generation:
                self.belief.retract(entry.name, entry.decision._blocks, entry.booked)
                entry.booked = None
