"""The steps of a request: what :func:`choose`, :func:`book`, :func:`finish` and the others change of a state."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from prefixroute.errors import ConfigError, NoReplicaError
from prefixroute.hashing import BlockHashes, hash_blocks
from prefixroute.limits import MAX_BLOCK_SIZE, MAX_BLOCKS
from prefixroute.routing.decide import Query, decide
from prefixroute.routing.ledger import NONE_TRIED, ZERO_STREAK
from prefixroute.validation import check_int, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from prefixroute.routing.decision import Decision
    from prefixroute.routing.fleet import Process
    from prefixroute.routing.ledger import Attempt, Effects
    from prefixroute.routing.state import RouterState

_LOG = logging.getLogger("prefixroute")


def choose(state: RouterState, query: Query) -> Decision:
    """Decide on a request; the decision id advances, and what is overdue is given back first."""
    if state.step is not None:
        state.repair()
    if state.ledger.dropped or query.now >= state.sweep_at:
        expire(state, query.now)
    if state.listener is not None:
        state.listener.refresh()
    decision = decide(state, query)
    state.decision_id += 1
    return decision


def expire(state: RouterState, now: float) -> None:
    """Give up what was dropped or has made no progress for too long, and sweep the state."""
    ended = state.ledger.expire(now)
    carry_out(state, ended)
    state.sweep(now)
    if ended is not None and state.on_expired is not None:
        expired = [attempt for attempt, *_ in ended if attempt.outcome == "expired"]
        # of a pair, the half that decodes stands for the request
        halves = {attempt.prefill.number for attempt in expired if attempt.prefill is not None}
        _tell_expired([attempt for attempt in expired if attempt.number not in halves], state.on_expired)


def _tell_expired(attempts: list[Attempt], on_expired: Callable[[Attempt], object]) -> None:
    for attempt in attempts:
        try:
            on_expired(attempt)
        except Exception:  # noqa: BLE001  # the request that noticed it goes on, whatever the host's function does
            _LOG.exception("on_expired failed for a request at %r", attempt.name)


def draft(
    state: RouterState,
    decision: Decision,
    replica: str | None,
    now: float,
    earlier: frozenset[Process] = NONE_TRIED,
    *,
    keyed: bool = True,
) -> Attempt:
    """Return the attempt that a decision becomes at a replica, not yet booked.

    Args:
        state: the router's.
        decision: what was decided.
        replica: the replica that the host really took; ``None`` = the decision's.
        now: time in seconds.
        earlier: processes that earlier attempts have tried.
        keyed: it answers to the request's key, if that has one.

    Raises:
        UnknownReplicaError: the replica has left the fleet.
    """
    view, slot, member = decision.view, decision.slot, None
    if replica is None and decision.fleet_version == state.fleet.now.version:
        member = state.fleet.by_slot[slot]
    if member is not None:
        hit = view.hits[slot]
    else:
        member = state.fleet[decision.replica if replica is None else replica]
        slot = member.slot
        hit = view.hits[slot] if slot < len(view.names) and view.names[slot] == member.name else 0
    name, generation, key = member.name, member.generation, view.request.key if keyed else None
    return state.ledger.draft(
        decision, member, name, slot, generation, hit, view.prompt_tokens, key, earlier, state.epoch, now
    )


def book(
    state: RouterState, attempt: Attempt, now: float, earlier: Attempt | None = None, *, hedge: bool = False
) -> None:
    """Book an attempt of a request: load up, predicted blocks into the belief, key and session to it.

    Args:
        state: the router's.
        attempt: what is booked.
        now: time in seconds.
        earlier: an earlier attempt of the same request; ``None`` = this is the first.
        hedge: the earlier one goes on, and the first to answer wins.
    """
    decision = attempt.decision
    view, hit = decision.view, attempt.hit
    insertion = state.belief.insert(attempt.name, decision.blocks, None, now)
    media = by_medium(state, attempt) if attempt.member.tiered and earlier is None else None
    spent = state.config.cost.prefill_seconds(view.prompt_tokens - hit, hit) if state.spends else None
    session = view.request.session or None
    step = None if state.active is None else state.begin()
    effects = state.ledger.book(
        attempt, insertion, view.decision_id, decision.reason, decision.best_hit_tokens, decision.branch, view.hits,
        view.slots, session, view.binding is None and session is not None, decision.detour, media, spent, earlier, hedge,
    )  # fmt: skip
    if state.active is not None:
        state.active.enter(attempt.name, decision.blocks)
        state.end(step)
    if effects is not None:
        carry_out(state, effects)
    if state.listener is not None:
        state.listener.booked(attempt, session, now, earlier, hedge)


def carry_out(state: RouterState, effects: Effects) -> None:
    """Do what the ends of attempts ask for: take their predicted blocks back, and end what follows their requests."""
    for attempt, retract, followers in effects or ():
        _leave(state, attempt)
        if retract:
            state.belief.retract(attempt.name, attempt.decision.blocks, attempt.insertion)
        if state.listener is not None:
            state.listener.given_up(attempt)
        for follower in followers:
            follower.abort()


def _leave(state: RouterState, attempt: Attempt) -> None:
    """Count the blocks of an attempt that has ended no more among the active ones."""
    if state.active is not None and attempt.member.generation == attempt.generation:
        state.active.leave(attempt.name, attempt.decision.blocks)


def by_medium(state: RouterState, attempt: Attempt) -> list[int]:
    """Split the hit tokens of a request over the media that hold them, fastest first."""
    hit_blocks = -(-attempt.hit // state.config.block_size)  # what follows was booked just now
    held = state.belief.match_media(attempt.decision.blocks.head(hit_blocks))[attempt.slot].tolist()
    left, split = attempt.hit, []
    for tokens in held:
        split.append(min(tokens, left))
        left -= split[-1]
    return split


def first_token(state: RouterState, attempt: Attempt, now: float) -> None:
    """Note that an engine answers, or goes on answering."""
    computed = _end_of_prefill(state, attempt, now) if attempt.prefill is not None and attempt.open else None
    listener, begins = state.listener, not attempt.started
    effects = state.ledger.first_token(attempt, now)
    if listener is not None:
        if computed is not None:
            listener.finished(*computed, now)
        if begins and attempt.started:
            listener.started(attempt, now)
    if effects is not None:
        carry_out(state, effects)


def _end_of_prefill(state: RouterState, attempt: Attempt, now: float) -> tuple[Attempt, Any] | None:
    """Believe what the other half of a pair has computed; return it with that, or ``None`` if it ended before."""
    prefill = attempt.prefill
    return (prefill, hold(state, prefill, None, now)) if prefill.open else None


def finish(state: RouterState, attempt: Attempt, context: Any, now: float, reported: Reported) -> bool:
    """End an attempt normally; return whether it was still open.

    Args:
        state: the router's.
        attempt: what ends.
        context: prompt and output as the replica now holds them; ``None`` = the prompt.
        now: time in seconds.
        reported: cached tokens and prompt tokens as the engine reports them.
    """
    if not attempt.open:
        state.ledger.count("finish_late")
        return False
    prefill = attempt.prefill
    computed = None if prefill is None else _end_of_prefill(state, attempt, now)
    held = hold(state, attempt, context, now)
    step = None if state.active is None else state.begin()
    ended = state.ledger.finish(attempt, now, reported[0])
    if state.active is not None:
        if ended is not None:
            _leave(state, attempt)
        state.end(step)
    if ended is None:
        return False
    effects, believed = ended
    if effects is not None:
        carry_out(state, effects)
    if state.listener is not None:
        if computed is not None:
            state.listener.finished(*computed, now)
        state.listener.finished(attempt, held, now)
    if believed is not None:
        _tell_trust(attempt.name if prefill is None else prefill.name, believed=believed)
    if reported[1] is not None:
        decision = attempt.decision
        state.prompts.of(decision.prompt_kind).calibrate(decision.blocks.token_count, reported[1])
    return True


def hold(state: RouterState, attempt: Attempt, context: Any, now: float) -> Any:
    """Believe that the replica of an attempt holds what it has computed, unless its own events tell what it holds.

    Args:
        state: the router's.
        attempt: where.
        context: prompt and output; ``None`` = the prompt.
        now: time in seconds.

    Returns:
        The blocks that are believed; ``None`` = none.
    """
    member = attempt.member
    if member.generation != attempt.generation or attempt.epoch != state.epoch or member.replica.events:
        return None
    decision = attempt.decision
    if context is None:
        state.belief.insert(attempt.name, decision.blocks, None, now)
        return decision.blocks
    namespace = decision.view.request.namespace
    if state.listener is not None and not isinstance(context, BlockHashes):
        context = hash_blocks(context, state.block_size, namespace, state.belief.hash_key)  # others want them too
    state.belief.insert(attempt.name, context, namespace, now)
    return context


def _tell_trust(name: str, *, believed: bool) -> None:
    """Log that a replica's belief counts again, or counts no more."""
    if believed:
        _LOG.info("replica %r reports cached tokens again: its belief counts", name)
    else:
        _LOG.warning("replica %r reported no cached token for %d predicted hits: belief ignored", name, ZERO_STREAK)


