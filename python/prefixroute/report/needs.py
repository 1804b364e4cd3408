"""How many replicas are needed, and why, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from prefixroute.advise import Advice, FleetNeed
from prefixroute.advise.choice import CURRENT, METRIC
from prefixroute.advise.fleet import MOST_TIMES
from prefixroute.report.basis import RATE, fleet, mark
from prefixroute.report.figures import replicas
from prefixroute.report.times import duration

LEAST_TOLD_USD = 0.5
"""US dollars a month below which a headline, in whole dollars, names no saving."""


def fewer(advice: Advice, need: FleetNeed) -> str:
    """Return how many replicas are enough, whether with today's policy too, and what the others cost."""
    enough = f"{need.size.replicas} of {fleet(advice)} are enough"
    rent = f"${need.saved_usd_per_month:,.0f} of rent a month" if need.saved_usd_per_month else ""
    today = f"{need.today}{mark(advice, CURRENT)}"
    if need.is_smaller_today:
        return f"{enough}, with {today} as well{f' (saves {rent})' if rent else ''}"
    only = "" if need.policy == need.today else f" (not with {today})"
    return f"{enough}{only}{f', which saves {rent}' if rent else ''}"


def saved_by_policy(advice: Advice, need: FleetNeed) -> str:
    """Return the prefill that the policy saves a month, beside a rent that no policy saves.

    Empty where the fleet, the policy in use or the rate is assumed, and where the saving is within the noise.
    """
    saving = advice.saving
    if not need.is_smaller_today or saving is None or saving.usd_per_month is None:
        return ""
    apart = advice.comparison.gap(advice.row.policy, saving.against, METRIC).excludes_zero
    if saving.usd_per_month < LEAST_TOLD_USD or not apart or any(map(advice.assumes, ("replicas", CURRENT, *RATE))):
        return ""
    return f"; {advice.policy.partition(':')[0]} saves ${saving.usd_per_month:,.0f} of prefill a month"


def leads(advice: Advice) -> bool:
    """Whether the number of replicas comes before the policy: a fleet that cannot keep up, or the larger saving."""
    need, saving = advice.need, advice.saving
    by_policy = 0.0 if saving is None else saving.usd_per_month or 0.0
    smaller = need is not None and need.is_smaller and (need.saved_usd_per_month or 0.0) > by_policy
    return advice.is_overloaded or (need is not None and need.now.is_overloaded) or smaller


def needed(advice: Advice, need: FleetNeed) -> str:
    """Return how many replicas are needed.

    The busiest part says nothing of a fleet that falls behind over the whole.
    """
    if advice.is_overloaded and not need.then.is_overloaded:
        return f"{_behind(need)} Give more replicas, or more capacity, and ask again."
    return _need(advice, need, told=need.is_smaller and advice.remedy is None and not advice.is_overloaded)


def _behind(need: FleetNeed) -> str:
    return f"{replicas(need.replicas)} cannot keep up with {need.policy}: requests come faster than they are served."


def _need(advice: Advice, need: FleetNeed, *, told: bool) -> str:
    """Return how many replicas are needed, and why; only why, where the headline has ``told`` how many."""
    enough = "" if told else _enough(advice, need)
    parts = [_today(need), enough, _times(advice, need), _spare(need), _routing(need), _looked_at(need)]
    return " ".join(filter(None, parts))


def _today(need: FleetNeed) -> str:
    if need.then.is_overloaded:
        return _behind(need)
    if need.now.is_overloaded:
        return (
            f"With {need.today}, requests come faster than they are served, so its times are no promise; with "
            f"{need.policy} the fleet keeps up."
        )
    return ""


def _enough(advice: Advice, need: FleetNeed) -> str:
    size = need.size
    if size.replicas is None:
        return f"Up to {MOST_TIMES * need.replicas} replicas do not keep the promise."
    if need.is_smaller:
        return f"{fewer(advice, need)}."
    if size.replicas == need.replicas:
        return f"{replicas(need.replicas)} are needed, as many as the fleet has: fewer are not enough."
    return f"{replicas(size.replicas)} are needed."


def _times(advice: Advice, need: FleetNeed) -> str:
    """Return the times on the fleet that is enough, beside today's; empty where no fleet is."""
    if need.size.replicas is None:
        return ""
    told = [at for at, seconds in enumerate(need.there.seconds) if seconds > 0]
    if not told:
        return f"With {need.policy} on {need.size.replicas} they keep up."

    def listed(seconds: Sequence[float]) -> str:
        named = (f"{need.asked[at].time.upper()} p{need.asked[at].percentile:g} {duration(seconds[at])}" for at in told)
        return ", ".join(named)

    policy, count = f"{need.today}{mark(advice, CURRENT)}", f"{need.replicas}{mark(advice, 'replicas')}"
    today = "" if need.now.is_overloaded else f" Today, with {policy} on {count}: {listed(need.now.seconds)}."
    return f"With {need.policy} on {need.size.replicas}: {listed(need.there.seconds)}.{today}"


def _spare(need: FleetNeed) -> str:
    """Return what of the fleet is reserve, a sentence for each part of it."""
    size, room = need.size, need.headroom
    if size.replicas is None or size.least is None or (not room.spare and room.utilization == 1):
        return ""
    parts = [f"Without a reserve, {replicas(size.least)} would be enough."]
    if room.utilization < 1:
        parts.append(
            f"For arrivals {1 / room.utilization:.3g} times as fast, the least is {replicas(size.at_peak or 0)}."
        )
    if room.spare:
        parts.append(f"{replicas(room.spare)} of the {size.replicas} may fail.")
    return " ".join(parts)


def _routing(need: FleetNeed) -> str:
    """Return whether routing is why fewer replicas would do; nothing where they would not."""
    if need.alike is None:
        return ""
    keeps, is_not = ("keeps these times too", "not ") if need.alike else ("does not keep these times", "")
    return f"On {need.size.replicas}, {need.today} {keeps}: routing is {is_not}the reason."


def _looked_at(need: FleetNeed) -> str:
    part = need.part
    basis = (
        "the whole trace"
        if part.whole
        else f"the busiest {part.requests:,} requests ({part.times_mean:.2f} times the mean rate of tokens)"
    )
    return f"This is a timed simulation of {basis}. `prefixroute size` answers for other times."
