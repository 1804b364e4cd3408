"""What a streamed completion tells: server-sent events with an OpenAI-compatible JSON each."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from prefixroute.bodies import EventCutter, event_data

MOST_TOKENS = 1 << 31
"""No engine counts more tokens in one request."""
_DONE = b"[DONE]"
_USAGES = 4
"""Last events with a usage that are kept: an engine may tell ``null`` after the counts."""


class StreamedAnswer:
    """Reads the events of one answer as they come. Only what may hold an error or the first token is parsed.

    Attributes:
        first: when the first event with a choice came, on the caller's clock; ``None`` = none came.
        last: when the last bytes came.
        error: what the stream says went wrong; engines tell it in an event, after status 200. Empty = nothing.
    """

    def __init__(self) -> None:
        self.first: float | None = None
        self.last: float | None = None
        self.error = ""
        self._cutter = EventCutter()
        self._events = 0
        self._done = False
        self._usages: deque[bytes] = deque(maxlen=_USAGES)

    def feed(self, part: bytes, now: float) -> None:
        """Take in bytes of the stream.

        Args:
            part: the bytes; events may end anywhere in them.
            now: when they came.
        """
        self.last = now
        for event in self._cutter.cut(part):
            self._event(event_data(event).strip(), now)

    def end(self, now: float) -> None:
        """Note that nothing more comes.

        Args:
            now: as for :meth:`feed`.
        """
        self._event(event_data(self._cutter.rest()).strip(), now)
        if not self.error and (self.first is None or not self._done):
            self.error = "the stream broke off"

    def _event(self, data: bytes, now: float) -> None:
        if not data or data == _DONE:
            self._done = self._done or bool(data)
            return
        if b'"error"' in data and (failed := _parsed(data).get("error")):
            self.error = _told(failed)
            return
        self._events += 1
        if self.first is None and _parsed(data).get("choices"):
            self.first = now
        if b'"usage"' in data:
            self._usages.append(data)

    def counts(self) -> tuple[int, int | None, int | None]:
        """Return tokens of the answer, of the prompt, and of the prompt as cached; ``None`` = the engine did not say.

        Without a usage every event but the last counts as a token of the answer.
        """
        usages = (_parsed(data).get("usage") for data in reversed(self._usages))
        usage = next((found for found in usages if isinstance(found, dict)), {})
        told = _count(usage, "completion_tokens")
        output = max(1, self._events - 1) if told is None else told
        return output, _count(usage, "prompt_tokens"), _count(usage.get("prompt_tokens_details"), "cached_tokens")


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _told(failed: Any) -> str:
    """Return an engine's error as a name that rows can be counted by."""
    fields = failed if isinstance(failed, dict) else {}
    name = next((fields[key] for key in ("code", "type") if isinstance(fields.get(key), int | str)), "unnamed")
    return f"error event {str(name)[:40]}"


def _count(fields: Any, name: str) -> int | None:
    """Return a count that an engine tells; ``None`` if it is none."""
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None
