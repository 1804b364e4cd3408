"""The Router: the only joint between prompts, belief, load, policy and the fleet."""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from prefixroute.errors import ConfigError, OverloadedError
from prefixroute.policies.base import Pick, Policy, settle
from prefixroute.policies.catalog import as_policy
from prefixroute.policies.view import Request, View
from prefixroute.router.book import LoadBook
from prefixroute.router.decision import Decision
from prefixroute.router.fleet import ACTIVE, DRAINING, SUSPENDED, Fleet
from prefixroute.router.ledger import Entry, Ledger
from prefixroute.router.loads import LOADS
from prefixroute.router.prompts import Prompts
from prefixroute.router.sessions import Bindings
from prefixroute.router.tickets import Ticket
from prefixroute.types import EMPTY_ATTRS, Caps, Namespace, Replica, Report, Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from prefixroute.policies.base import Answer
    from prefixroute.router.belief import Belief, Blocks
    from prefixroute.router.decision import Limits

_NEW_VIEW = tuple.__new__
SWEEP_S = 1.0
"""Seconds between two looks for expired tickets and idle sessions."""


class Router:
    """Picks the replica for each request, and keeps the load, the belief and the bindings that picking well needs.

    :meth:`choose` decides and changes nothing; :meth:`commit` books a decision; :meth:`route` does both at once.
    Thread-safe (one lock, never held while waiting for anything); usable from asyncio, since no call blocks.

    Args:
        replicas: names, or a mapping of names to :class:`~prefixroute.types.Replica`. May be empty.
        policy: a name, a preset's name, a :class:`~prefixroute.policies.Policy`, or a function of a view.
        block_size: tokens in a block, 1 to 1,024: the engines' own.
        capacity_tokens: KV-cache size of a replica in tokens; an int for all, or a mapping by name.
        prompt_kind: ``tokens``, ``text`` or ``messages``; a prompt of another kind raises ``TokensError``.
        seed: fixes every random draw.
        clock: returns seconds; used where ``now=`` is not given.
        load: name of the one load signal that every policy balances, see :data:`~prefixroute.router.LOADS`.
        recent_window: length of the window of the load signal ``recent``, in decisions of the whole fleet.
        index: the belief; by default a new :class:`~prefixroute.index.PrefixIndex`.
        caps: admission caps of every replica.
        timing: every span of time that the router keeps.
        session_capacity: sessions remembered at most; the longest unused goes first.
    """

    def __init__(
        self,
        replicas: Iterable[str] | Mapping[str, Replica | None] = (),
        *,
        policy: str | Policy | Callable[[View], Answer] = "cache-aware",
        block_size: int = 16,
        capacity_tokens: int | Mapping[str, int] = 300_000,
        prompt_kind: str = "tokens",
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        load: str = "in_flight",
        recent_window: int = 200,
        index: Belief | None = None,
        caps: Caps = Caps(),  # noqa: B008  # frozen
        timing: Timing = Timing(),  # noqa: B008  # frozen
        session_capacity: int = 1_000_000,
    ) -> None:
        if load not in LOADS:
            msg = f"load must be one of {', '.join(LOADS)}, got {load!r}"
            raise ConfigError(msg)
        self._policy = as_policy(policy)
        self._prompts = Prompts(prompt_kind)
        self._capacity = capacity_tokens
        self._index = _new_index(block_size) if index is None else index
        self._block_size = block_size
        self._seed, self._clock, self._caps, self._timing = seed, clock, caps, timing
        self._load_name, self._signal = load, LOADS[load]
        self._capped = caps != Caps(retry_after_s=caps.retry_after_s)
        self._lock = Lock()
        self._fleet = Fleet(timing.slow_start_s)
        self._book = LoadBook(recent_window, timing.report_fresh_s, timing.window_s)
        self._bindings = Bindings(timing.session_idle_s, session_capacity)
        self._ledger = Ledger(self._fleet, self._book, self._index, self._bindings, timing.ticket_s)
        self._out = np.zeros(0, np.uint32)
        self._turn = 0
        self._sweep_at = float("-inf")
        self._wants = self._policy.wants
        self._head = max(1, self._policy.head_tokens // block_size)
        wanted = replicas if hasattr(replicas, "items") else dict.fromkeys(_listed(replicas))
        for name, replica in wanted.items():
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
        exclude: Collection[str] | None = None,
        priority: int = 0,
        slo_ttft_s: float | None = None,
        max_tokens: int | None = None,
        attrs: Mapping[str, object] = EMPTY_ATTRS,
        now: float | None = None,
    ) -> Decision:
        """Decide where a request should go. Changes no belief, load or binding; only the turn advances.

        Args:
            prompt: token ids, text or messages (by ``prompt_kind``), or ``BlockHashes``.
            session: key of the conversation; ``None`` or ``""`` = none.
            key: the caller's name for the request, by which the ledger knows it after commit.
            namespace: what else must be equal for blocks to be shared.
            candidates: names of the only replicas that may take it.
            exclude: names of replicas that may not.
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
        request = Request(session, key, namespace, priority, slo_ttft_s, max_tokens, attrs)
        with self._lock:
            return self._choose(prompt, request, (candidates, exclude), self._clock() if now is None else now)

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
            return self._commit(decision, replica, self._clock() if now is None else now)

    def route(
        self,
        prompt: Any,
        *,
        session: str | None = None,
        key: str | None = None,
        namespace: Namespace | None = None,
        candidates: Iterable[str] | None = None,
        exclude: Collection[str] | None = None,
        priority: int = 0,
        slo_ttft_s: float | None = None,
        max_tokens: int | None = None,
        attrs: Mapping[str, object] = EMPTY_ATTRS,
        now: float | None = None,
    ) -> Ticket:
        """Choose and commit in one step, which no other request can come between. Arguments as for :meth:`choose`."""
        request = Request(session, key, namespace, priority, slo_ttft_s, max_tokens, attrs)
        with self._lock:
            now = self._clock() if now is None else now
            return self._commit(self._choose(prompt, request, (candidates, exclude), now), None, now)

    def _choose(
        self,
        prompt: Any,
        request: Request,
        limits: Limits,
        now: float,
        tried: frozenset[str] = frozenset(),
    ) -> Decision:
        if self._ledger.dropped or now >= self._sweep_at:
            self._settle(now)
        fleet, book, wants = self._fleet, self._book, self._wants
        slots = fleet.slots
        if not slots or fleet.limited or tried or limits[0] is not None or limits[1]:
            slots = fleet.offered(request.namespace, limits[0], limits[1], tried)
        blocks, hits, length = self._match(prompt, request.namespace)
        offered = slots
        if self._capped:
            slots = self._admitted(slots, now)
        binding, detour = None, False
        if request.session:
            binding = self._bound(request.session, offered, slots, tried, now)
            detour = binding is not None and binding >= 0 and binding not in slots
        loads = self._signal(book, now, fleet.slots)
        if not fleet.even:
            loads = fleet.scaled(loads, now)
        turn = self._turn
        self._turn = turn + 1
        fields = (
            slots,
            fleet.names,
            fleet.hashes,
            fleet.weights,
            turn,
            self._seed,
            length,
            hits,
            loads,
            binding,
            request,
        )
        if wants:
            fields += self._gather(wants, blocks, now)
        view: View = _NEW_VIEW(View, fields) if wants else _NEW_VIEW(View, fields + _UNASKED)
        choice = self._policy.decide(view)
        if type(choice) is Pick and choice[0] in slots:
            slot, reason = choice
        else:
            slot, reason = settle(choice, view, self._policy.name)
        return Decision(view, slot, reason, self._policy, (prompt, blocks, limits, fleet.version, detour))

    def _match(self, prompt: Any, namespace: Namespace | None) -> tuple[Blocks, list[int], int]:
        """Hash a prompt and match it: blocks, hit tokens by slot (the last token is always computed), length."""
        out = self._out
        blocks = self._index.hash_and_match(self._prompts.prepare(prompt), out, namespace)
        hits: list[int] = out.tolist()
        length = blocks.token_count
        limit = max(0, length - 1) // self._block_size * self._block_size
        if hits and max(hits) > limit:
            hits = [min(hit, limit) for hit in hits]
        return blocks, hits, length

    def _bound(
        self, session: str, offered: tuple[int, ...], slots: tuple[int, ...], tried: frozenset[str], now: float
    ) -> int | None:
        """Return the slot a session is bound to; -1 = it has to move; ``None`` = not bound."""
        bound = self._bindings.get(session, now)
        if bound is None:
            return None
        member = self._fleet.by_slot[bound.slot]
        if member is None or member.generation != bound.generation or member.state == DRAINING or member.name in tried:
            return -1
        return -1 if bound.slot in offered and bound.slot not in slots else bound.slot

    def _admitted(self, slots: tuple[int, ...], now: float) -> tuple[int, ...]:
        """Return the slots under every cap; raise :class:`OverloadedError` if none is."""
        caps, book = self._caps, self._book
        reports = book.fresh(now)
        admitted = tuple(slot for slot in slots if _under(caps, book.in_flight[slot], book.queued[slot], reports[slot]))
        if admitted:
            return admitted
        msg = f"all {len(slots)} replicas that may take the request are over their admission caps"
        raise OverloadedError(msg, caps.retry_after_s)

    def _gather(self, wants: frozenset[str], blocks: Blocks, now: float) -> tuple[Any, ...]:
        """Return the optional fields of a view, ``None`` where the policy does not look."""
        book = self._book
        head = None
        if "head" in wants and len(blocks):
            head = int(blocks.array[min(self._head, len(blocks)) - 1])
        return (
            book.in_flight[:] if "in_flight" in wants else None,
            book.queued[:] if "queued" in wants else None,
            book.decoding[:] if "decoding" in wants else None,
            book.recent[:] if "recent" in wants else None,
            book.fresh(now) if "reports" in wants else None,
            head,
            list(self._index.held_tokens()) if "held" in wants else None,
            book.last_miss[:] if "last_miss" in wants else None,
            book.window_s(now) if "window_s" in wants else None,
            book.rates[:] if "rates" in wants else None,
        )

    def _settle(self, now: float) -> None:
        """Refund what was dropped or has expired, forget idle sessions."""
        self._ledger.settle(now)
        self._bindings.sweep(now)
        self._sweep_at = now + SWEEP_S

    # -- the ledger ----------------------------------------------------------------------------------------------

    def _commit(self, decision: Decision, replica: str | None, now: float) -> Ticket:
        slot, name = decision.slot, decision.replica
        if replica is not None or decision._version != self._fleet.version:  # noqa: SLF001
            slot = self._fleet[name if replica is None else replica].slot
            name = self._fleet.names[slot] or ""
        entry = self._ledger.commit(decision, slot, name, now)
        self._ledger.bind(entry, now)
        return Ticket(self, entry)

    def first_token(self, key: str, *, now: float | None = None) -> None:
        """Note the first token of the request with this key, see :meth:`Ticket.first_token`."""
        with self._lock:
            entry = self._ledger.find(key, "first_token")
        if entry is not None:
            self._first_token(entry, now)

    def finish(
        self,
        key: str,
        *,
        output: Any = None,
        reported_hit_tokens: int | None = None,
        now: float | None = None,
    ) -> None:
        """End the request with this key normally, see :meth:`Ticket.finish`."""
        with self._lock:
            entry = self._ledger.find(key, "finish")
        if entry is not None:
            self._finish(entry, output, reported_hit_tokens, now)

    def abort(self, key: str, *, now: float | None = None) -> None:
        """Give the request with this key up, see :meth:`Ticket.abort`."""
        with self._lock:
            entry = self._ledger.find(key, "abort")
        if entry is not None:
            self._abort(entry, now)

    def _first_token(self, entry: Entry, now: float | None) -> None:
        with self._lock:
            self._ledger.first_token(entry, self._clock() if now is None else now)

    def _finish(self, entry: Entry, output: Any, reported: int | None, now: float | None) -> None:
        context = None if output is None else self._prompts.context(entry.decision._prompt, output)  # noqa: SLF001
        with self._lock:
            self._ledger.finish(entry, context, self._clock() if now is None else now)

    def _abort(self, entry: Entry, now: float | None) -> None:  # noqa: ARG002
        with self._lock:
            self._ledger.abort(entry)

    def _retry(self, entry: Entry, now: float | None) -> Ticket:
        with self._lock:
            self._ledger.abort(entry, "retried")
            return self._again(entry, self._clock() if now is None else now)

    def _hedge(self, entry: Entry, now: float | None) -> Ticket:
        now = self._clock() if now is None else now
        with self._lock:
            second = self._again(entry, now)
            group = entry.group or [entry]
            group.append(second._entry)  # noqa: SLF001
            entry.group = second._entry.group = group  # noqa: SLF001
            return second

    def _again(self, entry: Entry, now: float) -> Ticket:
        """Book another attempt of a request, at a replica that it has not tried."""
        earlier = entry.decision
        tried = entry.tried | {entry.name}
        prompt = earlier._blocks  # noqa: SLF001
        decision = self._choose(prompt, earlier.view.request, earlier._limits, now, tried)  # noqa: SLF001
        decision._prompt = earlier._prompt  # noqa: SLF001
        ticket = self._commit(decision, None, now)
        ticket._entry.tried = tried  # noqa: SLF001
        return ticket

    # -- the fleet -----------------------------------------------------------------------------------------------

    @property
    def replicas(self) -> tuple[str, ...]:
        """Names of the replicas, in the order of their slots."""
        return tuple(name for name in self._fleet.names if name is not None)

    @property
    def policy(self) -> Policy:
        """The policy that decides."""
        return self._policy

    @property
    def index(self) -> Belief:
        """The belief; an engine's KV events are applied to it directly."""
        return self._index

    def __len__(self) -> int:
        """Return the number of replicas."""
        return len(self._fleet.members)

    def replica(self, name: str) -> Replica:
        """Return what is known about a replica."""
        return self._fleet[name].replica

    def add_replica(self, name: str, replica: Replica | None = None, *, now: float | None = None) -> None:
        """Add an empty replica; it starts slowly if there are others. Raise ``ConfigError`` if the name is taken."""
        with self._lock:
            if name in self._fleet.members:
                msg = f"replica {name!r} exists already; sync() reconciles, remove_replica() forgets"
                raise ConfigError(msg)
            self._add(name, replica or Replica(), self._clock() if now is None else now)

    def remove_replica(self, name: str) -> None:
        """Forget a replica, what it held and its load. Its sessions move when they next come."""
        with self._lock:
            self._remove(name)

    def drain(self, name: str, *, now: float | None = None) -> None:
        """Send nothing new to a replica that is going to leave; its sessions move. Requests in flight go on."""
        self._set_state(name, DRAINING, now)

    def suspend(self, name: str, *, now: float | None = None) -> None:
        """Send nothing to a replica for a while (a failed health check); load, belief and bindings stay."""
        self._set_state(name, SUSPENDED, now)

    def resume(self, name: str, *, now: float | None = None) -> None:
        """Let a drained or suspended replica take requests again; it starts slowly."""
        self._set_state(name, ACTIVE, now)

    def clear(self, name: str | None = None) -> None:
        """Believe that a replica (or every one) holds nothing: its cache was reset or its weights have changed."""
        with self._lock:
            if name is not None:
                name = self._fleet[name].name
            self._index.clear(name)

    def sync(self, replicas: Mapping[str, Replica | None] | Iterable[str], *, now: float | None = None) -> None:
        """Make the fleet equal to ``replicas``: add, remove, change. Doing it twice changes nothing more.

        A replica whose ``incarnation`` has changed came back empty: belief, load and slow start begin anew.
        """
        wanted = replicas if hasattr(replicas, "items") else dict.fromkeys(_listed(replicas))
        with self._lock:
            now = self._clock() if now is None else now
            for name in [name for name in self._fleet.members if name not in wanted]:
                self._remove(name)
            for name, replica in wanted.items():
                if name in self._fleet.members:
                    self._change(name, replica, now)
                else:
                    self._add(name, replica or Replica(), now)

    def update_load(self, name: str, *, at: float | None = None, **loads: float | None) -> bool:
        """Keep a replica's own report of its load (fields of :class:`~prefixroute.types.Report`).

        Args:
            name: the replica.
            at: time of the report on the router's clock; an older one than known is ignored.
            loads: ``waiting``, ``running``, ``waiting_tokens``, ``kv_use``, ``tokens_per_s``.

        Returns:
            Whether the report was kept.
        """
        try:
            report = Report(self._clock() if at is None else at, **loads)  # type: ignore[arg-type]
        except TypeError as error:
            msg = f"update_load takes waiting, running, waiting_tokens, kv_use, tokens_per_s; got {', '.join(loads)}"
            raise ConfigError(msg) from error
        with self._lock:
            return self._book.report(self._fleet[name].slot, report)

    def load(self, *, now: float | None = None) -> dict[str, float]:
        """Return the load signal by replica, as policies see it."""
        with self._lock:
            now = self._clock() if now is None else now
            self._settle(now)
            loads = self._fleet.scaled(self._signal(self._book, now, self._fleet.slots), now)
            return {name: loads[member.slot] for name, member in self._fleet.members.items()}

    def _add(self, name: str, replica: Replica, now: float | None) -> None:
        if not isinstance(name, str) or not name:
            msg = f"a replica name must be a non-empty string, got {name!r}"
            raise ConfigError(msg)
        slot = self._index.add_replica(name, self._capacity_of(name, replica))
        self._book.reset(slot)
        self._fleet.add(name, slot, replica, now)
        if slot >= len(self._out):
            self._out = np.zeros(slot + 1, np.uint32)

    def _remove(self, name: str) -> None:
        member = self._fleet.remove(name)
        self._index.remove_replica(name)
        self._book.reset(member.slot)

    def _change(self, name: str, replica: Replica | None, now: float) -> None:
        member = self._fleet[name]
        if replica is None or replica == member.replica:
            return
        if self._capacity_of(name, replica) != self._capacity_of(name, member.replica):
            self._index.set_capacity(name, self._capacity_of(name, replica))
        renewed = replica.incarnation != member.replica.incarnation
        member.replica = replica
        if renewed:
            self._index.clear(name)
            self._book.reset(member.slot)
            self._fleet.renew(member, now)
        else:
            self._fleet.refresh()

    def _set_state(self, name: str, state: str, now: float | None) -> None:
        with self._lock:
            self._fleet.set_state(name, state, self._clock() if now is None else now)

    def _capacity_of(self, name: str, replica: Replica) -> int:
        if replica.capacity_tokens is not None:
            return replica.capacity_tokens
        if isinstance(self._capacity, int):
            return self._capacity
        capacity = self._capacity.get(name)
        if capacity is None:
            msg = f"capacity_tokens names no capacity for replica {name!r}"
            raise ConfigError(msg)
        return capacity

    def stats(self) -> dict[str, Any]:
        """Return counters: requests by outcome, sessions and their moves, and each replica's state and load."""
        with self._lock:
            self._settle(self._clock())
            book, fleet = self._book, self._fleet
            replicas = {
                name: {
                    "state": member.state,
                    "in_flight": book.in_flight[member.slot],
                    "uncached_tokens": book.queued[member.slot],
                    "decode_tokens": book.decoding[member.slot],
                }
                for name, member in fleet.members.items()
            }
            return {
                "policy": self._policy.name,
                "in_flight": len(self._ledger.entries),
                "counts": dict(self._ledger.counts),
                "sessions": len(self._bindings),
                "session_moves": dict(self._bindings.moves),
                "replicas": replicas,
            }

    def __repr__(self) -> str:
        """Show the policy and the fleet's size."""
        return f"<Router policy={self._policy.name} replicas={len(self)} in_flight={len(self._ledger.entries)}>"


_UNASKED = (None,) * 10


def _new_index(block_size: int) -> Belief:
    from prefixroute.index import PrefixIndex  # noqa: PLC0415

    return PrefixIndex(block_size=block_size)


def _listed(replicas: Iterable[str]) -> Iterable[str]:
    if isinstance(replicas, str):
        msg = f"replicas must be a collection of names, got the string {replicas!r}"
        raise ConfigError(msg)
    return replicas


def _under(caps: Caps, in_flight: int, queued: int, report: Report | None) -> bool:
    """Return whether a replica is under every cap; what is not known does not count against it."""
    if caps.in_flight is not None and in_flight >= caps.in_flight:
        return False
    if caps.uncached_tokens is not None and queued >= caps.uncached_tokens:
        return False
    if report is None:
        return True
    known = ((caps.waiting, report.waiting), (caps.running, report.running), (caps.kv_use, report.kv_use))
    return all(cap is None or value is None or value < cap for cap, value in known)
