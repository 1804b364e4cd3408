from __future__ import annotations

import re
from dataclasses import replace

import pytest

from prefixroute.costmodel import Assumption
from prefixroute.report.behind import figure
from prefixroute.report.study import floor_of, headline, runs, summary
from prefixroute.sim import Sweep


def test_floor_is_unknown_when_no_row_knows_it(study: Sweep) -> None:
    assert floor_of(study.rows) == pytest.approx(0.0371)
    assert floor_of([replace(study.rows[0], floor=None)]) is None


def told(sentence: str) -> list[str]:
    """Return the policies and figures of a sentence, in its order."""
    return re.findall(r"round-robin|cache-aware|session|random|\$?\d[\d.]*", sentence.rstrip("."))


def test_the_summary_speaks_of_the_largest_fleet(study: Sweep) -> None:
    share, cost = summary(study)
    assert told(share) == ["8", "round-robin", "51.0", "cache-aware", "4.3", "3.7"]
    assert told(cost)[-6:] == ["$132.60", "round-robin", "1.04", "$11.18", "cache-aware", "1.04"]


def test_of_policies_that_compute_alike_the_cheapest_is_named(study: Sweep) -> None:
    dear, worst = study.rows[-1], study.rows[-2]
    cheap = replace(dear, policy="session", usd_per_million_requests_busiest=9.0)
    costly = replace(worst, policy="random", usd_per_million_requests_busiest=999.0)
    for rows in ((worst, costly, dear, cheap), (costly, worst, cheap, dear)):
        tied = replace(study, rows=rows)
        assert "session 4.3 %" in summary(tied)[0]
        assert summary(tied)[1].count("random") == headline(tied).count("random") == 1
        assert "$9.00 with session" in summary(tied)[1]


def test_the_summary_of_one_policy_says_it_once(study: Sweep) -> None:
    share, cost = summary(replace(study, rows=study.rows[-1:]))
    assert told(share) == ["8", "cache-aware", "4.3", "3.7"]
    assert cost.count("$") == cost.count("cache-aware") == 1


def test_a_column_is_marked_only_where_a_default_stands_behind_it_and_others_have_none(study: Sweep) -> None:
    table = runs(study)
    assert {head.title for head in table.heads if head.assumed} == {"$ / 1M requests", "$ busiest"}
    assert not table.assumed
    gpu = Assumption("gpu", "H100", "", "default", assumed=True)
    capacity = Assumption("capacity_tokens", 300_000, "tokens", "default", assumed=True)
    alike = runs(replace(study, assumptions=(study.assumptions[0], gpu, capacity)))
    assert alike.assumed
    assert not any(head.assumed for head in alike.heads)


def test_a_table_has_a_section_for_each_fleet_and_loses_columns_by_name(study: Sweep) -> None:
    table = runs(study)
    assert table.sections == {2}
    assert len(table.rows) == 4
    fewer = table.without(["p50 ms", "nothing"])
    assert len(fewer.heads) == len(table.heads) - 1 == len(fewer.rows[0])


@pytest.mark.parametrize(
    ("value", "text"), [(300_000, "300,000"), (0.5, "0.5"), (9.89e14, "9.89e+14"), ("H100", "H100"), (12, "12")]
)
def test_figures(value: float | str, text: str) -> None:
    assert figure(value) == text


def test_mixed_fleets_have_a_dash_for_what_only_split_ones_have(study: Sweep) -> None:
    split = replace(study.rows[1], handover_mean_s=0.0125, prefill_busy=0.06, decode_busy=0.993)
    table = runs(replace(study, rows=(study.rows[0], split)))
    cells = [dict(zip((head.title for head in table.heads), row, strict=True)) for row in table.rows]
    assert [row["handover ms"] for row in cells] == ["-", "12.5"]
    assert [row["decode busy %"] for row in cells] == ["-", "99.3"]
