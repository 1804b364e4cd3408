"""Tables of a sizing, and what it says."""

from __future__ import annotations

from collections.abc import Callable

from prefixroute.advise import EqualFleet, FleetSize, Sizing, Slo
from prefixroute.costmodel.assumption import MONEY, SECONDS, SHARES
from prefixroute.report.figures import known, usd
from prefixroute.report.table import Column, Table
from prefixroute.report.times import unit_of


def sizes(found: Sizing, most: int) -> Table:
    """Return the table of ``size``: the fleet to buy under each policy, and what decides."""
    columns: list[Column[FleetSize]] = [
        Column("policy", lambda fleet: fleet.policy, text=True),
        Column("replicas", lambda fleet: known(fleet.replicas, str, f"more than {most}"), SECONDS),
        Column("without reserve", lambda fleet: known(fleet.least, str), SECONDS),
        Column("decided by", lambda fleet: "" if fleet.replicas is None else fleet.decided_by, text=True),
        Column("GPUs", lambda fleet: known(fleet.gpus, str), SECONDS),
        Column("$ / month", lambda fleet: known(fleet.usd_per_month, usd), MONEY),
    ]
    for at, slo in enumerate(found.slos):
        columns += _promised(at, slo)
    columns += [
        *[Column("goodput / s", lambda fleet: f"{fleet.goodput_per_s or 0.0:,.2f}", SECONDS)] * bool(found.slos),
        Column("recomputed %", lambda fleet: f"{100 * fleet.recompute_ratio:.1f}", SHARES),
        Column("busy %", lambda fleet: f"{100 * fleet.busy:.0f}", SECONDS),
        Column("preempted %", lambda fleet: f"{100 * fleet.preempted:.1f}", SECONDS),
    ]
    promised = " and ".join(map(str, found.slos)) or "replicas that keep up"
    title = f"{found.workload}: the smallest fleet with {promised}, {reserve(found)}"
    return Table.of(title, columns, found.fleets, found.assumptions)


def equal_fleets(found: Sizing) -> Table:
    """Return the table of splits of as many GPUs as each mixed fleet: what becomes of the promises at the traffic's own rate."""
    columns: list[Column[EqualFleet]] = [
        Column("policy", lambda fleet: fleet.policy, text=True),
        Column("replicas", lambda fleet: str(fleet.replicas), SECONDS),
        Column(
            "prefill + decode",
            lambda fleet: "each does both" if fleet.prefill is None else f"{fleet.prefill} + {fleet.decode}",
            text=True,
        ),
    ]
    columns += [_at_equal_gpus(at, slo) for at, slo in enumerate(found.slos)]
    columns.append(Column("keeps the promises", lambda fleet: "yes" if fleet.keeps else "no", text=True))
    sections = [at for at in range(1, len(found.equal)) if found.equal[at].policy != found.equal[at - 1].policy]
    return Table.of(
        "prefill and decode apart, at equal GPUs", columns, found.equal, found.assumptions, sections=sections
    )


def _promised(at: int, slo: Slo) -> list[Column[FleetSize]]:
    title, text = _time(slo)

    def one_lost(fleet: FleetSize) -> str:
        return "" if fleet.seconds_one_less is None else text(fleet.seconds_one_less[at])

    return [
        Column(title, lambda fleet: text(fleet.seconds[at]) + " and growing" * fleet.overloaded, SECONDS),
        Column(f"{title}, one lost", one_lost, SECONDS),
    ]


def _at_equal_gpus(at: int, slo: Slo) -> Column[EqualFleet]:
    title, text = _time(slo)
    return Column(title, lambda fleet: text(fleet.seconds[at]), SECONDS)


def _time(slo: Slo) -> tuple[str, Callable[[float], str]]:
    """Return the head of the columns of a promise, and how its times read: in the unit of the promise, in every table."""
    unit = unit_of([slo.seconds])
    return f"{slo.time.upper()} p{slo.percentile:g}, {unit.name}", unit.figure


def reserve(found: Sizing) -> str:
    """Return what a fleet must carry beyond the traffic, as words."""
    room = found.headroom
    peak = "" if room.utilization == 1 else f"peak utilization {room.utilization:g}"
    spare = "" if not room.spare else f"{room.spare} spare replica{'s' * (room.spare > 1)}"
    return " and ".join(filter(None, (peak, spare))) or "no reserve"


def sized(found: Sizing) -> str:
    """Return what a sizing says, in a line."""
    enough = [one for one in found.fleets if one.replicas is not None]
    if not enough:
        return f"{found.workload}: no fleet that was tried keeps the promise"
    best = min(enough, key=lambda one: (one.replicas or 0, found.fleets.index(one)))
    promised = " and ".join(map(str, found.slos)) or "requests served as fast as they come"
    return f"{found.workload}: {best.replicas} replicas with {best.policy} for {promised}"
