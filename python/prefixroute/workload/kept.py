"""A workload that was read once and is held as arrays in a temporary folder, for any number of runs and processes.

Reading a log means parsing JSON and hashing prompts. Runs need neither: they need lengths, times, keys and block
hashes. Those are written here as they are read, 8 bytes a block and some 50 bytes a request, and mapped into memory by
each process that runs.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
import weakref
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from prefixroute.hashing import BlockHashes
from prefixroute.types import EMPTY_ATTRS
from prefixroute.workload.request import CacheEntry, Masked, Request
from prefixroute.workload.workload import Workload

HELD_BYTES: Final = 64 * 1024 * 1024
"""Hashes up to this size are held as request objects after the first pass: that saves making them again for each
run."""
_KEYS = ("session", "document", "tenant", "model")
_ROW = np.dtype(
    [
        ("arrival_s", "f8"), ("prompt_tokens", "i8"), ("output_tokens", "i8"), ("held_tokens", "i8"), ("named_tokens", "i8"),
        ("reported", "i8"), ("blocks", "i4"), ("prompt_blocks", "i4"), *((name, "i4") for name in _KEYS), ("attrs", "i4"),
        ("same", "?"), ("masked_blocks", "i4"), ("masked_prompt_blocks", "i4"),
    ]
)  # fmt: skip
_HASHES, _ROWS, _TABLES = "hashes", "rows", "tables"


class KeptParts(NamedTuple):
    """Requests as arrays.

    Attributes:
        rows: one a request.
        hashes: of all requests, one after another.
        tables: the rest, pickled.
    """

    rows: NDArray[Any]
    hashes: NDArray[np.uint64]
    tables: bytes

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Map those of a folder that :func:`keep` has written.

        Args:
            folder: with its files.

        Returns:
            The parts.
        """
        path = folder / _HASHES
        hashes = np.asarray(np.memmap(path, np.uint64, "r")) if path.stat().st_size else np.empty(0, np.uint64)
        return cls(np.fromfile(folder / _ROWS, _ROW), hashes, (folder / _TABLES).read_bytes())


class KeptRequests:
    """Requests held as arrays, as the ``source`` of a workload. Reading is thread-safe.

    Those of a folder pickle as its path. It is removed when the object that wrote it is no longer used, and when the
    process ends.
    """

    def __init__(self, parts: Callable[[], KeptParts], folder: Path | None = None) -> None:
        """Open arrays when they are first read.

        Args:
            parts: returns them.
            folder: where they lie, if other processes may map them there.
        """
        self.parts, self._folder = parts, folder
        self._held: list[Request] | None = None

    def __call__(self) -> Iterator[Request]:
        """Yield the requests, from the first."""
        if self._held is not None:
            return iter(self._held)
        parts = self.parts()
        if parts.hashes.nbytes > HELD_BYTES:
            return self._read(parts)
        self._held = list(self._read(parts))
        return iter(self._held)

    def __reduce__(self) -> tuple[Callable[[Path], KeptRequests], tuple[Path]]:
        """Pickle the path: another process maps the same files."""
        if self._folder is None:
            raise TypeError("requests that lie in no folder do not pickle")
        return _opened, (self._folder,)

    @staticmethod
    def _read(parts: KeptParts) -> Iterator[Request]:
        rows, hashes = parts.rows, parts.hashes
        block_size, tables, entries = pickle.loads(parts.tables)  # noqa: S301 - written by us
        names, attrs = [[*tables[name], None] for name in _KEYS], [*map(dict, tables["attrs"]), EMPTY_ATTRS]
        at = 0
        for number, row in enumerate(rows.tolist()):
            arrival, prompt_tokens, output, held, named, reported, blocks, full, *keys, attr, same, others, head = row
            context = BlockHashes(hashes[at : at + blocks], token_count=held, block_size=block_size)
            at += blocks
            masked = None
            if others >= 0:
                other = BlockHashes(
                    hashes[at : at + others], token_count=max(held, others * block_size), block_size=block_size
                )
                at += others
                masked = Masked(other if same else other.head(head, named), other)
            yield Request(
                arrival,
                context if same else context.head(full, named),
                context,
                prompt_tokens,
                output,
                **{name: table[key] for name, table, key in zip(_KEYS, names, keys, strict=True)},
                entry=entries.get(number),
                reported_hit_tokens=None if reported < 0 else reported,
                attrs=attrs[attr],
                masked=masked,
            )


def keep(workload: Workload) -> Workload:
    """Return the same workload with its requests read once into arrays; one that is kept already is returned as it is.

    Costs one pass. The result pickles, so that other processes can run it.

    Args:
        workload: read once.

    Raises:
        TraceError: at a bad line of the file behind the workload; nothing is left behind then.
        OSError: the temporary folder has no room.
    """
    if isinstance(workload.source, KeptRequests):
        return workload
    folder = Path(tempfile.mkdtemp(prefix="prefixroute-"))
    kept = _in_folder(folder)
    weakref.finalize(kept, shutil.rmtree, folder, ignore_errors=True)
    count = _write(workload, folder)
    return replace(workload.told(), source=kept, request_count=count, is_parsed=False)


@lru_cache(maxsize=4)
def _opened(folder: Path) -> KeptRequests:
    """Return the requests of a folder that another process owns, once for all tasks of this process."""
    return _in_folder(folder)


def _in_folder(folder: Path) -> KeptRequests:
    return KeptRequests(partial(KeptParts.of, folder), folder)


def _number(value: Hashable | None, known: dict[Hashable, int]) -> int:
    """Return the number of a value that may repeat; a new one gets the next."""
    return -1 if value is None else known.setdefault(value, len(known))


def _write(workload: Workload, folder: Path) -> int:
    """Write the requests of ``workload`` and return how many there are."""
    tables: dict[str, dict[Hashable, int]] = {name: {} for name in (*_KEYS, "attrs")}
    entries: dict[int, CacheEntry] = {}
    count = 0
    with (folder / _HASHES).open("wb") as hashes, (folder / _ROWS).open("wb") as rows:
        for count, request in enumerate(workload.requests(), start=1):
            rows.write(_row(request, tables))
            hashes.write(request.context.array.tobytes())
            if request.masked is not None:
                hashes.write(request.masked.context.array.tobytes())
            if request.entry is not None:
                entries[count - 1] = request.entry
    named = {name: list(table) for name, table in tables.items()}
    (folder / _TABLES).write_bytes(pickle.dumps((workload.block_size, named, entries)))
    return count


def _row(request: Request, tables: dict[str, dict[Hashable, int]]) -> bytes:
    same = request.context is request.prompt
    keys = (_number(getattr(request, name), tables[name]) for name in _KEYS)
    attrs = _number(tuple(request.attrs.items()) or None, tables["attrs"])
    reported = -1 if request.reported_hit_tokens is None else request.reported_hit_tokens
    masked = (-1, 0) if request.masked is None else (len(request.masked.context), len(request.masked.prompt))
    return np.array(
        (
            request.arrival_s, request.prompt_tokens, request.output_tokens, request.context.token_count,
            request.prompt.token_count, reported, len(request.context), len(request.prompt), *keys, attrs, same, *masked,
        ),
        _ROW,
    ).tobytes()  # fmt: skip
