"""What a router is told about its fleet: who is in it, in which state, and whose cache was reset."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

from prefixroute.belief import Belief
from prefixroute.errors import ConfigError
from prefixroute.peers.alone import warn_if_alone
from prefixroute.router.calls import RouterCalls
from prefixroute.routing import RouterState, membership
from prefixroute.routing.cache_names import CacheNames
from prefixroute.routing.fleet import ACTIVE, DRAINING, SUSPENDED
from prefixroute.types import Replica
from prefixroute.validation import check_float

T = TypeVar("T")


class FleetCalls(RouterCalls):
    """The calls of :class:`~prefixroute.router.Router` about its fleet. Deciding and booking are the router's own."""

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
            for state in (self._state, *self.shadows.states):
                if state.step is not None:
                    state.repair()
            result = change(self._state)
            self.shadows.apply(change)
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
