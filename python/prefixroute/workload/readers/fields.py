"""Where a gateway log has what: paths into its rows, read from TOML, with defaults for the usual layouts.

A path is names joined by dots; a number is a place in a list. A text on the way is parsed as JSON, so that bodies
logged as strings are read through. A key that itself has dots (``gen_ai.usage.input_tokens``) is found too.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from prefixroute.errors import FieldMapError
from prefixroute.limits import MAX_BLOCK_SIZE
from prefixroute.validation import check_names
from prefixroute.workload.readers.layouts import DEFAULT_PATHS
from prefixroute.workload.readers.lines import json_in
from prefixroute.workload.readers.row import shown

_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_UNIT_IN_NAME = re.compile(r"(?:^|[._-])(s|ms|us|ns)$|[a-z](Ms|Us|Ns)$")
_FIGURES: dict[str, tuple[Any, float, float]] = {
    "block_size": (int, 1, MAX_BLOCK_SIZE),
    "bytes_per_token": (int | float, 0.25, 256),
    "reorder_s": (int | float, 0, 1_000_000_000),
}
"""What a figure must be, its least and its most: more than anybody needs, and nothing that is infinite."""
_MOST_LAYOUTS = 64
"""Sets of keys of rows that are remembered."""
_MOST_NAMES, _MOST_DIGITS = 64, 9


@dataclass(frozen=True, slots=True)
class FieldMap:
    """Paths and units of a gateway log.

    Attributes:
        paths: for each field the paths that are tried, in order.
        block_size: tokens a block, or None for 16.
        bytes_per_token: of text; measured from reported prompt tokens, else 4, unless given.
        time_unit: ``s``, ``ms``, ``us`` or ``ns``; told by the field's name (``ended_ms``, ``endMs``) unless given,
            else guessed from the size of the number.
        duration_unit: unit of ``duration``, which is taken from ``end_time`` to get the arrival; told by the field's
            name unless given, else seconds.
        reorder_s: how far rows may be out of order, or None for 10 minutes.
        cached_apart: whether ``prompt_tokens`` leave out those read from a cache or written to one; told by the names
            of Anthropic's API if None.
        dropped: fields of messages, parts and tools that the engine does not render, in place of
            :data:`prefixroute.messages.DROPPED`; None = what the options say.
    """

    paths: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: DEFAULT_PATHS)
    block_size: int | None = None
    bytes_per_token: float | None = None
    time_unit: str | None = None
    duration_unit: str | None = None
    reorder_s: float | None = None
    cached_apart: bool | None = None
    dropped: tuple[str, ...] | None = None

    @classmethod
    def read(cls, path: str | Path) -> FieldMap:
        """Read a map from TOML: settings at the top, paths under ``[fields]`` (one, or a list to try in order).

        Args:
            path: of the TOML file.

        Returns:
            The map.

        Raises:
            FieldMapError: naming the file and the key that is wrong.
        """
        try:
            table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise FieldMapError(f"cannot read a field map from {path}: {why}") from error
        except RecursionError:
            raise FieldMapError(f"cannot read a field map from {path}: it is nested too deep") from None
        return cls.from_table(table, str(path))

    @classmethod
    def from_table(cls, table: Mapping[str, Any], where: str = "field map") -> FieldMap:
        """Return the map that a parsed TOML table describes; fields that it does not name keep their defaults.

        Args:
            table: as it was parsed.
            where: what errors call it.

        Raises:
            FieldMapError: a key or a path is not allowed.
        """
        settings = [one.name for one in dataclass_fields(cls) if one.name != "paths"]
        known = [*settings, "fields"]
        check_names(where, "key", table, known, FieldMapError)
        fields = table.get("fields", {})
        if not isinstance(fields, Mapping):
            raise FieldMapError(f"{where}: [fields] must be a table of names and paths, got {shown(fields)}")
        check_names(f"{where}: [fields]", "field", fields, DEFAULT_PATHS, FieldMapError)
        paths = {**DEFAULT_PATHS, **{name: _paths(where, name, value) for name, value in fields.items()}}
        for name in ("time_unit", "duration_unit"):
            if name in table and table[name] not in list(_UNITS):  # a list, which holds what cannot be hashed
                raise FieldMapError(f"{where}: {name} must be one of {', '.join(_UNITS)}, got {shown(table[name])}")
        if not isinstance(table.get("cached_apart", True), bool):
            raise FieldMapError(f"{where}: cached_apart must be true or false, got {shown(table['cached_apart'])}")
        for name, (kind, least, most) in _FIGURES.items():
            value = table.get(name, least)
            if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= most:
                raise FieldMapError(
                    f"{where}: {name} must be a {'whole number' if kind is int else 'number'}, {least} to {most}, got {shown(value)}"
                )
        given = {name: table[name] for name in settings if name in table}
        if "dropped" in given:
            given["dropped"] = _names(where, given["dropped"])
        return cls(paths, **given)


def _names(where: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise FieldMapError(f"{where}: dropped must be a list of names of fields, got {shown(value)}")
    return tuple(value)


def _paths(where: str, name: str, value: object) -> tuple[str, ...]:
    paths = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else ()
    if not paths or not all(isinstance(path, str) and path for path in paths):
        raise FieldMapError(f"{where}: fields.{name} must be a path or a list of paths, got {shown(value)}")
    for path in paths:
        names_of(path)
    return paths


def names_of(path: str) -> tuple[str, ...]:
    """Return the names that a path joins.

    Raises:
        FieldMapError: the path is longer than any row is deep, or a place in a list has more digits than any list.
    """
    names = tuple(path.split("."))
    if len(names) > _MOST_NAMES or any(len(name) > _MOST_DIGITS and name.isdecimal() for name in names):
        most = f"{_MOST_NAMES} names, and places in lists of {_MOST_DIGITS} digits"
        raise FieldMapError(f"a path of a field map has at most {most}, got {shown(path)}")
    return names


@cache
def unit_of(path: str) -> str | None:
    """Return the unit that the last name of a path ends in (``time.ended_ms``, ``endMs``), or None."""
    found = _UNIT_IN_NAME.search(path)
    return found[found.lastindex or 0].lower() if found else None


def seconds_of(number: float, unit: str | None) -> float:
    """Return a time or duration in seconds; without a unit, an epoch time's unit is guessed from its size."""
    if unit is not None:
        return number * _UNITS[unit]
    size = abs(number)
    for least, scale in ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3)):
        if size >= least:
            return number * scale
    return number


