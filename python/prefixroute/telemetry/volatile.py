"""How much of what no replica holds is new only because of a text that changes, from a sample of a router's requests.

Prompts are compared when their request has ended, with the router's lock released: no decision waits for it. The finder
is that of ``trace`` and ``advise`` (:mod:`prefixroute.volatile`), and the same tokens count as volatile as there.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from threading import Lock
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np

from prefixroute.draws import draw
from prefixroute.index import PrefixIndex
from prefixroute.routing import RouterState
from prefixroute.routing.decision import Decision
from prefixroute.routing.ledger import Attempt
from prefixroute.routing.prompts import but_last
from prefixroute.types import Namespace
from prefixroute.volatile import CHARACTERS, MOST_PROMPTS, TOKENS, Changes, Mask, Span, Units, ids_of_text, text_of_ids

_LOG = logging.getLogger("prefixroute")
SURVEY_BYTES: Final = 8 * 1024 * 1024
"""Bytes of prompts that are held to be compared with one another: of text and of token ids each."""
INDEX_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the index of what was seen, likewise; the oldest makes room."""
MOST_WAITING: Final = 64
"""Ended requests that wait to be looked at: of more, the oldest are left out of the sample."""
_FIRST_LOOK = 8
"""Prompts after which a survey is looked at for the first time, and then each time that it has doubled."""
_MOST_RULES = 16
"""Volatile texts that are known at a time; the oldest make room."""
_SESSION_CHARACTERS = 256
"""The end of a session's key that says whether it is in the sample."""
_DRAW = 1_000
"""Number of the draw of a request without a session: no policy takes so many."""
_WITHOUT, _AS_IT_IS = "without what changes", "as it is"


class GrowingPart:
    """Tells a part of a total that only grows, such that neither the part nor the rest ever falls."""

    def __init__(self) -> None:
        """Begin at zero."""
        self._whole = self._part = 0

    def part(self, whole: int, share: float) -> int:
        """Return the part of a total by the share that is known now; what was told before is not taken back."""
        self._part += min(whole - self._whole, max(0, round(whole * share) - self._part))
        self._whole = whole
        return self._part


class _Seen(NamedTuple):
    """A request of the sample.

    Attributes:
        text: its prompt.
        whole: prompt and answer; the prompt where the answer is not known.
        answer: units of it that are the answer's at most, of which the last token is not held.
        namespace: what else must be equal.
        prompt_tokens: of the prompt.
        hit: tokens that some replica was believed to hold.
        scale: tokens of the prompt for one that its text is estimated to have.
    """

    text: str
    whole: str
    answer: int
    namespace: Namespace | None
    prompt_tokens: int
    hit: int
    scale: float


