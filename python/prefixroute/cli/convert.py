"""``prefixroute convert``: logs to a private trace, which holds no text and can leave the house."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from prefixroute.cli import console, options
from prefixroute.cli.groups import grouped, option
from prefixroute.cli.output import check_writable
from prefixroute.cli.reading import LogOptions, name_bad_lines
from prefixroute.errors import ConfigError
from prefixroute.workload import LogFile, Options, convert, keep, log_files, read_trace

EXAMPLE = "Example: prefixroute convert gateway.jsonl --fields map.toml -o day.jsonl.gz"

KEY_BYTES = 16


@grouped
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
    key: Path | None = option(
        None,
        "16 secret bytes in hexadecimal. Traces of one key share prefixes; made up and forgotten unless given.",
        metavar="FILE",
    ),
    quiet: bool = options.quiet(False),
    *,
    reading: LogOptions,
) -> None:
    """Convert logs to private traces: keyed hashes, lengths, times, reported cached tokens. No text, no plain hash."""
    secret = _key(key)
    read = log_files(files)
    for file in read:
        if not file.path.is_file():
            what = "is a folder: name the files in it" if file.path.is_dir() else "is no file"
            raise ConfigError(f"{file.label!r} {what}")
    jobs = _jobs(output, read)
    _check(jobs, [*(file.path for file in read), *filter(None, (key, reading.fields))])
    said = reading.options
    for target, logs in jobs.items():
        _convert(logs, said, target, secret, quiet=quiet)


def _jobs(output: Path, files: list[LogFile]) -> dict[Path, list[LogFile]]:
    """Return each file to write with its logs: one of all, or one for each log where the output is a folder."""
    if not output.absolute().parent.is_dir():
        raise ConfigError(f"--output must be a folder or a file in an existing folder, got {str(output)!r}")
    if not output.is_dir():
        return {output: files}
    jobs: dict[Path, list[LogFile]] = {}
    places: set[str] = set()
    for file in files:
        name = file.name.removesuffix(".gz").removesuffix(".zst").removesuffix(".jsonl")
        target = output / f"{name}.private.jsonl.gz"
        place = os.path.realpath(target)
        if place in places:
            raise ConfigError(f"two logs would be written to one file of --output, {target.name}")
        places.add(place)
        jobs[target] = [file]
    return jobs


def _check(targets: Iterable[Path], inputs: list[Path]) -> None:
    """Refuse an output that cannot be a file, or that would take the place of what is read: that would be lost."""
    for target in targets:
        if target.is_dir():
            raise ConfigError(f"--output would write to {str(target)!r}, which is a folder")
        for read in inputs if target.is_file() else ():
            if read.exists() and target.samefile(read):
                raise ConfigError(f"--output must not be one of the files read, got {str(target)!r} for {str(read)!r}")
        check_writable("--output", target)


def _convert(files: list[LogFile], said: Options, target: Path, key: bytes, *, quiet: bool) -> None:
    """Read once and write. A bad line ends it before anything is written; the header says what was left out."""
    with console.progress(quiet=quiet) as told:
        progress = None if told is None else lambda share: told(share, f"converting {files[0].name}")
        workload = keep(read_trace(files, said, check=False, progress=progress))
        name_bad_lines(workload)
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
