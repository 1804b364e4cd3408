"""Why the chosen policy is taken and others are not: what the table of the comparison says, never more."""

from __future__ import annotations

from typing import Literal

from prefixroute.advise.choice import JUDGED, METRIC, TTFT, Choice, outdoes
from prefixroute.advise.compare import Comparison

RECOMPUTE = "recompute_ratio"
Why = Literal[
    "overloaded", "in-use", "keeps-up", "remembers", "coincidence", "saves", "cheaper", "earlier", "simpler", "weighed"
]


def why(comparison: Comparison, choice: Choice, instead_of: str) -> Why:
    """Return why the chosen policy is taken instead of another.

    Returns:
        ``overloaded``: nothing that could be taken keeps up. ``in-use``: it is what it is compared with. ``keeps-up``,
        ``remembers``, ``coincidence``: the other does not keep up, preempts too often, or is good by the order of
        requests alone. ``saves``, ``cheaper``, ``earlier``: it computes less again, costs less at its busiest replica,
        answers earlier, beyond the noise. ``simpler``: within the noise of the other in all three. ``weighed``: it is
        worse in something, and what the objective weighs is better.
    """
    chosen = choice.policy
    if comparison.is_overloaded(chosen):
        return "overloaded"
    if chosen == instead_of:
        return "in-use"
    unfit = next((one.why for one in choice.rejected if one.policy == instead_of), "")
    kinds: dict[str, Why] = {"overloaded": "keeps-up", "preempts": "remembers", "coincidence": "coincidence"}
    if unfit in kinds:
        return kinds[unfit]
    better: dict[str, Why] = {RECOMPUTE: "saves", METRIC: "cheaper", TTFT: "earlier"}
    for metric, kind in better.items():
        if comparison.gap(chosen, instead_of, metric).high < 0:
            return kind
    worse = any(comparison.gap(chosen, instead_of, metric).low > 0 for metric in JUDGED)
    return "weighed" if worse else "simpler"


def why_not(comparison: Comparison, choice: Choice, policy: str) -> str:
    """Return why a policy is not taken, as the table of the comparison has it.

    Returns:
        ``elsewhere``: it was compared only, and could not be taken. Why it was rejected, see
        :class:`~prefixroute.advise.choice.Rejected`.
        ``costlier``, ``later``, ``recomputes``: it costs more at its busiest replica, answers later, or computes more
        again than the chosen one, beyond the noise. ``noise``: none of the three is better beyond the noise.
        ``weighed``: one is, and what the objective weighs is no better, or not by enough for a less simple policy.
    """
    if policy not in choice.among:
        return "elsewhere"
    rejected = {one.policy: one.why for one in choice.rejected}
    if policy in rejected:
        return rejected[policy]
    worse = {METRIC: "costlier", TTFT: "later", RECOMPUTE: "recomputes"}
    gaps = {metric: comparison.gap(policy, choice.policy, metric) for metric in worse}
    found = next((kind for metric, kind in worse.items() if gaps[metric].low > 0), None)
    return found or ("weighed" if any(gap.high < 0 for gap in gaps.values()) else "noise")


def better_throughout(comparison: Comparison, choice: Choice) -> list[str]:
    """Return the policies that could be taken and are better than the chosen one in all that is judged, in the mean."""
    return [name for name in choice.among if outdoes(comparison, name, choice.policy, by=0.0)]