def abort(state: RouterState, attempt: Attempt, why: str = "aborted") -> None:
    """Give an attempt up."""
    step = None if state.active is None else state.begin()
    carry_out(state, state.ledger.abort(attempt, why))
    if step is not None:
        state.end(step)


def give_up(state: RouterState, attempt: Attempt) -> None:
    """End the request of an attempt that has been given up for another one, which could not be booked."""
    if not attempt.open and not state.ledger.goes_on(attempt):
        followers, attempt.followers = attempt.followers, ()
        for follower in followers:
            follower.abort()


def tried(attempt: Attempt) -> frozenset[Process]:
    """Return the processes that the attempts of a request have tried, this one included."""
    processes: frozenset[Process] = attempt.tried | {(attempt.member, attempt.generation)}
    return processes


def check_not_over(state: RouterState, attempt: Attempt) -> None:
    """Raise :class:`NoReplicaError` if the request of an attempt is over, or its key has gone to another request."""
    if attempt.outcome in ("finished", "rebooked"):
        raise NoReplicaError(f"the request is over, its attempt at {attempt.name!r} is {attempt.outcome}")
    request = attempt.decision.view.request
    holder = None if request.key is None else state.ledger.find(request.key)
    if holder is not None and holder is not attempt and holder.decision.view.request is not request:
        raise NoReplicaError(f"another request is in flight with key {shown(request.key)}")


