"""What a router needs to know of an HTTP exchange with an engine.

The prompt, its conversation, and what the answer says.
"""

from prefixroute.bodies.answers import (
    MAX_READ_BYTES,
    RETRIED_STATUSES,
    AnswerReader,
    Api,
    EventCutter,
    answer_reader,
    event_data,
)
from prefixroute.bodies.prompts import prompt_of
from prefixroute.bodies.sessions import SessionKeys, session_of

__all__ = [
    "MAX_READ_BYTES",
    "RETRIED_STATUSES",
    "AnswerReader",
    "Api",
    "EventCutter",
    "SessionKeys",
    "answer_reader",
    "event_data",
    "prompt_of",
    "session_of",
]
