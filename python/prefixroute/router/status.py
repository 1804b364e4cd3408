"""The router looked at from outside: counters as data, as Prometheus text, and one request in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixroute.errors import ConfigError
from prefixroute.router.decision import Decision
from prefixroute.router.explain import explain as explain_decision
from prefixroute.router.fleet import MEDIA
from prefixroute.router.metrics import Text
from prefixroute.router.tickets import Ticket

if TYPE_CHECKING:
    from prefixroute.router.router import Router

_EVICTIONS = {"capacity": "evicted_capacity", "bytes": "evicted_bytes", "ttl": "expired", "retracted": "retracted"}
_EVENTS = ("unknown_removals", "reused", "orphaned", "orphans_dropped", "unmatched_event_blocks")


def stats(router: Router) -> dict[str, Any]:
    """Return the router's counters and gauges; the router's lock is held."""
    ledger, book, bindings, calibration = router._ledger, router._book, router._bindings, router._calibration
    counters = router._counters
    replicas = {}
    for name, member in router._fleet.members.items():
        slot, hits = member.slot, calibration.records.get(member.slot)
        replicas[name] = {
            "state": member.state,
            "incarnation": member.replica.incarnation,
            "in_flight": book.in_flight[slot],
            "uncached_tokens": book.queued[slot],
            "decode_tokens": book.decoding[slot],
            "tokens_per_s": book.rates[slot],
            "hit_tokens": sum(counters.hit_tokens[name, medium] for medium in MEDIA),
            "predicted_hit_tokens": 0 if hits is None else hits.predicted,
            "reported_hit_tokens": None if hits is None else hits.reported,
            "distrusted": slot in calibration.distrusted,
        }
    records = calibration.records.values()
    return {
        "policy": router._policy_name,
        "in_flight": len(ledger.attempts),
        "counts": dict(ledger.counts),
        "prompt_tokens": counters.prompt_tokens,
        "hit_tokens": counters.hit_tokens.total(),
        "best_hit_tokens": counters.best_hit_tokens,
        "predicted_hit_tokens": sum(record.predicted for record in records),
        "reported_hit_tokens": sum(record.reported for record in records) if calibration.records else None,
        "reported_requests": sum(record.requests for record in records),
        "unreported_requests": calibration.unreported,
        "tokens_per_estimate": router._prompts.scale,
        "sessions": len(bindings),
        "session_moves": dict(bindings.moves),
        "load_skew": _skew(book.in_flight, router._fleet.slots),
        "index": _index_numbers(router),
        "notes": list(router._notes),
        "replicas": replicas,
    }


def _skew(loads: list[int], slots: tuple[int, ...]) -> float:
    """Return the busiest replica's load over the mean; 1 for an idle fleet."""
    values = [loads[slot] for slot in slots]
    total = sum(values)
    return max(values) * len(values) / total if total else 1.0


def metrics_text(router: Router) -> str:
    """Return the metrics of field practice under our own prefix; the router's lock is held."""
    text, numbers, counters = Text(), stats(router), router._counters
    replicas = numbers["replicas"].items()

    def by_replica(field: str) -> list[tuple[dict[str, str], float]]:
        return [({"replica": name}, values[field]) for name, values in replicas if values[field] is not None]

    decisions = [
        ({"policy": policy, "reason": reason, "replica": replica}, count)
        for (policy, reason, replica), count in sorted(counters.decisions.items())
    ]
    text.family("decisions_total", "counter", "Committed decisions.", decisions)
    text.histogram(
        "decision_seconds", "Time to decide, hashing and matching included.", counters.buckets, counters.seconds
    )
    requests = [({"outcome": name}, count) for name, count in sorted(numbers["counts"].items())]
    text.family("requests_total", "counter", "Requests by what became of them, and calls that came too late.", requests)
    text.family("prompt_tokens_total", "counter", "Prompt tokens routed.", counters.prompt_tokens)
    hits = [({"replica": name, "medium": medium}, n) for (name, medium), n in sorted(counters.hit_tokens.items()) if n]
    text.family("hit_tokens_total", "counter", "Prompt tokens believed held by the chosen replica.", hits)
    text.family("best_hit_tokens_total", "counter", "The same of the best holder.", counters.best_hit_tokens)
    text.family("inflight", "gauge", "Requests in flight.", by_replica("in_flight"))
    text.family("uncached_backlog_tokens", "gauge", "Uncached prompt tokens waiting.", by_replica("uncached_tokens"))
    text.family("load_skew", "gauge", "Requests in flight at the busiest replica over the mean.", numbers["load_skew"])
    text.family("sessions", "gauge", "Sessions remembered.", numbers["sessions"])
    moves = [({"reason": name}, count) for name, count in sorted(numbers["session_moves"].items())]
    text.family("session_moves_total", "counter", "Changes of session bindings.", moves)
    both = [({"replica": n, "kind": k}, v[f"{k}_hit_tokens"]) for n, v in replicas for k in ("predicted", "reported")]
    known = [sample for sample in both if sample[1] is not None]
    text.family("predicted_vs_reported_hit_tokens", "counter", "Hits as predicted and as engines report them.", known)
    distrusted = [({"replica": name}, int(values["distrusted"])) for name, values in replicas]
    text.family("belief_distrusted", "gauge", "1 = reports contradict the belief, which is ignored.", distrusted)
    _index(router, text)
    _regret(router, text)
    return str(text)


def _index_numbers(router: Router) -> dict[str, int]:
    return router._index.stats().to_dict()


def _index(router: Router, text: Text) -> None:
    """Add what the index says of itself."""
    tokens, size, numbers = router._index.held_tokens(), router._block_size, _index_numbers(router)
    blocks = [({"replica": n}, tokens[m.slot] // size) for n, m in router._fleet.members.items()]
    text.family("index_blocks", "gauge", "Blocks believed held.", blocks)
    text.family("index_bytes", "gauge", "Memory reserved by the index.", numbers["reserved_bytes"])
    evicted = [({"cause": cause}, numbers[field]) for cause, field in _EVICTIONS.items()]
    text.family("evicted_blocks_total", "counter", "Blocks that left the belief.", evicted)
    events = [({"type": field}, numbers[field]) for field in _EVENTS]
    text.family("events_total", "counter", "What KV events met in the index.", events)


def _regret(router: Router, text: Text) -> None:
    regrets = router._shadows.regret().items()
    for unit, field in (("tokens", "tokens"), ("seconds", "seconds"), ("dollars", "usd")):
        samples = [({"policy": name}, getattr(regret, field)) for name, regret in regrets]
        if samples:
            text.family(f"shadow_regret_{unit}_total", "gauge", "Cost of the live policy beyond the shadow.", samples)


def explain(router: Router, request: str | Ticket | Decision) -> str:
    """Return a paragraph about a request; the router's lock is held."""
    if isinstance(request, Decision):
        return explain_decision(request, "It has not been committed.")
    if isinstance(request, Ticket):
        attempt = request._attempt
    else:
        found = router._ledger.keys.get(request) or router._ledger.ended.get(request)
        if found is None:
            raise ConfigError(f"no request with key {request!r} is in flight or among the last ones that ended")
        attempt = found
    moved = "" if attempt.name == attempt.decision.replica else f" The host took {attempt.name!r} instead."
    tried = (
        f" Tried before: {', '.join(sorted({member.name for member, _ in attempt.tried}))}." if attempt.tried else ""
    )
    return explain_decision(attempt.decision, f"It is {attempt.outcome}.{moved}{tried}")
