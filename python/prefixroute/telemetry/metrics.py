"""The metrics of a router for Prometheus, under names of field practice. A new one is an entry of :data:`FAMILIES`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, reduce
from operator import getitem
from typing import Any, NamedTuple, TypeAlias

from prefixroute.routing import RouterState
from prefixroute.routing.fleet import MEDIA
from prefixroute.telemetry.feeds import NOTHING_WATCHED, Watched, add_feeds
from prefixroute.telemetry.peers import add_peers
from prefixroute.telemetry.prometheus import MetricsText
from prefixroute.telemetry.shadows import Shadows
from prefixroute.telemetry.status import hit_losses, stats

Samples: TypeAlias = Iterable[tuple[Mapping[str, str], float]]
"""Numbers, each with its labels."""


class Scrape(NamedTuple):
    """What one answer to Prometheus is made of.

    The router's state, and :func:`~prefixroute.telemetry.status.stats` of it.
    """

    state: RouterState
    shadows: Shadows
    watched: Watched
    numbers: dict[str, Any]


class Family(NamedTuple):
    """A metric: its kind, its name without prefix, what it says, and how it is read."""

    kind: str
    name: str
    about: str
    read: Callable[[Scrape], Samples | float]


def metrics_text(state: RouterState, shadows: Shadows, now: float, watched: Watched = NOTHING_WATCHED) -> str:
    """Return the metrics in the text format of Prometheus; the router's lock is held.

    Args:
        state: of the router.
        shadows: that follow it.
        now: time on the router's clock, in seconds.
        watched: feeds, polls, peers and sample of the router.
    """
    text, scrape = MetricsText(), Scrape(state, shadows, watched, stats(state, now, watched))
    for kind, name, about, read in FAMILIES:
        text.family(name, kind, about, read(scrape))
    text.histogram("decision_seconds", "Time to decide, hashing and matching included.", *state.ledger.durations)
    _losses(scrape, text)
    add_feeds(text, scrape.numbers["replicas"])
    if watched.peers is not None:
        add_peers(text, watched.peers)
    _regret(shadows, text)
    return str(text)


def _of_all(*path: str) -> Callable[[Scrape], float]:
    return lambda scrape: reduce(getitem, path, scrape.numbers)  # type: ignore[return-value]  # a number at the end


def _by_replica(field: str) -> Callable[[Scrape], Samples]:
    """Return a field of each replica in ``stats()``; what is not known is left out."""

    def read(scrape: Scrape) -> Samples:
        known = ((name, values[field]) for name, values in scrape.numbers["replicas"].items())
        return [({"replica": name}, value + 0) for name, value in known if value is not None]  # True is 1

    return read


def _by(label: str, field: str) -> Callable[[Scrape], Samples]:
    return lambda scrape: [({label: name}, count) for name, count in sorted(scrape.numbers[field].items())]


def _of_index(label: str, fields: Mapping[str, str]) -> Callable[[Scrape], Samples]:
    return lambda scrape: [({label: name}, scrape.numbers["index"][field]) for name, field in fields.items()]


def _decisions(scrape: Scrape) -> Iterator[tuple[Mapping[str, str], float]]:
    state = scrape.state
    for decodes, why, name, count in sorted(state.ledger.decisions):
        policy = state.config.decode_policy_name if decodes else state.policy_name
        yield {"policy": policy, "reason": why, "replica": name}, count


def _hits(scrape: Scrape) -> Samples:
    names = (*scrape.state.fleet.now.names, "")  # the last is of replicas that have left
    by_medium = sorted(
        (name or "", medium, tokens)
        for name, split in zip(names, scrape.state.ledger.hit_tokens, strict=True)
        for medium, tokens in zip(MEDIA, split, strict=True)
    )
    return [({"replica": name, "medium": medium}, tokens) for name, medium, tokens in by_medium if tokens]


def _predicted_and_reported(scrape: Scrape) -> Samples:
    replicas = scrape.numbers["replicas"].items()
    both = [({"replica": n, "kind": k}, v[f"{k}_hit_tokens"]) for n, v in replicas for k in ("predicted", "reported")]
    return [sample for sample in both if sample[1] is not None]


def _by_slot(read: Callable[[RouterState], list[int]]) -> Callable[[Scrape], Samples]:
    def samples(scrape: Scrape) -> Samples:
        values = read(scrape.state)
        return [({"replica": name}, values[member.slot]) for name, member in scrape.state.fleet.members.items()]

    return samples


def _blocks(state: RouterState) -> list[int]:
    return [tokens // state.config.block_size for tokens in state.belief.held_tokens()]


def _losses(scrape: Scrape, text: MetricsText) -> None:
    """Add where the hits went, of the live policy and of each shadow.

    In tokens, and in dollars where a cost was given.
    """
    state, shadows, sample = scrape.state, scrape.shadows, scrape.watched.sample
    live = [(state.policy_name, hit_losses(state.ledger, sample))]
    followed = [(name, hit_losses(shadow.state.ledger, sample, name)) for name, shadow in shadows.all.items()]
    price = state.config.usd_per_token
    for family, policies in (("hit_loss", live), ("shadow_hit_loss", followed)):
        lost = [
            ({"policy": policy, "reason": reason}, tokens)
            for policy, losses in policies
            for reason, tokens in losses.items()
        ]
        if lost:
            about = "rompt tokens that were no hits, by why; unknown = unexpected hits."
            text.family(f"{family}_tokens_total", "counter", f"P{about}", lost)
            if price is not None:
                dollars = [(labels, price * tokens) for labels, tokens in lost]
                text.family(f"{family}_dollars_total", "counter", f"US dollars of p{about}", dollars)


def _regret(shadows: Shadows, text: MetricsText) -> None:
    regrets = shadows.regret().items()
    for unit, field in (("tokens", "tokens"), ("seconds", "seconds"), ("dollars", "usd")):
        samples = [({"policy": name}, getattr(regret, field)) for name, regret in regrets]
        if samples:
            text.family(f"shadow_regret_{unit}_total", "gauge", "Cost of the live policy beyond the shadow.", samples)


_EVICTIONS = {"capacity": "evicted_capacity", "bytes": "evicted_bytes", "ttl": "expired", "retracted": "retracted"}
_EVENTS = {name: name for name in ("unknown_removals", "reused", "orphaned", "orphans_dropped")}

counter, gauge = partial(Family, "counter"), partial(Family, "gauge")

FAMILIES: tuple[Family, ...] = (
    counter("decisions_total", "Committed decisions.", _decisions),
    counter(
        "requests_total", "Requests by what became of them, and calls that came too late.", _by("outcome", "counts")
    ),
    counter("prompt_tokens_total", "Prompt tokens routed.", _of_all("prompt_tokens")),
    counter("hit_tokens_total", "Prompt tokens believed held by the chosen replica.", _hits),
    counter("best_hit_tokens_total", "The same of the best holder.", _of_all("best_hit_tokens")),
    gauge("inflight", "Requests of this router in flight.", _by_replica("own_in_flight")),
    gauge("inflight_with_peers", "Requests of all routers in flight: what decides.", _by_replica("in_flight")),
    gauge("uncached_backlog_tokens", "Uncached prompt tokens waiting, of all routers.", _by_replica("uncached_tokens")),
    gauge("load_skew", "Requests in flight at the busiest replica over the mean.", _of_all("load_skew")),
    gauge("sessions", "Sessions remembered.", _of_all("sessions")),
    counter("session_moves_total", "Changes of session bindings.", _by("reason", "session_moves")),
    gauge("shared_head_share", "Share of new requests that have the commonest head.", _of_all("shared_head", "share")),
    counter(
        "predicted_vs_reported_hit_tokens", "Hits as predicted and as engines report them.", _predicted_and_reported
    ),
    counter(
        "clamped_reports_total",
        "Answers with more cached tokens reported than the prompt has.",
        _of_all("clamped_reports"),
    ),
    gauge("belief_distrusted", "1 = reports contradict the belief, which is ignored.", _by_replica("distrusted")),
    gauge("load_report_lapsed", "1 = the last load report is too old to count.", _by_replica("report_lapsed")),
    gauge("load_report_age_seconds", "Age of the last load report.", _by_replica("report_age_s")),
    gauge("index_blocks", "Blocks believed held.", _by_slot(_blocks)),
    gauge(
        "unmatched_event_blocks",
        "Reported blocks since a prompt last matched one there.",
        _by_slot(lambda state: state.belief.unmatched_event_blocks()),
    ),
    gauge("index_bytes", "Memory reserved by the index.", _of_all("index", "reserved_bytes")),
    counter("evicted_blocks_total", "Blocks that left the belief.", _of_index("cause", _EVICTIONS)),
    counter("events_total", "What KV events met in the index.", _of_index("type", _EVENTS)),
)
"""The metrics that every router has, in the order in which they are given."""
