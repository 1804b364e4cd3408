"""Columns, outcomes and rows: what the numbers of `simulate --json` mean."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from prefixroute.hashing import BlockHashes
from prefixroute.sim.metrics import Outcome, ResultRow, Timings
from prefixroute.sim.request_log import RequestLog
from prefixroute.workload import Request

DESIGN_FIELDS = [
    "policy",
    "replicas",
    "seeds",
    "requests",
    "prompt_tokens",
    "recomputed_tokens",
    "recompute_ratio",
    "recompute_ratio_spread",
    "floor",
    "skew",
    "usd_per_million_requests",
    "ttft_mean_s",
    "ttft_p50_s",
    "ttft_p90_s",
    "ttft_p99_s",
]


def outcome(seed: int, recomputed: int, served: tuple[int, ...] = (3, 1), ttft: float = 1.0) -> Outcome:
    timings = Timings(ttft, ttft, ttft, ttft)
    return Outcome("session", len(served), seed, sum(served), 400, recomputed, served, timings, 2.0)


def test_a_row_joins_runs_and_has_the_fields_of_the_design() -> None:
    row = ResultRow.over([outcome(0, 100), outcome(1, 200, (2, 2), ttft=3.0)], floor=0.1)
    fields = row.to_dict()
    assert list(fields)[: len(DESIGN_FIELDS)] == DESIGN_FIELDS
    assert fields["recompute_ratio"] == pytest.approx(300 / 800)
    assert fields["recompute_ratio_spread"] == pytest.approx(0.25)
    assert fields["requests"] == 4
    assert fields["prompt_tokens"] == 400
    assert fields["recomputed_tokens"] == 150
    assert fields["skew"] == pytest.approx((1.5 + 1.0) / 2)
    assert fields["ttft_mean_s"] == 2.0


def test_clocked_fields_show_only_when_every_run_has_them() -> None:
    clocked = dataclasses.replace(outcome(0, 0), queue_mean_s=0.5)
    assert ResultRow.over([clocked]).to_dict()["queue_mean_s"] == 0.5
    assert "queue_mean_s" not in ResultRow.over([clocked, outcome(1, 0)]).to_dict()


def test_an_empty_run_divides_by_nothing() -> None:
    empty = Outcome("random", 2, 0, 0, 0, 0, (0, 0), Timings.of(np.zeros(0)), 0.0)
    assert (empty.recompute_ratio, empty.skew) == (0.0, 1.0)
    assert ResultRow.over([empty]).recompute_ratio == 0.0


def test_percentiles_are_of_requests() -> None:
    timings = Timings.of(np.arange(101, dtype=np.float64))
    assert (timings.mean, timings.p50, timings.p90, timings.p99) == (50.0, 50.0, 90.0, 99.0)


def test_the_log_is_columns_without_copies_and_strangers_are_not_one_session() -> None:
    log, empty = RequestLog(timed=True), BlockHashes([], token_count=0)
    for number, session in enumerate(("a", None, "a", None)):
        log.served(number, 1, Request(0.0, empty, empty, 100, 7, session=session), 60, 0.5, 1.0, 2.0, 7, 1, 0, 1.0, 0)
    assert log.sessions == 3
    assert log.column("session").tolist() == [0, 1, 0, 2]
    assert log.column("hit").sum() == 240
    assert log.column("finish").dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        log.column("hit")[0] = 1
