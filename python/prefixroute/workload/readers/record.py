"""What a reader yields for one request of a file, before its place in time and its session are settled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from prefixroute.costmodel.assumption import Assumption
from prefixroute.hashing import BlockHashes
from prefixroute.workload.readers.fields import FieldMap
from prefixroute.workload.readers.reading import Reading
from prefixroute.workload.readers.volatile import Span


class Record(NamedTuple):
    """One request as its file has it. Times are as recorded: any zero, and perhaps not in order."""

    line: int
    arrival_s: float
    prompt: BlockHashes
    context: BlockHashes
    prompt_tokens: int
    output_tokens: int
    session: str | None = None
    tenant: str | None = None
    model: str | None = None
    reported_hit_tokens: int | None = None
    attrs: Mapping[str, str] | None = None


class Sample(NamedTuple):
    """The first line of a file that is not blank, by which its format is recognised."""

    path: Path
    line: int
    text: str
    fields: dict[str, Any] | None
    """The line as a JSON object, or None if it is none."""


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
        skip_bad_lines: leave out lines that cannot be read, up to a tenth of them, count them and name the first. The
            file is then read through when it is opened, whatever its size.
    """

    format: str | None = None
    block_size: int | None = None
    fields: FieldMap | None = None
    reorder_s: float | None = None
    infer_sessions: bool = True
    seed: int = 0
    sessions_per_hour: float | None = None
    share_system: bool = False
    skip_bad_lines: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """A known format, settled by the first file, which reads that and further files any number of times.

    Attributes:
        block_size: tokens a block.
        records: starts reading a file from its first line.
        has_sessions: whether records have a session key of their own, or too many of them to infer the others'.
        reorder_s: how far rows may be out of order unless the caller says.
        assumptions: figures that are not in the file.
        notes: what was inferred or left out.
        masked: the records with dates, times and ids in the heads of prompts masked, where prompts are text.
        span: the first of these in most prompts, if they have one that changes.
        head_tokens: length of the head that most of the first prompts have in common; None where nobody can know.
        bytes_per_token: of text.
        has_stray_keys: whether some records have a session key where sessions are inferred for the others.
    """

    block_size: int
    records: Callable[[Path, Reading], Iterator[Record]]
    has_sessions: bool
    reorder_s: float = 0.0
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[str, ...] = ()
    masked: Callable[[Path, Reading], Iterator[Record]] | None = None
    span: Span | None = None
    head_tokens: int | None = None
    bytes_per_token: float = 4.0
    has_stray_keys: bool = False


class Format(Protocol):
    """One trace format: a module with these names."""

    NAME: str

    def recognises(self, sample: Sample) -> bool:
        """Return whether a file that starts like this is of this format."""
        ...

    def open_file(self, sample: Sample, options: Options) -> Opened:
        """Settle block size, assumptions and notes; raise ``TraceError`` or ``ConfigError`` if that is impossible."""
        ...
