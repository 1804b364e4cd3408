"""Metrics: what happened, counted, and as text that Prometheus reads."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

BUCKETS_S = (5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3, 2.5e-2)
"""Upper bounds of the histogram of decision times, in seconds."""


class Counters:
    """Totals since the router was made. Not thread-safe: the router's lock guards it."""

    def __init__(self) -> None:
        """Start at zero."""
        self.decisions: Counter[tuple[str, str, str]] = Counter()
        self.prompt_tokens = self.best_hit_tokens = 0
        self.hit_tokens: Counter[tuple[str, str]] = Counter()
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.seconds = 0.0

    def retire(self, name: str) -> None:
        """Count what a replica that leaves has had under no name: pods' names never end, totals stay."""
        for policy, reason, replica in [key for key in self.decisions if key[2] == name]:
            self.decisions[policy, reason, ""] += self.decisions.pop((policy, reason, replica))
        for replica, medium in [key for key in self.hit_tokens if key[0] == name]:
            self.hit_tokens["", medium] += self.hit_tokens.pop((replica, medium))

    def time(self, seconds: float) -> None:
        """Count a decision's time."""
        self.seconds += seconds
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1


class Text:
    """Collects metric families in the text format 0.0.4 of Prometheus."""

    def __init__(self) -> None:
        """Start empty."""
        self._lines: list[str] = []

    def family(
        self, name: str, kind: str, about: str, samples: Iterable[tuple[Mapping[str, str], float]] | float
    ) -> None:
        """Add a family: one number, or (labels, number) pairs."""
        if isinstance(samples, int | float):
            samples = [({}, samples)]
        self._lines += [f"# HELP prefixroute_{name} {about}", f"# TYPE prefixroute_{name} {kind}"]
        self._lines += [f"prefixroute_{name}{labels(values)} {_number(value)}" for values, value in samples]

    def histogram(self, name: str, about: str, counts: Iterable[int], total: float) -> None:
        """Add the histogram of decision times."""
        self._lines += [f"# HELP prefixroute_{name} {about}", f"# TYPE prefixroute_{name} histogram"]
        running = 0
        for bound, count in zip((*map(repr, BUCKETS_S), "+Inf"), counts, strict=True):
            running += count
            self._lines.append(f'prefixroute_{name}_bucket{{le="{bound}"}} {running}')
        self._lines += [f"prefixroute_{name}_sum {_number(total)}", f"prefixroute_{name}_count {running}"]

    def __str__(self) -> str:
        """Return the text, ending in a newline."""
        return "\n".join(self._lines) + "\n"


def labels(values: Mapping[str, str]) -> str:
    """Return a label set in braces, with backslashes, quotes and newlines escaped; empty for none."""
    if not values:
        return ""
    pairs = (f'{name}="{_escaped(str(value))}"' for name, value in values.items())
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