class Finder:
    """Finds fields in one row after another, by the paths of each in their order.

    Texts that are parsed on the way are parsed once a row.
    """

    __slots__ = ("_found", "_parsed", "_paths", "_row", "_tried", "_tried_for")

    def __init__(self, paths: Mapping[str, tuple[str, ...]]) -> None:
        """Take the paths to try."""
        self._paths = {name: [names_of(path) for path in tried] for name, tried in paths.items()}
        self._found: dict[str, tuple[str, ...]] = {}
        self._row: dict[str, Any] = {}
        self._tried = self._paths
        self._tried_for = lru_cache(maxsize=_MOST_LAYOUTS)(self._for)
        self._parsed: dict[int, Any] = {}

    def take(self, row: dict[str, Any]) -> None:
        """Look at this row from now on."""
        self._row, self._parsed = row, {}
        self._tried = self._tried_for(tuple(row))

    def _for(self, keys: tuple[str, ...]) -> dict[str, list[tuple[str, ...]]]:
        """Return the paths that can lead to anything in a row of these keys."""
        if any("." in key for key in keys):
            return self._paths
        return {name: [path for path in tried if path[0] in keys] for name, tried in self._paths.items()}

    def find(self, name: str) -> Any:
        """Return the field's value, or None where no path leads to one, or only to an empty one."""
        for path in self._tried[name]:
            value = self._follow(self._row, path)
            if value is not None and not _is_empty(value):
                self._found[name] = path
                return value
        return None

    def follow(self, path: str) -> Any:
        """Return what a path into the row leads to, or None."""
        return self._follow(self._row, names_of(path))

    def find_parsed(self, name: str) -> Any:
        """Return the field's value; where it is a text that is a list or an object of JSON, what that holds."""
        value = self.find(name)
        parsed = self._parse(value) if isinstance(value, str) else None
        return value if parsed is None else parsed

    def path_of(self, name: str) -> str:
        """Return the path that found the field last."""
        return ".".join(self._found[name])

    def _follow(self, value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, str):
            value = self._parse(value)
        if isinstance(value, list):
            place = path[0]
            value = value[int(place)] if place.isdecimal() and int(place) < len(value) else None
            return value if len(path) == 1 or value is None else self._follow(value, path[1:])
        if not isinstance(value, dict):
            return None
        for length in range(1, len(path) + 1):
            key = path[0] if length == 1 else ".".join(path[:length])
            if key in value:
                found = value[key]
                if length < len(path):
                    found = self._follow(found, path[length:])
                if found is not None:
                    return found
        return None

    def _parse(self, text: str) -> Any:
        if id(text) not in self._parsed:
            self._parsed[id(text)] = json_in(text)
        return self._parsed[id(text)]


def _is_empty(value: Any) -> bool:
    """Return whether a value says nothing: an empty text, list or object, or the JSON of one."""
    if isinstance(value, str):
        return len(value) <= _LONGEST_EMPTY and value.strip() in _EMPTY_TEXTS
    return isinstance(value, list | dict) and not value


_EMPTY_TEXTS = frozenset({"", "{}", "[]", "null"})
_LONGEST_EMPTY = 8
