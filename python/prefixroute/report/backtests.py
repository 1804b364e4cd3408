"""A backtest: its table, and what it says."""

from __future__ import annotations

from prefixroute.advise import Backtest, Nearest
from prefixroute.report.figures import percent, replicas, tenths
from prefixroute.report.sheet import Sheet
from prefixroute.report.table import Column, Table

AGREEMENT = {
    "agrees": "agrees with the log",
    "roughly": "agrees with the log roughly",
    "disagrees": "disagrees with the log: do not trust advice before policy, replicas and capacity are those of the "
    "log",
}

ZEROS = (
    "Either the engines' prefix caches are off, or hits are not reported: vLLM reports them with "
    "`--enable-prompt-tokens-details`, and some gateways write 0 where an engine says nothing."
)
"""What it means that a log reports 0 cached tokens throughout."""
SEARCH = "--current, --replicas and --capacity say what the log comes from; --policies NAME,... tries others."
"""How to look for what explains a log that the simulation does not."""


def backtest_lines(tested: Backtest) -> tuple[str, ...]:
    """Return a backtest in sentences."""
    share = 100 * tested.compared / tested.requests
    guessed = [item.name for item in tested.assumptions if item.assumed and item.name in ("policy", "replicas")]
    marked = f" (ASSUMED {' and '.join(guessed)})" if guessed else ""
    first = (
        f"{tested.compared:,} of {tested.requests:,} requests ({share:.0f} %) report cached tokens: "
        f"{percent(tested.reported)} of their prompt tokens. Simulated with {tested.policy} on "
        f"{replicas(tested.replicas)}{marked}: {percent(tested.simulated)}. {_agreement(tested)}"
    )
    lines = [first]
    if "replicas" in guessed:
        lines.append(
            f"The number of replicas, {tested.replicas}, is ASSUMED: hits depend on it, and `--replicas N` gives the "
            "log's."
        )
    if tested.nearest is not None:
        lines.append(_nearest(tested.nearest))
    return tuple(lines)


def _agreement(tested: Backtest) -> str:
    if tested.reports_no_hits:
        return f"There is nothing to agree with. {ZEROS} Do not trust advice before the log has hits."
    return f"The simulation {AGREEMENT[tested.verdict]}."


def _nearest(nearest: Nearest) -> str:
    hits = f"{percent(nearest.simulated)}, requests differ by {nearest.mean_error_tokens:,.0f} tokens in the mean"
    found = f"Nearest of those tried: {nearest.policy} with {_capacity(nearest.capacity_tokens)} a replica, {hits}."
    if nearest.edge is not None:
        more = "fewer" if nearest.edge == "smallest" else "more"
        return f"{found} Even the {nearest.edge} capacity does not explain the log: it reports {more} hits than that."
    if nearest.told_apart:
        return found
    up = "up" if nearest.high is None else f"to {_capacity(nearest.high)}"
    return f"{found} The log does not tell the capacity: from {_capacity(nearest.low)} {up} the hits are the same."


def _capacity(tokens: int | None) -> str:
    return "unlimited caches" if tokens is None else f"{tokens:,} tokens"


def backtest_sheet(tested: Backtest, *, searched: bool = True) -> Sheet:
    """Return a backtest as people read it: hits reported and simulated, by prompt length, and what they say.

    Args:
        tested: the backtest.
        searched: it looked for other explanations of the log; else a note says how to ask for that.
    """
    columns = (
        Column("prompt tokens", lambda band: f"{band.shortest:,} to {band.longest:,}"),
        Column("requests", "requests", "{:,}".format),
        Column("reported hits %", "reported", tenths),
        Column("simulated hits %", "simulated", tenths),
    )
    said = backtest_lines(tested)
    table = Table.of("", columns, tested.bands)
    hints = (SEARCH,) if tested.verdict == "disagrees" and not searched else ()
    return Sheet(f"{tested.workload}: {said[0]}", (table,), tested.assumptions, (*tested.notes, *hints), said)
