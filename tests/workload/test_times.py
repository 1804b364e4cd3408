"""Times of a log: units, zones, texts, and what is no time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from logs import read, refused, write

from prefixroute.workload import FieldMap, Options, read_trace
from prefixroute.workload.readers.requests import SMALL_TIMES
from prefixroute.workload.readers.row import ZONELESS


@pytest.mark.parametrize("scale", [1, 1e3, 1e6, 1e9], ids=["s", "ms", "us", "ns"])
def test_the_unit_of_epoch_times_is_guessed_from_their_size(tmp_path: Path, scale: float) -> None:
    rows = [{"time": (1_790_000_000 + second) * scale, "token_ids": [1]} for second in (0, 4)]
    assert [request.arrival_s for request in read(write(tmp_path / "t.jsonl", rows))] == [0, 4]


@pytest.mark.parametrize(
    ("name", "unit", "scale"),
    [
        ("received_ms", None, 1e3),
        ("ms", None, 1e3),
        ("clock.endedMs", None, 1e3),
        ("at_us", None, 1e6),
        ("at_ns", None, 1e9),
        ("at_s", None, 1),
        ("received_ms", "s", 1),
        ("items", None, 1),
    ],
)
def test_the_unit_of_a_time_is_told_by_the_map_then_by_its_name(
    tmp_path: Path, name: str, unit: str | None, scale: float
) -> None:
    rows = [{name: second * scale, "took_ms": 500, "token_ids": [1]} for second in (2, 8)]
    layout = FieldMap(paths={**FieldMap().paths, "end_time": (name,), "duration": ("took_ms",)}, time_unit=unit)
    workload = read_trace(write(tmp_path / "t.jsonl", rows), Options(fields=layout))
    assert [request.arrival_s for request in workload.requests()] == [0, 6]
    assert (SMALL_TIMES in workload.notes) == (name == "items")


def test_milliseconds_in_a_usual_place_need_no_map(tmp_path: Path) -> None:
    rows = [{"timestamp_ms": at, "token_ids": [1]} for at in (0, 1500)]
    assert [request.arrival_s for request in read(write(tmp_path / "t.jsonl", rows))] == [0, 1.5]


@pytest.mark.parametrize(
    ("when", "note"),
    [
        (0, SMALL_TIMES),
        ("12.5", SMALL_TIMES),
        ("2026-11-29T10:00:00", ZONELESS),
        ("2026-11-29T10:00:00Z", None),
        (1_790_000_000, None),
        (1_790_000_000_000, None),
    ],
)
def test_what_is_assumed_of_times_is_said(tmp_path: Path, when: float | str, note: str | None) -> None:
    path = write(tmp_path / "t.jsonl", [{"time": when, "token_ids": [1]}])
    assert {SMALL_TIMES, ZONELESS} & {*read_trace(path).notes} == ({note} if note else set())


def test_times_as_text(tmp_path: Path) -> None:
    times = ["2026-11-29T10:00:00+01:00", "2026-11-29T09:00:02Z", "2026-11-29 09:00:03.5", "1795943404.25"]
    rows = [{"time": time, "token_ids": [1]} for time in times]
    assert [request.arrival_s for request in read(write(tmp_path / "t.jsonl", rows))][:3] == [0, 2, 3.5]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"end": 5, "took": -1, "token_ids": [1]}, r"duration .*0 to 2\*\*63.*-1"),
        ({"end": "x", "took": 1, "token_ids": [1]}, "time .*ISO 8601.*'x'"),
    ],
)
def test_bad_ends_and_durations(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    layout = FieldMap.from_table({"fields": {"end_time": "end", "duration": "took"}})
    refused(write(tmp_path / "t.jsonl", [row]), Options(fields=layout), match=rf"t\.jsonl:1: {message}")


_VAST = [10**400, -(10**400), 1e300, float("nan"), float("inf"), 2.0**64]


@pytest.mark.parametrize("value", _VAST, ids=["whole", "negative", "float", "nan", "inf", "more"])
@pytest.mark.parametrize("field", ["time", "end", "took"])
def test_times_beyond_all_measure_are_refused(tmp_path: Path, field: str, value: float) -> None:
    layout = FieldMap.from_table({"fields": {"end_time": "end", "duration": "took"}})
    row = {"time": 1, "token_ids": [1]} if field == "time" else {"end": 1, "took": 1, "token_ids": [1]}
    path = write(tmp_path / "t.jsonl", [row, {**row, field: value}])
    refused(path, Options(fields=layout), match=r"t\.jsonl:2: (time|duration) .*2\*\*63")


def test_times_without_a_zone_are_the_same_on_every_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The night that clocks go back in Berlin has an hour twice, the night that they go forward lacks one."""
    path = tmp_path / "a.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-10-29 01:59:00,500,6\n2023-10-29 02:30:00,500,6\n2023-10-29 03:10:00,500,6\n"
    )
    for zone in ("Europe/Berlin", "UTC"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert [request.arrival_s for request in read(path)] == [0, 31 * 60, 71 * 60]
    assert ZONELESS in read_trace(path).notes
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "1e300", "9" * 400])
def test_times_of_a_table_beyond_all_measure_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"Timestamp,Request tokens,Response tokens\n1,5,5\n{text},5,5\n")
    refused(path, match=r"a\.csv:3: Timestamp .*-2\*\*63.*2\*\*63")
