"""Would the advised policy do better on the same GPUs if some only prefilled and the others only decoded?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from prefixroute.advise.choice import TTFT, beats
from prefixroute.advise.clocks import with_clock
from prefixroute.advise.compare import Comparison, compare
from prefixroute.advise.facts import Facts
from prefixroute.advise.finding import Finding, figures
from prefixroute.advise.sample import MISSED
from prefixroute.advise.size import prefill_counts
from prefixroute.advise.slo import Slo
from prefixroute.advise.study import How, Study
from prefixroute.costmodel import find_link
from prefixroute.errors import ConfigError
from prefixroute.sim import Split
from prefixroute.sim.sweep import link_assumed

E2E = "e2e_mean_s"
ITL = "itl_mean_s"
TIMES = (TTFT, ITL, E2E)
"""What is compared: at equal GPUs the rent is the same."""


def compare_splits(facts: Facts, study: Study, how: How) -> Comparison | None:
    """Compare the advised policy on mixed replicas with splits of as many, all timed; None unless asked for.

    Raises:
        ConfigError: the workload spans no time, so that nothing is timed.
    """
    link = how.asked.apart
    if link is None:
        return None
    if facts.profile.span_s <= 0:
        raise ConfigError("prefill and decode apart need a timed simulation, and these requests all come at once")
    fleet = with_clock(how.asked, how.cost)
    mixed = replace(study.chosen, engine=fleet.engine, promise=fleet.promise)
    splits = [Split(count, mixed.replicas - count, link).of(mixed) for count in prefill_counts(mixed.replicas)]
    compared = compare(
        facts.source,
        [mixed, *splits],
        seeds=how.asked.seeds,
        metric=E2E,
        cost=how.cost,
        jobs=how.jobs,
        progress=how.work.part((1 + len(splits)) * how.asked.runs),
        time_is_up=how.time_is_up,
    )
    rests_on = (*compared.assumptions, link_assumed(how.cost, find_link(link)))
    return replace(compared, reference=mixed.policy_name, assumptions=rests_on)


def judged(slos: Sequence[Slo]) -> tuple[str, ...]:
    """Return what a split must not be worse in to win: requests that break a promise.

    The mean times where nothing is promised.
    """
    return (MISSED,) if slos else TIMES


def winner(compared: Comparison, times: Sequence[str] = TIMES) -> tuple[str, tuple[str, ...]] | None:
    """Return the split that is better than mixed replicas in some of these times and worse in none, with those times.

    Better is beyond the noise. Of several, the one with the least of the last of them. One that cannot keep up never
    wins, but where mixed replicas cannot either.
    """
    mixed = compared.reference
    others = [row.policy for row in compared.rows if row.policy != mixed]
    keeping = [name for name in others if compared.is_overloaded(mixed) or not compared.is_overloaded(name)]
    better = {name: metrics for name in keeping if (metrics := beats(compared, name, mixed, times))}
    if not better:
        return None
    best = min(better, key=lambda name: getattr(compared.row(name), times[-1]))
    return best, better[best]


def found_apart(compared: Comparison | None, slos: Sequence[Slo]) -> Iterator[Finding]:
    """Yield whether a split wins, in a line: the winner, or what comes nearest of those that keep up."""
    if compared is None:
        return
    times = judged(slos)
    mixed, won = compared.row(compared.reference), winner(compared, times)
    others = [row for row in compared.rows if row.policy != mixed.policy]
    nearest = min(others, key=lambda row: (compared.is_overloaded(row.policy), getattr(row, times[-1])))
    row = nearest if won is None else compared.row(won[0])
    evidence: dict[str, Any] = {
        "policy": mixed.policy,
        "split": f"{row.prefill_replicas}+{row.decode_replicas}",
        "wins": won is not None,
        "judged": ",".join(times),
        "better": ",".join(won[1]) if won is not None else "",
        "overloaded": compared.is_overloaded(row.policy),
    }
    for metric in dict.fromkeys((*times, *TIMES)):
        gap = compared.gap(row.policy, mixed.policy, metric)
        evidence |= {**figures(row, metric), **figures(mixed, metric, suffix="_mixed")}
        evidence |= {f"{metric}_low": gap.low, f"{metric}_high": gap.high}
    yield Finding("apart", "note", evidence)
