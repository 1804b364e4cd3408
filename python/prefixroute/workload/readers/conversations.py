"""Sets of conversations, one a line: ShareGPT, LMSYS-Chat-1M, WildChat.

A conversation is a session, each turn of the user a request.

ShareGPT's and LMSYS' have no times: when a conversation began is drawn, and so many seconds lie between its turns.
WildChat's have the time of each conversation, or of each turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from prefixroute.costmodel.assumption import Assumption
from prefixroute.errors import TokensError
from prefixroute.limits import BYTES_PER_TOKEN
from prefixroute.types import Namespace
from prefixroute.workload.readers.cutting import EvenCutter
from prefixroute.workload.readers.lines import read_rows
from prefixroute.workload.readers.log_pass import LogPass
from prefixroute.workload.readers.record import FirstRow, OpenedLog, Options, TraceRecord
from prefixroute.workload.readers.recorded import SESSIONS_PER_HOUR, merged
from prefixroute.workload.readers.row import Row, date_of, shown, time_of
from prefixroute.workload.readers.source import LogFile
from prefixroute.workload.request import Request

NAME = "conversations"
BLOCK_SIZE: Final = 16
TURN_GAP_S: Final = 60.0
"""Seconds between the turns of a conversation whose file does not have them."""
_REORDER_S = 86_400.0
"""Files with times are in order of the conversations' ends; few last longer than a day."""
_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant", "bard": "assistant"}
_LISTS = ("conversations", "conversation")
_NAMES = ("conversation_id", "conversation_hash", "id")
WITHOUT_QUESTION: Final = "conversations without a turn of the user"


def recognises(sample: FirstRow) -> bool:
    """Return whether the first row is a conversation."""
    return any(_is_turns(sample.row.fields.get(name)) for name in _LISTS)


def _is_turns(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) and ("from" in one or "role" in one) for one in value)


def open_file(sample: FirstRow, options: Options) -> OpenedLog:
    """Say what is drawn and assumed; there is nothing else to settle."""
    size = options.block_size or BLOCK_SIZE
    per_hour = SESSIONS_PER_HOUR if options.sessions_per_hour is None else options.sessions_per_hour
    figures = [
        Assumption(
            "bytes_per_token",
            float(BYTES_PER_TOKEN),
            "bytes",
            "4 bytes a token, no prompt tokens in the file",
            assumed=True,
        )
    ]
    notes = [
        "prompts are text: blocks are cut by bytes, not by a tokenizer",
        "each turn of the user is a request of its conversation",
    ]
    timed = _time(sample.row) is not None
    if not timed:
        starts = f"starts of conversations are not in the file: Poisson, seed {options.seed}"
        figures.append(
            Assumption("sessions_per_hour", per_hour, "1/h", starts, assumed=options.sessions_per_hour is None)
        )
    figures.append(
        Assumption("turn_gap", TURN_GAP_S, "s", "between turns of a conversation that have no times", assumed=True)
    )

    def read(file: LogFile, reading: LogPass) -> Iterator[TraceRecord]:
        found = _conversations(file, size, options, reading)
        return (record for one in found for record in one) if timed else merged(found, per_hour, options.seed)

    return OpenedLog(
        size,
        lambda reading: lambda file: read(file, reading),
        has_sessions=True,
        reorder_s=_REORDER_S if timed else 0.0,
        assumptions=tuple(figures),
        notes=tuple(notes),
        prompt_kind="messages",
    )


def _conversations(file: LogFile, size: int, options: Options, reading: LogPass) -> Iterator[list[TraceRecord]]:
    cutter = EvenCutter(size, float(BYTES_PER_TOKEN))

    def parse(row: Row) -> list[TraceRecord] | None:
        records = list(_requests(row, cutter, options))
        if not records:
            reading.tally.left_out[WITHOUT_QUESTION] += 1
        return records or None

    return reading.parsed(read_rows(file, reading), parse)


def _requests(row: Row, cutter: EvenCutter, options: Options) -> Iterator[TraceRecord]:
    turns = next((row.sequence(name) for name in _LISTS if name in row.fields), [])
    model = row.text("model")
    namespace = None if model is None else Namespace(model=model)
    session = next((found for name in _NAMES if (found := row.text(name))), f"line-{row.line}")
    arrival, text = _time(row) or 0.0, ""
    asked = 0
    for at, turn in enumerate(turns):
        message = _message(row, at, turn)
        try:
            segment = options.canonical.segment(message)
        except TokensError as error:
            raise row.error(str(error)) from error
        if message["role"] == "assistant" and asked:
            own = next(
                (time for one in (turns[at - 1], turn) if (time := _time(Row(one, row.file, row.line))) is not None),
                None,
            )
            started = arrival + TURN_GAP_S * (asked - 1) if own is None else own
            cut = cutter.cut(text.encode(), segment.encode(), namespace, None, None)
            request = Request(
                started, cut.prompt, cut.context, cut.prompt_tokens, cut.output_tokens, session=session, model=model
            )
            yield TraceRecord(row.line, request)
        text += segment
        asked += message["role"] == "user"


def _message(row: Row, at: int, turn: Any) -> dict[str, Any]:
    if not isinstance(turn, dict):
        raise row.error(f"turn {at} must be an object, got {shown(turn)}")
    role = turn.get("role", turn.get("from"))
    if not isinstance(role, str):
        raise row.error(f"turn {at} must say whose it is, got {shown(role)}")
    return {"role": _ROLES.get(role, role), "content": turn.get("content", turn.get("value", ""))}


def _time(row: Row) -> float | None:
    """Return the time of a conversation or a turn, in seconds, or None where it has none."""
    value = row.fields.get("timestamp")
    if value is None:
        return None
    return date_of(row, "timestamp", value) if isinstance(value, str) else time_of(row, "timestamp", value)
