"""Tables of a sizing, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from prefixroute.advise import EqualFleet, FleetSize, Headroom, Sizing, Slo
from prefixroute.costmodel.assumption import MONEY, SECONDS, SHARES
from prefixroute.report.figures import kinds, money_of, percent, replicas, tenths
from prefixroute.report.sheet import Sheet
from prefixroute.report.table import Column, Table, section_starts
from prefixroute.report.times import Unit, unit_of

if TYPE_CHECKING:
    from prefixroute.report.drawing import Chart


def sizing_sheet(found: Sizing, most: int) -> Sheet:
    """Return a sizing as people read it.

    Args:
        found: the fleets.
        most: replicas beyond which none was tried.
    """
    return Sheet(
        title=sized(found),
        tables=(sizes(found, most), *((equal_fleets(found),) if found.equal else ())),
        assumptions=found.assumptions,
        notes=found.notes,
        following=f"prefixroute advise {found.workload}   (which policy, and what it saves)",
        charts=partial(_drawn, found),
    )


def _drawn(found: Sizing) -> Mapping[str, Chart]:
    """Return the chart of the replicas to buy, where any number was enough."""
    from prefixroute.report.charts import bars

    values = [{"policy": one.policy, "value": one.replicas} for one in found.fleets if one.replicas is not None]
    return {"Replicas to buy": bars([one.policy for one in found.fleets], values, "replicas")} if values else {}


def sizes(found: Sizing, most: int) -> Table:
    """Return the table of ``size``: the fleet to buy under each policy, and what decides."""
    usd = money_of(fleet.usd_per_month for fleet in found.fleets).figure
    columns = [
        Column("policy", "policy", text=True),
        Column("replicas", "replicas", str, SECONDS, missing=f"more than {most}"),
        Column("without reserve", "least", str, SECONDS),
        Column("decided by", lambda fleet: _decided_by(fleet, found.headroom), text=True),
        Column("GPUs", "gpus", str, SECONDS),
        Column("$ / month", "usd_per_month", usd, MONEY),
        *(column for at, slo in enumerate(found.slos) for column in _promised(at, slo, _unit(found, at))),
        *[Column("goodput / s", "goodput_per_s", "{:,.2f}".format, SECONDS)] * bool(found.slos),
        Column("recomputed %", "recompute_ratio", tenths, SHARES),
        Column("busy %", "busy", lambda share: f"{100 * share:.0f}", SECONDS),
        Column("preempted %", "preempted", tenths, SECONDS),
    ]
    promised = " and ".join(map(str, found.slos)) or "replicas that keep up"
    title = f"{found.workload}: the smallest fleet with {promised}, {reserve(found)}"
    beyond = (
        f"Beside more than {most} stands the time with {most}. Where more replicas hardly help, prefill alone takes "
        "that long, or the policy uses few of them."
    )
    lines = (beyond,) if any(fleet.replicas is None for fleet in found.fleets) else ()
    return Table.of(title, columns, found.fleets, found.assumptions, lines=lines)


def equal_fleets(found: Sizing) -> Table:
    """Return the table of splits of as many GPUs as each mixed fleet.

    What becomes of the promises at the traffic's own rate.
    """
    columns = [
        Column("policy", "policy", text=True),
        Column("replicas", "replicas", str, SECONDS),
        Column(
            "prefill + decode",
            lambda fleet: "each does both" if fleet.prefill is None else f"{fleet.prefill} + {fleet.decode}",
            text=True,
        ),
        *(_promised(at, slo, _unit(found, at))[0] for at, slo in enumerate(found.slos)),
        Column("keeps the promises", lambda fleet: "yes" if fleet.keeps else "no", text=True),
    ]
    sections = section_starts([fleet.policy for fleet in found.equal])
    title = "prefill and decode apart, at equal GPUs"
    return Table.of(title, columns, found.equal, found.assumptions, sections=sections)


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


def _promised(at: int, slo: Slo, unit: Unit) -> tuple[Column, Column]:
    """Return the columns of a promised time: of the fleet, and of the fleet with one replica lost."""
    title = f"{slo.time.upper()} p{slo.percentile:g}, {unit.name}"

    def seconds(fleet: FleetSize | EqualFleet) -> str:
        growing = isinstance(fleet, FleetSize) and fleet.overloaded
        return unit.figure(fleet.seconds[at]) + " and growing" * growing

    def one_lost(fleet: FleetSize) -> float | None:
        return None if fleet.seconds_one_less is None else fleet.seconds_one_less[at]

    return Column(title, seconds, str, SECONDS), Column(f"{title}, one lost", one_lost, unit.figure, SECONDS)


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
