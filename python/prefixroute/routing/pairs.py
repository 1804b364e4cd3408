"""Pairs: a request of which one replica computes the prompt and another decodes the answer.

A pair is two attempts, its *halves*, each booked at its own replica. The prefill half has the uncached prompt tokens on
the load book and is over at the first token. The decode half has the prompt's context on the book from the beginning,
stands for the request in every other respect (key, ticket, end), and takes the prefill half along when it ends. Both
are booked by one call of the ledger.

The decode replica keeps what is moved to it, as vLLM does: the prompt's blocks are believed to be there too.
"""

from __future__ import annotations

from typing import NamedTuple

from prefixroute.errors import ConfigError
from prefixroute.routing import steps
from prefixroute.routing.decide import Query, decide
from prefixroute.routing.decision import Decision, DecisionLimits
from prefixroute.routing.fleet import ANSWER, PROMPT, Process
from prefixroute.routing.ledger import NONE_TRIED, Attempt
from prefixroute.routing.state import RouterState
from prefixroute.types import DECODE, PREFILL
from prefixroute.validation import shown

BOTH = "both"
HALVES = (BOTH, PREFILL, DECODE)
"""What of a pair may be tried again elsewhere."""


class PairDecision(NamedTuple):
    """The answer of :meth:`Router.choose_pair`. It changes nothing until it is committed.

    Attributes:
        prefill: who computes the prompt.
        decode: who decodes the answer.
    """

    prefill: Decision
    decode: Decision

    @property
    def moved_tokens(self) -> int:
        """Prompt tokens whose keys and values the decode replica needs; none if it computes the prompt itself."""
        same = self.prefill.slot == self.decode.slot
        return 0 if same else self.decode.prompt_tokens - self.decode.hit_tokens

    def keyed(self, key: str | None) -> PairDecision:
        """Return the same decision for a request that the caller calls ``key``: one request, at both halves.

        Args:
            key: the caller's name for the request; ``None`` = as :meth:`Decision.keyed` has it.

        Returns:
            An equal decision with that key.
        """
        prefill = self.prefill.keyed(key)
        return PairDecision(prefill, self.decode.keyed(None) if key is None else self.decode.about(prefill.request))


class Halves(NamedTuple):
    """The attempts of a pair: who computes the prompt, and who decodes and stands for the request.

    One that goes on from an earlier pair is the same object.
    """

    prefill: Attempt
    decode: Attempt


def check_half(failed: str) -> None:
    """Raise :class:`ConfigError` unless this names a half of a pair, or both."""
    if failed not in HALVES:  # a tuple compares what cannot be hashed
        raise ConfigError(
            f"what has failed of a pair must be {', '.join(HALVES[:-1])} or {HALVES[-1]}, got {shown(failed)}"
        )


def choose(state: RouterState, query: Query, answer_limits: DecisionLimits | None = None) -> PairDecision:
    """Decide on both halves: who computes the prompt, then who decodes behind that one.

    Args:
        state: the router's.
        query: about the prompt.
        answer_limits: what is allowed of who decodes, if not the query's limits.
    """
    prefill = steps.choose(state, query)
    limits, number = answer_limits or query.limits, prefill.decision_id
    return PairDecision(
        prefill, choose_answer(state, prefill, prefill.slot, limits=limits, now=query.now, number=number)
    )


def choose_answer(
    state: RouterState,
    prefill: Decision,
    kv_at: int,
    *,
    limits: DecisionLimits,
    now: float,
    tried: frozenset[Process] = NONE_TRIED,
    number: int | None = None,
) -> Decision:
    """Decide who decodes.

    Args:
        state: the router's.
        prefill: who computes the prompt, or an earlier decision on the same request; its prompt is hashed already.
        kv_at: slot of the replica that computes it.
        limits: what the caller allows; a hard affinity is about the prompt alone.
        now: time in seconds.
        tried: processes that have been tried.
        number: of the decision; ``None`` = the next one.
    """
    free = limits._replace(hard=False) if limits.hard else limits
    kind = prefill.query.kind
    query = Query(prefill.blocks, prefill.request, now, free, tried, kind, ANSWER, kv_at, number)
    decode = steps.choose(state, query) if number is None else decide(state, query)
    decode.prompt = prefill.prompt  # as the caller gave it
    return decode