class _Stream:
    """Prompts of one form: finds what changes in them, and what would have been seen before without it.

    Surveys follow one another, each of the first prompts behind the one before. Those of the first survey are kept
    until something is found, and looked at again then; what a later one finds beside counts from then on.

    Attributes:
        first_sight: tokens of the prompts looked at that no replica was believed to hold.
        volatile: those of them that had been seen but for what changes.
        span: the volatile text that most prompts have, as it was last found.
    """

    def __init__(self, units: Units, block_size: int) -> None:
        """Have seen nothing."""
        self._units = units
        self._index = PrefixIndex(block_size=block_size, max_bytes=INDEX_BYTES)
        for name in (_WITHOUT, _AS_IT_IS):
            self._index.add_replica(name)
        self.first_sight = self.volatile = 0
        self.span: Span | None = None
        self._mask = Mask()
        self._kept: list[_Seen] | None = []
        self._split = 0  # how many of these are
        self._survey(self._mask)

    def _survey(self, known: Mask) -> None:
        """Begin a survey of what changes beside what is known."""
        self._known, self._changes = known, Changes(units=self._units)
        self._prompts, self._bytes, self._next_look = 0, 0, _FIRST_LOOK

    def add(self, seen: _Seen) -> None:
        """Look at one more request."""
        self._changes.add(self._known(seen.text))
        self._prompts += 1
        self._bytes += sys.getsizeof(seen.text) + (0 if seen.whole is seen.text else sys.getsizeof(seen.whole))
        complete = self._prompts == MOST_PROMPTS or self._bytes >= SURVEY_BYTES
        looks = complete or self._prompts == self._next_look
        found = looks and self._look()
        if self._kept is None:
            self._count(seen)
        else:
            self._kept.append(seen)
            if found:
                self._index.clear()
                for earlier in self._kept[: self._split]:
                    self._remember(earlier)
            if looks or self._mask:
                for one in self._kept[self._split :]:
                    self._count(one)
                self._split = len(self._kept)
        if complete:
            self._kept = None
            self._survey(self._mask)

    def _look(self) -> bool:
        """Look at what the survey has found; return whether that is something else than was known."""
        span, beside = self._changes.result()
        rules = [*self._known.rules, *beside.rules][-_MOST_RULES:]
        self.span, self._next_look = span or self.span, 2 * self._next_look
        if rules == self._mask.rules:
            return False
        self._mask = Mask(rules)
        return True

    def _count(self, seen: _Seen) -> None:
        """Say how much of a prompt is volatile, and remember the request."""
        first_sight = seen.prompt_tokens - seen.hit
        self.first_sight += first_sight
        if not self._mask:
            return
        without, as_it_is = (
            round(seen.scale * int(self._index.match(self._form(text), seen.namespace)[slot]))
            for slot, text in enumerate((self._mask(seen.text), seen.text))
        )
        self.volatile += min(first_sight, max(0, without - max(as_it_is, seen.hit)))
        self._remember(seen)

    def _remember(self, seen: _Seen) -> None:
        for name, text in ((_WITHOUT, self._mask(seen.whole)), (_AS_IT_IS, seen.whole)):
            self._index.insert(name, but_last(self._form(text), seen.answer), seen.namespace)

    def _form(self, text: str) -> Any:
        """Return a text as the router hashes it."""
        return text if self._units is CHARACTERS else ids_of_text(text)


class Sampled:
    """A request of the sample: it is noted when it ends."""

    __slots__ = ("_decision", "_hit", "_prompt", "_sample")

    def __init__(self, sample: VolatileSample, decision: Decision, hit: int) -> None:
        """Wait for its end."""
        self._sample, self._decision, self._hit = sample, decision, hit
        self._prompt = decision.prompt  # a decision may let go of it

    def finish(self, output: Any, now: float) -> None:
        """Note it with its answer."""
        del now
        self._sample.waiting.append((self._decision, self._prompt, self._hit, output))

    def abort(self) -> None:
        """Note it without one."""
        self._sample.waiting.append((self._decision, self._prompt, self._hit, None))


