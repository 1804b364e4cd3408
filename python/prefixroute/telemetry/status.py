"""Counters and gauges of a router as data. :mod:`prefixroute.telemetry.metrics` gives them to Prometheus."""

from __future__ import annotations

from typing import Any

from prefixroute.routing import RouterState
from prefixroute.routing.fleet import Member
from prefixroute.routing.ledger import CommonHead, Ledger
from prefixroute.telemetry.feeds import NOTHING_WATCHED, Watched, told
from prefixroute.telemetry.peers import peer_notes
from prefixroute.telemetry.volatile import VolatileSample


def stats(state: RouterState, now: float, watched: Watched = NOTHING_WATCHED) -> dict[str, Any]:
    """Return the router's counters and gauges; the router's lock is held.

    Args:
        state: of the router.
        now: time on the router's clock, in seconds.
        watched: feeds, polls, peers and sample of the router.
    """
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
        "shared_head": CommonHead(*ledger.head)._asdict(),
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

    None of them ever falls: replicas that have left stay counted. ``first_sight``: no replica is believed to hold them.
    They are new, or what held them has been forgotten. ``volatile``: likewise, and seen before but for a text that
    changes; only where there is a sample, else they are among those of first sight. ``elsewhere``: believed held, and
    not by the chosen replica. ``evicted``: believed held there, and not reported by it. ``unknown``: reported beyond
    what was believed; these are hits.

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
    """Return what an operator should know, in sentences.

    Lapsed reports, a head that everybody shares at few replicas.
    """
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
