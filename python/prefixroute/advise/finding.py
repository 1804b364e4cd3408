"""A finding as data: what kind, how urgent, and its numbers. Sentences are made in :mod:`prefixroute.report`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["fix first", "warning", "note"]
Evidence = Mapping[str, float | int | str | bool | None]
URGENCY: Mapping[Severity, int] = {"fix first": 0, "warning": 1, "note": 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something found on the way."""

    kind: str
    severity: Severity
    evidence: Evidence = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """A question of the decision tree that was answered: its kind, and the numbers that the answer rests on."""

    kind: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


def figures(found: object, *names: str, suffix: str = "") -> dict[str, Any]:
    """Return figures of an object as evidence, each under its name and a suffix."""
    return {f"{name}{suffix}": getattr(found, name) for name in names}
