"""What every bench shares: the table printed at the end, with ratios to the product's own line and the machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

OURS = "prefixroute"
PLAIN = {"who": OURS, "unit": "us", "per": 1, "goal": ""}
"""What a bench that says nothing of itself is: one call of ours, in microseconds."""
UNITS = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print one line per contender, grouped by what was measured, in the order in which the benches ran."""
    session = getattr(config, "_benchmarksession", None)
    results = [bench for bench in getattr(session, "benchmarks", []) if bench.stats.data]
    if not results:
        return
    terminalreporter.section("benches")
    terminalreporter.write_line(machine())
    for line in table(results):
        terminalreporter.write_line(line)


def machine() -> str:
    """Return the processor, its cores, what else runs on it, and the interpreter."""
    names = [line.split(":")[1].strip() for line in cpu_lines() if line.startswith("model name")]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores, load {load}, Python {platform.python_version()}"


def cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def table(results: Iterable[Any]) -> list[str]:
    """Return the lines: best round, median, 99th percentile over rounds, ratio of best rounds to ours, goal."""
    lines = [f"{'what':48} {'who':18} {'best':>10} {'p50':>10} {'p99':>10} unit {'ratio':>8}  goal"]
    for what, members in groupby(results, key=lambda bench: bench.group or bench.name):
        rows = [(PLAIN | bench.extra_info, sorted(bench.stats.data)) for bench in members]
        own = next((at(data, 0.0) / info["per"] for info, data in rows if info["who"] == OURS), None)
        for info, data in rows:
            best, p50, p99 = (at(data, quantile) / info["per"] for quantile in (0.0, 0.5, 0.99))
            scale, ratio = UNITS[info["unit"]], f"{best / own:7.1f}x" if own else ""
            goal = info["goal"] if own is None or info["who"] == OURS else ""
            figures = f"{best * scale:10,.3f} {p50 * scale:10,.3f} {p99 * scale:10,.3f} {info['unit']:4} {ratio:>8}"
            lines.append(f"{what:48} {info['who']:18} {figures}  {goal}".rstrip())
    return lines


def at(ordered: list[float], quantile: float) -> float:
    """Return a quantile of sorted numbers, without interpolation."""
    return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]
