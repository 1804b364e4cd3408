"""Write a workload as a private trace: keyed hashes, lengths and times, so that it can leave the house."""

from __future__ import annotations

import gzip
import json
import os
import re
import secrets
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from prefixroute.hashing import BlockHashes
from prefixroute.workload.readers.private import MARK, VERSION
from prefixroute.workload.readers.siphash import siphash
from prefixroute.workload.request import REPLICA, USER, Request
from prefixroute.workload.tree import PrefixTree, Stretch
from prefixroute.workload.workload import Workload

WINDOW = 8192
"""Lines that a request may refer back over; a reader holds that many chains."""
_BATCH = 512
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_MODEL_NAME = re.compile(r"(?!sk-|.*//)\w[\w.:/+-]{0,95}", re.ASCII)
"""What a model's name looks like. A field that holds anything else, such as an address, a path, a key or a sentence,
is hashed."""
_GZIP_LEVEL = 1  # most of a line is the hashes, which no level makes smaller


@dataclass(frozen=True, slots=True)
class Converted:
    """What was written.

    Attributes:
        requests: how many.
        prompt_tokens: of all of them.
        blocks: hashes in the file; the other blocks refer to earlier lines.
    """

    requests: int
    prompt_tokens: int
    blocks: int


def convert(
    workload: Workload, path: str | Path, key: bytes, *, progress: Callable[[int], None] | None = None
) -> Converted:
    """Write ``workload`` to ``path`` as a private trace, gzip if the name ends in ``.gz``. Reads it once, streaming.

    Same workload and key, same bytes. Traces written with one key can be told to share prefixes; with different keys,
    and without the key, nothing can be learned from the hashes. Lengths, times and model names are plain; a "model"
    that is no name (it has spaces or an ``@``, or is long) is hashed like a session. A file that cannot be written
    whole is not left behind.

    Args:
        workload: what to write.
        path: where to.
        key: 16 secret bytes.
        progress: called with the number of requests written so far, now and then.

    Returns:
        How many requests and tokens were written.

    Raises:
        TraceError: at a bad line of the source.
        ConfigError: if the key has another length.
        OSError: if the file cannot be written.
    """
    siphash(np.empty(0, np.uint64), key)
    with _written_whole(Path(path)) as stream:
        return _Writer(stream, workload, key).write(progress or (lambda _: None))


class _Writer:
    """Writes requests in batches, since the keyed hash is fast on many numbers only."""

    def __init__(self, stream: IO[bytes], workload: Workload, key: bytes) -> None:
        self._stream = stream
        self._workload = workload
        self._key = key
        self._chains, self._masked = _WrittenChains(), _WrittenChains()
        self._rows: list[dict[str, Any]] = []
        self._fresh: list[tuple[dict[str, Any], NDArray[np.uint64]]] = []

    def write(self, progress: Callable[[int], None]) -> Converted:
        number = tokens = blocks = 0
        self._write_header()
        for number, request in enumerate(self._workload.requests(), start=1):
            blocks += self._take(number, request)
            tokens += request.prompt_tokens
            if number % _BATCH == 0:
                self._flush()
                progress(number)
        self._flush()
        return Converted(number, tokens, blocks)

    def _write_header(self) -> None:
        workload = self._workload
        header: dict[str, Any] = {
            MARK: VERSION,
            "block_size": workload.block_size,
            "window": WINDOW,
            "hash": "siphash-2-4",
            "notes": [*workload.notes, *(str(item) for item in workload.assumptions if item.assumed)],
        }
        if workload.head_tokens is not None:
            header["head"] = workload.head_tokens
        if workload.inferred_sessions:
            header["inferred_sessions"] = True
        if workload.volatile is not None:
            header["volatile"] = workload.volatile.to_dict()
        self._stream.write(_encode(header).encode() + b"\n")

    def _take(self, number: int, request: Request) -> int:
        """Take a request into the batch; return how many hashes its line will have."""
        size = self._workload.block_size
        row: dict[str, Any] = {"t": round(request.arrival_s, 6), "in": request.prompt_tokens}
        row["out"] = request.output_tokens
        fresh = self._chains.place(row, number, request.prompt, request.context)
        self._fresh.append((row, fresh))
        if len(request.prompt) != request.prompt_tokens // size:
            row["full"] = len(request.prompt)
        named = (
            ("session", request.session), ("tenant", request.tenant), *((name, request.attrs.get(name)) for name in (USER, REPLICA)),
        )  # fmt: skip
        for name, value in named:
            if value is not None:
                row[name] = self._keyed(value)
        if request.model is not None:
            row["model"] = request.model if _MODEL_NAME.fullmatch(request.model) else self._keyed(request.model)
        if request.reported_hit_tokens is not None:
            row["cached"] = request.reported_hit_tokens
        if self._workload.volatile is not None:
            fresh = np.concatenate([fresh, self._take_masked(row, number, request)])
        self._rows.append(row)
        return len(fresh)

    def _take_masked(self, row: dict[str, Any], number: int, request: Request) -> NDArray[np.uint64]:
        """Place the chain without what is volatile; return its new hashes, none where it is the request's own."""
        prompt, context = request.masked or (request.prompt, request.context)
        fields: dict[str, Any] = {}
        fresh = self._masked.place(fields, number, prompt, context)
        if request.masked is None:
            return fresh[:0]
        row["masked"] = fields
        self._fresh.append((fields, fresh))
        if len(prompt) != request.prompt_tokens // self._workload.block_size:
            fields["full"] = len(prompt)
        return fresh

    def _keyed(self, text: str) -> str:
        return blake2b(text.encode("utf-8", "surrogatepass"), key=self._key, digest_size=8).hexdigest()

    def _flush(self) -> None:
        if not self._rows:
            return
        hashes = siphash(np.concatenate([fresh for _, fresh in self._fresh]), self._key).astype("<u8").tobytes()
        at = 0
        for fields, fresh in self._fresh:
            end = at + 8 * len(fresh)
            if end > at:
                fields["blocks"] = b64encode(hashes[at:end]).decode()
            at = end
        self._stream.write("\n".join([*map(_encode, self._rows), ""]).encode())
        self._rows, self._fresh = [], []


