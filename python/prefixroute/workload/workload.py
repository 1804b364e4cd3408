"""A workload: a named stream of requests that can be read again from the start, any number of times."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from prefixroute.costmodel.assumption import Assumption
from prefixroute.document import figures
from prefixroute.errors import ConfigError
from prefixroute.validation import check_float
from prefixroute.workload.readers.log_pass import Skipped, Tally
from prefixroute.workload.request import Request
from prefixroute.workload.streams import chain_key

_KEY_RANGE = 2**64
_MOST_SPEED = 1e9


@dataclass(frozen=True, slots=True)
class Volatile:
    """Text near the start of prompts that changes: nothing behind it is shared by prompts in which it differs.

    Found by comparing each of the first prompts with the nearest earlier one. Figures are those of the median prompt.

    Attributes:
        kind: what it looks like: ``date``, ``number``, ``id`` (one word with a digit in it) or ``text``.
        tokens: tokens before it.
        length: its own tokens.
        gain: tokens behind it that the nearest earlier prompt has too.
        share: prompts that have it, of those compared.
        example: where it stands in one of the prompts. It quotes the log, and is in no JSON and on no page.
    """

    kind: str
    tokens: int
    length: int
    gain: int
    share: float
    example: str = field(default="", repr=False, compare=False)

    def to_dict(self) -> dict[str, object]:
        """Return the fields of a JSON object."""
        return figures(self, "kind", "tokens", "length", "gain", "share")


@dataclass(frozen=True, slots=True)
class _MaskedSource:
    """The requests of a source with the blocks that they have without what is volatile."""

    source: Callable[[], Iterator[Request]]

    def __call__(self) -> Iterator[Request]:
        for request in self.source():
            if request.masked is None:
                yield request
            else:
                yield request._replace(prompt=request.masked.prompt, context=request.masked.context, masked=None)


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in order of arrival. Each call of :meth:`requests` starts again and yields the same requests.

    Attributes:
        name: what tables call it (``chat``, or a file's name).
        block_size: tokens a block, for router, belief and truth alike.
        source: makes a fresh iterator of the requests.
        request_count: how many requests there are, or None where nobody has counted.
        assumptions: the figures the workload rests on.
        notes: what a reader had to infer or change (sessions inferred, rows put in order).
        head_tokens: about how many tokens most of the first prompts have in common; known of logs of text or tokens
            only.
        skipped: bad lines of its file that were left out, where that was asked for and there were any.
        left_out: rows of its file that are no requests for a replica, by what they are, and requests that were not
            asked for; counted by a whole pass, see :meth:`told`.
        remarks: requests that were read although something is odd about them, by what that is; counted likewise.
        is_parsed: each pass reads and parses a file again; see :func:`prefixroute.workload.keep`.
        volatile: what near the start of prompts keeps them from being shared; known of logs of text only.
        tally: what the last whole pass over its file left out; see :meth:`told`.
        prompt_kind: ``messages`` or ``text``, what all prompts of its log are, as a router has to be told; None for
            token ids and hashes, and where some are of another kind than others.
        inferred_sessions: requests have no session key, or hardly any: a prompt that extends an earlier one continues
            its session.
    """

    name: str
    block_size: int
    source: Callable[[], Iterator[Request]] = field(repr=False, compare=False)
    request_count: int | None = None
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()
    head_tokens: int | None = None
    skipped: Skipped | None = None
    is_parsed: bool = False
    volatile: Volatile | None = None
    tally: Tally | None = field(default=None, repr=False, compare=False)
    prompt_kind: str | None = None
    inferred_sessions: bool = False
    left_out: Mapping[str, int] = field(default_factory=dict, hash=False)
    remarks: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __reduce__(self) -> tuple[type[Workload], tuple[object, ...]]:
        """Pickle the fields; possible where the source pickles."""
        return Workload, tuple(getattr(self, name) for name in self.__slots__)

    @property
    def masked(self) -> Workload | None:
        """The same workload without what is volatile in its prompts: what moving that to their end would give.

        None where nothing volatile was found. It costs no further reading of the file.
        """
        if self.volatile is None:
            return None
        return replace(self, source=_MaskedSource(self.source), volatile=None)

    def told(self) -> Workload:
        """Return the workload with what the last whole pass over its file left out and noticed.

        In its notes, and counted.
        """
        if self.tally is None:
            return self
        tally = self.tally
        skipped, assumptions, notes = tally.skipped, self.assumptions, (*self.notes, *tally.notes)
        if skipped is not None:
            unit, source = f"of {skipped.lines} lines", "left out as bad, as asked for"
            assumptions += (Assumption("skipped_lines", skipped.bad, unit, source, assumed=False),)
            notes += (skipped.note,)
        return replace(
            self,
            assumptions=assumptions,
            notes=notes,
            skipped=skipped,
            tally=None,
            left_out=tally.left_out,
            remarks=tally.remarks,
        )

    def requests(self) -> Iterator[Request]:
        """Yield the requests in order of arrival, from the first, holding one at a time.

        Raises:
            TraceError: at the bad line of a file that was not checked when it was opened. Whoever consumes the stream
                then discards what it has made of the requests before.
        """
        return self.source()

    def head(self, count: int) -> Workload:
        """Return the first ``count`` requests as a workload.

        Args:
            count: how many requests.

        Raises:
            ConfigError: the count is below 0.
        """
        if count < 0:
            raise ConfigError(f"a workload's head must have 0 requests or more, got {count}")
        known = None if self.request_count is None else min(count, self.request_count)
        return replace(self, source=lambda: itertools.islice(self.source(), count), request_count=known)

    def scaled(self, speed: float) -> Workload:
        """Return the same requests with arrivals ``speed`` times as fast (2 halves every gap).

        Args:
            speed: above 0.
        """
        check_float("speed", speed, 1 / _MOST_SPEED, _MOST_SPEED)

        def requests() -> Iterator[Request]:
            return (request._replace(arrival_s=request.arrival_s / speed) for request in self.source())

        note = f"arrivals {speed:g} times as fast as recorded"
        return replace(self, source=requests, notes=(*self.notes, note))

    def sampled(self, share: float, seed: int = 0) -> Workload:
        """Return about ``share`` of the sessions, each of them whole; a request without a session is one of its own.

        Taking requests one by one would tear conversations apart and make every cache look worse.

        Args:
            share: above 0 to 1.
            seed: which sessions are taken.
        """
        check_float("share of sessions", share, 0, 1, above=True)
        limit = share * _KEY_RANGE

        def requests() -> Iterator[Request]:
            for at, request in enumerate(self.source()):
                if chain_key(seed, "sample", at if request.session is None else request.session) < limit:
                    yield request

        note = f"a sample of {share:.4g} of the sessions, each whole (seed {seed})"
        return replace(self, source=requests, request_count=None, notes=(*self.notes, note))
