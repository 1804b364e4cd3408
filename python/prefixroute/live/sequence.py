"""Put an engine's numbered event batches in order: gaps, restarts, replays, late joining. Pure: no sockets, no clock.

An engine numbers its batches from 0, keeps the last few for replay, and publishes over a transport that may lose, and
by a reconnect repeat, any of them. :class:`Sequence` is told what arrives and answers with what to do. Its rules:

- Batches are applied in the order of their numbers, each once. A later one waits while earlier ones are missing.
- A gap asks for replay from the last *applied* number. The first answer must repeat that batch. So a replay by another
  process is recognized, and a buffer that no longer reaches back too.
- If numbers are still missing when the replay ends, it is asked for once more. The first answers of a replay are never
  lost in transport, so a number that they skip a second time was never published: engines burn a number when a batch
  cannot be encoded. The wait is over and nothing was lost.
- Blocks behind an unknown parent ask for the whole buffer. If it begins with the first batch, it is read in place of
  what is held.
- What cannot be filled is lost. A lost removal would leave blocks that the engine no longer holds, so the replica is
  cleared and rebuilt from whatever the buffer still has.
- A replay and what is published arrive by two connections, and may be of two processes: an engine that restarts can
  answer before its publisher is connected again. So a published batch that waits is *unproven* until a number that both
  have brought has the same content, and no answer of a replay is applied on top of one. Where the contents differ, what
  waits is dropped.
- A number that goes back is a restart, unless it is a batch that was applied already: the cache of the new process is
  empty. The rule is that of :meth:`prefixroute.index.PrefixIndex.apply`, and has one owner,
  :class:`prefixroute.index.BatchNumbers`.

An end marker proves nothing: a replay can lose batches and still send it. Only numbers are compared.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Literal, TypeAlias

from prefixroute.index import BatchNumbers
from prefixroute.live.pending import MAX_PENDING, MAX_PENDING_BYTES, PendingBatches
from prefixroute.validation import check_int

TRIES = 2
"""Times that a replay is asked for before what it does not bring is given up."""
MAX_ASKS = 32
"""Replays for one gap. Each must fill a number or prove it burnt, so more than a few means that an engine is ill."""


Reason: TypeAlias = Literal["joined", "restarted", "lost", "orphaned", "emptied", "contradicted"]


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply a batch to the index."""

    number: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Clear:
    """Forget what the replica holds: the process is another, removals were lost, or all of it is read again."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the engine to replay its batches from a number on; tell :meth:`Sequence.replay_ended` how it ends."""

    start: int


Action: TypeAlias = Apply | Clear | Ask


@dataclass(slots=True)
class SequenceStats:
    """What happened to the numbers of one replica.

    Attributes:
        applied: batches applied.
        duplicates: batches that came again and were ignored.
        gaps: times that a number was missing.
        filled: answers of replays with batches that had not been applied.
        burnt: numbers that the engine never published.
        lost: numbers that no replay brought.
        restarts: times that the engine's process was another.
        rebuilds: times that the replica was cleared because batches were lost, or blocks had unknown parents.
        replays: replays asked for.
        failed_replays: replays without an answer.
    """

    applied: int = 0
    duplicates: int = 0
    gaps: int = 0
    filled: int = 0
    burnt: int = 0
    lost: int = 0
    restarts: int = 0
    rebuilds: int = 0
    replays: int = 0
    failed_replays: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)