class _WrittenChains:
    """The chains of the last lines, to refer back to."""

    def __init__(self) -> None:
        self._tree = PrefixTree()

    def place(self, row: dict[str, Any], number: int, prompt: BlockHashes, context: BlockHashes) -> NDArray[np.uint64]:
        """Write into a row what its chain shares with an earlier line's; return the hashes that it does not."""
        chain = context.array
        shared = _shared(self._tree.touch(number, prompt.array, chain), number - WINDOW)
        kept = 0
        if shared is not None:
            kept = shared.last
            row["back"], row["keep"] = number - shared.toucher, kept
        if number % WINDOW == 0:
            self._tree.forget(number - WINDOW)
        return chain[kept:]


def _shared(known: list[Stretch], oldest: int) -> Stretch | None:
    """Return the longest known prefix that one line of the window holds: its last toucher's chain has all of it."""
    usable = [stretch for stretch in known if stretch.toucher >= oldest]
    return usable[-1] if usable else None


@contextmanager
def _written_whole(path: Path) -> Iterator[IO[bytes]]:
    """Open a file beside ``path`` and move it there when all is written.

    A link stays, and what it leads to is replaced. A device or a pipe is written to: a file must not take its place.
    The file beside it has a name that nobody else has: any other, as ``path`` with an ending, may be a file of the
    user's.
    """
    if path.exists() and not path.is_file():
        with _packing(path, path) as stream:
            yield stream
        return
    target = Path(os.path.realpath(path))  # `resolve` raises where a link leads to itself
    part = target.with_name(f".prefixroute-{secrets.token_hex(8)}")  # short, whatever the length of the target's
    try:
        with _packing(path, part, "xb") as stream:
            yield stream
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _opened(name: Path, target: Path, mode: Literal["wb", "xb"]) -> IO[bytes]:
    """Open ``target``; an error names the file that the user named."""
    try:
        return target.open(mode)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(name)) from None


@contextmanager
def _packing(name: Path, target: Path, mode: Literal["wb", "xb"] = "wb") -> Iterator[IO[bytes]]:
    """Open ``target``, packed if ``name`` says so; gzip without name and time, so same bytes."""
    with _opened(name, target, mode) as raw:
        if name.suffix == ".gz":
            with gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0) as zipped:
                yield cast("IO[bytes]", zipped)
        else:
            yield raw
