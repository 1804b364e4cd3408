"""Counters and gauges of a router: as data, and as metrics for Prometheus.

A new metric is a field of :func:`stats`, and a line of :func:`metrics_text` if Prometheus should have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixroute.routing.fleet import MEDIA
from prefixroute.routing.ledger import Head
from prefixroute.telemetry.feeds import NOTHING_WATCHED, Watched, add_feeds, told
from prefixroute.telemetry.peers import add_peers, peer_notes
from prefixroute.telemetry.prometheus import Text

if TYPE_CHECKING:
    from prefixroute.routing import RouterState
    from prefixroute.routing.fleet import Member
    from prefixroute.routing.ledger import Ledger
    from prefixroute.telemetry.shadows import Shadows
    from prefixroute.telemetry.volatile import VolatileSample

_EVICTIONS = {"capacity": "evicted_capacity", "bytes": "evicted_bytes", "ttl": "expired", "retracted": "retracted"}
_EVENTS = ("unknown_removals", "reused", "orphaned", "orphans_dropped")


def stats(state: RouterState, now: float, watched: Watched = NOTHING_WATCHED) -> dict[str, Any]:
    """Return the router's counters and gauges; the router's lock is held."""
    ledger, fleet = state.ledger, state.fleet
    live, hit_tokens, records = state.live.in_flight, ledger.hit_tokens, ledger.records
    known = [record for record in records if record is not None]
    prompt_tokens, best_hit_tokens = ledger.tokens
    sample = watched.sample
    losses, price, own = hit_losses(ledger, sample), state.config.usd_per_token, ledger.own_in_flight
    return {
        "policy": state.config.policy_name,
        "in_flight": len(ledger),
        "counts": ledger.counts,
        "prompt_tokens": prompt_tokens,
        "hit_tokens": sum(map(sum, hit_tokens)),
        "best_hit_tokens": best_hit_tokens,
        "predicted_hit_tokens": sum(record[0] for record in known),
        "reported_hit_tokens": sum(record[1] for record in known) if known else None,
        "reported_requests": sum(record[2] for record in known),
        "unreported_requests": ledger.unreported,
        "clamped_reports": state.clamped_reports,
        "hit_losses": losses,
        "hit_losses_usd": None if price is None else {reason: price * tokens for reason, tokens in losses.items()},
        "volatile": None if sample is None else sample.to_dict(),
        "implausible_prompt_tokens": state.prompts.length.implausible,
        "tokens_per_estimate": state.prompts.scale,
        "sessions": ledger.sessions,
        "session_moves": ledger.moves,
        "load_skew": _skew(live, fleet.now.slots),
        "shared_head": Head(*ledger.head)._asdict(),
        "index": state.belief.stats().to_dict(),
        "peers": watched.peers,
        "notes": [*state.notes, *notes(state, now), *peer_notes(watched.peers)],
        "replicas": {
            name: {
                "own_in_flight": own[member.slot],
                **_replica(state, member, now),
                **told(state, member, watched),
            }
            for name, member in fleet.members.items()
        },
    }


def hit_losses(ledger: Ledger, sample: VolatileSample | None = None, shadow: str | None = None) -> dict[str, int]:
    """Return prompt tokens that were no hits, by why, and hits that nobody expected: what a router can know of it.

    None of them ever falls: replicas that have left stay counted. ``first_sight``: no replica is believed to hold them. They are new,
    or what held them has been forgotten. ``volatile``: likewise, and seen before but for a text that changes; only where there is a
    sample, else they are among those of first sight. ``elsewhere``: believed held, and not by the chosen replica. ``evicted``:
    believed held there, and not reported by it. ``unknown``: reported beyond what was believed; these are hits.

    Args:
        ledger: of the live router or of a shadow.
        sample: tells which share of first sight is volatile; ``None`` = that is not known.
        shadow: whose ledger it is; ``None`` = the live router's.
    """
    prompt_tokens, best = ledger.tokens
    known = [record for record in ledger.records if record is not None]
    lost = sum(record[4] for record in known)
    first_sight = prompt_tokens - best
    volatile = {} if sample is None else {"volatile": sample.part(shadow, first_sight)}
    return {
        "first_sight": first_sight - sum(volatile.values()),
        **volatile,
        "elsewhere": best - sum(map(sum, ledger.hit_tokens)),
        "evicted": lost,
        "unknown": lost + sum(record[1] - record[0] for record in known),
    }


def _replica(state: RouterState, member: Member, now: float) -> dict[str, Any]:
    """Return the counters and gauges of one replica."""
    slot, ledger, report = member.slot, state.ledger, member.report
    hits = ledger.records[slot]
    return {
        "state": member.state,
        "incarnation": member.replica.incarnation,
        "in_flight": state.live.in_flight[slot],
        "uncached_tokens": state.live.queued[slot],
        "decode_tokens": state.live.decoding[slot],
        "tokens_per_s": ledger.rates[slot],
        "hit_tokens": sum(ledger.hit_tokens[slot]),
        "predicted_hit_tokens": 0 if hits is None else hits[0],
        "reported_hit_tokens": None if hits is None else hits[1],
        "distrusted": hits is not None and hits[3],
        "report_age_s": None if report is None else now - report.at,
        "report_lapsed": member.has_lapsed(now, state.config.timing.report_fresh_s),
    }


def notes(state: RouterState, now: float) -> list[str]:
    """Return what an operator should know, in sentences: lapsed reports, a head that everybody shares at few replicas."""
    fresh_s = state.config.timing.report_fresh_s
    lapsed = [name for name, member in state.fleet.members.items() if member.has_lapsed(now, fresh_s)]
    found = []
    if lapsed:
        found.append(
            f"reports of {', '.join(sorted(lapsed))} are too old to count: what others have there is guessed from the "
            "replicas that report"
        )
    herding = state.herding()
    if herding is not None:
        found.append(herding)
    return found


def _skew(loads: list[int], slots: tuple[int, ...]) -> float:
    """Return the busiest replica's load over the mean; 1 for an idle fleet."""
    values = [loads[slot] for slot in slots]
    total = sum(values)
    return max(values) * len(values) / total if total else 1.0


