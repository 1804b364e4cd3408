"""Results as JSON: the version of their fields, and the one way in which they are written."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from typing import Any

SCHEMA = 1
"""Version of every JSON object. Fields may be added under it; a changed meaning raises it."""


def figures(record: object, *names: str) -> dict[str, Any]:
    """Return fields and properties of an object by name, in this order, as JSON has them."""
    return {name: _plain(getattr(record, name)) for name in names}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def json_text(document: Any) -> str:
    """Return a JSON document as text that ends in a newline; a figure that is not finite is a ``ValueError``."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


class ResultDocument:
    """A result that JSON can hold."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of a JSON object."""
        raise NotImplementedError

    def to_json(self) -> str:
        """Return the object as text. Same inputs, same bytes."""
        return json_text(self.to_dict())
