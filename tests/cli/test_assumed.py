"""What is marked ASSUMED: every column that rests on a default, whatever the default, and none that does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer", reason="the extra `cli` is not installed")

Prefixroute = Callable[..., Any]
GIVEN = (
    "--gpu", "H100", "--model", "Qwen3-8B", "--utilization", 0.5, "--overhead", 0, "--tensor-parallel", 1, "--price", 3,
    "--bandwidth-utilization", 0.8, "--capacity", "300k",
)  # fmt: skip
TIMED = {
    "kv_bytes": ("--kv-bytes", 2),
    "chunk_tokens": ("--chunk-tokens", 8_192),
    "max_running": ("--max-running", 256),
}
"""What a timed run rests on beside that, and how it is given, as it is by default."""
COMMANDS = {
    "simulate": ("--replicas", 2, "--seeds", 1, "--policies", "session", "--timed"),
    "compare": ("--replicas", 2, "--seeds", 1, "--policies", "round-robin,session", "--timed"),
    "size": ("--slo", "ttft_p95=9s", "--policies", "session"),
}


def listed(out: str) -> set[str]:
    """Return the names in the line above a table."""
    line = next((line for line in out.splitlines() if line.startswith("  ASSUMED ")), "  ASSUMED ")
    return {part.split(" = ")[0] for part in line.removeprefix("  ASSUMED ").split("; ")} - {""}


def marks(out: str) -> int:
    """Return how many columns are marked: none where all of a table rest on defaults, which the line above it says."""
    return out.count("ASSUMED") - bool(listed(out))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("missing", TIMED)
def test_one_default_behind_a_timed_run_marks_its_columns(
    prefixroute: Prefixroute, trace: Path, command: str, missing: str
) -> None:
    others = [part for name, option in TIMED.items() if name != missing for part in option]
    out = prefixroute(command, trace, *COMMANDS[command], *GIVEN, *others).out
    assert listed(out) == {missing}
    assert marks(out) == 0  # all columns alike


@pytest.mark.parametrize("command", COMMANDS)
def test_with_everything_given_nothing_is_marked(prefixroute: Prefixroute, trace: Path, command: str) -> None:
    options = [command, trace, *COMMANDS[command], *GIVEN, *(part for option in TIMED.values() for part in option)]
    assert "ASSUMED" not in prefixroute(*options).out
    found = prefixroute(*options, "--json").json["assumptions"]
    assert {found[name]["assumed"] for name in TIMED} == {False}


def test_a_run_in_order_rests_on_nothing_of_time(prefixroute: Prefixroute, trace: Path) -> None:
    ordered = ["simulate", trace, "--replicas", 2, "--seeds", 1, "--policies", "session"]
    assert "ASSUMED" not in prefixroute(*ordered, *GIVEN).out
    assert not listed(prefixroute(*ordered).out) & {*TIMED, "memory_share"}


def test_a_capacity_worked_out_rests_on_memory_and_widths(prefixroute: Prefixroute, trace: Path) -> None:
    options = ["simulate", trace, "--replicas", 2, "--seeds", 1, "--policies", "session", *GIVEN[:-2]]
    assert listed(prefixroute(*options).out) == {"capacity_tokens", "memory_share", "kv_bytes"}
    options += ["--memory-share", 0.8, "--kv-bytes", 1, "--weight-bytes", 1]
    assert "ASSUMED" not in prefixroute(*options).out  # what it was worked out of was all given
    capacity = prefixroute(*options, "--json").json["assumptions"]["capacity_tokens"]["value"]
    assert capacity == int((80e9 * 0.8 - 8.2e9) / 73_728)


def test_the_price_marks_dollars_alone(prefixroute: Prefixroute, trace: Path) -> None:
    given = [*GIVEN[:10], *GIVEN[12:], *(part for option in TIMED.values() for part in option)]
    for command, columns in (("simulate", 2), ("compare", 6), ("size", 1)):
        out = prefixroute(command, trace, *COMMANDS[command], *given).out
        assert (listed(out), marks(out)) == ({"usd_per_gpu_hour"}, columns)


def test_a_file_without_times_marks_what_rests_on_when_sessions_start(prefixroute: Prefixroute, sessions: Path) -> None:
    given = [*GIVEN, *(part for option in TIMED.values() for part in option)]
    out = prefixroute("size", sessions, *COMMANDS["size"], *given).out
    assert (listed(out), marks(out)) == ({"sessions_per_hour"}, 0)
    assert "ASSUMED" not in prefixroute("size", f"{sessions},sessions_per_hour=50", *COMMANDS["size"], *given).out


def test_how_an_engine_fills_its_steps_changes_a_timed_run(prefixroute: Prefixroute, trace: Path) -> None:
    simulated = ["simulate", f"{trace},speed=100", *COMMANDS["simulate"], "--json"]
    usual, small = (
        prefixroute(*simulated, *more).json["rows"][0]["ttft_mean_s"] for more in ((), ("--max-running", 1))
    )
    assert small > usual
    assert prefixroute("size", trace, *COMMANDS["size"], "--chunk-tokens", 512).code == 0


@pytest.mark.parametrize("workload", ["chat", "documents", "agents", "few-shot", "tenants", "fan-out"])
def test_a_rate_that_nobody_gave_marks_what_rests_on_it(prefixroute: Prefixroute, workload: str) -> None:
    given = [*COMMANDS["size"], *GIVEN, *(part for option in TIMED.values() for part in option)]
    out = prefixroute("size", f"{workload},requests=60", *given).out
    assert "; requests_per_day = 1,000,000 " in out
    assert marks(out) == 0
    out = prefixroute("size", f"{workload},requests=60,arrivals=even:11", *given).out
    assert ("requests_per_day" in out, marks(out)) == (False, 0)
    ordered = ["simulate", f"{workload},requests=60", "--replicas", 2, "--seeds", 1, "--policies", "session", *GIVEN]
    assert "requests_per_day" not in prefixroute(*ordered).out  # evenly: the order is the same at any rate
