"""The decision as a function: it reads a state and a request, and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from prefixroute.errors import ConfigError, NoReplicaError
from prefixroute.index import capped_hits
from prefixroute.policies.base import is_pick, resolve
from prefixroute.policies.view import NOT_GATHERED, RequestInfo, View, is_candidate
from prefixroute.routing.admission import admitted
from prefixroute.routing.decision import NO_LIMITS, Decision, Limits
from prefixroute.routing.fleet import ANSWER, WHOLE
from prefixroute.routing.ledger import NONE_TRIED
from prefixroute.types import new_tuple

if TYPE_CHECKING:
    from prefixroute.belief import Belief
    from prefixroute.policies.view import Readers
    from prefixroute.routing.fleet import Process, Snapshot
    from prefixroute.routing.ledger import Ledger, LoadCounts
    from prefixroute.routing.state import RouterState
    from prefixroute.types import LoadReport, Namespace


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
    """

    prompt: Any
    info: RequestInfo
    now: float
    limits: Limits = NO_LIMITS
    tried: frozenset[Process] = NONE_TRIED
    kind: str | None = None
    part: int = WHOLE
    kv_at: int | None = None


class Source:
    """What the signals of one view are read from, see :class:`~prefixroute.policies.view.SignalSource`."""

    __slots__ = ("branch", "kv_at", "now", "prompt_blocks", "state")

    def __init__(self, state: RouterState, decision: Decision, query: Query) -> None:
        """Read from a state, about the prompt of a decision that is being made."""
        self.state, self.prompt_blocks, self.branch = state, decision.blocks, decision.branch
        self.now, self.kv_at = query.now, query.kv_at

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

    def shared(self) -> float:
        """Return the share of the last beginnings that branched where this prompt does."""
        return 0.0 if self.branch is None else self.state.ledger.shared(self.branch)


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
    policy = state.rules[query.part].policy
    choice = policy.decide(view)
    if is_pick(choice) and is_candidate(choice[0], view.slots):
        decision.slot, decision.reason = choice
    else:
        decision.slot, decision.reason = resolve(choice, view, policy.name)
    decision.view, decision.rule = view, policy
    if len(view.slots) != len(view.hits):
        decision.best_hit_tokens = max(view.of_candidates(view.hits))
    decision.limits, decision.fleet_version = query.limits, fleet.version
    return decision


def _look(state: RouterState, fleet: Snapshot, query: Query, decision: Decision) -> View:
    """Return what the policy sees; note in the decision what the view does not have."""
    prompt, info, now, limits, tried, decision.prompt_kind, part, _ = query
    slots = pool = fleet.pools[part]
    if not slots or fleet.limited or tried or limits is not NO_LIMITS:
        slots = state.fleet.candidates(info.namespace, limits, tried, part)
    allowed = slots
    if state.capped:
        slots = admitted(state, slots, now)
    binding, decision.detour = None, False
    if info.session and part != ANSWER:
        binding = _bound(state, query, allowed, slots)
        if binding is not None:
            if limits.hard:
                slots = _only(binding, slots, info.session)
            decision.detour = binding >= 0 and not is_candidate(binding, slots)
    hits, tokens = _match(state, prompt, info.namespace, decision)
    loads = state.load(state, now, pool)
    if not fleet.even:
        loads = state.fleet.scaled(loads, now, pool)
    signals = NOT_GATHERED
    rule = state.rules[part]
    readers = rule.readers if decision.branch is None else rule.branch_readers
    if readers:
        signals = _gathered(readers, Source(state, decision, query))
    number, seed, names = state.decision_id, state.seed, fleet.names
    own = (slots, names, fleet.hashes, fleet.weights, number, seed, tokens, hits, loads, binding, info)
    return new_tuple(View, own + signals)  # type: ignore[no-any-return]


def _gathered(readers: Readers, source: Source) -> tuple[Any, ...]:
    """Return the signals of a view in the order of their fields: those that the policy names, and ``None`` for the others."""
    signals: list[Any] = list(NOT_GATHERED)
    for place, read in readers:
        signals[place] = read(source)
    return tuple(signals)


def _match(state: RouterState, prompt: Any, namespace: Namespace | None, decision: Decision) -> tuple[list[int], int]:
    """Hash a prompt and match it; return the leading tokens that count, by slot, and the prompt's length in tokens."""
    scratch, width, prompts = state.scratch, state.width, state.prompts
    if decision.prompt_kind is not None:
        prompts = prompts.of(decision.prompt_kind)
    decision.prompt = prompts.keep(prompt) if prompts.keeps else prompt
    out = scratch.pop() if scratch else np.zeros(width, np.uint32)
    if len(out) != width:
        out = np.zeros(width, np.uint32)
    decision.blocks = blocks = state.belief.hash_and_match(prompts.prepare(prompt), out, namespace)
    size, length = state.block_size, blocks.token_count
    limit = (length - 1) // size * size if length else 0
    hits, most = capped_hits(out, limit)
    scratch.append(out)
    decision.branch = blocks.hash_at(most // size - 1) if 0 < most < limit else None
    if state.adjusts or state.ledger.distrusts or prompts.estimates:
        hits, most, length = _adjusted(state, decision, hits, length, limit)
    decision.best_hit_tokens = most
    return hits, length


def _adjusted(
    state: RouterState, decision: Decision, hits: list[int], length: int, limit: int
) -> tuple[list[int], int, int]:
    """Return hits, largest hit and length with what tiers are worth, without distrusted replicas, in the engine's tokens."""
    if state.credits is not None:
        credited = state.belief.match_media(decision.blocks) @ np.asarray(state.credits)
        hits = np.minimum(credited, limit).astype(np.int64).tolist()
    scale = state.prompts.of(decision.prompt_kind).scale
    if state.ledger.distrusts:
        distrusted = state.ledger.distrusted
        hits = [0 if slot in distrusted else hit for slot, hit in enumerate(hits)]
    if scale != 1.0:
        length, hits = round(length * scale), [int(hit * scale) for hit in hits]
    return hits, max(hits, default=0), length


def _only(binding: int, slots: tuple[int, ...], session: str) -> tuple[int, ...]:
    """Return the bound slot as the one candidate."""
    if binding in slots:
        return (binding,)
    raise NoReplicaError(f"session {session!r} is bound, and its replica may not take the request")


def _bound(state: RouterState, query: Query, allowed: tuple[int, ...], slots: tuple[int, ...]) -> int | None:
    """Return the slot that a session is bound to; -1 = it has to move; ``None`` = not bound."""
    session = query.info.session
    if not isinstance(session, str):
        raise ConfigError(f"a session key must be a string, got {session!r}")
    bound = state.ledger.bound(session, query.now)
    if bound is None or bound < 0:
        return bound
    member = state.fleet.by_slot[bound]
    if query.tried and member is not None and (member, member.generation) in query.tried:
        return -1
    if slots is not allowed and is_candidate(bound, allowed) and not is_candidate(bound, slots):
        return -1
    return bound
