"""Which policies are worth a run on some traffic, and which of those compared is the one to take."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from prefixroute.advise.behind import MOST_PREEMPTIONS
from prefixroute.advise.compare import Comparison
from prefixroute.advise.profile import MIN_MATCH_TOKENS, Profile
from prefixroute.errors import ConfigError
from prefixroute.policies import CacheAware, as_policy
from prefixroute.sim import Scenario
from prefixroute.sim.metrics import ResultRow
from prefixroute.sim.scenario import AnyPolicy
from prefixroute.validation import check_choice

METRIC = "usd_per_million_requests_busiest"
"""Cost: prefill dollars with capacity bought for the busiest replica. It weighs recompute and skew as bills do."""
TTFT = "ttft_mean_s"
FELT = ("recompute_ratio", TTFT)
"""What callers and engines feel. A policy that is better beyond the noise in both is better, if no cost speaks against
it."""
JUDGED = (*FELT, METRIC)
"""What a policy must not be worse in, beyond the noise, to be plainly better than another."""
OBJECTIVES: Mapping[str, tuple[str, ...]] = {"cost": (METRIC,), "ttft": (TTFT,), "balanced": (METRIC, TTFT)}
"""What each objective weighs: the geometric mean of these, each relative to the best policy's."""
ROUND_ROBIN = "round-robin"
LOAD_ONLY = (ROUND_ROBIN, "random", "least-loaded", "power-of-two")
"""Policies that know nothing of prefixes, by how little they need."""
KEYED = ("session", "rendezvous", "document")
"""Policies that need a key and no index."""
AWARE = "cache-aware"
LMETRIC = "lmetric"
TOKENS = "uncached_tokens"
"""The load signal of prompt tokens that wait."""
BY_TOKENS = f"{AWARE} by {TOKENS}"
"""What tables call ``cache-aware`` that balances it."""
TOKEN_GAP = 16_384.0
"""Its ``spill_gap``, in tokens that wait. On the Mooncake traces, 8 replicas: mean TTFT of 491 against 693 ms by
requests with 300,000 tokens a replica, 371 against 511 ms with 3 M; 8,192 and 32,768 are within 3 % of that."""
UNEQUAL = 0.75
"""Standard deviation over mean of the new tokens of prompts from which requests are too unequal to be counted. New are
those that no request before had: what waits is what is computed. Where it is less (chat 0.2, agents 0.6) tokens gain
nothing, or balance far worse; where it is more (documents, long tails, public traces: 1.2 to 5) they gain 5 to 50 % of
TTFT. docs/design/advice.md has the table."""
NOTABLE = 0.05
"""Share of prompt tokens (or of requests) from which something is worth a line."""
COINCIDENCE = 0.05
"""Recompute by which two policies that know nothing of prefixes differ only where the order of requests makes them."""
IN_USE = ROUND_ROBIN
"""The policy that is taken to be in use where nobody named one: what load balancers do as they come."""
CURRENT = "current_policy"
"""Name of the assumption that says which policy is in use."""
MATERIAL = 0.03
"""A policy worse by no more than this share is not worth a more complicated one."""
NOISY = 0.10
"""How much worse a policy may be that is within the noise of the best: few sessions make any interval wide."""
FAR_SLOWER = 1.5
"""Times the seconds to first token of the policy in use from which a policy is not taken, whatever it saves."""


def candidates(profile: Profile, base: Scenario, further: Sequence[AnyPolicy] = ()) -> list[Scenario]:
    """Return a scenario for every policy worth a run, each policy once.

    ``cache-aware`` is run with another minimum match too (:func:`other_match`), and where what prompts bring is very
    unequal by the tokens that wait (:func:`by_tokens`), and ``lmetric`` with it.

    Args:
        profile: facts of the traffic: without session keys no ``session``, without document keys no ``document``.
        base: the fleet. On one replica there is nothing to choose.
        further: policies to run besides.

    Raises:
        ConfigError: two different policies have one name.
    """
    policies: list[AnyPolicy] = [ROUND_ROBIN]
    if base.replicas > 1:
        policies += ["least-loaded"]
        policies += ["session"] * (profile.keyless < 1.0)
        policies += ["document"] * (profile.documents > 0)
        policies += [AWARE, *further]
    scenarios = [replace(base, policy=policy, label="") for policy in policies]
    scenarios += [one for one in (other_match(profile, base), *by_tokens(profile, base)) if one is not None]
    named: dict[str, Scenario] = {}
    for one in scenarios:
        other = named.setdefault(one.policy_name, one)
        if as_policy(other.policy) != as_policy(one.policy):
            raise ConfigError(f"policies must have names of their own, got two that are called {one.policy_name!r}")
    return list(named.values())


