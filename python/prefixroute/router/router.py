"""The Router: the only joint between prompts, belief, load, policy and the fleet."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from operator import index as index_of
from typing import TYPE_CHECKING, Any

import numpy as np

from prefixroute.belief import Belief
from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError, NoReplicaError
from prefixroute.hashing import BlockHashes, hash_blocks
from prefixroute.index import capped_hits
from prefixroute.policies import Policy, RequestInfo, View, as_policy
from prefixroute.policies.base import is_pick, resolve
from prefixroute.policies.scored import COST
from prefixroute.policies.view import is_candidate
from prefixroute.router import signals, status
from prefixroute.router.calibration import wrong_report
from prefixroute.router.decision import Decision, Limits, limits_of
from prefixroute.router.fleet import DRAINING, MEDIA
from prefixroute.router.ledger import NONE_TRIED, Attempt, Ledger
from prefixroute.router.membership import Capacity, Membership, named
from prefixroute.router.metrics import Counters
from prefixroute.router.prompts import Prompts
from prefixroute.router.record import Sink, to_record, write_record
from prefixroute.router.sessions import Bindings
from prefixroute.router.settings import apply_preset, check_options, check_request, credited, new_index
from prefixroute.router.shadow import Follow, Regret, Shadow, Shadows
from prefixroute.router.tickets import Ticket
from prefixroute.types import EMPTY_ATTRS, Caps, Namespace, Replica, Timing, new_tuple

if TYPE_CHECKING:
    from prefixroute.belief import Blocks
    from prefixroute.policies import Answer
    from prefixroute.router.fleet import Process

_LOG = logging.getLogger("prefixroute")
_UNASKED = (None,) * 10
SWEEP_S = 1.0
"""Seconds between two looks for expired tickets, idle sessions and blocks past their lifetime."""


class Router(Membership):
    """Picks the replica for each request, and keeps the load, the belief and the bindings that picking well needs.

    :meth:`choose` decides and changes nothing; :meth:`commit` books a decision; :meth:`route` does both at once.
    Thread-safe (one lock, never held across a wait, and no thread of its own); usable from asyncio, since no call blocks,
    and from signal handlers and finalizers, which may run inside of another call.

    Args:
        replicas: names, or a mapping of names to :class:`~prefixroute.types.Replica`. May be empty.
        policy: a name, a preset's name, a :class:`~prefixroute.policies.Policy`, or a function of a view. A preset
            replaces ``block_size`` and ``capacity_tokens`` by its own, and :attr:`notes` says so.
        block_size: tokens in a block, 1 to 65,536: the engines' own.
        capacity_tokens: KV-cache size of a replica in tokens; an int for all, or a mapping by name.
        prompt_kind: ``tokens``, ``text`` or ``messages``; a prompt of another kind raises ``TokensError``.
        seed: fixes every random draw.
        hash_seed: fixes where rendezvous hashing places a key, beside the replicas' names; 0 = by the names alone. Routers
            that should agree have the same. With few sessions the skew of a placement is luck: another one is a new draw.
        clock: returns seconds; used where ``now=`` is not given.
        load: name of the one load signal that every policy balances, see :data:`~prefixroute.router.LOADS`.
        recent_window: length of the window of the load signal ``recent``, in decisions of the whole fleet.
        index: the belief; by default a new :class:`~prefixroute.index.PrefixIndex`. One that is given has lifetimes of its own:
            ``ttl_s`` and ``timing.provisional_s`` are not applied to it.
        ttl_s: seconds after which a block that was not used again is no longer believed; ``None`` = never.
        max_bytes: memory of the index; ``None`` = unbounded.
        tier_credits: what a block counts that is held on GPU, in CPU memory or on disk, each 0 to 1 (Dynamo: 1, 0.75, 0.25);
            hit tokens are then credited tokens. Tiers are known from KV events.
        caps: admission caps of every replica.
        timing: every span of time that the router keeps.
        session_capacity: sessions remembered at most, at about 280 bytes each; the longest unused goes first.
        render: turns messages (or text) into the text that the engine tokenizes: a chat template.
        tokenizer: turns text into token ids; a function or a ``tokenizers.Tokenizer``.
        cost: prices prefill for the window of prefill seconds and for :meth:`regret`.
        record: a text file that gets one JSON object per decision, or a function of that object.
        timer: measures what a decision takes, for metrics only; ``None`` = not measured.
    """

    def __init__(
        self,
        replicas: Iterable[str] | Mapping[str, Replica | None] = (),
        *,
        policy: str | Policy | Callable[[View], Answer] = "cache-aware",
        block_size: int = 16,
        capacity_tokens: Capacity = 300_000,
        prompt_kind: str = "tokens",
        seed: int = 0,
        hash_seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        load: str = "in_flight",
        recent_window: int = 200,
        index: Belief | None = None,
        ttl_s: float | None = None,
        max_bytes: int | None = None,
        tier_credits: tuple[float, float, float] = (1.0, 1.0, 1.0),
        caps: Caps = Caps(),  # noqa: B008  # frozen
        timing: Timing = Timing(),  # noqa: B008  # frozen
        session_capacity: int = 1_000_000,
        render: Callable[[Any], str] | None = None,
        tokenizer: Any = None,
        cost: CostModel = COST,
        record: Sink | None = None,
        timer: Callable[[], float] | None = time.perf_counter,
    ) -> None:
        if index is not None:
            if not isinstance(index, Belief):
                raise ConfigError(f"index must be a PrefixIndex or a belief with all its methods, got {index!r}")
            block_size = index.block_size
        check_options(seed, hash_seed, clock, timer, record, caps, timing, cost)
        settings, self._notes = apply_preset(policy, block_size, capacity_tokens, ttl_s, given=index is not None)
        self._settings, self._block_size = settings, settings.block_size
        index = new_index(settings, max_bytes, timing.provisional_s) if index is None else index
        super().__init__(index, settings.capacity_tokens, load, recent_window, timing, clock, hash_seed)
        self._policy = as_policy(policy)
        self._policy_name = policy if isinstance(policy, str) else self._policy.name
        self._prompts = Prompts(prompt_kind, self._block_size, render, tokenizer)
        self._seed, self._caps, self._cost, self._record, self._timer = index_of(seed), caps, cost, record, timer
        self._credited = credited(index, tier_credits)
        self._capped = caps != Caps(retry_after_s=caps.retry_after_s)
        self._options: dict[str, Any] = {
            "block_size": block_size,
            "capacity_tokens": capacity_tokens,
            "max_bytes": max_bytes,
            "prompt_kind": prompt_kind,
            "seed": seed,
            "hash_seed": hash_seed,
            "clock": clock,
            "load": load,
            "recent_window": recent_window,
            "ttl_s": ttl_s,
            "tier_credits": tier_credits,
            "caps": caps,
            "timing": timing,
            "session_capacity": session_capacity,
            "render": render,
            "tokenizer": tokenizer,
            "cost": cost,
            "timer": None,
        }
        self._bindings = Bindings(timing.session_idle_s, session_capacity)
        self._counters, self._shadows = Counters(), Shadows()
        self._ledger = Ledger(self._fleet, self._book, index, self._bindings, timing)
        self._text = prompt_kind != "tokens" and tokenizer is None
        self._keeps = prompt_kind == "messages"
        self._decision_id = 0
        self._sweep_at = float("-inf")
        self._signals = self._policy.required_signals()
        self._book.counts_recent = load == "recent" or "recent" in self._signals
        for name, replica in named(replicas).items():
            self._add(name, replica or Replica(), None)

    # -- deciding ------------------------------------------------------------------------------------------------

    def choose(
        self,
        prompt: Any,
        *,
        session: str | None = None,
        key: str | None = None,
        namespace: Namespace | None = None,
        candidates: Iterable[str] | None = None,
        exclude: Iterable[str] | None = None,
        affinity: str = "soft",
        priority: int = 0,
        slo_ttft_s: float | None = None,
        max_tokens: int | None = None,
        attrs: Mapping[str, object] = EMPTY_ATTRS,
        now: float | None = None,
    ) -> Decision:
        """Decide where a request should go. Changes no belief, load or binding; only the decision id advances.

        Args:
            prompt: token ids, text or messages (by ``prompt_kind``), or ``BlockHashes``.
            session: key of the conversation; ``None`` or ``""`` = none.
            key: the caller's name for the request, by which the ledger knows it after commit.
            namespace: what else must be equal for blocks to be shared.
            candidates: names of the only replicas that may take it.
            exclude: names of replicas that may not.
            affinity: ``hard`` = a bound session goes to its replica or nowhere.
            priority: the request's rank, for policies that look at it.
            slo_ttft_s: wanted time to the first token, for policies that look at it.
            max_tokens: limit of the output, for policies that look at it.
            attrs: anything else for policies; ``document`` names the document of a question.
            now: time on the router's clock, in seconds.

        Raises:
            NoReplicaError: no replica may take it.
            OverloadedError: all that may are over their admission caps.
            TokensError: the prompt is not what ``prompt_kind`` says, or holds something that is no token id.
        """
        if slo_ttft_s is not None or attrs is not EMPTY_ATTRS:
            check_request(slo_ttft_s, attrs)
        request = new_tuple(RequestInfo, (session, key, namespace, priority, slo_ttft_s, max_tokens, attrs))
        limits = limits_of(candidates, exclude, affinity)
        with self._lock:
            return self._choose(prompt, request, limits, self._time(now))

    def commit(self, decision: Decision, replica: str | None = None, *, now: float | None = None) -> Ticket:
        """Book a decision: its load, its predicted blocks, its session's binding.

        Args:
            decision: from :meth:`choose`.
            replica: the replica that the host really took, if not the first of ``decision.ranked``.
            now: time on the router's clock.

        Raises:
            UnknownReplicaError: the replica has left the fleet.
        """
        with self._lock:
            return self._commit(decision, replica, self._time(now))

    def route(
        self,
        prompt: Any,
        *,
        session: str | None = None,
        key: str | None = None,
        namespace: Namespace | None = None,
        candidates: Iterable[str] | None = None,
        exclude: Iterable[str] | None = None,
        affinity: str = "soft",
        priority: int = 0,
        slo_ttft_s: float | None = None,
        max_tokens: int | None = None,
        attrs: Mapping[str, object] = EMPTY_ATTRS,
        now: float | None = None,
    ) -> Ticket:
        """Choose and commit in one step, which no other request can come between. Arguments as for :meth:`choose`."""
        if slo_ttft_s is not None or attrs is not EMPTY_ATTRS:
            check_request(slo_ttft_s, attrs)
        request = new_tuple(RequestInfo, (session, key, namespace, priority, slo_ttft_s, max_tokens, attrs))
        limits = limits_of(candidates, exclude, affinity)
        with self._lock:
            now = self._time(now)
            return self._commit(self._choose(prompt, request, limits, now), None, now)

    def _choose(
        self,
        prompt: Any,
        request: RequestInfo,
        limits: Limits,
        now: float,
        tried: frozenset[Process] = NONE_TRIED,
    ) -> Decision:
        timer = self._timer
        begun = 0.0 if timer is None else timer()
        if self._ledger.dropped or now >= self._sweep_at:
            self._sweep(now)
        fleet, policy = self._fleet, self._policy
        version = fleet.version
        slots, binding, detour = self._candidates(request, limits, tried, now)
        blocks, hits, length, best = self._match(prompt, request.namespace)
        loads = self._signal(self._book, now, fleet.slots)
        if not fleet.even:
            loads = fleet.scaled(loads, now)
        decision_id = self._decision_id
        self._decision_id = decision_id + 1
        gathered = self._gather(blocks, now) if self._signals else _UNASKED
        whose = (slots, fleet.names, fleet.hashes, fleet.weights)
        view: View = new_tuple(
            View, (*whose, decision_id, self._seed, length, hits, loads, binding, request, *gathered)
        )
        choice = policy.decide(view)
        if is_pick(choice) and is_candidate(choice[0], slots):
            slot, reason = choice
        else:
            slot, reason = resolve(choice, view, policy.name)
        if self._keeps:
            prompt = self._prompts.keep(prompt)
        if len(slots) != len(hits):
            best = max(view.of_candidates(hits))
        decision = Decision(view, slot, reason, policy, (best, prompt, blocks, limits, version, detour))
        if self._record is not None or _LOG.isEnabledFor(logging.DEBUG):
            self._write(decision, now)
        if timer is not None:
            self._counters.time(timer() - begun)
        return decision

    def _candidates(
        self, request: RequestInfo, limits: Limits, tried: frozenset[Process], now: float
    ) -> tuple[tuple[int, ...], int | None, bool]:
        """Return the candidate slots, the session's binding, and whether the request goes elsewhere while that stays."""
        fleet = self._fleet
        slots = fleet.slots
        if request.key is not None and not isinstance(request.key, str):
            raise ConfigError(f"a request's key must be a string, got {request.key!r}")
        if not slots or fleet.limited or tried or limits[0] is not None or limits[1]:
            slots = fleet.candidates(request.namespace, limits[0], limits[1], tried)
        allowed = slots
        if self._capped:
            slots = signals.admitted(self._caps, self._book, slots, now)
        if not request.session:
            return slots, None, False
        binding = self._bound(request.session, allowed, slots, tried, now)
        if limits[2] and binding is not None:
            slots = self._only(binding, slots, request.session)
        return slots, binding, binding is not None and binding >= 0 and not is_candidate(binding, slots)

    def _match(self, prompt: Any, namespace: Namespace | None) -> tuple[Blocks, list[int], int, int]:
        """Hash a prompt and match it: blocks, hit tokens by slot (the last is always computed), length, largest hit."""
        out, prompts = self._out, self._prompts
        blocks = self._index.hash_and_match(prompts.prepare(prompt), out, namespace)
        length = blocks.token_count
        limit = (length - 1) // self._block_size * self._block_size if length else 0
        hits, most = capped_hits(out, limit)
        if self._credited is not None and most:
            hits = np.minimum(self._credited(blocks), limit).astype(np.int64).tolist()
            most = max(hits)
        if self._calibration.distrusted:
            hits = [0 if slot in self._calibration.distrusted else hit for slot, hit in enumerate(hits)]
            most = max(hits, default=0)
        scale = prompts.scale
        if scale != 1.0:
            length, hits, most = round(length * scale), [int(hit * scale) for hit in hits], int(most * scale)
        return blocks, hits, length, most

    def _bound(
        self, session: str, allowed: tuple[int, ...], slots: tuple[int, ...], tried: frozenset[Process], now: float
    ) -> int | None:
        """Return the slot a session is bound to; -1 = it has to move; ``None`` = not bound."""
        if not isinstance(session, str):
            raise ConfigError(f"a session key must be a string, got {session!r}")
        bound = self._bindings.get(session, now)
        if bound is None:
            return None
        member = self._fleet.by_slot[bound.slot]
        if member is None or member.generation != bound.generation or member.state == DRAINING:
            return -1
        if (member, member.generation) in tried:
            return -1
        if slots is not allowed and is_candidate(bound.slot, allowed) and not is_candidate(bound.slot, slots):
            return -1
        return bound.slot

    @staticmethod
    def _only(binding: int, slots: tuple[int, ...], session: str) -> tuple[int, ...]:
        if binding in slots:
            return (binding,)
        raise NoReplicaError(f"session {session!r} is bound, and its replica may not take the request")

    def _gather(self, blocks: Blocks, now: float) -> tuple[Any, ...]:
        """Return the optional fields of a view, ``None`` where the policy does not look."""
        head = None
        if "head" in self._signals and len(blocks):
            wanted = max(1, self._policy.head_length(blocks.token_count) // self._block_size)
            head = int(blocks.array[min(wanted, len(blocks)) - 1])
        return signals.gather(self._signals, self._book, self._index, head, now, self._load_name)

    def _write(self, decision: Decision, now: float) -> None:
        record = to_record(decision, self._policy_name, now)
        _LOG.debug("decision %s", record)
        if self._record is not None:
            write_record(self._record, record)

    def _sweep(self, now: float) -> None:
        """Refund what was dropped or has expired, forget idle sessions and blocks that nothing confirmed."""
        self._ledger.sweep(now)
        if now >= self._sweep_at:
            self._bindings.sweep(now)
            self._index.expire(now)
            self._sweep_at = now + SWEEP_S

    async def hash(self, prompt: Any, *, namespace: Namespace | None = None) -> BlockHashes:
        """Hash a prompt off the event loop, e.g. when tokenizing takes milliseconds; :meth:`route` takes the result."""
        return await asyncio.to_thread(lambda: hash_blocks(self._prompts.prepare(prompt), self._block_size, namespace))

    # -- the ledger ----------------------------------------------------------------------------------------------

    def _commit(self, decision: Decision, replica: str | None, now: float, earlier: Attempt | None = None) -> Ticket:
        slot, name = decision.slot, decision.replica
        if replica is not None or decision._version != self._fleet.version:
            slot = self._fleet[name if replica is None else replica].slot
            name = self._fleet.names[slot] or ""
        attempt = self._ledger.commit(decision, slot, name, now, self._epoch)
        if earlier is None:
            self._ledger.claim(attempt)
            self._ledger.bind(attempt, now)
            self._count(decision.view, attempt)
            if self._shadows.all:
                attempt.followers = self._shadows.follow(decision, name, now)
        else:
            attempt.followers, attempt.tried = earlier.followers, earlier.tried | {earlier.process}
        self._counters.decisions[self._policy_name, decision.reason, name] += 1
        if "window_s" in self._signals:
            self._book.spend(slot, self._cost.prefill_seconds(attempt.queued, attempt.hit), now)
        return Ticket(self, attempt)

    def _count(self, view: View, attempt: Attempt) -> None:
        """Count the tokens of a request, once, whatever attempts it takes."""
        counters = self._counters
        counters.prompt_tokens += view.prompt_tokens
        if attempt.member.tiered:
            for medium, tokens in self._by_medium(attempt):
                counters.hit_tokens[attempt.name, medium] += tokens
        else:
            counters.hit_tokens[attempt.name, MEDIA[0]] += attempt.hit
        counters.best_hit_tokens += attempt.decision.best_hit_tokens

    def _by_medium(self, attempt: Attempt) -> Iterable[tuple[str, int]]:
        """Split the hit tokens of a request over the media that hold them, fastest first."""
        prefix = attempt.decision._blocks.head(-(-attempt.hit // self._block_size))  # what follows was booked just now
        held: list[int] = self._index.match_media(prefix)[attempt.slot].tolist()
        left = attempt.hit
        for medium, tokens in zip(MEDIA, held, strict=True):
            yield medium, min(tokens, left)
            left -= min(tokens, left)

    def first_token(self, key: str, *, now: float | None = None) -> None:
        """Note the first token of the request with this key, see :meth:`Ticket.first_token`."""
        with self._lock:
            attempt = self._ledger.find(key, "first_token")
        if attempt is not None:
            self._first_token(attempt, now)

    def finish(
        self,
        key: str,
        *,
        output: Any = None,
        reported_hit_tokens: int | None = None,
        reported_prompt_tokens: int | None = None,
        now: float | None = None,
    ) -> None:
        """End the request with this key normally, see :meth:`Ticket.finish`."""
        with self._lock:
            attempt = self._ledger.find(key, "finish")
        if attempt is not None:
            self._finish(attempt, output, (reported_hit_tokens, reported_prompt_tokens), now)

    def abort(self, key: str, *, now: float | None = None) -> None:
        """Give the request with this key up, see :meth:`Ticket.abort`."""
        with self._lock:
            attempt = self._ledger.find(key, "abort")
        if attempt is not None:
            self._abort(attempt, now)

    def alias(self, session: str, alias: str, *, now: float | None = None) -> bool:
        """Bind another key to a session's replica, e.g. the response id that the next turn will name.

        Returns:
            Whether the session was bound.
        """
        now = self._time(now)
        with self._lock:
            bound = self._bindings.get(session, now)
            if bound is not None:
                self._bindings.bind(alias, bound.slot, bound.generation, now)
            return bound is not None

    def _alias(self, attempt: Attempt, session: str, now: float | None) -> None:
        now = self._time(now)
        with self._lock:
            if attempt.member.generation == attempt.generation:
                self._bindings.bind(session, attempt.slot, attempt.generation, now)

    def forget(self, session: str) -> bool:
        """Drop a session's binding; return whether there was one."""
        with self._lock:
            return self._bindings.forget(session)

    def _first_token(self, attempt: Attempt, now: float | None) -> None:
        now = self._time(now)
        with self._lock:
            self._ledger.first_token(attempt, now)

    def _finish(
        self, attempt: Attempt, output: Any, reported: tuple[int | None, int | None], now: float | None
    ) -> None:
        now = self._time(now)
        wrong = None
        if reported[0] is not None or reported[1] is not None:
            wrong = wrong_report(*reported)
            if wrong is not None:
                reported = (None, None)
        try:
            self._end(attempt, output, reported, now)
        except Exception:
            if attempt.open:  # the output cannot be hashed: not believed, but the request is over all the same
                self._end(attempt, None, reported, now)
            raise
        if wrong is not None:
            raise wrong

    def _end(self, attempt: Attempt, output: Any, reported: tuple[int | None, int | None], now: float) -> None:
        decision = attempt.decision
        context = None
        if output is not None and attempt.open:
            context = self._prompts.context(decision._prompt, output, decision._blocks.token_count)
        with self._lock:
            if not self._ledger.finish(attempt, context, now, self._epoch):
                return
            if attempt.member.generation == attempt.generation:
                self._calibration.learn(attempt.slot, attempt.name, attempt.hit, reported[0])
            if reported[1] is not None:
                self._prompts.calibrate(decision._blocks.token_count, reported[1])
            if attempt.followers:
                self._shadows.finish(attempt.followers, output, now)

    def _abort(self, attempt: Attempt, now: float | None) -> None:
        del now
        with self._lock:
            self._ledger.abort(attempt)

    def _retry(self, attempt: Attempt, now: float | None) -> Ticket:
        now = self._time(now)
        with self._lock:
            if attempt.open:
                self._ledger.abort(attempt, "retried")
            try:
                ticket = self._again(attempt, now)
            except Exception:
                self._ledger.give_up(attempt)
                raise
            if attempt.group is not None:
                self._ledger.pair(attempt, ticket._attempt)  # its hedge may still answer first
            self._ledger.claim(ticket._attempt)
            self._ledger.bind(ticket._attempt, now)
            return ticket

    def _hedge(self, attempt: Attempt, now: float | None) -> Ticket:
        now = self._time(now)
        with self._lock:
            ticket = self._again(attempt, now)
            self._ledger.pair(attempt, ticket._attempt)
            self._ledger.claim(ticket._attempt)
            return ticket

    def _again(self, attempt: Attempt, now: float) -> Ticket:
        """Book another attempt of a request, at a replica that it has not tried."""
        earlier = attempt.decision
        tried = attempt.tried | {attempt.process}
        decision = self._choose(earlier._blocks, earlier.view.request, earlier._limits, now, tried)
        decision._prompt = earlier._prompt
        return self._commit(decision, None, now, attempt)

    def _remove(self, name: str) -> None:
        super()._remove(name)
        self._counters.retire(name)

    # -- looking at it -------------------------------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        """The policy that decides."""
        return self._policy

    @property
    def notes(self) -> tuple[str, ...]:
        """What a preset changed of the arguments, in words."""
        return self._notes

    def load(self, *, now: float | None = None) -> dict[str, float]:
        """Return the load signal by replica, as policies see it."""
        now = self._time(now)
        with self._lock:
            self._sweep(now)
            loads = self._fleet.scaled(self._signal(self._book, now, self._fleet.slots), now)
            return {name: loads[member.slot] for name, member in self._fleet.members.items()}

    def stats(self) -> dict[str, Any]:
        """Return counters and gauges as plain data: requests, tokens, sessions, hits, each replica, the index."""
        now = self._time(None)
        with self._lock:
            self._sweep(now)
            return status.stats(self)

    def metrics_text(self) -> str:
        """Return the metrics in the text format of Prometheus, for the host to serve."""
        now = self._time(None)
        with self._lock:
            self._sweep(now)
            return status.metrics_text(self)

    def explain(self, request: str | Ticket | Decision) -> str:
        """Return why a request went where it did, in a paragraph.

        Args:
            request: its key (in flight, or among the last 256 keyed ones that ended), its ticket, or a decision.
        """
        with self._lock:
            return status.explain(self, request)

    def shadow(
        self, policy: str | Policy | Callable[[View], Answer], *, name: str | None = None, index: Belief | None = None
    ) -> Router:
        """Let another policy decide on the same traffic from now on, with its own index, load and bindings.

        It never sends anything, and costs one more routing per request. Returns its router, to be looked at only.
        """
        with self._lock:
            live = self._shadows.fresh_copy()
            if live is None:
                own = self._options | self._settings._asdict()
                live = Shadow(self._mirror(Router(policy=Follow(), **own)), self._cost, None)
            shadow = self._mirror(Router(policy=policy, index=index, **self._options))
            self._shadows.add(name or shadow._policy_name, Shadow(shadow, self._cost, live))
            return shadow

    def regret(self) -> dict[str, Regret]:
        """Return, for each shadow, what the live policy cost beyond it in tokens, seconds and dollars."""
        with self._lock:
            return self._shadows.regret()

    def _mirror(self, mirror: Router) -> Router:
        """Give another router this one's fleet, and every change of it from now on."""
        for name, member in self._fleet.members.items():
            mirror._add(name, member.replica, None)
            mirror._fleet.set_state(name, member.state, 0.0)
            mirror._fleet.members[name].started = member.started
        mirror._fleet.refresh()
        self._mirrors.append(mirror)
        return mirror

    def __repr__(self) -> str:
        """Show the policy and the fleet's size."""
        return f"<Router policy={self._policy_name} replicas={len(self)} in_flight={len(self._ledger.attempts)}>"
