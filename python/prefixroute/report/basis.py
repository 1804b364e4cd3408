"""What the figures of an advice rest on: whether they are timed, what dollars buy, and what nobody gave."""

from __future__ import annotations

from prefixroute.advise import Advice, Comparison
from prefixroute.advise.choice import CURRENT
from prefixroute.costmodel.assumption import MONEY, defaults
from prefixroute.report.figures import replicas
from prefixroute.report.times import duration

BUSIEST = "busiest replica"
"""The basis of all dollars of an advice: prefill is bought for every replica as for the busiest."""
RATE = frozenset({"sessions_per_hour", "requests_per_day"})
"""Assumptions that the rate of requests rests on, and with it dollars a month."""
BEHIND = MONEY | RATE | {"replicas", CURRENT, "bytes_per_token"}
"""Assumptions that the figures of an advice rest on."""
DOLLARS = f"all dollars by the {BUSIEST}: prefill bought for every replica as for the busiest"
"""What the dollars of an advice are."""


def basis(found: Comparison) -> str:
    """Return what the figures of an advice are.

    With a clock or without, as ``compare`` is or is not, and the dollars.
    """
    clock = (
        "timed, with arrivals, queues and batches; `prefixroute compare` is timed only with `--timed`"
        if found.timed
        else "untimed, without queues, as `prefixroute compare` is without `--timed`"
    )
    return f"{clock}; {DOLLARS}"


def fleet(advice: Advice) -> str:
    """Return the fleet advised on: ``8 replicas``, marked where nobody gave it."""
    return f"{replicas(advice.replicas)}{mark(advice, 'replicas')}"


def mark(advice: Advice, name: str) -> str:
    """Return the mark that stands behind a figure or a policy that is assumed; empty behind one that was given."""
    return " (ASSUMED)" if advice.assumes(name) else ""


def rate(advice: Advice) -> str:
    """Return what dollars a month are at: the rate of so much time of the workload, or one that is assumed."""
    invented = ", ".join(item.name for item in defaults(RATE, advice.comparison.assumptions))
    return f"an assumed rate (ASSUMED {invented})" if invented else f"the rate of its {duration(advice.profile.span_s)}"
