"""The steps of a request: what :func:`choose`, :func:`book`, :func:`finish` and the others change of a state."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from prefixroute.errors import ConfigError, NoReplicaError
from prefixroute.hashing import BlockHashes, hash_blocks
from prefixroute.limits import MAX_BLOCK_SIZE, MAX_BLOCKS
from prefixroute.routing.decide import Query, decide
from prefixroute.routing.decision import Decision
from prefixroute.routing.fleet import Process
from prefixroute.routing.ledger import NONE_TRIED, ZERO_STREAK, Attempt, Effects
from prefixroute.routing.state import RouterState
from prefixroute.types import Namespace
from prefixroute.validation import check_int, shown

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
    state.recent_namespaces.append(query.info.namespace)
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
    tried: frozenset[Process] = NONE_TRIED,
    *,
    keyed: bool = True,
    earlier: Attempt | None = None,
) -> Attempt:
    """Return the attempt that a decision becomes at a replica, not yet booked.

    Args:
        state: the router's.
        decision: what was decided.
        replica: the replica that the host really took; ``None`` = the decision's.
        now: time in seconds.
        tried: processes that earlier attempts have tried.
        keyed: it answers to the request's key, if that has one.
        earlier: an earlier attempt of the same request.

    Raises:
        UnknownReplicaError: the replica has left the fleet.
    """
    fleet, slot, member, known = state.fleet, decision.slot, None, decision.fleet.names
    if replica is None and decision.fleet is fleet.now:
        member = fleet.by_slot[slot]
    if member is None:
        member = fleet[decision.replica if replica is None else replica]
        slot = member.slot
    name, key = member.name, decision.query.info.key if keyed else None
    hit = decision.sight.hit(slot) if slot < len(known) and known[slot] == name else 0
    return state.ledger.draft(
        decision,
        member,
        name,
        slot,
        member.generation,
        hit,
        decision.prompt_tokens,
        key,
        tried,
        state.epoch,
        now,
        earlier,
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
    insertion = state.belief.insert(attempt.name, decision.blocks, None, now)
    media = by_medium(state, attempt) if attempt.member.tiered and earlier is None else None
    spent = spent_s(state, attempt) if state.spends else None
    session = decision.query.info.session or None
    effects = state.ledger.book(
        attempt, insertion, decision.decision_id, decision.reason, decision.sight, decision.slots, session, media, spent,
        earlier, hedge,
    )  # fmt: skip
    if effects is not None:
        carry_out(state, effects)
    if state.listener is not None:
        state.listener.booked(attempt, session, now, earlier, hedge)


def spent_s(state: RouterState, attempt: Attempt) -> float:
    """Return the prefill seconds that an attempt gives its replica."""
    return state.config.cost.prefill_seconds(attempt.prompt_tokens - attempt.hit, attempt.hit)


def carry_out(state: RouterState, effects: Effects) -> None:
    """Do what the ends of attempts ask for: take their predicted blocks back, and end what follows their requests."""
    for attempt, retract, followers in effects or ():
        if retract:
            state.belief.retract(attempt.name, attempt.decision.blocks, attempt.insertion)
        if state.listener is not None:
            state.listener.given_up(attempt)
        for follower in followers:
            follower.abort()


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
    if not prefill.open:
        return None
    held, _ = _held(state, prefill, None)
    if held is not None:
        state.belief.insert(prefill.name, held, None, now)
    return prefill, held


def finish(state: RouterState, attempt: Attempt, context: Any, now: float, reported: Reported) -> bool:
    """End an attempt normally; return whether it was still open.

    Args:
        state: the router's.
        attempt: what ends.
        context: prompt and output as the replica now holds them; ``None`` = the prompt.
        now: time in seconds.
        reported: cached tokens and prompt tokens as the engine reports them. More cached tokens than a prompt of token
            ids has are taken as all of its tokens, and counted in ``state.clamped_reports``; the length of text is an
            estimate.
    """
    if not attempt.open:
        state.ledger.count("finish_late")
        return False
    prefill = attempt.prefill
    computed = None if prefill is None else _end_of_prefill(state, attempt, now)
    held, namespace = _held(state, attempt, context)
    hit = _clamped(state, attempt, reported[0])
    ended = state.ledger.finish(attempt, now, hit, state.belief, held, namespace)
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
        tell_trust(attempt.name if prefill is None else prefill.name, believed=believed)
    if reported[1] is not None:
        decision = attempt.decision
        state.prompts.of(decision.query.kind).calibrate(decision.blocks.token_count, reported[1])
    return True


def _clamped(state: RouterState, attempt: Attempt, hit: int | None) -> int | None:
    """Return reported cached tokens, at most those of the prompt where these are counted; count a report of more."""
    prompt_tokens: int = attempt.decision.prompt_tokens
    if hit is None or hit <= prompt_tokens or state.prompts.of(attempt.decision.query.kind).estimates:
        return hit
    state.clamped_reports += 1
    return prompt_tokens


def _held(state: RouterState, attempt: Attempt, context: Any) -> tuple[Any, Namespace | None]:
    """Return what the replica of an attempt holds once it has answered, and the namespace of that if it is not hashed.

    ``None`` = nothing that is to be believed: the process is gone, or its own events tell what it holds. ``context``:
    prompt and output; ``None`` = the prompt.
    """
    member = attempt.member
    if member.generation != attempt.generation or attempt.epoch != state.epoch or member.replica.events:
        return None, None
    decision = attempt.decision
    if context is None:
        return decision.blocks, None
    namespace = state.fleet.now.cache_names.of(decision.query.info.namespace)
    if state.listener is not None and not isinstance(context, BlockHashes):
        context = hash_blocks(context, state.block_size, namespace, state.belief.hash_key)  # others want them too
    return context, namespace


def tell_trust(name: str, *, believed: bool) -> None:
    """Log that a replica's belief counts again, or counts no more."""
    if believed:
        _LOG.info("replica %r reports cached tokens again: its belief counts", name)
    else:
        _LOG.warning("replica %r reported no cached token for %d predicted hits: belief ignored", name, ZERO_STREAK)


def abort(state: RouterState, attempt: Attempt, why: str = "aborted") -> None:
    """Give an attempt up."""
    carry_out(state, state.ledger.abort(attempt, why))


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
    """Raise :class:`NoReplicaError` if there is nothing to try again.

    That is so if the request of an attempt is over by any of its attempts, if a retry has taken the attempt's place
    already, and if its key has gone to another request.
    """
    if attempt.over or attempt.outcome == "hedge lost":
        raise NoReplicaError(f"the request is over, its attempt at {attempt.name!r} is {attempt.outcome}")
    if attempt.retried:
        raise NoReplicaError(
            f"the attempt at {attempt.name!r} has been retried already: what retry() returned stands for the request"
        )
    request = attempt.decision.request
    holder = None if request.key is None else state.ledger.find(request.key)
    if holder is not None and holder is not attempt and holder.decision.request is not request:
        raise NoReplicaError(f"another request is in flight with key {shown(request.key)}")


def again(state: RouterState, attempt: Attempt, now: float) -> Decision:
    """Decide on a request again, for a replica that it has not tried.

    Raises:
        NoReplicaError: none is left.
        OverloadedError: those left are over their admission caps.
    """
    earlier = attempt.decision
    decision = choose(state, earlier.query._replace(prompt=earlier.blocks, now=now, tried=tried(attempt), number=None))
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
