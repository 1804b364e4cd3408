"""What a reader is told, and what it yields for each request of a file, before its place in time is settled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from prefixroute.costmodel.assumption import Assumption
from prefixroute.errors import ConfigError
from prefixroute.limits import MAX_BLOCK_SIZE
from prefixroute.messages import CanonicalForm
from prefixroute.validation import check_callable, check_float, check_given, check_instance, check_int, shown
from prefixroute.volatile import Span
from prefixroute.workload.readers.fields import FieldMap
from prefixroute.workload.readers.lines import LINE_BYTES
from prefixroute.workload.readers.log_pass import LogPass
from prefixroute.workload.readers.row import MOST_TIME, Row
from prefixroute.workload.readers.source import LogFile
from prefixroute.workload.request import Request

BURST: Final = "the file has no times: all requests come at once"


class TraceRecord(NamedTuple):
    """A request and the line it stands on. Its time is as recorded: any zero, and perhaps not in order."""

    line: int
    request: Request


class FirstRow(NamedTuple):
    """The first row of a file, by which its format is recognised."""

    file: LogFile
    line: int
    text: str
    fields: dict[str, Any] | None
    """The row as a JSON object, or None if it is none."""

    @property
    def row(self) -> Row:
        """The row, without fields if it is no JSON object."""
        return Row(self.fields or {}, self.file, self.line)

    def has(self, *names: str) -> bool:
        """Return whether the row is a JSON object with fields of all these names."""
        return self.fields is not None and self.fields.keys() >= set(names)


@dataclass(frozen=True, slots=True)
class Options:
    """How to read a file. What is None is decided by the format, and by the file.

    Attributes:
        format: the name of a format; recognised by the first line unless given.
        block_size: tokens a block.
        fields: where a gateway log has what.
        reorder_s: rows may be this many seconds out of order (logs are often written at completion).
        infer_sessions: where there is no session key, take a prompt that extends an earlier prompt as its session.
        seed: for what has to be drawn (starts of recorded sessions).
        sessions_per_hour: starts of recorded sessions, whose own start times are not in the file.
        share_system: sessions of the agent trace with equal models and equal lengths of tools and of system prompt
            share these (an assumption).
        skip_bad: leave out lines that cannot be read, up to so many, count them and name the first. The file is then
            read through when it is opened, whatever its size.
        line_bytes: bytes of the longest line, or of the longest element of a JSON document.
        since: requests that arrived before this time are left out, on the clock of the file: seconds since 1970, or
            its own.
        until: requests that arrived at this time or later are left out.
        where: pairs of a name and a text: requests in which they differ are left out. The names are ``model``,
            ``tenant``, ``session``, those of :attr:`Request.attrs`, and of a gateway log any path into its rows.
        canonical: the form that messages are matched in, as a Router's ``render=``.

    Raises:
        ConfigError: a figure outside of what is allowed, or a value of another kind.
    """

    format: str | None = None
    block_size: int | None = None
    fields: FieldMap | None = None
    reorder_s: float | None = None
    infer_sessions: bool = True
    seed: int = 0
    sessions_per_hour: float | None = None
    share_system: bool = False
    skip_bad: int = 0
    line_bytes: int = LINE_BYTES
    since: float | None = None
    until: float | None = None
    where: tuple[tuple[str, str], ...] = ()
    canonical: CanonicalForm = field(default_factory=CanonicalForm)

    def __post_init__(self) -> None:
        """Check every figure, before a file is looked at."""
        check_int("skip_bad", self.skip_bad, 0)
        check_int("line_bytes", self.line_bytes, 1)
        check_int("seed", self.seed)
        check_given(self, check_int, "block_size", low=1, high=MAX_BLOCK_SIZE)
        check_given(self, check_instance, "fields", kind=FieldMap)
        check_given(self, check_float, "reorder_s", low=0)
        check_given(self, check_float, "sessions_per_hour", low=0, above=True)
        check_given(self, check_float, "since", "until", low=-MOST_TIME, high=MOST_TIME)
        if not isinstance(self.where, tuple) or not all(map(_is_pair, self.where)):
            raise ConfigError(f"where must be a tuple of pairs of texts, got {shown(self.where)}")
        check_callable("canonical", self.canonical)

    def reading(self, **more: Any) -> LogPass:
        """Begin a pass over files, which bears with as many bad lines and as long ones as these options say.

        Args:
            more: further fields of the pass.

        Returns:
            The pass.
        """
        return LogPass(skip_bad=self.skip_bad, line_bytes=self.line_bytes, **more)


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, tuple) and len(value) == len(("name", "text")) and all(isinstance(one, str) for one in value)
    )


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """A known format, settled by the first file, which reads that and further files any number of times.

    Attributes:
        block_size: tokens a block.
        records: starts a pass: returns what reads one file after another, each from its first line.
        has_sessions: whether records have a session key of their own, or too many of them to infer the others'. Must be
            given: nothing else can know it.
        reorder_s: how far rows may be out of order unless the caller says.
        assumptions: figures that are not in the file.
        notes: what was inferred or left out.
        span: the text in the heads of prompts that changes most often, where prompts are text and have any.
        head_tokens: length of the head that most of the first prompts have in common; None where nobody can know.
        bytes_per_token: of text.
        prompt_kind: ``messages`` or ``text``, what all prompts are; None for token ids and hashes, or of several kinds.
        inferred_sessions: session keys in the file were inferred when it was written.
    """

    block_size: int
    records: Callable[[LogPass], Callable[[LogFile], Iterator[TraceRecord]]]
    has_sessions: bool | None = None
    reorder_s: float = 0.0
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()
    span: Span | None = None
    head_tokens: int | None = None
    bytes_per_token: float = 4.0
    prompt_kind: str | None = None
    inferred_sessions: bool = False

    def __post_init__(self) -> None:
        """Check what a reader may forget."""
        check_instance("has_sessions of an opened log", self.has_sessions, bool)


class Format(Protocol):
    """One trace format: a module with these names."""

    NAME: str

    def recognises(self, sample: FirstRow) -> bool:
        """Return whether a file that starts like this is of this format."""
        ...

    def open_file(self, sample: FirstRow, options: Options) -> OpenedLog:
        """Settle block size, assumptions and notes; raise ``TraceError`` or ``ConfigError`` if that is impossible."""
        ...