def again(state: RouterState, attempt: Attempt, now: float) -> Decision:
    """Decide on a request again, for a replica that it has not tried.

    Raises:
        NoReplicaError: none is left.
        OverloadedError: those left are over their admission caps.
    """
    earlier = attempt.decision
    decision = choose(
        state, Query(earlier.blocks, earlier.view.request, now, earlier.limits, tried(attempt), earlier.prompt_kind)
    )
    decision.prompt = earlier.prompt
    return decision


Reported = tuple[int | None, int | None]
"""Cached tokens of a prompt and its length as an engine reports them; ``None`` = not reported, not zero."""
NOTHING_REPORTED: Reported = (None, None)
MOST_REPORTED = MAX_BLOCKS * MAX_BLOCK_SIZE
"""Tokens of the longest prompt that can be routed: no engine can report more of one."""


def wrong_report(hit_tokens: Any, prompt_tokens: Any) -> ConfigError | None:
    """Return what is wrong with cached tokens and prompt tokens as an engine reports them."""
    if type(hit_tokens) is int and 0 <= hit_tokens <= MOST_REPORTED and prompt_tokens is None:
        return None  # the hot path
    for name, tokens in (("reported_hit_tokens", hit_tokens), ("reported_prompt_tokens", prompt_tokens)):
        if tokens is not None:
            try:
                check_int(name, tokens, 0, MOST_REPORTED)
            except ConfigError as error:
                return error
    return None
