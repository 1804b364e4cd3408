"""The decision as a function: it reads a state and a request, and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from prefixroute.belief import Belief
from prefixroute.columns import is_answer
from prefixroute.errors import ConfigError, NoReplicaError
from prefixroute.policies.base import resolve
from prefixroute.policies.view import NOT_GATHERED, RequestInfo, gathered, is_candidate
from prefixroute.routing.admission import admitted
from prefixroute.routing.decision import NO_LIMITS, Decision, DecisionLimits
from prefixroute.routing.fleet import ANSWER, WHOLE, Process, Snapshot
from prefixroute.routing.ledger import NONE_TRIED
from prefixroute.routing.loads import balanced
from prefixroute.routing.state import RouterState
from prefixroute.types import LoadReport, new_tuple
from prefixroute.validation import shown

ANSWER_SEED = 0x616E_7377_6572
"""Sets the draws on who decodes apart from those on who computes the prompt, which have the same decision id."""


class Query(NamedTuple):
    """A request to be decided.

    Attributes:
        prompt: as the caller gave it.
        info: what the caller said about it.
        now: time on the router's clock in seconds.
        limits: what the caller allows.
        tried: processes that have been tried.
        kind: of the prompt; ``None`` = the router's.
        part: what of the request the replica is to do: ``WHOLE``, ``PROMPT`` or ``ANSWER``.
        kv_at: slot of the replica that computes the prompt, where the answer is to be decided on.
        number: of the decision; ``None`` = the next one. Both halves of a pair have one number, so that policies that
            take turns do so over pairs.
    """

    prompt: Any
    info: RequestInfo
    now: float
    limits: DecisionLimits = NO_LIMITS
    tried: frozenset[Process] = NONE_TRIED
    kind: str | None = None
    part: int = WHOLE
    kv_at: int | None = None
    number: int | None = None


class SignalReading(NamedTuple):
    """What the signals of one view are read from, see :class:`~prefixroute.policies.view.SignalSource`.

    Attributes:
        state: the router's.
        now: time of the decision, in seconds.
    """

    state: RouterState
    now: float

    def reports(self) -> list[LoadReport | None]:
        """Return each replica's fresh report."""
        return self.state.reports(self.now)

    @property
    def belief(self) -> Belief:
        """The belief."""
        return self.state.belief


def decide(state: RouterState, query: Query) -> Decision:
    """Return where a request should go.

    Args:
        state: of the router, which is not changed.
        query: the request.

    Raises:
        NoReplicaError: no replica may take it.
        OverloadedError: all that may are over their admission caps.
        TokensError: the prompt is not of the router's kind, or holds something that is no token id.
    """
    decision = Decision(query)
    while True:
        fleet = state.fleet.now
        try:
            _look(state, fleet, query, decision)
        except ConfigError:
            if state.fleet.now is fleet:
                raise
        else:
            if state.fleet.now is fleet:  # else a signal handler has changed the fleet meanwhile: look again
                break
    rule, slots, slot = decision.rule, decision.slots, -1
    if rule.kernel is not None:
        slot, reason = rule.kernel.decide(
            decision.sight, slots, decision.seed, decision.decision_id, decision.prompt_tokens, query.info,
            decision.fleet.roster, decision.signals,
        )  # fmt: skip
    if slot < 0:
        view, policy = decision.view, rule.policy
        answer = policy.decide(view)
        slot, reason = answer if is_answer(answer, slots) else resolve(answer, view, policy.name)
    decision.slot, decision.reason = slot, reason
    return decision


def _look(state: RouterState, fleet: Snapshot, query: Query, decision: Decision) -> None:
    """Note in a decision what the policy is to see."""
    prompt, info, now, limits, tried, kind, part, kv_at, number = query
    rule, prompts = state.rules[part], state.prompts
    allowed = slots = pool = fleet.pools[part]
    if not slots or fleet.limited or tried or limits is not NO_LIMITS:
        allowed = slots = state.fleet.candidates(info.namespace, limits, tried, part)
    if state.capped:
        slots = admitted(state, slots, now)
    if kind is not None:
        prompts = prompts.of(kind)
    scale = prompts.length.scale if prompts.estimates else 1.0
    decision.prompt = prompts.keep(prompt) if prompts.keeps else prompt
    namespace = info.namespace if info.namespace is None else fleet.cache_names.of(info.namespace)
    session = info.session or None if part != ANSWER else None
    load: int | Sequence[float] | None = state.booked_load
    if load is None or not fleet.even:
        load = state.fleet.scaled(balanced(state, now, pool), now, pool)
    blocks, sight = state.ledger.look(
        rule.lens, state.belief, prompts.prepare(prompt), namespace, state.width, session, now, load, kv_at, scale
    )
    tokens = blocks.token_count
    if scale != 1.0:
        tokens = round(tokens * scale)
    if tried or limits is not NO_LIMITS or slots is not allowed:
        bound, slots = _limited(state, query, sight.binding, allowed, slots)
        sight = sight.bound_to(bound)
    decision.signals = NOT_GATHERED
    if rule.readers:
        decision.signals = gathered(rule.readers, new_tuple(SignalReading, (state, now)))
    decision.rule, decision.fleet, decision.blocks, decision.sight = rule, fleet, blocks, sight
    decision.slots, decision.prompt_tokens = slots, tokens
    decision.decision_id = state.decision_id if number is None else number
    decision.seed = state.seed if part != ANSWER else state.seed ^ ANSWER_SEED


def _limited(
    state: RouterState, query: Query, bound: int | None, allowed: tuple[int, ...], slots: tuple[int, ...]
) -> tuple[int | None, tuple[int, ...]]:
    """Return the slot that a session stays bound to (-1 = it has to move, ``None`` = none), and the candidates.

    It moves if the request has tried its replica, or if that is over its caps.

    Raises:
        NoReplicaError: affinity is hard, and the bound replica is no candidate.
    """
    if bound is None:
        return None, slots
    member = state.fleet.by_slot[bound] if bound >= 0 else None
    if member is not None and (member, member.generation) in query.tried:
        bound = -1
    if is_candidate(bound, allowed) and not is_candidate(bound, slots):
        bound = -1
    if not query.limits.hard:
        return bound, slots
    if is_candidate(bound, slots):
        return bound, (bound,)
    raise NoReplicaError(f"session {shown(query.info.session)} is bound, and its replica may not take the request")
