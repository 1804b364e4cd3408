from __future__ import annotations

from prefixroute.advise import EqualFleet, FleetSize, Headroom, Sizing, Slo
from prefixroute.report.sizing import equal_fleets, sizes
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
