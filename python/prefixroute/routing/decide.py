"""The decision as a function: it reads a state and a request, and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from prefixroute.columns import is_answer
from prefixroute.errors import ConfigError, NoReplicaError
from prefixroute.policies.base import resolve
from prefixroute.policies.view import NOT_GATHERED, RequestInfo, View, is_candidate
from prefixroute.routing.admission import admitted
from prefixroute.routing.decision import NO_LIMITS, Decision, Limits
from prefixroute.routing.fleet import ANSWER, WHOLE
from prefixroute.routing.ledger import NONE_TRIED
from prefixroute.types import new_tuple
from prefixroute.validation import shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefixroute.belief import Belief, Blocks
    from prefixroute.policies.view import Readers
    from prefixroute.routing.fleet import Process, Snapshot
    from prefixroute.routing.ledger import Ledger, LoadCounts
    from prefixroute.routing.state import RouterState
    from prefixroute.types import LoadReport, Namespace


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
        number: of the decision; ``None`` = the next one. Both halves of a pair have one number, so that policies that take turns
            do so over pairs.
    """

    prompt: Any
    info: RequestInfo
    now: float
    limits: Limits = NO_LIMITS
    tried: frozenset[Process] = NONE_TRIED
    kind: str | None = None
    part: int = WHOLE
    kv_at: int | None = None
    number: int | None = None


