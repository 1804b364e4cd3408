"""``prefixroute convert``: logs to a private trace, which holds no text and can leave the house."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from prefixroute.cli import console, options
from prefixroute.errors import ConfigError
from prefixroute.workload import Workload, convert, read_trace

EXAMPLE = "Example: prefixroute convert gateway.jsonl --fields map.toml -o day.jsonl.gz"

KEY_BYTES = 16


def command(  # noqa: PLR0917
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
    form: options.Format = None,
    fields: options.Fields = None,
    block_size: options.BlockSize = None,
) -> None:
    """Convert logs to private traces: keyed hashes, lengths, times, reported cached tokens. No text, no plain hash."""
    secret = _key(key)
    paths = [Path(name) for name in files]
    for path in paths:
        if not path.is_file():
            raise ConfigError(f"there is no file {str(path)!r}")
    _check(output, paths)
    told = options.TraceFile(paths[0], form, fields, block_size).options
    if not output.is_dir():
        _convert(read_trace(paths, told), output, secret)
        return
    stems = [path.name.removesuffix(".gz").removesuffix(".jsonl") for path in paths]
    twice = next((stem for stem in stems if stems.count(stem) > 1), None)
    if twice is not None:
        raise ConfigError(f"two logs would be written to one file of --output, {twice}.private.jsonl.gz")
    for path, stem in zip(paths, stems, strict=True):
        _convert(read_trace(path, told), output / f"{stem}.private.jsonl.gz", secret)


def _check(output: Path, logs: list[Path]) -> None:
    """Refuse an output that cannot be written, or that would take the place of a log: its text would be lost."""
    if not output.absolute().parent.is_dir():
        raise ConfigError(f"--output must be a folder or a file in an existing folder, got {str(output)!r}")
    if output.is_file() and any(output.samefile(log) for log in logs):
        raise ConfigError(f"--output must not be one of the logs, got {str(output)!r}")


def _convert(workload: Workload, target: Path, key: bytes) -> None:
    total = workload.request_count
    with console.progress() as told:
        progress = None if told is None or not total else lambda done: told(done / total, workload.name)
        written = convert(workload, target, key, progress=progress)
    line = f"{target}: {written.requests:,} requests, {written.prompt_tokens:,} prompt tokens"
    console.stdout().print(line, markup=False)


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
