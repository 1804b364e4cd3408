"""The conversation that a request belongs to, as known clients name it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple, Self

from prefixroute.errors import ConfigError
from prefixroute.shipped import shipped_table
from prefixroute.validation import check_instance, check_texts, shown


class _Field(NamedTuple):
    path: tuple[str, ...]
    within: re.Pattern[str] | None


class SessionKeys(NamedTuple):
    """Where the conversation may be named, in order. The table of known clients is :meth:`known`.

    Attributes:
        headers: names of headers, in lower case.
        fields: fields of the body.
    """

    headers: tuple[str, ...]
    fields: tuple[_Field, ...]

    @classmethod
    def of(cls, headers: Iterable[str] | None = None, fields: Iterable[str] | None = None) -> Self:
        """Return keys of one's own in the place of known ones.

        Args:
            headers: names of headers; ``None`` = the known ones.
            fields: fields of the body, with dots into objects; ``None`` = the known ones.

        Returns:
            Keys for :func:`session_of`.

        Raises:
            ConfigError: headers or fields are one string, or hold something that is none.
        """
        known = cls.known()
        paths = None if fields is None else check_texts("fields", fields, "strings")
        return cls(
            known.headers if headers is None else tuple(map(str.lower, check_texts("headers", headers, "strings"))),
            known.fields if paths is None else tuple(_Field(tuple(path.split(".")), None) for path in paths),
        )

    @classmethod
    def known(cls) -> Self:
        """Return those of known clients, from ``sessions.toml`` of this package."""
        return cls(*_known())


def session_of(
    headers: Mapping[str, str] | None = None, body: Any = None, keys: SessionKeys | None = None
) -> str | None:
    """Return the key of the conversation that a request belongs to, or ``None`` where nothing names one.

    Which headers and fields name one is data, ``sessions.toml`` of this package. Headers count before the body. What is
    found is the client's word: it may say where a request goes, never what it is allowed to see.

    >>> session_of({"X-Session-Id": "chat-17"})
    'chat-17'

    Args:
        headers: of the request, by name; upper and lower case are equal. Names and values that are no strings are
            ignored.
        body: its parsed JSON.
        keys: where to look; ``None`` = where known clients name it.

    Raises:
        ConfigError: the headers are no mapping, or the keys none of :class:`SessionKeys`.
    """
    if keys is not None:
        check_instance("keys", keys, SessionKeys)
    names, fields = _known() if keys is None else keys
    if headers:
        if not callable(getattr(headers, "items", None)):
            raise ConfigError(f"headers must be a mapping of names to values, got {shown(headers)}")
        texts = ((name, value) for name, value in headers.items() if isinstance(name, str) and isinstance(value, str))
        given = {name.lower(): value for name, value in texts}
        for name in names:
            value = given.get(name, "").strip()
            if value:
                return value
    if isinstance(body, Mapping):
        for field in fields:
            value = _at(body, field)
            if value:
                return value
    return None


def _at(body: Mapping[str, Any], field: _Field) -> str:
    found: Any = body
    for name in field.path:
        found = found.get(name) if isinstance(found, Mapping) else None
    if not isinstance(found, str):
        return ""
    if field.within is None:
        return found.strip()
    matched = field.within.search(found)
    return "" if matched is None else matched[1]


@cache
def _known() -> tuple[tuple[str, ...], tuple[_Field, ...]]:
    """Return the names of headers, and the fields of bodies."""
    table = shipped_table("prefixroute.bodies", "sessions.toml")
    fields = [
        _Field(tuple(one["path"].split(".")), re.compile(one["within"]) if "within" in one else None)
        for one in table["body"]
    ]
    return tuple(one["name"] for one in table["header"]), tuple(fields)