class VolatileSample:
    """Compares prompts of some requests with the nearest earlier ones: which share of first sight is volatile.

    A conversation is in the sample or is not, by a hash of its session; a request without a session by its decision id.
    Memory is
    bounded: :data:`SURVEY_BYTES` of prompts and :data:`INDEX_BYTES` of what was seen, of text and of token ids each,
    and up to :data:`MOST_WAITING` prompts of the host's. Thread-safe.

    Attributes:
        share: of requests that are in the sample, above 0 to 1.
        waiting: requests that have ended and are not looked at yet.
    """

    def __init__(self, share: float, state: RouterState) -> None:
        """Have seen nothing.

        Args:
            share: of requests that are looked at, above 0 to 1.
            state: the router's; its seed fixes the sample.
        """
        self.share, self._state = share, state
        self.waiting: deque[tuple[Decision, Any, int, Any]] = deque(maxlen=MOST_WAITING)
        self._streams: dict[Units, _Stream] = {}
        self._splits: dict[str | None, GrowingPart] = {}
        self._lock = Lock()
        self._prompts = self._unreadable = self._unread_first_sight = 0

    def follow(self, attempt: Attempt) -> tuple[Sampled, ...]:
        """Return what follows a request that was booked just now; nothing if it is not in the sample.

        The router's lock is held.

        Args:
            attempt: that was booked just now.
        """
        decision = (attempt.prefill or attempt).decision
        if self.share < 1 and not self._takes(decision):
            return ()
        computing = attempt.prefill or attempt
        return (Sampled(self, decision, max(decision.best_hit_tokens, computing.hit)),)

    def _takes(self, decision: Decision) -> bool:
        session, number = decision.query.info.session, decision.decision_id
        if session:
            number = crc32(session[-_SESSION_CHARACTERS:].encode("utf-8", "surrogatepass"))
        return draw(decision.seed, number, _DRAW) < self.share

    def look(self) -> None:
        """Look at the requests that have ended; the router's lock is not held. At once if another thread is at it."""
        while self.waiting and self._lock.acquire(blocking=False):
            try:
                while self.waiting:
                    self._add(*self.waiting.popleft())
            except IndexError:  # a signal handler has looked
                pass
            finally:
                self._lock.release()

    def _add(self, decision: Decision, prompt: Any, hit: int, output: Any) -> None:
        self._prompts += 1
        try:
            form = self._read(decision, prompt, hit, output)
            if form is not None:
                units, seen = form
                stream = self._streams.get(units)
                if stream is None:
                    stream = self._streams[units] = _Stream(units, self._state.config.block_size)
                stream.add(seen)
                return
        except Exception:  # noqa: BLE001  # whatever a prompt is or a tokenizer raises, the request has ended well
            _LOG.debug("a prompt of the sample could not be compared", exc_info=True)
        self._unreadable += 1
        self._unread_first_sight += decision.prompt_tokens - hit

    def _read(self, decision: Decision, prompt: Any, hit: int, output: Any) -> tuple[Units, _Seen] | None:
        """Return a request as it is compared, and what its prompt is made of; ``None`` if it came as hashes."""
        prompts = self._state.prompts.of(decision.query.kind)
        prepared = prompts.prepare(prompt)
        if hasattr(prepared, "token_count"):
            return None
        units, text = _as_text(prepared)
        length = decision.blocks.token_count
        whole, answer = text, 0
        if output is not None and not hasattr(output, "token_count"):
            joined, answer = prompts.joined(prompt, output, length)
            whole = _as_text(joined)[1]
        scale = decision.prompt_tokens / max(1, length)
        namespace = decision.query.info.namespace
        return units, _Seen(text, whole, answer, namespace, decision.prompt_tokens, hit, scale)

    @property
    def volatile_share(self) -> float:
        """Share of first sight that is volatile, of the prompts looked at; 0 where there is none."""
        streams = list(self._streams.values())
        first_sight = self._unread_first_sight + sum(stream.first_sight for stream in streams)
        return sum(stream.volatile for stream in streams) / first_sight if first_sight else 0.0

    def part(self, policy: str | None, first_sight: int) -> int:
        """Return the volatile part of a policy's first sight; the router's lock is held.

        Args:
            policy: a shadow's name; ``None`` = the live policy.
            first_sight: tokens that no replica was believed to hold.
        """
        return self._splits.setdefault(policy, GrowingPart()).part(first_sight, self.volatile_share)

    def to_dict(self) -> dict[str, Any]:
        """Return the sample's share and size, and what was found to change: kind, place and length in tokens."""
        spans = [(units, stream.span) for units, stream in list(self._streams.items()) if stream.span is not None]
        found = []
        for units, span in spans:
            per_token = 1 if units is TOKENS else CHARACTERS.longest // TOKENS.longest
            place, length = round(span.characters / per_token), max(1, round(span.length / per_token))
            found.append({"kind": span.kind, "tokens_before": place, "tokens": length, "share": span.share})
        return {
            "sample": self.share,
            "prompts": self._prompts,
            "unreadable_prompts": self._unreadable,
            "share_of_first_sight": self.volatile_share,
            "found": found,
        }


def _as_text(prepared: Any) -> tuple[Units, str]:
    """Return a prompt, as it is hashed, as a text to be compared."""
    if isinstance(prepared, str):
        return CHARACTERS, prepared
    if isinstance(prepared, bytes | bytearray):
        return CHARACTERS, bytes(prepared).decode("utf-8", "replace")
    return TOKENS, text_of_ids(np.asarray(prepared))