def other_match(profile: Profile, base: Scenario) -> Scenario | None:
    """Return ``cache-aware`` with another minimum match where the default cannot be right for this traffic.

    It should lie just above the longest head: below it every replica of a group matches every prompt of that group, and
    a match says nothing; far above it, prefixes that could be shared are routed by load.
    """
    longest = profile.longest_head
    tokens = longest + profile.block_size
    needed = longest >= MIN_MATCH_TOKENS or (profile.short_hits > NOTABLE and tokens < MIN_MATCH_TOKENS)
    if base.replicas == 1 or not needed:
        return None
    policy = replace(CacheAware(), min_match_tokens=tokens)
    return replace(base, policy=policy, label=f"{AWARE}:min_match_tokens={tokens}")


def by_tokens(profile: Profile, base: Scenario) -> list[Scenario]:
    """Return policies that balance waiting prompt tokens, where requests bring too unequal numbers of new tokens.

    Timed runs only: nothing waits in untimed ones. None where a load signal was given.
    """
    if base.replicas == 1 or base.engine is None or base.load is not None or profile.unequal < UNEQUAL:
        return []
    policy = replace(CacheAware(), spill_gap=TOKEN_GAP)
    return [replace(base, policy=policy, load=TOKENS, label=BY_TOKENS), replace(base, policy=LMETRIC, label="")]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A policy that is not taken whatever the objective.

    Attributes:
        policy: its name.
        why: ``overloaded`` (requests come faster than it serves them, and not with others), ``preempts`` (more often
            than is borne, and others do not), ``coincidence`` (good by the order of the requests alone) or ``beaten``
            (another is better in ``metrics`` and worse in nothing, beyond the noise).
        by: the policy that beats it.
        metrics: what that one is better in.
    """

    policy: str
    why: str
    by: str | None = None
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """A policy that is better than the chosen one in something and worse in something else, both beyond the noise."""

    policy: str
    better: tuple[str, ...]
    worse: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """The policy to take, and what was weighed.

    Attributes:
        policy: its name.
        objective: what was weighed.
        by_objective: what each objective would take.
        rejected: what was not taken whatever the objective, and why.
        tradeoffs: what would be better in some respect and worse in another.
        among: the policies that could be taken; others, such as other routers' presets, are compared only.
    """

    policy: str
    objective: str
    by_objective: Mapping[str, str]
    rejected: tuple[Rejected, ...]
    tradeoffs: tuple[Tradeoff, ...]
    among: tuple[str, ...]


def by_coincidence(comparison: Comparison) -> bool:
    """Whether round robin reuses prefixes that ``least-loaded``, which knows as little of them, does not."""
    ratios = {row.policy: row.recompute_ratio for row in comparison.rows}
    if not {ROUND_ROBIN, "least-loaded"} <= ratios.keys():
        return False
    return ratios["least-loaded"] - ratios[ROUND_ROBIN] > COINCIDENCE


def simplicity(*, keys: bool = True) -> tuple[str, ...]:
    """Return the policies that may be advised for their simplicity, by how little they need.

    First what knows nothing of prefixes, then what hashes a key, then ``cache-aware``. Where sessions were inferred
    (``keys`` is False), ``cache-aware`` comes before what needs a key that requests do not have.
    """
    return (*LOAD_ONLY, *KEYED, AWARE) if keys else (*LOAD_ONLY, AWARE, *KEYED)


def prefill_skew(row: ResultRow) -> float:
    """Return prefill time at the busiest replica over the mean of all: what its dollars are multiplied by."""
    mean = row.usd_per_million_requests
    return row.usd_per_million_requests_busiest / mean if mean else 1.0


def choose(
    comparison: Comparison,
    *,
    objective: str = "balanced",
    keys: bool = True,
    in_use: str | None = None,
    among: Collection[str] = (),
    most_preempted: float | None = MOST_PREEMPTIONS,
) -> Choice:
    """Return the policy in use where no other is worth the change, else the simplest that is about as good as the best.

    First those go that no objective takes, see :class:`Rejected`. Another policy is worth the change if it beats the
    one in use, see :func:`beats`, or if its score is lower by more than :data:`MATERIAL`, or by more than :data:`NOISY`
    where the difference is within the noise. The score is the geometric mean of what the objective weighs. A policy
    that is far slower is never worth it. Without such a policy the one in use stays. Of such policies those are good
    enough whose score is at most that much above the best one's, and that no other policy outdoes, see :func:`outdoes`.
    Of those, the simplest is taken, see :func:`simplicity`.
    Anything else (other parameters) is taken only if it scores best.

    Args:
        comparison: the policies that were run.
        objective: one of :data:`OBJECTIVES`.
        keys: the traffic has session keys, see :func:`simplicity`.
        in_use: the policy in use; None = nobody said, and :data:`IN_USE` is taken to be.
        among: the policies that may be taken besides what is in use; none given means those of :func:`simplicity`.
        most_preempted: preemptions a request that are borne; None = not looked at.

    Raises:
        ConfigError: an unknown objective.
    """
    check_choice("objective", objective, OBJECTIVES)
    order = simplicity(keys=keys)
    own = [row.policy for row in comparison.rows if row.policy in (among or order) or row.policy == in_use]
    rejected = _rejected(comparison, own, in_use, most_preempted)
    left = [name for name in own if name not in {one.policy for one in rejected}]
    today = in_use or IN_USE
    unfit = any(one.policy == today and one.why != "beaten" for one in rejected)
    taken = {name: _taken(comparison, left, OBJECTIVES[name], order, today, unfit=unfit) for name in OBJECTIVES}
    policy = taken[objective]
    weighed = (_tradeoff(comparison, name, policy) for name in left if name != policy)
    tradeoffs = tuple(one for one in weighed if one is not None)
    return Choice(policy, objective, taken, rejected, tradeoffs, tuple(own))


def beats(comparison: Comparison, policy: str, other: str, judged: Sequence[str] = JUDGED) -> tuple[str, ...]:
    """Return the metrics in which ``policy`` is plainly better than ``other``, if it is worse in nothing ``judged``.

    Plainly better is better by more than :data:`MATERIAL`, beyond the noise.

    Worse is beyond the noise, or by more than :data:`MATERIAL` by the point estimate, for a wide interval excuses
    nothing; by more than :data:`NOISY` where ``policy`` is better beyond the noise in recomputed tokens and in TTFT.
    """
    gaps = {metric: comparison.gap(policy, other, metric) for metric in judged}
    figures = {metric: getattr(comparison.row(other), metric) for metric in judged}
    better = [metric for metric, gap in gaps.items() if gap.high < 0]
    borne = NOISY if set(FELT) <= set(better) else MATERIAL
    if any(gap.low > 0 or gap.value > borne * figures[metric] for metric, gap in gaps.items()):
        return ()
    return tuple(metric for metric in better if gaps[metric].value < -MATERIAL * figures[metric])


def preempts(row: ResultRow, most: float | None = MOST_PREEMPTIONS) -> bool:
    """Whether a fleet preempts more often than is borne: its memory is too small for its answers."""
    return most is not None and (row.preempted or 0.0) > most


def _rejected(
    comparison: Comparison, own: Sequence[str], in_use: str | None, most_preempted: float | None
) -> tuple[Rejected, ...]:
    """Return what is not taken whatever the objective; never all."""
    gone: dict[str, Rejected] = {}
    unfit = {
        "overloaded": [name for name in own if comparison.is_overloaded(name)],
        "preempts": [name for name in own if preempts(comparison.row(name), most_preempted)],
    }
    for why, names in unfit.items():
        found = {name: Rejected(name, why) for name in names if name not in gone}
        if len(gone | found) < len(own):
            gone |= found
    if in_use != ROUND_ROBIN and by_coincidence(comparison) and len(gone.keys() | {ROUND_ROBIN}) < len(own):
        gone.setdefault(ROUND_ROBIN, Rejected(ROUND_ROBIN, "coincidence"))
    left = [name for name in own if name not in gone]
    beaten = {}
    for name in left:
        better = {other: metrics for other in left if other != name and (metrics := beats(comparison, other, name))}
        if better:
            by = min(better, key=lambda other: (getattr(comparison.row(other), METRIC), left.index(other)))
            beaten[name] = Rejected(name, "beaten", by, better[by])
    if len(beaten) < len(left):  # noise can make a circle: then nobody is
        gone |= beaten
    return tuple(gone[name] for name in own if name in gone)


def _taken(
    comparison: Comparison,
    left: Sequence[str],
    metrics: Sequence[str],
    order: Sequence[str],
    today: str,
    *,
    unfit: bool,
) -> str:
    """Return what is in use where none of ``left`` is worth leaving it for, else the simplest that is good enough.

    Args:
        comparison: the policies that were run.
        left: those that can be taken.
        metrics: what is weighed.
        order: policies by how little they need.
        today: the policy in use.
        unfit: it is not in ``left``, though nothing beats it.
    """
    scores = _scores(comparison, [row.policy for row in comparison.rows], metrics)

    def is_above(name: str, other: str) -> bool:
        return scores[name] - scores[other] > math.log1p(_slack(comparison, name, other, metrics))

    worth = list(left)
    if today in scores and not unfit:
        worth = [name for name in left if is_above(today, name) or beats(comparison, name, today)]
    worth = [name for name in worth if not _far_slower(comparison, name, today)]
    if not worth and today in left:
        return today
    worth = worth or list(left)
    best = min(
        left, key=lambda name: (not any(name == one or outdoes(comparison, name, one) for one in worth), scores[name])
    )
    good = [
        name
        for name in worth
        if not is_above(name, best) and not any(outdoes(comparison, other, name) for other in left)
    ]
    return next((name for name in order if name in good), best)


def outdoes(comparison: Comparison, policy: str, other: str, by: float = MATERIAL) -> bool:
    """Whether ``policy`` is better than ``other`` in all of :data:`JUDGED`, each by a share ``by`` in the mean."""
    row, worse = comparison.row(policy), comparison.row(other)
    return all(getattr(row, metric) < (1 - by) * getattr(worse, metric) for metric in JUDGED)


def _scores(comparison: Comparison, names: Sequence[str], metrics: Sequence[str]) -> dict[str, float]:
    """Return the mean of the logarithms of each metric; a tiny figure stands for one that is zero."""
    return {
        name: sum(math.log(max(1e-12, getattr(comparison.row(name), metric))) for metric in metrics) / len(metrics)
        for name in names
    }


def _slack(comparison: Comparison, policy: str, best: str, metrics: Sequence[str]) -> float:
    told_apart = any(comparison.gap(policy, best, metric).excludes_zero for metric in metrics)
    return MATERIAL if told_apart else NOISY


def _far_slower(comparison: Comparison, policy: str, today: str) -> bool:
    """Whether a policy answers far later than what is in use, where there is a clock."""
    row = next((row for row in comparison.rows if row.policy == today), None)
    return comparison.timed and row is not None and comparison.row(policy).ttft_mean_s > FAR_SLOWER * row.ttft_mean_s


def _tradeoff(comparison: Comparison, policy: str, chosen: str) -> Tradeoff | None:
    gaps = {metric: comparison.gap(policy, chosen, metric) for metric in JUDGED}
    least = {metric: MATERIAL * getattr(comparison.row(chosen), metric) for metric in JUDGED}
    better = tuple(metric for metric, gap in gaps.items() if gap.high < 0 and gap.value < -least[metric])
    worse = tuple(metric for metric, gap in gaps.items() if gap.low > 0)
    return Tradeoff(policy, better, worse) if better and worse else None
