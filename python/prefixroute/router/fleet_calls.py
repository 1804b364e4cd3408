"""What a router is told about its fleet: who is in it, what each replica holds, and how busy it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, overload

from prefixroute.errors import ConfigError
from prefixroute.live import FollowOptions, KvFeed, LoadPoller, MetricsSource, PollOptions, Subscriber
from prefixroute.peers.alone import warn_if_alone
from prefixroute.router.calls import Calls
from prefixroute.routing import RouterState, membership
from prefixroute.routing.fleet import ACTIVE, DRAINING, SUSPENDED
from prefixroute.types import Namespace, Replica
from prefixroute.validation import check_float, check_instance

if TYPE_CHECKING:
    from prefixroute.belief import Belief, Heard
    from prefixroute.routing.cache_names import CacheNames

T = TypeVar("T")


class FleetCalls(Calls):
    """The calls of :class:`~prefixroute.router.Router` about its fleet.

    Members, loads and KV events, given or followed.

    Deciding and booking are the router's own.
    """

    def _look_around(self) -> None:
        """Once there are replicas: warn of other processes that route to the same ones, if this router has no peers."""
        members = self._state.fleet.members
        if self._looks_around and members:
            self._looks_around = False
            addresses = [member.replica.address or name for name, member in members.items()]
            warn_if_alone(self._state.config.policy_name, addresses)

    def _change(self, change: Callable[[RouterState], T]) -> T:
        """Make a change of the fleet, in the state of the router and in every shadow's."""
        with self._lock:
            for state in (self._state, *self._shadows.states):
                if state.step is not None:
                    state.repair()
            result = change(self._state)
            self._shadows.apply(change)
            if self._peers is not None:
                self._peers.changed()
            elif self._looks_around:
                self._look_around()
            return result

    @property
    def replicas(self) -> tuple[str, ...]:
        """Names of the replicas, in the order of their slots."""
        return tuple(name for name in self._state.fleet.now.names if name is not None)

    @property
    def index(self) -> Belief:
        """The belief; an engine's KV events are applied to it directly."""
        return self._state.belief

    @property
    def cache_names(self) -> CacheNames:
        """What the name of a model means for cached blocks, in this fleet and now."""
        return self._state.fleet.now.cache_names

    def __len__(self) -> int:
        """Return the number of replicas."""
        return len(self._state.fleet.members)

    def __contains__(self, name: object) -> bool:
        """Return whether the fleet has a replica of that name."""
        return name in self._state.fleet.members

    def __bool__(self) -> bool:
        """Return true: a router without replicas is a router still."""
        return True

    def replica(self, name: str) -> Replica:
        """Return what is known about a replica.

        Args:
            name: the replica.

        Returns:
            As it was added, or changed since.

        Raises:
            UnknownReplicaError: no replica has that name.
        """
        return self._state.fleet[name].replica

    def add_replica(self, name: str, replica: Replica | None = None, *, now: float | None = None) -> None:
        """Add an empty replica; it starts slowly if there are others.

        Args:
            name: a name that no other replica has.
            replica: what is known of it.
            now: time on the router's clock, in seconds.

        Raises:
            ConfigError: the name is taken or not allowed.
        """
        now = self._time(now)
        self._change(lambda state: membership.add(state, name, replica, now))

    def remove_replica(self, name: str) -> None:
        """Forget a replica, what it held and its load. Its sessions move when they next come.

        Args:
            name: the replica.

        Raises:
            UnknownReplicaError: no replica has that name.
        """
        self._change(lambda state: membership.remove(state, name))
        self._unwatch([name])

    def drain(self, name: str, *, now: float | None = None) -> None:
        """Send nothing new to a replica that is going to leave; its sessions move. Requests in flight go on.

        Args:
            name: the replica.
            now: time on the router's clock, in seconds.

        Raises:
            UnknownReplicaError: no replica has that name.
        """
        now = self._time(now)
        self._change(lambda state: membership.set_state(state, name, DRAINING, now))

    def suspend(self, name: str, *, for_s: float | None = None, now: float | None = None) -> None:
        """Send nothing to a replica for a while (a failed health check); load, belief and bindings stay.

        Args:
            name: the replica.
            for_s: seconds after which it is resumed by itself; of several suspensions the one that ends last counts.
                ``None`` = until :meth:`resume`.
            now: time on the router's clock, in seconds.
        """
        now = self._time(now)
        if for_s is None:
            self._change(lambda state: membership.set_state(state, name, SUSPENDED, now))
            return
        check_float("for_s", for_s, 0, above=True)
        until = now + for_s
        self._change(lambda state: membership.suspend_until(state, name, until))

    def resume(self, name: str, *, now: float | None = None) -> None:
        """Let a drained or suspended replica take requests again; it starts slowly.

        Args:
            name: the replica.
            now: time on the router's clock, in seconds.

        Raises:
            UnknownReplicaError: no replica has that name.
        """
        now = self._time(now)
        self._change(lambda state: membership.set_state(state, name, ACTIVE, now))

    def clear(self, name: str | None = None) -> None:
        """Believe that a replica (or every one) holds nothing: its cache was reset.

        Args:
            name: the replica; ``None`` = every one.

        Raises:
            UnknownReplicaError: no replica has that name.
        """
        self._change(lambda state: membership.clear(state, name))
        if self._peers is not None:
            self._peers.cleared(name)

    def new_epoch(self) -> None:
        """Void all belief: the weights have changed. What is in flight now is not believed when it finishes either.

        Sessions stay bound; :meth:`forget_sessions` drops them.
        """
        self._change(membership.new_epoch)
        if self._peers is not None:
            self._peers.renewed()

    @overload
    def sync(self, replicas: membership.Replicas, *, now: float | None = None) -> None: ...

    @overload
    def sync(
        self,
        replicas: Iterable[T],
        *,
        name_of: Callable[[T], str],
        replica_of: Callable[[T], Replica | None] | None = None,
        now: float | None = None,
    ) -> None: ...

    def sync(
        self,
        replicas: Any,
        *,
        name_of: Callable[[Any], str] | None = None,
        replica_of: Callable[[Any], Replica | None] | None = None,
        now: float | None = None,
    ) -> None:
        """Make the fleet equal to ``replicas``: add, remove, change. Doing it twice changes nothing more.

        A replica whose ``incarnation`` has changed came back empty: belief, load and slow start begin anew. ``None``
        leaves what is known of a replica as it is.

        Args:
            replicas: names, or a mapping of names to what is known of each; or the host's own objects, with
                ``name_of``.
            name_of: returns the name of a host's object.
            replica_of: returns what is known of it.
            now: time on the router's clock, in seconds.

        Raises:
            ConfigError: a name or setting is not allowed; nothing has changed then.
        """
        if name_of is not None:
            replicas = membership.described(replicas, name_of, replica_of)
        elif replica_of is not None:
            raise ConfigError("replica_of needs name_of: only a host's own objects are described by it")
        now, wanted = self._time(now), membership.named(replicas)
        if self._peers is not None:
            wanted = self._peers.reconcile(wanted)
        before = self.replicas
        self._change(lambda state: membership.sync(state, wanted, now))
        self._unwatch([name for name in before if name not in wanted])

    def _unwatch(self, names: Iterable[str]) -> None:
        """Stop following replicas that have left: one that comes under the same name may be another."""
        for watch in self._watching:
            for name in names:
                watch.remove(name)

    def update_load(self, name: str, *, at: float | None = None, **loads: float | None) -> bool:
        """Keep a replica's own report of its load.

        Args:
            name: the replica.
            at: time of the report on the router's clock; a report older than the one known is ignored.
            loads: fields of :class:`~prefixroute.types.LoadReport`: ``waiting``, ``running`` (requests),
                ``waiting_tokens``, ``kv_use`` (0 to 1), ``tokens_per_s``.

        Returns:
            Whether the report was kept.
        """
        report = membership.load_report(self._time(at), loads)
        return self._change(lambda state: membership.report(state, name, report))

    def apply(self, name: str, payload: bytes, *, sequence: int | None = None) -> Heard:
        """Apply an engine's batch of KV events as it came over the wire, see :meth:`PrefixIndex.apply`.

        Args:
            name: the replica: one data-parallel rank.
            payload: the MessagePack bytes.
            sequence: the batch's number, if gaps and restarts should be noticed here.

        Returns:
            What the batch did.

        Raises:
            EventError: the bytes are no batch of events, or this router matches text.
            UnknownReplicaError: no replica has that name.
        """
        self._hear(name, {})
        applied = self._state.belief.apply(name, payload, sequence=sequence, now=self._time(None))
        if applied.tiered or applied.adapters:
            with self._lock:
                membership.heard(self._state, name, applied.adapters, tiered=applied.tiered)
        return applied

    def apply_stored(self, name: str, block_hashes: Any, **event: Any) -> Any:
        """Apply an engine's event that blocks were stored, see :meth:`PrefixIndex.apply_stored`.

        From the first event on the replica counts as event-fed: routed blocks are provisional there, and the model of a
        namespace is no part of its blocks, see :class:`~prefixroute.routing.cache_names.CacheNames`.

        Args:
            name: the replica.
            block_hashes: the engine's own, integers or bytes.
            event: the keywords of the index's method.

        Returns:
            What was stored, as the index says.

        Raises:
            EventError: this router matches text, which token-id events cannot describe.
        """
        self._hear(name, event)
        namespace = event.get("namespace")
        if isinstance(namespace, Namespace):
            if isinstance(namespace.lora, str) and namespace.lora:
                with self._lock:
                    membership.heard(self._state, name, [namespace.lora], tiered=False)
            event["namespace"] = replace(namespace, model="")
        return self._state.belief.apply_stored(name, block_hashes, **event)

    def apply_stored_hashes(self, name: str, block_hashes: Any, **event: Any) -> Any:
        """Apply the same from a replica that hashes as the index does, see :meth:`PrefixIndex.apply_stored_hashes`.

        Args:
            name: the replica.
            block_hashes: uint64 hashes, one after the other.
            event: the keywords of the index's method.

        Returns:
            What was stored, as the index says.

        Raises:
            EventError: this router matches text.
            UnknownReplicaError: no replica has that name.
        """
        self._hear(name, event)
        return self._state.belief.apply_stored_hashes(name, block_hashes, **event)

    def apply_removed(self, name: str, block_hashes: Any, **event: Any) -> Any:
        """Apply an engine's event that blocks were removed, see :meth:`PrefixIndex.apply_removed`.

        Args:
            name: the replica.
            block_hashes: the engine's own, integers or bytes.
            event: the keywords of the index's method.

        Returns:
            What was removed, as the index says.

        Raises:
            EventError: this router matches text.
            UnknownReplicaError: no replica has that name.
        """
        self._hear(name, event)
        return self._state.belief.apply_removed(name, block_hashes, **event)

    def apply_cleared(self, name: str) -> None:
        """Apply an engine's event that its cache was cleared, see :meth:`PrefixIndex.apply_cleared`.

        Args:
            name: the replica.

        Raises:
            UnknownReplicaError: no replica has that name.
        """
        self._hear(name, {})
        self._state.belief.apply_cleared(name)

    def _hear(self, name: str, event: Mapping[str, Any]) -> None:
        with self._lock:
            membership.hear(self._state, name, event)

    def follow(
        self,
        feeds: Mapping[str, KvFeed],
        *,
        options: FollowOptions = FollowOptions(),  # noqa: B008  # frozen
        start: bool = True,
    ) -> Subscriber:
        """Follow the KV events of engines, so that the belief is what they hold: needs ``prefixroute[events]``.

        What happens to the feeds is in :meth:`stats` and the metrics. A feed that knows the engine's capacity sets that
        of a replica that was given none. A replica that leaves the fleet is not followed any
        more; for one that joins call ``add`` of what this returns.

        Args:
            feeds: where each replica's engine publishes, by the replica's name.
            options: times and bounds.
            start: follow in a thread from now on; else enter the result, ``with`` or ``async with``.

        Returns:
            What follows; its ``close()`` ends it.

        Raises:
            ConfigError: ``feeds`` is no mapping of names to :class:`~prefixroute.live.KvFeed`.
            UnknownReplicaError: a feed is of a replica that the fleet does not have.
            EventError: this router matches text, which token-id events cannot describe.
        """
        check_instance("feeds", feeds, Mapping)
        for name, feed in feeds.items():
            check_instance(f"the feed of {name!r}", feed, KvFeed)
        for name, feed in feeds.items():
            self._hear(name, {})
            known = self.replica(name)
            if known.capacity_tokens is None and feed.capacity_tokens is not None:
                self._learn(name, replace(known, capacity_tokens=feed.capacity_tokens))
        subscriber = Subscriber(self, feeds, options=options)
        self._watching.append(subscriber)
        return subscriber.start() if start else subscriber

    def _learn(self, name: str, replica: Replica) -> None:
        now = self._time(None)
        self._change(lambda state: membership.change(state, name, replica, now))

    def poll(
        self,
        sources: Mapping[str, MetricsSource | str],
        *,
        options: PollOptions = PollOptions(),  # noqa: B008  # frozen
        start: bool = True,
    ) -> LoadPoller:
        """Poll engines' metrics for their load, where they publish none: needs ``prefixroute[events]``.

        Args:
            sources: where each replica's engine serves its metrics, by the replica's name; a plain text is its base
                URL.
            options: times.
            start: poll in a thread from now on; else enter the result, ``with`` or ``async with``.

        Returns:
            What polls; its ``close()`` ends it.

        Raises:
            ConfigError: ``sources`` is no mapping of names to URLs or :class:`~prefixroute.live.MetricsSource`.
            UnknownReplicaError: a source is of a replica that the fleet does not have.
        """
        check_instance("sources", sources, Mapping)
        for name, source in sources.items():
            if not isinstance(source, str):
                check_instance(f"the source of {name!r}", source, MetricsSource)
            self.replica(name)
        poller = LoadPoller(self, sources, options=options)
        self._watching.append(poller)
        return poller.start() if start else poller
