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

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"kind": self.kind, "severity": self.severity, "evidence": dict(self.evidence)}


@dataclass(frozen=True, slots=True)
class Step:
    """A question of the decision tree that was answered: its kind, and the numbers that the answer rests on."""

    kind: str
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"kind": self.kind, "evidence": dict(self.evidence)}