def metrics_text(state: RouterState, shadows: Shadows, now: float, watched: Watched = NOTHING_WATCHED) -> str:
    """Return the metrics of field practice under our own prefix; the router's lock is held."""
    text, numbers, ledger = Text(), stats(state, now, watched), state.ledger
    replicas = numbers["replicas"].items()

    def by_replica(field: str) -> list[tuple[dict[str, str], float]]:
        return [({"replica": name}, values[field]) for name, values in replicas if values[field] is not None]

    decisions = [
        (
            {
                "policy": state.config.decode_policy_name if decodes else state.policy_name,
                "reason": why,
                "replica": name,
            },
            n,
        )
        for decodes, why, name, n in sorted(ledger.decisions)
    ]
    text.family("decisions_total", "counter", "Committed decisions.", decisions)
    text.histogram("decision_seconds", "Time to decide, hashing and matching included.", *ledger.durations)
    requests = [({"outcome": name}, count) for name, count in sorted(numbers["counts"].items())]
    text.family("requests_total", "counter", "Requests by what became of them, and calls that came too late.", requests)
    text.family("prompt_tokens_total", "counter", "Prompt tokens routed.", numbers["prompt_tokens"])
    names = (*state.fleet.now.names, "")  # the last is of replicas that have left
    by_medium = [
        (name or "", medium, tokens)
        for name, split in zip(names, ledger.hit_tokens, strict=True)
        for medium, tokens in zip(MEDIA, split, strict=True)
    ]
    hits = [({"replica": name, "medium": medium}, n) for name, medium, n in sorted(by_medium) if n]
    text.family("hit_tokens_total", "counter", "Prompt tokens believed held by the chosen replica.", hits)
    text.family("best_hit_tokens_total", "counter", "The same of the best holder.", numbers["best_hit_tokens"])
    _losses(state, shadows, text, watched.sample)
    text.family("inflight", "gauge", "Requests of this router in flight.", by_replica("own_in_flight"))
    text.family(
        "inflight_with_peers", "gauge", "Requests of all routers in flight: what decides.", by_replica("in_flight")
    )
    text.family(
        "uncached_backlog_tokens",
        "gauge",
        "Uncached prompt tokens waiting, of all routers.",
        by_replica("uncached_tokens"),
    )
    text.family("load_skew", "gauge", "Requests in flight at the busiest replica over the mean.", numbers["load_skew"])
    text.family("sessions", "gauge", "Sessions remembered.", numbers["sessions"])
    moves = [({"reason": name}, count) for name, count in sorted(numbers["session_moves"].items())]
    text.family("session_moves_total", "counter", "Changes of session bindings.", moves)
    text.family(
        "shared_head_share",
        "gauge",
        "Share of new requests that have the commonest head.",
        numbers["shared_head"]["share"],
    )
    both = [({"replica": n, "kind": k}, v[f"{k}_hit_tokens"]) for n, v in replicas for k in ("predicted", "reported")]
    known = [sample for sample in both if sample[1] is not None]
    text.family("predicted_vs_reported_hit_tokens", "counter", "Hits as predicted and as engines report them.", known)
    text.family(
        "clamped_reports_total",
        "counter",
        "Answers with more cached tokens reported than the prompt has.",
        numbers["clamped_reports"],
    )
    distrusted = [({"replica": name}, int(values["distrusted"])) for name, values in replicas]
    text.family("belief_distrusted", "gauge", "1 = reports contradict the belief, which is ignored.", distrusted)
    lapsed = [({"replica": name}, int(values["report_lapsed"])) for name, values in replicas]
    text.family("load_report_lapsed", "gauge", "1 = the last load report is too old to count.", lapsed)
    text.family("load_report_age_seconds", "gauge", "Age of the last load report.", by_replica("report_age_s"))
    _index(state, text, numbers["index"])
    add_feeds(text, numbers["replicas"])
    if watched.peers is not None:
        add_peers(text, watched.peers)
    _regret(shadows, text)
    return str(text)


