"""The text format 0.0.4 of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prefixroute.routing.ledger import DURATIONS_S


class MetricsText:
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
        for bound, count in zip((*map(repr, DURATIONS_S), "+Inf"), counts, strict=True):
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