def draft(
    state: RouterState, pair: PairDecision, now: float, prefill: str | None = None, decode: str | None = None
) -> Halves:
    """Return the halves that a decision becomes, not yet booked.

    Args:
        state: the router's.
        pair: what was decided.
        now: time in seconds.
        prefill: the replica that computes the prompt, if not the decided one.
        decode: the replica that decodes, if not the decided one.

    Raises:
        UnknownReplicaError: one has left the fleet.
    """
    computing = steps.draft(state, pair.prefill, prefill, now, keyed=False)
    return Halves(computing, steps.draft(state, pair.decode, decode, now))


def again(state: RouterState, pair: Halves, failed: str, now: float) -> Halves:
    """Decide again on what has failed of a pair, and draft it.

    A half that has not failed goes on where it is, if it can: a prompt that is being computed, or a place to decode
    that has not begun. Else it is decided on again, and may go to the same replica.

    Args:
        state: the router's.
        pair: the earlier pair.
        failed: ``prefill``, ``decode`` or ``both``: replicas that must not be tried again.
        now: time in seconds.

    Raises:
        NoReplicaError: none is left.
        OverloadedError: those left are over their admission caps.
    """
    prefill, decode = pair
    earlier, info = prefill.decision, decode.decision.request
    limits, kind = earlier.query.limits, earlier.query.kind
    if failed != DECODE or not prefill.open:
        tried = prefill.tried if failed == DECODE else steps.tried(prefill)
        decision = steps.choose(state, Query(earlier.blocks, info, now, limits, tried, kind, PROMPT))
        decision.prompt = earlier.prompt
        prefill = steps.draft(state, decision, None, now, tried, keyed=False, earlier=pair.decode)
    if failed != PREFILL or decode.started or not decode.open:
        tried = decode.tried if failed == PREFILL else steps.tried(decode)
        decision = choose_answer(state, earlier, prefill.slot, limits=limits, now=now, tried=tried)
        decode = steps.draft(state, decision, None, now, tried, earlier=pair.decode)
    return Halves(prefill, decode)


def book(state: RouterState, halves: Halves, now: float, earlier: Halves | None = None) -> bool:
    """Book both halves: loads, predicted blocks, key and session; or what takes the place of an earlier pair.

    What of the earlier pair does not go on is given back. If what was to go on has ended meanwhile, nothing is booked,
    and what is new has ended too.

    Returns:
        Whether it was booked.

    Args:
        state: the router's.
        halves: what is booked.
        now: time in seconds.
        earlier: the earlier pair.
    """
    prefill, decode = halves
    new = [half for half in halves if earlier is None or half not in earlier]
    insertions = {half.number: state.belief.insert(half.name, half.decision.blocks, None, now) for half in new}
    decision, answer = prefill.decision, decode.decision
    session = decision.request.session or None
    media = steps.by_medium(state, prefill) if prefill.member.tiered and earlier is None else None
    spent = steps.spent_s(state, prefill) if state.spends else None
    booked, effects = state.ledger.book_pair(
        prefill, insertions.get(prefill.number), decision.decision_id, decision.reason, decision.sight, decision.slots, session,
        media, spent, decode, insertions.get(decode.number), answer.decision_id, answer.reason,
        None if earlier is None else earlier.decode,
    )  # fmt: skip
    steps.carry_out(state, effects)
    if state.listener is not None and booked:
        for half in new:
            state.listener.booked(half, session, now, None, False)  # noqa: FBT003  # it has no names
    return booked
