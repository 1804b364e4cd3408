from __future__ import annotations

import re
from dataclasses import replace

from prefixroute.advise import EqualFleet, FleetSize, Headroom, Sizing, Slo
from prefixroute.report.figures import kinds
from prefixroute.report.sizing import equal_fleets, sized, sizes
from prefixroute.report.table import Table


def columns(table: Table) -> dict[str, tuple[str, ...]]:
    return {head.title: cells for head, cells in zip(table.heads, zip(*table.rows, strict=True), strict=True)}


def test_a_promise_has_one_unit_in_both_tables_in_which_its_smallest_time_shows() -> None:
    slos = Slo.parse_all("ttft_p95=2s,e2e_p99=20")
    mixed = FleetSize("session", 6, 6, 9.0, 5, 6, "peak", (0.2, 12.0), (0.25, 14.0), 0.1, 0.5, 0.0, overloaded=False)
    split = EqualFleet("session", 6, 5, 1, (1.08, 30.0), keeps=False)
    found = Sizing(
        "chat", slos, Headroom(), (mixed,), (), (), (EqualFleet("session", 6, None, None, (0.2, 12.0), True), split)
    )
    bought, equal = columns(sizes(found, 8)), columns(equal_fleets(found))
    assert (bought["TTFT p95, ms"], bought["E2E p99, s"]) == (("200.0",), ("12.00",))
    assert (equal["TTFT p95, ms"], equal["E2E p99, s"]) == (("200.0", "1,080.0"), ("12.00", "30.00"))


def test_of_fleets_of_equal_size_the_one_that_recomputes_least_is_named_first() -> None:
    one = FleetSize("session", 2, 2, 9.0, 1, 1, "failure", (), None, 0.0722, 0.3, 0.0, overloaded=False)
    round_robin, aware = (
        replace(one, policy=name, recompute_ratio=ratio) for name, ratio in (("round-robin", 0.18), ("aware", 0.0719))
    )
    larger = replace(one, policy="random", replicas=3, recompute_ratio=0.01)
    none = replace(one, policy="spread", replicas=None)
    apart = replace(one, policy="session, 1+1", prefill=1, decode=1, recompute_ratio=0.01)
    found = Sizing("chat", (), Headroom(), (round_robin, larger, one, none, aware, apart), (), ())
    assert found.smallest == (one, aware, round_robin)  # 7.2 % both: in the order of the table
    assert found.to_dict()["smallest"] == ["session", "aware", "round-robin"]
    told = sized(found)
    assert re.findall("session|aware|round-robin|random|spread", told) == 2 * ["session", "aware", "round-robin"]
    assert re.findall(r"\d[\d.]*", told) == ["2", "7.2", "18.0"]
    assert replace(found, fleets=(none,)).smallest == ()
    assert replace(found, fleets=(apart, larger)).smallest == (apart,)
    assert kinds(1, 1) in sized(replace(found, fleets=(apart, larger)))


def test_of_a_policy_that_no_fleet_was_enough_for_the_table_names_the_most_that_was_tried() -> None:
    fleet = FleetSize("session", 2, 2, 9.0, 1, 1, "failure", (), None, 0.0722, 0.3, 0.0, overloaded=False)
    enough = Sizing("chat", (), Headroom(), (fleet,), (), ())
    more = sizes(replace(enough, fleets=(fleet, replace(fleet, replicas=None))), 77)
    assert columns(more)["replicas"][0] == "2"
    assert "77" in columns(more)["replicas"][1]
    assert [("77" in line) for line in more.lines] == [True]
    assert sizes(enough, 77).lines == ()
