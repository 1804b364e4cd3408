"""Verdicts in words: of a policy beside the reference, of a winner, of what decides."""

from __future__ import annotations

from prefixroute.advise import Comparison
from prefixroute.advise.choice import MATERIAL

METRICS = {
    "recompute_ratio": "the share of prompt tokens computed",
    "ttft_mean_s": "the mean time to first token",
    "itl_mean_s": "the mean time between two tokens",
    "e2e_mean_s": "the mean time to the last token",
    "missed_ratio": "the share of requests that break the promise",
    "ttft_p50_s": "the median time to first token",
    "ttft_p90_s": "the p90 of time to first token",
    "ttft_p99_s": "the p99 of time to first token",
    "usd_per_million_requests": "dollars of prefill",
    "usd_per_million_requests_busiest": "dollars of prefill, bought for the busiest replica",
}
"""What decides, in words."""
DECIDES = {
    "recompute_ratio": "recomputed %",
    "usd_per_million_requests": "$",
    "usd_per_million_requests_busiest": "$ busiest",
}
"""What decides, as the head of its column in the same table; another has its own name."""
QUEUES = (
    "Queues are left out: this comparison is untimed. With `--timed`, and in `advise`, which is timed, another "
    "policy may lead."
)
"""What is said of an untimed comparison of requests that come at different times."""


def judgement(found: Comparison, policy: str) -> str:
    """Return how a policy compares with the reference, and whether it leaves replicas idle or cannot keep up."""
    verdict = found.difference(policy).verdict
    value, own = (getattr(found.row(name), found.metric) for name in (policy, found.reference))
    small = abs(value - own) <= MATERIAL * own
    words = {
        "reference": "reference",
        "tie": "within the noise",
        "worse": f"worse, by less than {100 * MATERIAL:.0f} %" if small else "worse",
        "better": f"better, by less than {100 * MATERIAL:.0f} %" if small else "better",
    }
    lowest = min(getattr(row, found.metric) for row in found.rows)
    said = "lowest" if verdict == "reference" and own == lowest else words[verdict]
    remarks = [f"{one.idle} of {one.replicas} replicas nearly idle" for one in found.idle if one.policy == policy]
    if found.is_overloaded(policy):
        count, every = found.behind.get(policy, 0), found.row(policy).replicas
        remarks.append(f"{count} of {every} replicas cannot keep up" if count else "cannot keep up")
    joint = ", " if verdict == "worse" else ", but "
    return said + joint * bool(remarks) + ", ".join(remarks)


def verdict(found: Comparison) -> str:
    """Return what a comparison says, and what it leaves out."""
    if len(found.rows) == 1:
        return f"{found.reference} stands alone: name a second policy to compare it with."
    if found.winner:
        said = judgement(found, found.winner).replace("lowest", "best", 1)
    else:
        said = f"no winner: {', '.join(found.leaders)} are within the noise"
    led = f"{found.winner} is {said}" if found.winner else said
    return f"By {METRICS[found.metric]}, {led}.{f' {QUEUES}' * found.leaves_out_queues}"
