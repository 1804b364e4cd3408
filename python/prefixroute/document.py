"""Results as JSON: the version of their fields, and the one way in which they are written."""

from __future__ import annotations

import json
from typing import Any

SCHEMA = 1
"""Version of every JSON object. Fields may be added under it; a changed meaning raises it."""


def json_text(document: Any) -> str:
    """Return a JSON document as text that ends in a newline; a figure that is not finite is a ``ValueError``."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


class Document:
    """A result that JSON can hold."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of a JSON object."""
        raise NotImplementedError

    def to_json(self) -> str:
        """Return the object as text. Same inputs, same bytes."""
        return json_text(self.to_dict())
