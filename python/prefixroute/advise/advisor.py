"""The advisor: facts of the traffic, a comparison of policies, a choice, the advice, each made of the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from prefixroute.advise import findings, sensitivity, tree
from prefixroute.advise.advice import NO_ROUTER, Advice, Remedy, Saving, UsualLifetime
from prefixroute.advise.apart import compare_splits, found_apart
from prefixroute.advise.backtest import Backtest, backtest
from prefixroute.advise.busiest import busiest
from prefixroute.advise.choice import CURRENT, IN_USE, ROUND_ROBIN, other_match
from prefixroute.advise.clocks import other_clock, with_clock
from prefixroute.advise.compare import Comparison, compare
from prefixroute.advise.deployment import Deployment
from prefixroute.advise.facts import Facts, look
from prefixroute.advise.finding import URGENCY, Evidence, Finding
from prefixroute.advise.fleet import SIZED_REQUESTS, FleetNeed, needed, timed
from prefixroute.advise.own_or_api import default_models
from prefixroute.advise.profile import Profile
from prefixroute.advise.question import OTHERS, Question
from prefixroute.advise.size import MOST_EQUAL
from prefixroute.advise.study import How, Study, compare_on
from prefixroute.costmodel import Assumption, CostModel
from prefixroute.costmodel.cost import HOURS_PER_MONTH
from prefixroute.errors import ConfigError
from prefixroute.sim import ResultRow, Scenario
from prefixroute.sim.grid import Source, seeds_of
from prefixroute.sim.pool import Jobs
from prefixroute.sim.progress import Progress, Work
from prefixroute.sim.scenario import AnyPolicy
from prefixroute.sim.sweep import assumed
from prefixroute.workload import measure

SIZINGS = 14
"""Timed runs of a part that the search for a fleet takes for each seed, about."""
BACKTESTS = 12
"""Runs that a backtest takes, about, where it looks for an explanation."""
HOUR_S = 3_600
MILLION = 1_000_000


def advise(
    source: Source,
    question: Question | None = None,
    *,
    cost: CostModel | None = None,
    jobs: Jobs = 1,
    progress: Progress | None = None,
    time_is_up: Callable[[], bool] = lambda: False,
) -> Advice:
    """Advise on how to route a workload.

    Args:
        source: a workload, or a function from a seed to one.
        question: the fleet, and what is known of it.
        cost: prices and seconds.
        jobs: processes, see :class:`~prefixroute.sim.grid.Grid`.
        progress: told the share of all runs that is done, and what is being run.
        time_is_up: asked between runs; then unlimited caches, further seeds and other fleets are left out, which a note
            says.

    Returns:
        The advice with the comparison, the sizing and the findings that it rests on.

    Raises:
        ConfigError: what the parts refuse.
        TraceError: a bad line of a trace that was not checked when it was opened.
    """
    asked, cost = question or Question(), cost or CostModel()
    facts = look(source, asked, jobs)
    how = How(asked, cost, jobs, Work(progress, _length(facts, asked)), time_is_up)
    fleet = _fleet_asked(facts, asked, cost)
    if asked.lifetimes:
        return _behind_an_api(facts, fleet, how)
    study = compare_on(facts, fleet, asked.further, how, pictures=True)
    need = _needed(facts, study, how)
    study = replace(study, comparison=_resting_on(study.comparison, fleet, need, how))
    tested = _tested(facts, how) if facts.profile.reported else None
    splits = compare_splits(facts, study, how)
    flips = _flips(facts, study, fleet, how)
    found = [*_findings(facts, study, need, how), *findings.agreement(tested), *_fronts(facts, study, how)]
    found += [*other_clock(facts, study, fleet, how), *found_apart(splits, how.asked.slos)]
    found.sort(key=lambda finding: URGENCY[finding.severity])
    remedy = _remedy(facts, study, found, how)
    return _advice(facts, study, found, how, need=need, tested=tested, remedy=remedy, flips=flips, splits=splits)


def _fleet_asked(facts: Facts, asked: Question, cost: CostModel) -> Scenario:
    """Return the fleet with a clock, unless the workload spans no time or nobody wants one."""
    clocked = facts.profile.span_s > 0 if asked.timed is None else asked.timed
    if not clocked and asked.scenario.load not in (None, "recent"):
        raise ConfigError(
            f"load {asked.scenario.load!r} needs a clock: without one, as in a workload that spans no time, it must "
            "be 'recent'"
        )
    return with_clock(asked, cost) if clocked else replace(asked.scenario, engine=None)


def _needed(facts: Facts, study: Study, how: How) -> FleetNeed | None:
    """Look for the fleet that the advised policy needs, on the busiest part of the traffic."""
    scenario = study.chosen
    if scenario.replicas == 1 or facts.profile.span_s <= 0:
        return None
    asked = how.asked
    return needed(
        busiest(facts.workload, SIZED_REQUESTS),
        scenario,
        study.scenario(asked.in_use),
        slos=asked.slos,
        headroom=asked.headroom,
        cost=how.cost,
        seeds=seeds_of(asked.seeds)[:1] if how.time_is_up() else asked.seeds,
        progress=how.work.part(SIZINGS * asked.runs * _share_sized(facts)),
    )


def _resting_on(comparison: Comparison, fleet: Scenario, need: FleetNeed | None, how: How) -> Comparison:
    """Add to the assumptions the policy that is taken to be in use, and what the search for a fleet rests on."""
    asked = how.asked
    origin = "given by the user" if asked.current is not None else "what load balancers do unless configured"
    current = Assumption(CURRENT, asked.in_use, "", origin, assumed=asked.current is None)
    known = {item.name for item in comparison.assumptions}
    sized = assumed(timed(fleet, how.cost)) if need is not None else ()
    more = tuple(item for item in sized if item.name not in known)
    return replace(comparison, assumptions=(*comparison.assumptions, current, *more))


def _findings(facts: Facts, study: Study, need: FleetNeed | None, how: How) -> Iterator[Finding]:
    """Yield what the facts and the comparison tell."""
    compared, choice, chosen = study.comparison, study.choice, study.choice.policy
    policy = chosen if study.chosen.replicas > 1 else NO_ROUTER
    yield from findings.facts(facts.profile, facts.workload, facts.masked_profile)
    yield from findings.span(facts)
    yield from findings.coincidence(compared)
    yield from findings.volatile(facts)
    yield from findings.measured(compared.row(chosen), study.chosen, most_preempted=how.asked.headroom.preemptions)
    yield from findings.behind(compared, chosen)
    yield from findings.losses(compared, chosen)
    yield from findings.rejected(compared, choice, how.asked.in_use)
    yield from findings.weighed(compared, choice)
    yield from findings.keys(facts.profile, policy, inferred=facts.inferred)
    match = other_match(facts.profile, study.chosen)
    if match is not None:
        yield from findings.minimum_match(facts.profile, compared, match.policy_name, chosen=chosen)
    yield from findings.load_signal(facts.profile, compared, chosen=chosen)
    yield from findings.idle(compared, chosen)
    yield from findings.noise(compared)
    yield from findings.elsewhere(compared, choice, study.own)
    if need is not None:
        yield Finding("fleet-size", "warning" if need.then.is_overloaded else "note", _sized(need))


def _sized(need: FleetNeed) -> Evidence:
    """Return the figures of a fleet that was sized that stand in JSON beside the others."""
    return {
        "replicas": need.size.replicas,
        "least": need.size.least,
        "overloaded": need.then.is_overloaded,
        "overloaded_today": need.now.is_overloaded,
        "smaller": need.is_smaller,
    }


def _fronts(facts: Facts, study: Study, how: How) -> Iterator[Finding]:
    """Try several routers behind either front."""
    scenario = study.chosen
    if scenario.routers > 1 and scenario.replicas > 1 and facts.profile.keyless < 1.0:
        fronts = findings.both_fronts(scenario)
        progress = how.work.part(2 * how.asked.runs)
        compared = compare(facts.source, fronts, seeds=how.asked.seeds, cost=how.cost, jobs=how.jobs, progress=progress)
        yield findings.fronts(compared, scenario.routers)


def _remedy(facts: Facts, study: Study, found: Sequence[Finding], how: How) -> Remedy | None:
    """Return what correcting the prompts would give, where a finding says so: simulated where there is text."""
    first = next((one for one in found if one.severity == "fix first"), None)
    if first is None:
        return None
    fleet = study.chosen
    before = study.comparison.row(how.asked.in_use if fleet.replicas > 1 else study.choice.policy)
    if first.kind != "volatile-head" or facts.masked is None or facts.masked_profile is None:
        return Remedy(first.kind, before.recompute_ratio, float(first.evidence["floor_if_fixed"] or 0.0))
    traffic = (facts.masked, facts.masked_profile)
    after = compare_on(facts, fleet, _not_others(how.asked), how, traffic=traffic)
    row = after.comparison.row(after.choice.policy)
    saved = before.usd_per_million_requests_busiest - row.usd_per_million_requests_busiest
    then = after.choice.policy if fleet.replicas > 1 else NO_ROUTER
    month = _per_month(saved, facts.profile)
    return Remedy(first.kind, before.recompute_ratio, row.recompute_ratio, then, saved, month)


def _flips(facts: Facts, study: Study, fleet: Scenario, how: How) -> tuple[sensitivity.Flip, ...]:
    """Return what would be advised for other figures."""

    def decide(other: Scenario) -> tuple[str, ResultRow]:
        decided = study if other is fleet else compare_on(facts, other, how.asked.further, how)
        best = decided.choice.policy
        return (best if other.replicas > 1 else NO_ROUTER), decided.comparison.row(best)

    return tuple(sensitivity.vary(how.asked.vary, fleet, how.cost.usd_per_gpu_hour, decide))


def _tested(facts: Facts, how: How) -> Backtest:
    """Backtest; without a current policy, look for one that explains the log where the one that is assumed does not."""
    asked = how.asked
    given = asked.scenario.given
    if asked.current is not None and given is not None:
        given |= {"policy"}
    scenario = replace(asked.scenario, policy=asked.current or IN_USE, label="", given=given)
    found = backtest(facts.workload, scenario, cost=how.cost, progress=how.work.part(1))
    if asked.current is not None or found.verdict == "agrees" or found.reports_no_hits or how.time_is_up():
        return found
    search = (ROUND_ROBIN, "least-loaded", "cache-aware")
    progress = how.work.part(BACKTESTS)
    return backtest(facts.workload, scenario, search=search, cost=how.cost, jobs=how.jobs, progress=progress)


def _behind_an_api(facts: Facts, fleet: Scenario, how: How) -> Advice:
    """Return the advice where nothing can be routed: what an API that keeps prefixes for so long computes again."""
    single = replace(fleet, replicas=1, capacity_tokens=None)
    study = compare_on(facts, single, (), how)
    statistics = measure(facts.workload)
    lifetimes = tuple(
        UsualLifetime(seconds, 1.0 - statistics.hit_ratio_if_kept(seconds)) for seconds in sorted(how.asked.lifetimes)
    )
    found = [
        *findings.facts(facts.profile, facts.workload, facts.masked_profile),
        *findings.span(facts),
        *findings.volatile(facts),
    ]
    return _advice(facts, study, found, how, lifetimes=lifetimes)


def _advice(
    facts: Facts,
    study: Study,
    found: Sequence[Finding],
    how: How,
    *,
    need: FleetNeed | None = None,
    tested: Backtest | None = None,
    remedy: Remedy | None = None,
    flips: tuple[sensitivity.Flip, ...] = (),
    splits: Comparison | None = None,
    lifetimes: tuple[UsualLifetime, ...] = (),
) -> Advice:
    """Join it all."""
    chosen, fleet = study.choice.policy, study.chosen
    routed = fleet.replicas > 1
    rent = how.cost.usd_per_month(fleet.replicas)
    apis = () if lifetimes else default_models(facts.workload, facts.profile.span_s)
    steps = tree.walk(facts.profile, study.comparison, chosen, fleet.replicas, rent=rent, apis=apis)
    return Advice(
        workload=facts.workload.name,
        replicas=fleet.replicas,
        policy=chosen if routed else NO_ROUTER,
        in_use=how.asked.in_use,
        deployment=Deployment.of(fleet, facts.workload) if routed else None,
        choice=study.choice if routed else None,
        row=study.comparison.row(chosen),
        saving=_saving(facts, study, how.asked) if routed else None,
        steps=() if lifetimes else tuple(steps),
        findings=tuple(sorted(found, key=lambda finding: URGENCY[finding.severity])),
        profile=facts.profile,
        comparison=study.comparison.against(chosen),
        need=need,
        backtest=tested,
        sensitivity=flips,
        apart=splits,
        remedy=remedy,
        lifetimes=lifetimes,
    )


def _not_others(asked: Question) -> list[AnyPolicy]:
    return [policy for policy in asked.further if policy not in OTHERS]


def _share_sized(facts: Facts) -> float:
    """Return how much shorter a run of the part that fleets are sized on is than a run of all."""
    return min(1.0, SIZED_REQUESTS / max(1, facts.profile.requests))


def _length(facts: Facts, asked: Question) -> float:
    """Return how many runs an answer takes, about: for whoever waits."""
    several = asked.scenario.replicas > 1
    policies = (4 + len(asked.further)) if several else 1
    clocked = facts.profile.span_s > 0
    return (
        2 * policies * asked.runs
        + policies  # with a router that sees every cache
        + policies * asked.runs * asked.variants
        + SIZINGS * asked.runs * _share_sized(facts) * (clocked and several)
        + (1 + BACKTESTS) * bool(facts.profile.reported)
        + policies * asked.runs * (facts.masked is not None)
        + 2 * asked.runs * (asked.scenario.routers > 1)
        + policies * asked.runs * (asked.timed is False)
        + (1 + MOST_EQUAL) * asked.runs * (asked.apart is not None)
    )


def _saving(facts: Facts, study: Study, asked: Question) -> Saving | None:
    """Price the way from the current policy to the chosen one; None if that is no way."""
    against, chosen = asked.in_use, study.choice.policy
    if against == chosen:
        return None
    before, after = (study.comparison.row(name).usd_per_million_requests_busiest for name in (against, chosen))
    share = (before - after) / before if before else 0.0
    return Saving(against, before - after, share, _per_month(before - after, facts.profile))


def _per_month(usd_per_million_requests: float, facts: Profile) -> float | None:
    """Return dollars a month at the rate of the traffic; None where it spans no time."""
    rate = facts.requests_per_s
    return None if rate is None else usd_per_million_requests * rate * HOUR_S * HOURS_PER_MONTH / MILLION