class Sequence:
    """The order of one replica's batches. Not thread-safe.

    Each method returns the actions to take, in order. A caller that gets :class:`Ask` sends it, passes each answer to
    :meth:`replayed` and then calls :meth:`replay_ended`. A newer Ask ends an older one, whose answers must not be
    passed on.

    Args:
        can_replay: whether the engine has a replay endpoint. Without one a gap cannot be filled.
        max_pending: batches that may wait for missing ones.
        max_bytes: bytes that these may take.
    """

    def __init__(
        self, *, can_replay: bool = True, max_pending: int = MAX_PENDING, max_bytes: int = MAX_PENDING_BYTES
    ) -> None:
        check_int("max_pending", max_pending, 1)
        check_int("max_bytes", max_bytes, 1)
        self.stats = SequenceStats()
        self.partial = False
        """Whether the engine may hold blocks that it announced before anything that could be read."""
        self.last: int | None = None
        """Number of the last batch applied from the engine's present process; ``None`` = none yet."""
        self.contradicted = False
        """Whether a replay and what is published over the present connection are of two processes."""
        self._has_replay = self._can_replay = can_replay
        self._pending = PendingBatches(max_pending, max_bytes)
        self._numbers = BatchNumbers()
        self._clean = False  # whether nothing was applied since the last Clear
        self._doubt = False  # whether the process may be another since the transport was down
        self._connected = False
        self._proven = False  # whether what is published is known to be of the process whose batches were applied
        self._told = -1  # highest number that a replay brought and that has to wait
        self._asking = False
        self._refilling = False  # whether that replay is of everything, in place of what is held
        self._check: int | None = None  # the number that the first answer must repeat
        self._repeated: int | None = None  # hash of what it must repeat
        self._answers = 0  # of the replay under way
        self._skipped = False  # whether they skip the numbers after the one that was checked
        self._asks = 0  # replays for the present gap
        self._dropped = False  # whether batches were dropped because too many waited
        self._seen = -1  # highest number published over the present connection

    @property
    def degraded(self) -> bool:
        """Whether batches are missing now, so that the index may be out of date."""
        return bool(self._pending) or self._doubt or self.contradicted or (self._asking and self.last is None)

    @property
    def waiting(self) -> int:
        """Batches that wait for missing ones."""
        return len(self._pending)

    @property
    def can_replay(self) -> bool:
        """Whether replays are asked for over the present connection."""
        return self._can_replay

    @property
    def asking(self) -> bool:
        """Whether a replay is under way."""
        return self._asking

    # -- what arrives ------------------------------------------------------------------------------------------------

    def connected(self) -> list[Action]:
        """Note that the transport is up, for the first time or again.

        Batches may be lost, the process may be another.
        """
        self._asks = 0
        self._pending.clear()  # they may be of another process; the buffer has them too
        self._seen = self._told = -1
        self._proven = self.contradicted = False
        self._connected, self._can_replay = True, self._has_replay
        if self.last is None:
            return self._join("joined") if self._can_replay else []
        self._doubt = True
        return [self._ask()] if self._can_replay else self._lose()

    def disconnected(self) -> None:
        """Note that the transport is down."""
        self._connected = False

    def audit(self) -> list[Action]:
        """Ask whether anything was published that did not arrive. For replicas that have been silent for a while."""
        if not self._can_replay or self._asking:
            return []
        self._asks = 0
        return [self._ask()]

    def refill(self) -> list[Action]:
        """Ask for all that the engine published: blocks continue a parent that the index does not know.

        Only a buffer that reaches back to the first batch takes the place of what is held.
        """
        if not self._can_replay or self.degraded or self._asking or self.last is None or self.partial:
            return []
        asked = self._ask()
        self._check, self._refilling = None, True
        return [replace(asked, start=0)]

    def emptied(self) -> list[Action]:
        """Note that somebody else has cleared the replica: all of it is read again."""
        self.stats.rebuilds += 1
        if not self._can_replay:
            self.partial = self.partial or self.last is not None
            return []
        self._forget()
        return self._join("emptied")

    def distrust(self) -> list[Action]:
        """Ask for no replay over the present connection: the answers are of another engine than what is published."""
        self._can_replay = self._asking = False
        if self._proven:
            return self._lose() if self._pending else []
        self._pending.drop(proven=True)
        self._forget()
        return self._join("contradicted")

    def live(self, number: int, payload: bytes) -> list[Action]:
        """Take in a published batch.

        Args:
            number: of the batch.
            payload: the batch.

        Returns:
            What the caller has to do, in this order.
        """
        last = self.last
        if last is None:
            return self._first_live(number, payload)
        seen, self._seen = self._seen, max(number, self._seen)
        if number <= last:
            return self._earlier(number, payload, seen)
        if number == last + 1 and not self._doubt and (self._proven or not self._asking):
            self._proven = True  # the next replay has to repeat this batch
            self._pending.pop(number)
            return self._advance(number, payload)
        return self._wait(number, payload)

    def replayed(self, number: int, payload: bytes) -> list[Action]:
        """Take in an answer of the replay under way.

        Args:
            number: of the batch.
            payload: the batch.

        Returns:
            What the caller has to do, in this order.
        """
        if not self._asking:
            return []
        self._answers += 1
        if self._refilling:
            return self._refilled(number, payload)
        if self._check is not None and self._answers == 1:
            return self._checked(number, payload)
        if self._check is not None and self._answers == 2:  # noqa: PLR2004  # the answer after the repeated batch
            self._skipped = number > self._check + 1
        return [] if self.last is not None and number <= self.last else self._new(number, payload)

    def replay_ended(self, *, marked: bool = True) -> list[Action]:  # noqa: PLR0911  # a list of cases
        """Note the end of the replay under way: by its end marker, or by silence if not ``marked``.

        Args:
            marked: the engine has said so; else it fell silent.

        Returns:
            What the caller has to do, in this order.
        """
        if not self._asking:
            return []
        self._asking = False
        silent = not marked and self._answers == 0
        self.stats.failed_replays += silent
        if self._refilling:
            return [self._ask()] if self._pending else []
        if silent and self._asks < TRIES:
            return [self._ask()]
        if self.last is None:
            return self._begin_live()
        if self._check is not None and self._answers == 0:
            return self._unchecked(silent=silent)
        if self._pending:
            return self._still_missing()
        if (self._dropped or not marked) and self._asks < MAX_ASKS:
            return [self._ask()]  # there is more than what came
        self._asks = 0
        return []

    # -- steps -------------------------------------------------------------------------------------------------------

    def _ask(self) -> Ask:
        """Ask from the last applied batch, or from the first of all."""
        self.stats.replays += 1
        self._asks += 1
        self._asking, self._check, self._answers = True, self.last, 0
        # Kept apart: what is published until the answer comes may push it out of what is remembered.
        self._repeated = None if self.last is None else self._numbers.content_of(self.last)
        self._skipped = self._dropped = self._refilling = False
        return Ask(0 if self.last is None else self.last)

    def _new(self, number: int, payload: bytes) -> list[Action]:
        """Take in an answer with a batch that was not applied."""
        last = self.last
        if last is None:
            self.partial = number > 0
        self.stats.filled += 1
        if self._pending.is_unproven(number) and (actions := self._compare(self._pending.get(number), payload)):
            return actions  # with this one
        if last is not None and number == last + 1:
            self._pending.pop(number)
            return self._advance(number, payload)
        self._dropped |= self._pending.drop(proven=False, below=number) > 0  # nothing unproven beneath an answer
        if last is None:
            self._pending.pop(number)
            return self._advance(number, payload)
        proof = self._skipped and self._answers == 2  # noqa: PLR2004
        self._told = number
        self._keep(number, payload, proven=True, always=proof)
        return []

    def _earlier(self, number: int, payload: bytes, seen: int) -> list[Action]:
        """Tell a batch that was applied from one of a new process, whose numbers begin at 0 again."""
        # In doubt, a number that is not remembered tells nothing: the replay that is under way will.
        known = None if self._proven else self._numbers.content_of(number)
        same = known == BatchNumbers.content(payload)
        if self._numbers.back(number, payload, None if self._doubt or seen < 0 else seen) == "restarted":
            self.contradicted |= known is not None and not same and not self._doubt
            return self._restart(number, payload)
        self.stats.duplicates += 1
        return self._agree() if same else []

    def _compare(self, published: bytes | None, answer: bytes) -> list[Action]:
        """Tell whether a replay and what is published are of one process, by a batch that both have brought."""
        if published == answer:
            return self._agree()
        self.contradicted = True
        self._pending.drop(proven=False)
        return []

    def _agree(self) -> list[Action]:
        """Note that they are, and apply what has waited for that."""
        self._proven, self.contradicted = True, False
        self._pending.prove()
        return self._follow()

    def _follow(self) -> list[Action]:
        """Apply the batches that wait and follow the last one."""
        if self.last is None or self._doubt or (held := self._pending.pop_proven(self.last + 1)) is None:
            return []
        return self._advance(self.last + 1, held)

    def _first_live(self, number: int, payload: bytes) -> list[Action]:
        """Take in a published batch before any was applied: what came before it is in the engine's buffer, or gone."""
        if self._can_replay and (number > 0 or self._asking):
            self._keep(number, payload, proven=False)
            return [] if self._asking else self._join("joined")
        self.partial, self._proven = number > 0, True
        return [*self._cleared("joined"), *self._advance(number, payload)]

    def _advance(self, number: int, payload: bytes) -> list[Action]:
        """Apply the next batch, and those that waited for it."""
        actions: list[Action] = []
        held: bytes | None = payload
        while held is not None:
            actions.append(Apply(number, held))
            self._numbers.applied(number, held, burnt=True)  # what it skips was never published, or the replica cleared
            self.last = number
            number += 1
            held = self._pending.pop_proven(number)
        self.stats.applied += len(actions)
        self._clean = False
        return actions

    def _wait(self, number: int, payload: bytes) -> list[Action]:
        """Keep a batch until the earlier ones are there, and ask for them."""
        if number in self._pending:
            self.stats.duplicates += 1
            if not self._proven and not self._pending.is_unproven(number):
                return self._compare(payload, self._pending.get(number) or b"")
            return []
        if not self._pending and not self._doubt:
            self.stats.gaps += 1
        if self._proven or number > self._told:
            self._keep(number, payload, proven=self._proven)
        else:
            self._dropped = True
        if self._asking or (self.contradicted and self._can_replay):
            return []
        self._asks = 0
        return [self._ask()] if self._can_replay else self._lose()

    def _refilled(self, number: int, payload: bytes) -> list[Action]:
        """Begin anew with the first batch of all; with a later one go on with what is held."""
        self._refilling = False
        if number > 0:
            self._asking = False
            return [self._ask()] if self._pending else []
        self.stats.rebuilds += 1
        self.stats.filled += 1
        self._forget()
        self._asking, self._asks = True, 1
        return [*self._cleared("orphaned"), *self._advance(number, payload)]

    def _checked(self, number: int, payload: bytes) -> list[Action]:
        """Compare the first answer of a replay with the batch that it must repeat."""
        if number != self._check:
            return self._lose()  # the buffer does not reach back
        if self._repeated != BatchNumbers.content(payload):
            return self._restarted()
        self._doubt = False
        return self._follow()

    def _unchecked(self, *, silent: bool) -> list[Action]:
        """Decide about a process that did not repeat its last batch."""
        if not silent:
            return self._restarted()  # its numbers end before those of the process that was followed
        if self._doubt or self._pending:
            return self._lose()
        self._asks = 0
        return []

    def _still_missing(self) -> list[Action]:
        """Decide about numbers that a finished replay did not bring."""
        again = self._asks < TRIES
        if self._skipped and not again:
            number, payload = self._pending.pop_first()
            self.stats.burnt += number - (self.last or 0) - 1
            actions = self._advance(number, payload)
            return [*actions, self._ask()] if self._pending or self._dropped else actions
        if not again and self._asks < MAX_ASKS and self._pending.drop(proven=False):
            return [self._ask()]  # what was published is not of this process, or will be among the answers
        if self._answers == 1 and not again:
            self._pending.clear()  # the engine knows nothing of what waits: it is of another process
            return self._lose()
        return self._lose() if self._asks >= MAX_ASKS else [self._ask()]

    def _restarted(self) -> list[Action]:
        """Begin anew, as a replay has shown a process that is not the one whose batches were applied.

        Not while that one still publishes, as far as is known: then its connection has yet to break, or another engine
        answers.
        """
        if not self._connected or self._doubt or not self._proven:
            return self._restart()
        self.contradicted, self._asking, self._asks = True, False, 0
        return []

    def _restart(self, number: int | None = None, payload: bytes = b"") -> list[Action]:
        """Begin anew with an empty cache: the engine's process is another. A batch of it may be at hand."""
        self.stats.restarts += 1
        self._seen = -1 if number is None else number
        self._forget()
        self._pending.clear()
        if number is None:
            return self._join("restarted")
        return [*self._cleared("restarted"), *self._first_live(number, payload)]

    def _lose(self) -> list[Action]:
        """Give the missing batches up: clear the replica, and rebuild it from the engine's buffer."""
        if self._pending and self.last is not None:
            self.stats.lost += self._pending.first - self.last - 1
        if not self._proven:
            self._pending.drop(proven=True)  # answers of an earlier replay: what is published may be of another process
        self.stats.rebuilds += 1
        self._forget()
        return self._join("lost")

    def _forget(self) -> None:
        self.last, self.partial, self._doubt, self._asking, self._asks = None, False, False, False, 0
        self._refilling = self._proven = False
        self._told = -1
        self._pending.doubt()
        self._numbers.clear()

    def _join(self, reason: Reason) -> list[Action]:
        """Clear the replica and read the engine's buffer from its start."""
        actions = self._cleared(reason)
        return [*actions, self._ask()] if self._can_replay else [*actions, *self._begin_live()]

    def _begin_live(self) -> list[Action]:
        """Go on with what was published since: no replay told what came before."""
        self._asks = 0
        if not self._pending:
            return []
        number, payload = self._pending.pop_first()
        self.partial, self._proven = number > 0, True
        self._pending.prove()
        actions = self._advance(number, payload)
        return [*actions, self._ask()] if self._pending and self._can_replay else actions

    def _cleared(self, reason: Reason) -> list[Action]:
        """Return the clearing of the replica, unless it holds nothing since the last one."""
        clean, self._clean = self._clean, True
        return [] if clean else [Clear(reason)]

    def _keep(self, number: int, payload: bytes, *, proven: bool, always: bool = False) -> None:
        """Let a batch wait; beyond the bound it is dropped, and asked for again later, unless it ``always`` waits."""
        if not self._pending.put(number, payload, proven=proven, always=always):
            self._dropped = True
