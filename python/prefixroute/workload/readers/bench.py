"""Results of ``vllm bench serve``: one JSON object a run, with the lengths of its requests in lists.

Prompts are not in it.

Every prompt is taken to be unlike any other, as in a table of lengths.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prefixroute.costmodel.assumption import Assumption
from prefixroute.workload.arrivals import Poisson
from prefixroute.workload.readers.kinds import FAILED
from prefixroute.workload.readers.lengths import BLOCK_SIZE, MOST_TOKENS, UNSHARED
from prefixroute.workload.readers.lines import read_rows
from prefixroute.workload.readers.log_pass import LogPass
from prefixroute.workload.readers.record import BURST, FirstRow, OpenedLog, Options, TraceRecord
from prefixroute.workload.readers.row import Row, time_of, whole
from prefixroute.workload.readers.source import LogFile
from prefixroute.workload.request import Request
from prefixroute.workload.streams import chain_key, stream
from prefixroute.workload.text import made_up

NAME = "vllm-bench"


def recognises(sample: FirstRow) -> bool:
    """Return whether the first row has the lists of a run of vLLM's benchmark."""
    fields = sample.fields or {}
    return all(isinstance(fields.get(name), list) for name in ("input_lens", "output_lens"))


def open_file(sample: FirstRow, options: Options) -> OpenedLog:
    """Say what is drawn where the run did not record when its requests began."""
    size = options.block_size or BLOCK_SIZE
    row = sample.row
    notes, figures = [UNSHARED], []
    if not isinstance(row.fields.get("start_times"), list):
        rate = _rate(row)
        if rate is None:
            notes.append(BURST)
        else:
            source = f"when requests began is not in the file: Poisson at the run's own rate, seed {options.seed}"
            figures.append(Assumption("request_rate", rate, "1/s", source, assumed=True))
    return OpenedLog(
        size,
        lambda reading: lambda file: _read(file, size, options.seed, reading),
        has_sessions=True,
        assumptions=tuple(figures),
        notes=tuple(notes),
    )


def _rate(row: Row) -> float | None:
    """Return requests a second, or None where all were sent at once."""
    for name in ("request_rate", "request_throughput"):
        value = row.fields.get(name)
        if isinstance(value, int | float) and 0 < value < float("inf"):
            return time_of(row, name, value)
    return None


def _read(file: LogFile, block_size: int, seed: int, reading: LogPass) -> Iterator[TraceRecord]:
    for run, row in enumerate(read_rows(file, reading)):
        lengths, outputs = row.sequence("input_lens"), row.sequence("output_lens")
        if len(lengths) != len(outputs):
            raise row.error(f"{len(lengths)} input_lens and {len(outputs)} output_lens")
        errors = row.fields.get("errors")
        for at, arrival in enumerate(_arrivals(row, len(lengths), seed + run)):
            if isinstance(errors, list) and at < len(errors) and errors[at]:
                reading.tally.left_out[FAILED] += 1
                continue
            tokens = whole(row, f"input_lens[{at}]", lengths[at], least=1, most=MOST_TOKENS)
            prompt = made_up(chain_key(at, file.name, row.line), tokens, block_size)
            output = whole(row, f"output_lens[{at}]", outputs[at])
            yield TraceRecord(row.line, Request(arrival, prompt, prompt, tokens, output))


def _arrivals(row: Row, count: int, seed: int) -> list[float]:
    """Return when each request of a run arrived: as recorded, drawn, or all at once."""
    recorded: Any = row.fields.get("start_times")
    if isinstance(recorded, list):
        if len(recorded) != count:
            raise row.error(f"{count} input_lens and {len(recorded)} start_times")
        return [time_of(row, f"start_times[{at}]", value) for at, value in enumerate(recorded)]
    rate = _rate(row)
    if rate is None:
        return [0.0] * count
    return [time for _, time in zip(range(count), Poisson(rate).times(stream(seed, "bench.starts")), strict=False)]
