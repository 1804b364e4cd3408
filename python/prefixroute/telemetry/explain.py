"""One request in one paragraph: why it went where it did."""

from __future__ import annotations

from prefixroute.limits import BYTES_PER_TOKEN
from prefixroute.routing import Decision, RouterState
from prefixroute.routing.ledger import Attempt

MAX_KEY = 256
"""Characters of a key that are told."""
_REASONS = {
    "turn": "it was its turn",
    "drawn": "it was drawn",
    "least": "it was the least loaded",
    "unreported": "not every replica has reported, so the least loaded by the router's own book was taken",
    "power_of_two": "it was the less loaded of two drawn",
    "primary": "the session is bound to it",
    "assigned": "it is the session's rendezvous choice, and the session is new",
    "rebound": "the session had to move, and this is its next rendezvous choice",
    "detour": "the session's replica may not take this request; the binding stays",
    "no_session": "the request has no session, so the fallback decided",
    "no_key": "the request has no key, so the fallback decided",
    "hashed": "the key hashes to it",
    "overflow": "the key's first choice has no room",
    "overflow_starving": "the key's first choice has no room and this one starves",
    "full": "no replica has room, so the least loaded was taken",
    "match": "it holds the longest match and is not too busy",
    "bound": "no match is long enough, and the session is bound to it",
    "two_choices": "no match is long enough, and it is the less loaded of the session's two first rendezvous choices",
    "spill": "the holder of the longest match is too busy",
    "no_match": "no match is long enough, so the fallback decided",
    "imbalanced": "the fleet is out of balance, so the least loaded was taken",
    "least_cost": "its cost is the least",
    "least_product": "its product of new tokens and batch is the least",
    "exploit": "most of the prompt is cached, and it is the least busy holder",
    "explore": "most of the prompt is not cached, and its cost is the least",
    "least_ttft": "its predicted time to first token is the least",
    "highest_sum": "its weighted score is the highest",
    "least_transfer": "moving the prompt there and decoding beside what it has in flight cost the least seconds",
}


def explain_attempt(state: RouterState, attempt: Attempt, now: float) -> str:
    """Return why an attempt went where it did, and what has become of it; of a pair, why each half did."""
    if attempt.prefill is not None:
        moved = attempt.decision.prompt_tokens - attempt.hit if attempt.slot != attempt.prefill.slot else 0
        halves = _explain(state, attempt.prefill, now), _explain(state, attempt, now)
        return f"Prefill: {halves[0]} Decode, with {moved} tokens to be moved: {halves[1]}"
    return _explain(state, attempt, now)


def _explain(state: RouterState, attempt: Attempt, now: float) -> str:
    moved = "" if attempt.name == attempt.decision.replica else f" The host took {attempt.name!r} instead."
    names = sorted({member.name for member, _ in attempt.tried})
    tried = f" Tried before: {', '.join(names)}." if names else ""
    return explain_decision(state, attempt.decision, now, f"It is {attempt.outcome}.{moved}{tried}")


def explain_decision(
    state: RouterState, decision: Decision, now: float, outcome: str = "It has not been committed."
) -> str:
    """Return why a decision went where it did, what the other replicas held, and what became of the request."""
    view, slot = decision.view, decision.slot
    why = _REASONS.get(decision.reason, f"the policy's reason is {decision.reason[:MAX_KEY]!r}")
    request = view.request
    who = f"Request {request.key[:MAX_KEY]!r}" if request.key is not None else "The request"
    session = f" of session {request.session[:MAX_KEY]!r}" if request.session else ""
    best = max(view.slots, key=lambda s: (view.hits[s], s == slot))
    lightest = min(view.slots, key=lambda s: (view.loads[s], s != slot))
    went = f"went to {decision.replica!r} by policy {decision.policy!r}, decision {view.decision_id}"
    parts = [
        f"{who}{session} ({view.prompt_tokens} prompt tokens) {went}: {why}.",
        f"It holds {view.hits[slot]} tokens of the prompt{_letters(state, decision)} at load {view.loads[slot]:g}.",
    ]
    if best != slot:
        parts.append(
            f"The longest match is {view.hits[best]} tokens at {view.names[best]!r}, load {view.loads[best]:g}."
        )
    if lightest not in (slot, best):
        parts.append(f"The least loaded is {view.names[lightest]!r} at {view.loads[lightest]:g}.")
    if view.shared:
        parts.append(f"{100 * view.shared:.0f} % of the last new requests share no more than this head.")
    if len(view.slots) < sum(name is not None for name in view.names):
        parts.append(f"{len(view.slots)} replicas were candidates.")
    fresh_s = state.config.timing.report_fresh_s
    lapsed = [name for name, member in state.fleet.members.items() if member.has_lapsed(now, fresh_s)]
    if lapsed:
        parts.append(f"Load reports of {', '.join(sorted(lapsed))} are too old to count.")
    return " ".join([*parts, outcome])


def _letters(state: RouterState, decision: Decision) -> str:
    """Return how many letters of a text the match covers: whole ones, since blocks of text may end inside of one."""
    prompts = state.prompts.of(decision.query.kind)
    if not (prompts.estimates and isinstance(decision.prompt, str | bytes)):
        return ""
    text = prompts.prepare(decision.prompt)
    held = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    tokens = decision.hit_tokens * decision.blocks.token_count // max(1, decision.prompt_tokens)  # as estimated
    matched = held[: tokens * BYTES_PER_TOKEN]
    return f" (its first {len(matched.decode('utf-8', 'ignore'))} letters)"
