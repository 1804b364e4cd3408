"""Where the usual gateways, engines and exporters put what a reader looks for: ``layouts.toml``, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

from prefixroute.shipped import shipped_table

_TABLES = shipped_table("prefixroute.workload.readers", "layouts.toml")


def _paths(groups: Iterable[str | Mapping[str, list[str]]]) -> tuple[str, ...]:
    """Return the paths of a field in their order, each once."""
    found: list[str] = []
    for group in groups:
        if isinstance(group, str):
            found.append(group)
        else:
            found += map("".join, product(*(_TABLES["places"][place] for place in group["in"]), group["names"]))
    return tuple(dict.fromkeys(found))


DEFAULT_PATHS: dict[str, tuple[str, ...]] = {name: _paths(groups) for name, groups in _TABLES["fields"].items()}
"""Paths that need no field map."""
COUNTED_APART: dict[str, list[str]] = _TABLES["counted_apart"]
"""Names of prompt tokens, and those of cached tokens that are counted beside them; empty where there are none."""
SPANS: dict[str, list[str]] = _TABLES["spans"]
"""Fields of a row by the attributes of a span that hold them."""
OTHER_ROWS: dict[str, Any] = _TABLES["other_rows"]
"""How rows are told that are no request for a replica."""
