"""Tables of a sizing, and what it says."""

from __future__ import annotations

from prefixroute.advise import EqualFleet, FleetSize, Headroom, Sizing, Slo
from prefixroute.costmodel.assumption import MONEY, SECONDS, SHARES
from prefixroute.report.figures import kinds, known, money_of, percent, replicas
from prefixroute.report.table import Column, Table
from prefixroute.report.times import Unit, unit_of


def sizes(found: Sizing, most: int) -> Table:
    """Return the table of ``size``: the fleet to buy under each policy, and what decides."""
    usd = money_of(fleet.usd_per_month for fleet in found.fleets).figure
    columns: list[Column[FleetSize]] = [
        Column("policy", lambda fleet: fleet.policy, text=True),
        Column("replicas", lambda fleet: known(fleet.replicas, str, f"more than {most}"), SECONDS),
        Column("without reserve", lambda fleet: known(fleet.least, str), SECONDS),
        Column("decided by", lambda fleet: _decided_by(fleet, found.headroom), text=True),
        Column("GPUs", lambda fleet: known(fleet.gpus, str), SECONDS),
        Column("$ / month", lambda fleet: known(fleet.usd_per_month, usd), MONEY),
    ]
    for at, slo in enumerate(found.slos):
        columns += _promised(at, slo, _unit(found, at))
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
    """Return the table of splits of as many GPUs as each mixed fleet.

    What becomes of the promises at the traffic's own rate.
    """
    columns: list[Column[EqualFleet]] = [
        Column("policy", lambda fleet: fleet.policy, text=True),
        Column("replicas", lambda fleet: str(fleet.replicas), SECONDS),
        Column(
            "prefill + decode",
            lambda fleet: "each does both" if fleet.prefill is None else f"{fleet.prefill} + {fleet.decode}",
            text=True,
        ),
    ]
    columns += [_at_equal_gpus(at, slo, _unit(found, at)) for at, slo in enumerate(found.slos)]
    columns.append(Column("keeps the promises", lambda fleet: "yes" if fleet.keeps else "no", text=True))
    sections = [at for at in range(1, len(found.equal)) if found.equal[at].policy != found.equal[at - 1].policy]
    return Table.of(
        "prefill and decode apart, at equal GPUs", columns, found.equal, found.assumptions, sections=sections
    )


def sized_tables(found: Sizing, most: int) -> tuple[Table, ...]:
    """Return the tables of a sizing, wherever it is shown: on a terminal, on a page."""
    return (sizes(found, most), *((equal_fleets(found),) if found.equal else ()))


def _decided_by(fleet: FleetSize, room: Headroom) -> str:
    """Return what asks for the most replicas, as words."""
    if fleet.replicas is None:
        return ""
    words = {
        "failure": f"{replicas(room.spare)} lost",
        "peak": f"arrivals {1 / room.utilization:.3g} times as fast",
        "traffic": "the traffic itself",
    }
    return words[fleet.decided_by]


def _promised(at: int, slo: Slo, unit: Unit) -> list[Column[FleetSize]]:
    title, text = _title(slo, unit), unit.figure

    def one_lost(fleet: FleetSize) -> str:
        return "" if fleet.seconds_one_less is None else text(fleet.seconds_one_less[at])

    return [
        Column(title, lambda fleet: text(fleet.seconds[at]) + " and growing" * fleet.overloaded, SECONDS),
        Column(f"{title}, one lost", one_lost, SECONDS),
    ]


def _at_equal_gpus(at: int, slo: Slo, unit: Unit) -> Column[EqualFleet]:
    return Column(_title(slo, unit), lambda fleet: unit.figure(fleet.seconds[at]), SECONDS)


def _title(slo: Slo, unit: Unit) -> str:
    return f"{slo.time.upper()} p{slo.percentile:g}, {unit.name}"


def _unit(found: Sizing, at: int) -> Unit:
    """Return the unit of the times of a promise, the same in both tables."""
    fleets = [fleet.seconds for fleet in found.fleets] + [fleet.seconds for fleet in found.equal]
    fleets += [fleet.seconds_one_less for fleet in found.fleets if fleet.seconds_one_less is not None]
    return unit_of(seconds[at] for seconds in fleets)


def reserve(found: Sizing) -> str:
    """Return what a fleet must carry beyond the traffic, as words."""
    room = found.headroom
    peak = "" if room.utilization == 1 else f"peak utilization {room.utilization:g}"
    spare = "" if not room.spare else f"{room.spare} spare replica{'s' * (room.spare > 1)}"
    return " and ".join(filter(None, (peak, spare))) or "no reserve"


def sized(found: Sizing) -> str:
    """Return what a sizing says, in a line."""
    smallest = found.smallest
    if not smallest:
        return f"{found.workload}: no fleet that was tried keeps the promise"
    best, promised = smallest[0], " and ".join(map(str, found.slos)) or "requests served as fast as they come"
    if best.prefill is not None and best.decode is not None:
        policy = best.policy.removesuffix(f", {best.prefill}+{best.decode}")
        return f"{found.workload}: {kinds(best.prefill, best.decode)} with {policy} for {promised}"
    count = replicas(best.replicas or 0)
    if len(smallest) == 1:
        return f"{found.workload}: {count} with {best.policy} for {promised}"
    named = ", ".join(one.policy for one in smallest)
    least, most = percent(best.recompute_ratio), percent(smallest[-1].recompute_ratio)
    those = [one.policy for one in smallest if percent(one.recompute_ratio) == least]
    verb = "recomputes" if len(those) == 1 else "recompute"
    told = f"{' and '.join(those)} {verb} least ({least}, {smallest[-1].policy} {most})"
    if least == most:
        told = f"each recomputes {least}"
    return f"{found.workload}: {count} with any of {named} for {promised}; {told}"
