"""The steps of a request: what :func:`choose`, :func:`book`, :func:`finish` and the others change of a state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from prefixroute.errors import ConfigError
from prefixroute.routing.decide import Query, decide
from prefixroute.routing.fleet import MEDIA
from prefixroute.routing.ledger import Attempt
from prefixroute.validation import check_int

if TYPE_CHECKING:
    from prefixroute.routing.decision import Decision
    from prefixroute.routing.fleet import Process
    from prefixroute.routing.state import RouterState


def choose(state: RouterState, query: Query) -> Decision:
    """Decide on a request; the decision id advances, and what is overdue is given back first."""
    if state.step is not None:
        state.repair()
    if state.ledger.dropped or query.now >= state.sweep_at:
        state.sweep(query.now)
    decision = decide(state, query)
    state.decision_id += 1
    return decision


def draft(state: RouterState, decision: Decision, replica: str | None, now: float) -> Attempt:
    """Return the attempt that a decision becomes at a replica, not yet booked.

    Args:
        state: the router's.
        decision: what was decided.
        replica: the replica that the host really took; ``None`` = the decision's.
        now: time in seconds.

    Raises:
        UnknownReplicaError: the replica has left the fleet.
    """
    member = None
    if replica is None and decision.fleet_version == state.fleet.now.version:
        member = state.fleet.by_slot[decision.slot]
    if member is None:
        member = state.fleet[decision.replica if replica is None else replica]
    ledger = state.ledger
    ledger.idents += 1
    attempt = Attempt(ledger.idents, decision, member, now)
    attempt.epoch = state.epoch
    return attempt


def book(state: RouterState, attempt: Attempt, now: float) -> None:
    """Book the first attempt of a request: load up, predicted blocks into the belief, key and session to it."""
    if state.step is not None:
        state.repair()
    decision, ledger, counters = attempt.decision, state.ledger, state.counters
    attempt.booked = state.belief.insert(attempt.name, decision.blocks, None, now)  # before the step: it may raise
    state.step = attempt
    ledger.enter(attempt)
    if attempt.key is not None:
        ledger.claim(attempt)
    ledger.bind(attempt, now)
    best = decision.best_hit_tokens
    counters.prompt_tokens += decision.view.prompt_tokens
    counters.best_hit_tokens += best
    if attempt.member.tiered:
        for medium, tokens in _by_medium(state, attempt):
            counters.hit_tokens[attempt.name, medium] += tokens
    else:
        counters.hit_tokens[attempt.name, MEDIA[0]] += attempt.hit
    if not best or decision.branch is not None:
        state.heads.learn(decision)
    _end_booking(state, attempt, now)


def book_again(state: RouterState, attempt: Attempt, now: float, earlier: Attempt, *, hedge: bool) -> None:
    """Book a further attempt of a request. ``hedge``: the earlier one goes on, and the first to answer wins."""
    if state.step is not None:
        state.repair()
    ledger = state.ledger
    attempt.booked = state.belief.insert(attempt.name, attempt.decision.blocks, None, now)  # as above
    state.step = attempt
    attempt.followers, attempt.tried = earlier.followers, earlier.tried | {earlier.process}
    ledger.enter(attempt)
    if hedge or earlier.group is not None:
        ledger.pair(earlier, attempt)  # after a retry the request's hedge may still answer first
    ledger.claim(attempt)
    if not hedge:
        ledger.bind(attempt, now)
    _end_booking(state, attempt, now)


def _end_booking(state: RouterState, attempt: Attempt, now: float) -> None:
    """Count a decision that is booked, and end the step."""
    decisions, key = state.counters.decisions, (state.policy_name, attempt.decision.reason, attempt.name)
    count = decisions.get(key)
    if count is None:
        state.counters.count_new(*key)
    else:
        decisions[key] = count + 1
    if state.spends:
        state.book.spend(attempt.slot, state.config.cost.prefill_seconds(attempt.queued, attempt.hit), now)
    if state.step is attempt:
        state.step = None
    else:
        state.repair()


def _by_medium(state: RouterState, attempt: Attempt) -> Iterable[tuple[str, int]]:
    """Split the hit tokens of a request over the media that hold them, fastest first."""
    hit_blocks = -(-attempt.hit // state.config.block_size)  # what follows was booked just now
    held = state.belief.match_media(attempt.decision.blocks.head(hit_blocks))[attempt.slot].tolist()
    left = attempt.hit
    for medium, tokens in zip(MEDIA, held, strict=True):
        yield medium, min(tokens, left)
        left -= min(tokens, left)


def first_token(state: RouterState, attempt: Attempt, now: float) -> None:
    """Note that an engine answers, or goes on answering."""
    if state.step is not None:
        state.repair()
    if not attempt.open:
        state.ledger.counts["first_token_late"] += 1
        return
    state.step = attempt
    state.ledger.first_token(attempt, now)
    state.end(attempt)


def finish(state: RouterState, attempt: Attempt, context: Any, now: float, reported: Reported) -> bool:
    """End an attempt normally; return whether it was still open.

    Args:
        state: the router's.
        attempt: what ends.
        context: prompt and output as the replica now holds them; ``None`` = the prompt.
        now: time in seconds.
        reported: cached tokens and prompt tokens as the engine reports them.
    """
    if state.step is not None:
        state.repair()
    if not attempt.open:
        state.ledger.counts["finish_late"] += 1
        return False
    decision, member = attempt.decision, attempt.member
    if member.generation == attempt.generation and not member.replica.events and attempt.epoch == state.epoch:
        if context is None:
            state.belief.insert(attempt.name, decision.blocks, None, now)
        else:
            state.belief.insert(attempt.name, context, decision.view.request.namespace, now)
    state.step = attempt
    state.ledger.finish(attempt, now)
    if state.step is attempt:
        state.step = None
    else:
        state.repair()
    if member.generation == attempt.generation:
        state.calibration.learn(attempt.slot, attempt.name, attempt.hit, reported[0])
    if reported[1] is not None:
        state.prompts.of(decision.prompt_kind).calibrate(decision.blocks.token_count, reported[1])
    return True


def abort(state: RouterState, attempt: Attempt, why: str = "aborted") -> None:
    """Give an attempt up."""
    if state.step is not None:
        state.repair()
    if not attempt.open:
        state.ledger.counts["abort_late"] += 1
        return
    state.step = attempt
    state.ledger.abort(attempt, why)
    state.end(attempt)


def again(state: RouterState, attempt: Attempt, now: float) -> Decision:
    """Decide on a request again, for a replica that it has not tried.

    Raises:
        NoReplicaError: none is left.
        OverloadedError: those left are over their admission caps.
    """
    earlier = attempt.decision
    tried: frozenset[Process] = attempt.tried | {attempt.process}
    decision = choose(
        state, Query(earlier.blocks, earlier.view.request, now, earlier.limits, tried, earlier.prompt_kind)
    )
    decision.prompt = earlier.prompt
    return decision


Reported = tuple[int | None, int | None]
"""Cached tokens of a prompt and its length as an engine reports them; ``None`` = not reported, not zero."""
NOTHING_REPORTED: Reported = (None, None)


def wrong_report(hit_tokens: Any, prompt_tokens: Any) -> ConfigError | None:
    """Return what is wrong with cached tokens and prompt tokens as an engine reports them."""
    if type(hit_tokens) is int and hit_tokens >= 0 and prompt_tokens is None:
        return None  # the hot path
    for name, tokens in (("reported_hit_tokens", hit_tokens), ("reported_prompt_tokens", prompt_tokens)):
        if tokens is not None:
            try:
                check_int(name, tokens, 0)
            except ConfigError as error:
                return error
    return None
