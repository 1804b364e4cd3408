"""Logs to stderr: a line of text, or a JSON object, for each record."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from prefixroute.serve.settings import Log
from prefixroute.serve.trail import ACCESS

ROOT = "prefixroute"


class JsonLines(logging.Formatter):
    """An object a line: ``time``, ``level``, ``logger``, ``message``, and the record's own fields beside them."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """A line of text; the record's own fields follow as ``name=value``."""

    def __init__(self) -> None:
        """Begin each line with the time and the level."""
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        """Return the line without its exception."""
        said = super().formatMessage(record)
        fields = getattr(record, "fields", {})
        return " ".join(
            [said, *(f"{name}={_word(value)}" for name, value in fields.items() if value not in ("", None))]
        )


def _word(value: object) -> str:
    text = str(value)
    return json.dumps(text) if not text.isprintable() or " " in text or '"' in text else text


def set_up(log: Log) -> None:
    """Send the server's records to stderr, and nothing of uvicorn's: it would say the same again."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log.format == "json" else TextLines())
    logger = logging.getLogger(ROOT)
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(log.level.upper())
    ACCESS.setLevel(logging.NOTSET if log.access else logging.CRITICAL)
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
