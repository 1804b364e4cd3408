"""The Router: a lock, a state, and the keywords by which hosts call."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar, Unpack

from prefixroute.belief import Belief
from prefixroute.errors import ConfigError, PeerError
from prefixroute.hashing import BlockHashes, hash_blocks
from prefixroute.peers.transport import Transport
from prefixroute.peers.transports import RingPeers
from prefixroute.router.engine_calls import EngineCalls
from prefixroute.router.link import PeerLink
from prefixroute.router.options import RequestOptions, asked, check_key
from prefixroute.router.pairs import PairTicket
from prefixroute.router.request_calls import RequestCalls
from prefixroute.router.status_calls import StatusCalls
from prefixroute.router.tickets import Ticket
from prefixroute.routing import Decision, Query, RouterConfig, RouterOptions, RouterState, membership, pairs, steps
from prefixroute.routing.fleet import PROMPT, WHOLE
from prefixroute.routing.pairs import PairDecision
from prefixroute.routing.prompts import KINDS
from prefixroute.telemetry.records import Sink, to_record, write_record
from prefixroute.telemetry.volatile import VolatileSample
from prefixroute.types import Namespace
from prefixroute.validation import check_callable, check_choice, check_float, check_instance, shown

D = TypeVar("D", Decision, PairDecision)
_LOG = logging.getLogger("prefixroute")


class Router(EngineCalls, RequestCalls, StatusCalls):
    """Picks the replica for each request, and keeps the load, the belief and the bindings that picking well needs.

    :meth:`choose` decides and changes nothing; :meth:`commit` books a decision; :meth:`route` does both at once.
    Thread-safe (one lock, never held across a wait, and no thread of its own); usable from asyncio, since no call
    blocks, and from signal handlers and finalizers, which may run inside of another call. An exception that a signal
    raises in the middle of a call leaves nothing wrong behind.

    Args:
        replicas: names, or a mapping of names to :class:`~prefixroute.types.Replica`. May be empty.
        index: the belief; by default a new :class:`~prefixroute.index.PrefixIndex`.
        record: a text file that gets one JSON object per decision, or a function of that object.
        timer: measures what a decision takes, for metrics only; ``None`` = not measured.
        on_expired: hears of each request that is given up after ``Timing.ticket_s`` without progress, by its ended
            ticket: a host whose hooks miss an end learns of it here. Called from the call that notices it, so it must
            not block.
        peers: other routers of the fleet, which then route as one: a name that the processes of this host have in
            common, or a :class:`~prefixroute.peers.transport.Transport`. ``None`` = this router knows only its own
            requests.
        peer_secret: 16 to 64 bytes that only the routers of the fleet know: what was sealed without them is refused.
            ``None`` = whoever can write where they talk, and knows or finds out ``hash_key``, can mislead them.
        volatile_sample: share of conversations, 0 to 1, whose prompts are compared with earlier ones when their
            requests have
            ended: lost hits are then told apart into *first sight* and *volatile*, by a text in the head that changes.
            See :class:`~prefixroute.telemetry.VolatileSample`. 0 = none, and nothing is told of it.
        options: the fields of :class:`~prefixroute.router.RouterConfig`, which has their defaults: ``policy``,
            ``block_size``, ``capacity_tokens``, ``prompt_kind``, ``seed``, ``load``, ``caps``, ``timing`` and others.

    Raises:
        ConfigError: an option does not exist, is outside of what is allowed, or does not fit another.
        PeerError: the routers of this host that have the name ``peers`` differ in block size, hash key, secret or
            version.
    """

    def __init__(
        self,
        replicas: membership.Replicas = (),
        *,
        index: Belief | None = None,
        record: Sink | None = None,
        timer: Callable[[], float] | None = time.perf_counter,
        on_expired: Callable[[Ticket | PairTicket], object] | None = None,
        peers: str | Transport | None = None,
        peer_secret: str | bytes | None = None,
        volatile_sample: float = 0.0,
        **options: Unpack[RouterOptions],
    ) -> None:
        if timer is not None:
            check_callable("timer", timer)
        if record is not None and not callable(record) and not hasattr(record, "write"):
            raise ConfigError(f"record must be a function or a text file, got {shown(record)}")
        check_float("volatile_sample", volatile_sample, 0, 1)
        transport = _transport(peers)
        if isinstance(transport, RingPeers) and index is None and options.get("hash_key") is None:
            options["hash_key"] = transport.shared_key()
        try:
            state = RouterState(RouterConfig.of(options, Router.__init__.__kwdefaults__ or ()), index)
            self._guard(state, record, timer, VolatileSample(volatile_sample, state) if volatile_sample else None)
            if on_expired is not None:
                check_callable("on_expired", on_expired)
                guarded = self._guarded
                self._state.on_expired = lambda attempt: on_expired(guarded.ticket(attempt))
            for name, replica in membership.named(replicas).items():
                membership.add(self._state, name, replica, None)
            if transport is not None:
                self._peers = PeerLink(self._guarded, transport, self._change, secret=peer_secret)
        except (ConfigError, PeerError):
            if transport is not None:
                transport.close()
            raise
        self._looks_around = transport is None and self._state.config.clock is time.monotonic
        self._look_around()

    # -- deciding ------------------------------------------------------------------------------------------------

    def choose(self, prompt: Any, *, now: float | None = None, **options: Unpack[RequestOptions]) -> Decision:
        """Decide where a request should go. Changes no belief, load or binding; only the decision id advances.

        Args:
            prompt: token ids, text or messages (by ``prompt_kind``), or ``BlockHashes``.
            now: time on the router's clock, in seconds.
            options: what else is known of the request, see :class:`~prefixroute.router.options.RequestOptions`:
                ``session``, ``key``, ``namespace``, ``candidates``, ``exclude``, ``unknown_candidates``,
                ``prompt_kind``, ``affinity``, ``priority``, ``slo_ttft_s``, ``max_tokens``, ``attrs``.

        Returns:
            The replica with its reason, the candidates from best to worst, and the hit tokens.

        Raises:
            NoReplicaError: no replica may take it.
            OverloadedError: all that may are over their admission caps.
            TokensError: the prompt is not what ``prompt_kind`` says, or holds something that is no token id.
            ConfigError: a keyword has a value that is not allowed.
        """
        query = asked(prompt, self._time(now), WHOLE, **options)
        with self._lock:
            return self._decide(steps.choose, query)

    def commit(
        self, decision: Decision, replica: str | None = None, *, key: str | None = None, now: float | None = None
    ) -> Ticket:
        """Book a decision: its load, its predicted blocks, its session's binding.

        What is booked under a key replaces what is in flight under it: a host may decide again as often as it likes.

        Args:
            decision: from :meth:`choose`.
            replica: the replica that the host really took, if not the first of ``decision.ranked``.
            key: the caller's name for the request, if it was not known in :meth:`choose`, or is another by now.
            now: time on the router's clock, in seconds.

        Returns:
            The handle of the request, by which the host tells how it goes.

        Raises:
            UnknownReplicaError: the replica has left the fleet.
        """
        check_instance("decision", decision, Decision)
        if key is not None:
            check_key(key)
        now = self._time(now)
        with self._lock:
            return self._guarded.commit(decision.keyed(key), replica, now)

    def route(self, prompt: Any, *, now: float | None = None, **options: Unpack[RequestOptions]) -> Ticket:
        """Choose and commit in one step, which no other request can come between.

        Args:
            prompt: as for :meth:`choose`.
            now: time on the router's clock, in seconds.
            options: as for :meth:`choose`.

        Returns:
            The handle of the request, by which the host tells how it goes.

        Raises:
            NoReplicaError: no replica may take it.
            OverloadedError: all that may are over their admission caps.
            TokensError: the prompt is not what ``prompt_kind`` says, or holds something that is no token id.
            ConfigError: a keyword has a value that is not allowed.
        """
        query = asked(prompt, self._time(now), WHOLE, **options)
        with self._lock:
            return self._guarded.commit(self._decide(steps.choose, query), None, query.now)

    def choose_pair(self, prompt: Any, *, now: float | None = None, **options: Unpack[RequestOptions]) -> PairDecision:
        """Decide which replica should compute a prompt, and which should decode behind it.

        Changes nothing, as :meth:`choose`.

        The router's ``policy`` picks among the replicas that compute prompts, its ``decode_policy`` among those that
        decode. A replica of role ``mixed`` is among both, and may be both.

        Args:
            prompt: as for :meth:`choose`.
            now: time on the router's clock, in seconds.
            options: as for :meth:`choose`; ``candidates`` and ``exclude`` are about both. A session is bound to the
                replica that computes its prompts.

        Returns:
            Both replicas with their reasons, and what moves between them.

        Raises:
            NoReplicaError: no replica may compute the prompt, or none may decode.
            OverloadedError: all that may are over their admission caps.
            TokensError: the prompt is not what ``prompt_kind`` says, or holds something that is no token id.
            ConfigError: a keyword has a value that is not allowed.
        """
        query = asked(prompt, self._time(now), PROMPT, **options)
        with self._lock:
            return self._decide(pairs.choose, query)

    def commit_pair(
        self,
        decision: PairDecision,
        *,
        prefill: str | None = None,
        decode: str | None = None,
        key: str | None = None,
        now: float | None = None,
    ) -> PairTicket:
        """Book a pair: the load of each half, predicted blocks at both replicas, the session's binding.

        Args:
            decision: from :meth:`choose_pair`.
            prefill: the replica that the host really took to compute the prompt, if not the decided one.
            decode: the replica that the host really took to decode, if not the decided one.
            key: the caller's name for the request, if it was not known in :meth:`choose_pair`, or is another by now.
            now: time on the router's clock, in seconds.

        Returns:
            The handle of the request, by which the host tells how it goes.

        Raises:
            UnknownReplicaError: a replica has left the fleet.
        """
        check_instance("decision", decision, PairDecision)
        if key is not None:
            check_key(key)
        now = self._time(now)
        with self._lock:
            return self._guarded.commit_pair(pairs.draft(self._state, decision.keyed(key), now, prefill, decode), now)

    def route_pair(self, prompt: Any, *, now: float | None = None, **options: Unpack[RequestOptions]) -> PairTicket:
        """Choose a pair of replicas and commit it in one step, for engines that prefill and decode apart.

        Args:
            prompt: as for :meth:`choose`.
            now: time on the router's clock, in seconds.
            options: as for :meth:`choose_pair`.

        Returns:
            The handle of the request, by which the host tells how it goes.

        Raises:
            NoReplicaError: no replica may compute the prompt, or none may decode.
            OverloadedError: all that may are over their admission caps.
            TokensError: the prompt is not what ``prompt_kind`` says, or holds something that is no token id.
            ConfigError: a keyword has a value that is not allowed.
        """
        query = asked(prompt, self._time(now), PROMPT, **options)
        with self._lock:
            return self._guarded.commit_pair(
                pairs.draft(self._state, self._decide(pairs.choose, query), query.now), query.now
            )

    def _decide(self, choose: Callable[[RouterState, Query], D], query: Query) -> D:
        """Return a decision; note the time that it took, and record it."""
        timer, state = self._timer, self._state
        begun = 0.0 if timer is None else timer()
        decided = choose(state, query)
        if timer is not None:
            state.ledger.time(timer() - begun)
        if self._record is not None or _LOG.isEnabledFor(logging.DEBUG):
            policies = state.config.policy_name, state.config.decode_policy_name
            decisions = (decided,) if isinstance(decided, Decision) else decided
            for decision, policy in zip(decisions, policies, strict=False):
                record = to_record(decision, policy, query.now)
                _LOG.debug("decision %s", record)
                if self._record is not None:
                    write_record(self._record, record)
        return decided

    async def hash(
        self, prompt: Any, *, namespace: Namespace | None = None, prompt_kind: str | None = None
    ) -> BlockHashes:
        """Hash a prompt off the event loop, e.g. when tokenizing takes milliseconds; :meth:`route` takes the result.

        Args:
            prompt: as for :meth:`choose`.
            namespace: what else must be equal for blocks to be shared.
            prompt_kind: the prompt's kind, if it is another than the router's.

        Returns:
            The hashes of the prompt's full blocks.

        Raises:
            TokensError: the prompt is not what its kind says, or holds something that is no token id.
        """
        if prompt_kind is not None:
            check_choice("prompt_kind", prompt_kind, KINDS)
        prepare, size = self._state.prompts.of(prompt_kind).prepare, self._state.config.block_size
        hash_key, namespace = self.hash_key, self.cache_names.of(namespace)
        return await asyncio.to_thread(lambda: hash_blocks(prepare(prompt), size, namespace, hash_key))

    # -- other routers -------------------------------------------------------------------------------------------

    def peer_feed(
        self,
        send: Callable[[bytes], object],
        *,
        ident: int | None = None,
        first_sequence: int | None = None,
        secret: str | bytes | None = None,
    ) -> PeerLink:
        """Tell other routers of every step of this one's requests, so that all of them route as one.

        What is told: bookings with the hashes of their blocks, first tokens, ends, bindings of sessions, and changes of
        the fleet. Give what other routers send to :meth:`apply_peer`. Messages may be lost, doubled and reordered.

        Args:
            send: takes each message as a frame, of some 30 to 300 bytes. It is called within a decision and with the
                lock held: it must only put the frame somewhere. What it raises is counted.
            ident: number of this router, that no other one has; ``None`` = random.
            first_sequence: number of the first message, above all that a router of this ``ident`` has sent before;
                ``None`` = microseconds since 1970, so that a router that starts again is heard.
            secret: as ``peer_secret`` of :class:`Router`.

        Returns:
            What ends it, and what must be told that time has passed while no request comes.

        Raises:
            ConfigError: the router has peers already.
        """
        with self._lock:
            if self._peers is not None and self._peers.is_open:
                raise ConfigError("the router has peers already: close() what peer_feed() returned")
            link = PeerLink(
                self._guarded, send, self._change, ident=ident, first_sequence=first_sequence, secret=secret
            )
            self._peers = link
            return link

    def close(self) -> None:
        """Leave the peers, if there are any: they give back at once what is in flight here. Routing goes on alone."""
        if self._peers is not None:
            self._peers.close()

    def apply_peer(self, data: bytes, *, now: float | None = None) -> bool:
        """Take in what another router has sent: its load, its blocks and its bindings. No counter of requests changes.

        Args:
            data: one message.
            now: time on the router's clock, in seconds.

        Returns:
            Whether it is news of another router; a message of this one, or one that has come before, changes nothing.

        Raises:
            PeerError: it is no message, a broken one, or of a router with another block size, hash key,
                secret or version; then nothing has changed.
            ConfigError: :meth:`peer_feed` was not called before.
        """
        if self._peers is None:
            raise ConfigError("the router has no peers: call peer_feed() first")
        return self._peers.apply(data, now)

    def __repr__(self) -> str:
        """Show the policy and the fleet's size."""
        in_flight = len(self._state.ledger)
        return f"<Router policy={self._state.config.policy_name} replicas={len(self)} in_flight={in_flight}>"


def _transport(peers: str | Transport | None) -> Transport | None:
    """Return what carries the commit feed; a name is that of the processes of this host."""
    transport = RingPeers(peers) if isinstance(peers, str) else peers
    if transport is None or isinstance(transport, Transport):
        return transport
    raise ConfigError(f"peers must be a name, or a Transport with open, publish, status and close, got {shown(peers)}")