def _losses(state: RouterState, shadows: Shadows, text: Text, sample: VolatileSample | None) -> None:
    """Add where the hits went, of the live policy and of each shadow: in tokens, and in dollars where a cost was given."""
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


def _index(state: RouterState, text: Text, numbers: dict[str, int]) -> None:
    """Add what the index says of itself."""
    held, unmatched, size = state.belief.held_tokens(), state.belief.unmatched_event_blocks(), state.config.block_size
    members = state.fleet.members.items()
    blocks = [({"replica": name}, held[member.slot] // size) for name, member in members]
    text.family("index_blocks", "gauge", "Blocks believed held.", blocks)
    none = [({"replica": name}, unmatched[member.slot]) for name, member in members]
    text.family("unmatched_event_blocks", "gauge", "Reported blocks since a prompt last matched one there.", none)
    text.family("index_bytes", "gauge", "Memory reserved by the index.", numbers["reserved_bytes"])
    evicted = [({"cause": cause}, numbers[field]) for cause, field in _EVICTIONS.items()]
    text.family("evicted_blocks_total", "counter", "Blocks that left the belief.", evicted)
    events = [({"type": field}, numbers[field]) for field in _EVENTS]
    text.family("events_total", "counter", "What KV events met in the index.", events)


def _regret(shadows: Shadows, text: Text) -> None:
    regrets = shadows.regret().items()
    for unit, field in (("tokens", "tokens"), ("seconds", "seconds"), ("dollars", "usd")):
        samples = [({"policy": name}, getattr(regret, field)) for name, regret in regrets]
        if samples:
            text.family(f"shadow_regret_{unit}_total", "gauge", "Cost of the live policy beyond the shadow.", samples)
