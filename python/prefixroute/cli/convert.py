"""``prefixroute convert``: logs to a private trace, which holds no text and can leave the house."""

from __future__ import annotations

import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from prefixroute.cli import console, options
from prefixroute.errors import ConfigError
from prefixroute.workload import Options, convert, read_trace

EXAMPLE = "Example: prefixroute convert gateway.jsonl --fields map.toml -o day.jsonl.gz"

KEY_BYTES = 16
TERMINATED = 143
"""Exit code after a request to end: 128 + SIGTERM."""


@options.grouped
def command(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILES", help="Logs or traces. Several that follow one another in time are one trace."),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Private trace; .gz packs. A folder gets one for each file."
        ),
    ],
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="16 secret bytes in hexadecimal. Traces of one key share prefixes; made up and forgotten unless given.",
        ),
    ] = None,
    quiet: options.Quiet = False,
    *,
    reading: options.Reading,
) -> None:
    """Convert logs to private traces: keyed hashes, lengths, times, reported cached tokens. No text, no plain hash."""
    secret = _key(key)
    paths = [Path(name) for name in files]
    for path in paths:
        if not path.is_file():
            what = "is a folder: name the files in it" if path.is_dir() else "is no file"
            raise ConfigError(f"{str(path)!r} {what}")
    _check(output, paths)
    said = reading.trace(paths[0]).options
    with _terminable():
        _convert_all(paths, said, output, secret, quiet=quiet)


def _convert_all(paths: list[Path], said: Options, output: Path, secret: bytes, *, quiet: bool) -> None:
    """Convert to one file, or to one for each log where the output is a folder."""
    if not output.is_dir():
        _convert(paths, said, output, secret, quiet=quiet)
        return
    stems = [path.name.removesuffix(".gz").removesuffix(".jsonl") for path in paths]
    twice = next((stem for stem in stems if stems.count(stem) > 1), None)
    if twice is not None:
        raise ConfigError(f"two logs would be written to one file of --output, {twice}.private.jsonl.gz")
    for path, stem in zip(paths, stems, strict=True):
        _convert([path], said, output / f"{stem}.private.jsonl.gz", secret, quiet=quiet)


@contextmanager
def _terminable() -> Iterator[None]:
    """Leave by an exception when told to end, so that no half-written file stays behind."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check(output: Path, logs: list[Path]) -> None:
    """Refuse an output that cannot be written, or that would take the place of a log: its text would be lost."""
    if not output.absolute().parent.is_dir():
        raise ConfigError(f"--output must be a folder or a file in an existing folder, got {str(output)!r}")
    if output.is_file() and any(output.samefile(log) for log in logs):
        raise ConfigError(f"--output must not be one of the logs, got {str(output)!r}")


def _convert(paths: list[Path], said: Options, target: Path, key: bytes, *, quiet: bool) -> None:
    """Convert in one pass: a bad line ends it before anything takes the place of the target."""
    with console.progress(quiet=quiet) as told:
        progress = None if told is None else lambda share: told(share, f"converting {paths[0].name}")
        workload = read_trace(paths, said, check=False, progress=progress)
        options.name_bad_lines(workload)
        written = convert(workload, target, key)
    line = f"{target}: {written.requests:,} requests, {written.prompt_tokens:,} prompt tokens"
    # A pipe may be our own stdout, where a line of ours would end up in the trace.
    if target.is_file():
        console.say(line, console.stdout())
    else:
        console.note(line)


def _key(path: Path | None) -> bytes:
    """Return the secret: of the file, or a fresh one that nobody keeps."""
    if path is None:
        return secrets.token_bytes(KEY_BYTES)
    try:
        key = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError) as error:
        raise ConfigError(f"--key must be a file of {2 * KEY_BYTES} hexadecimal digits: {error}") from None
    if len(key) != KEY_BYTES:
        raise ConfigError(f"--key must be {2 * KEY_BYTES} hexadecimal digits, got {2 * len(key)}")
    return key