class Source(NamedTuple):
    """What the signals of one view are read from, see :class:`~prefixroute.policies.view.SignalSource`.

    Attributes:
        state: the router's.
        prompt_blocks: the prompt, hashed.
        shared: share of the last beginnings that branched where this prompt does.
        now: time of the decision, in seconds.
        kv_at: slot of the replica that computes the prompt, where the answer is decided on.
    """

    state: RouterState
    prompt_blocks: Blocks
    shared: float | None
    now: float
    kv_at: int | None

    @property
    def ledger(self) -> Ledger:
        """The ledger."""
        return self.state.ledger

    @property
    def counts(self) -> LoadCounts:
        """Under the load signal ``recent`` the recent window, so that all policies balance the same; else what is in flight."""
        return self.state.counts

    @property
    def recent(self) -> LoadCounts:
        """The recent window."""
        return self.state.recent

    def reports(self) -> list[LoadReport | None]:
        """Return each replica's fresh report."""
        return self.state.reports(self.now)

    @property
    def belief(self) -> Belief:
        """The belief."""
        return self.state.belief

    def head(self) -> int | None:
        """Return the hash of the prompt's head, of the length that the policy asks for."""
        blocks, state = self.prompt_blocks, self.state
        if not len(blocks):
            return None
        wanted = max(1, state.policy.head_length(blocks.token_count) // state.config.block_size)
        return blocks.hash_at(min(wanted, len(blocks)) - 1)

    def active_tokens(self) -> list[int]:
        """Return the tokens in the blocks of each replica's requests in flight."""
        active = self.state.active
        return [] if active is None else active.tokens()

    def active_hits(self) -> list[int]:
        """Return the leading prompt tokens whose blocks are among those."""
        active = self.state.active
        return [] if active is None else active.hits(self.prompt_blocks)


def decide(state: RouterState, query: Query) -> Decision:
    """Return where a request should go.

    Raises:
        NoReplicaError: no replica may take it.
        OverloadedError: all that may are over their admission caps.
        TokensError: the prompt is not of the router's kind, or holds something that is no token id.
    """
    decision = Decision()
    while True:
        fleet = state.fleet.now
        try:
            view = _look(state, fleet, query, decision)
        except ConfigError:
            if state.fleet.now is fleet:
                raise
        else:
            if state.fleet.now is fleet:  # else a signal handler has changed the fleet meanwhile: look again
                break
    policy, slots = state.rules[query.part].policy, view.slots
    choice = policy.decide(view)
    decision.slot, decision.reason = choice if is_answer(choice, slots) else resolve(choice, view, policy.name)
    decision.view, decision.rule = view, policy
    if len(slots) != len(view.hits):
        decision.best_hit_tokens = max(view.of_candidates(view.hits))
    decision.limits, decision.fleet_version = query.limits, fleet.version
    return decision


def _look(state: RouterState, fleet: Snapshot, query: Query, decision: Decision) -> View:
    """Return what the policy sees; note in the decision what the view does not have."""
    prompt, info, now, limits, tried, decision.prompt_kind, part, kv_at, number = query
    allowed = slots = pool = fleet.pools[part]
    if not slots or fleet.limited or tried or limits is not NO_LIMITS:
        allowed = slots = state.fleet.candidates(info.namespace, limits, tried, part)
    if state.capped:
        slots = admitted(state, slots, now)
    out = _match(state, prompt, info.namespace, decision)
    size, tokens, ledger = state.block_size, decision.blocks.token_count, state.ledger
    limit = (tokens - 1) // size * size if tokens else 0
    session = info.session or None if part != ANSWER else None
    seen = ledger.sight(out, decision.blocks, size, limit, session, now, state.balances_requests)
    hits, decision.best_hit_tokens, decision.branch, shared, binding, busy = seen
    state.scratch.append(out)
    if state.adjusts or ledger.distrusts or decision.prompt_kind is not None:
        hits, tokens = _adjusted(state, decision, hits, limit)
    decision.detour = False
    if binding is not None:
        if tried or limits is not NO_LIMITS or slots is not allowed:
            binding, slots = _limited(state, query, binding, allowed, slots)
        decision.detour = binding >= 0 and not is_candidate(binding, slots)
    loads = state.load(state, now, pool) if busy is None else busy
    if not fleet.even:
        loads = state.fleet.scaled(loads, now, pool)
    signals, rule = NOT_GATHERED, state.rules[part]
    readers = rule.readers if shared is None else rule.branch_readers
    if readers:
        signals = _gathered(readers, new_tuple(Source, (state, decision.blocks, shared, now, kv_at)))
    names, seed = fleet.names, state.seed if part != ANSWER else state.seed ^ ANSWER_SEED
    if number is None:
        number = state.decision_id
    own = (slots, names, fleet.hashes, fleet.weights, number, seed, tokens, hits, loads, binding, info)
    return new_tuple(View, own + signals)  # type: ignore[no-any-return]


def _gathered(readers: Readers, source: Source) -> tuple[Any, ...]:
    """Return the signals of a view in the order of their fields: those that the policy names, and ``None`` for the others."""
    signals: list[Any] = list(NOT_GATHERED)
    for place, read in readers:
        signals[place] = read(source)
    return tuple(signals)


def _match(state: RouterState, prompt: Any, namespace: Namespace | None, decision: Decision) -> NDArray[np.uint32]:
    """Hash a prompt and match it; return the tokens that each slot holds, in an array that is to be given back."""
    scratch, width, prompts = state.scratch, state.width, state.prompts
    if decision.prompt_kind is not None:
        prompts = prompts.of(decision.prompt_kind)
    decision.prompt = prompts.keep(prompt) if prompts.keeps else prompt
    out = scratch.pop() if scratch else np.zeros(width, np.uint32)
    if len(out) != width:
        out = np.zeros(width, np.uint32)
    decision.blocks = state.belief.hash_and_match(prompts.prepare(prompt), out, namespace)
    return out


def _adjusted(state: RouterState, decision: Decision, hits: list[int], limit: int) -> tuple[list[int], int]:
    """Return hits and length with what tiers are worth, without distrusted replicas, in the engine's tokens."""
    length = decision.blocks.token_count
    if state.credits is not None:
        credited = state.belief.match_media(decision.blocks) @ np.asarray(state.credits)
        hits = np.minimum(credited, limit).astype(np.int64).tolist()
    scale = state.prompts.of(decision.prompt_kind).scale
    if state.ledger.distrusts:
        distrusted = state.ledger.distrusted
        hits = [0 if slot in distrusted else hit for slot, hit in enumerate(hits)]
    if scale != 1.0:
        length, hits = round(length * scale), [int(hit * scale) for hit in hits]
    decision.best_hit_tokens = max(hits, default=0)
    return hits, length


def _limited(
    state: RouterState, query: Query, bound: int, allowed: tuple[int, ...], slots: tuple[int, ...]
) -> tuple[int, tuple[int, ...]]:
    """Return the slot that a session stays bound to, -1 if it has to move, and the candidates.

    It moves if the request has tried its replica, or if that is over its caps.

    Raises:
        NoReplicaError: affinity is hard, and the bound replica is no candidate.
    """
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
