"""The fleet as its host sees it: who joins, leaves, pauses and comes back, and what replicas report. Each is a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from prefixroute.errors import ConfigError, EventError, UnknownReplicaError
from prefixroute.limits import MAX_NAME_BYTES, MAX_REPLICAS
from prefixroute.routing.cache_names import MAX_ADAPTERS
from prefixroute.routing.fleet import MEDIA, SUSPENDED, Member
from prefixroute.routing.state import RouterState
from prefixroute.types import LoadReport, Replica
from prefixroute.validation import check_callable, check_instance, check_names, shown

Replicas = Mapping[str, Replica | None] | Iterable[str]
"""Replicas by name with what is known of each, or their names alone."""


def add(state: RouterState, name: str, replica: Replica | None, now: float | None) -> None:
    """Add an empty replica. With ``now`` it starts slowly if there are others."""
    replica = replica or Replica()
    check(state, name, replica)
    if name in state.fleet.members:
        raise ConfigError(f"replica {shown(name)} exists already; sync() reconciles, remove_replica() forgets")
    step = state.begin()
    state.width = len(state.fleet.by_slot) + 1  # a match that comes in between may see one slot more
    try:
        capacity = capacity_of(state, name, replica)
        slot = state.belief.add_replica(name, capacity, reuse_reports=replica.reuse_reports)
        if replica.events:
            state.belief.expect_events(name)
        state.fleet.add(name, slot, replica, capacity, now)
    except ConfigError:
        raise
    except BaseException:
        if name not in state.fleet.members:  # cut off: the belief forgets it too
            with suppress(UnknownReplicaError):
                state.belief.remove_replica(name)
        raise
    state.end(step)


def remove(state: RouterState, name: str) -> None:
    """Forget a replica, what it held and its load. Its sessions move when they next come."""
    member = state.fleet[name]
    step = state.begin()
    try:
        _forget(state, member)
    except BaseException:
        _forget(state, member)  # cut off in the middle: half a replica is worse than none
        raise
    state.end(step)


def _forget(state: RouterState, member: Member) -> None:
    """Forget a replica everywhere; what is forgotten already stays so."""
    state.fleet.remove(member)
    with suppress(UnknownReplicaError):
        state.belief.remove_replica(member.name)


def change(state: RouterState, name: str, replica: Replica | None, now: float) -> None:
    """Make what is known of a replica equal to ``replica``; another incarnation comes back empty."""
    member = state.fleet[name]
    if replica is None or replica == member.replica:
        return
    step = state.begin()
    capacity = capacity_of(state, name, replica)
    if capacity != capacity_of(state, name, member.replica):
        state.belief.set_capacity(name, capacity)
        member.capacity = capacity
    if replica.events:
        state.belief.expect_events(name)
    if replica.incarnation != member.replica.incarnation:
        clear(state, name)
        state.fleet.renew(member, now)
    member.replica = replica  # last: until then the same change may be made again
    state.fleet.refresh()
    state.end(step)


def sync(state: RouterState, wanted: Mapping[str, Replica | None], now: float) -> None:
    """Make the fleet equal to ``wanted``: add, remove, change.

    Raises:
        ConfigError: a name or setting is not allowed, or the index has no room for so many replicas; nothing has
            changed then.
    """
    if len(wanted) > MAX_REPLICAS:
        raise ConfigError(f"a router has at most {MAX_REPLICAS} replicas, got {len(wanted)}")
    for name, replica in wanted.items():
        check(state, name, replica or Replica())
    state.belief.check_room(len(wanted))
    joined = now if state.fleet.members else None  # the first replicas have no one to start slowly beside
    for name in [name for name in state.fleet.members if name not in wanted]:
        remove(state, name)
    for name, replica in wanted.items():
        if name in state.fleet.members:
            change(state, name, replica, now)
        else:
            add(state, name, replica, joined)


def set_state(state: RouterState, name: str, status: str, now: float) -> None:
    """Let a replica take requests, drain or pause."""
    step = state.begin()
    if status == SUSPENDED:
        state.fleet.suspend(name, None)
    else:
        state.fleet.set_state(name, status, now)
    state.end(step)


def suspend_until(state: RouterState, name: str, until: float) -> None:
    """Pause a replica until a time; of several ends the latest counts."""
    step = state.begin()
    state.fleet.suspend(name, until)
    state.sweep_at = min(state.sweep_at, until)
    state.end(step)


def new_epoch(state: RouterState) -> None:
    """Void all belief: the weights have changed. What is in flight now is not believed when it finishes either."""
    state.epoch += 1
    state.belief.new_epoch()


def clear(state: RouterState, name: str | None) -> None:
    """Believe that a replica, or every one, holds nothing."""
    state.belief.clear(None if name is None else state.fleet[name].name)
    if state.on_cleared is not None:
        for each in [name] if name is not None else list(state.fleet.members):
            state.on_cleared(each)


def report(state: RouterState, name: str, loads: LoadReport) -> bool:
    """Keep a replica's report of its load; return whether it was kept."""
    member = state.fleet[name]
    state.fleet.reporting = True
    kept = member.keep(loads)
    if kept:
        state.ledger.reported(member.slot)
    return kept


def load_report(at: float, loads: Mapping[str, Any]) -> LoadReport:
    """Return a report with these fields; raise :class:`ConfigError` for one that does not exist."""
    fields = [field for field in LoadReport.__dataclass_fields__ if field != "at"]
    check_names("update_load", "argument", loads, fields)
    return LoadReport(at, **loads)


def hear(state: RouterState, name: str, event: Mapping[str, Any]) -> None:
    """Note that a replica sends events, and from which tiers.

    Raises:
        EventError: the router matches text, which token-id events cannot describe.
    """
    if state.matches_text:
        raise EventError("this router matches text: KV events name token ids, which say nothing about it")
    member = state.fleet[name]
    if not member.replica.events:
        state.belief.expect_events(name)
        member.replica = replace(member.replica, events=True)
        state.fleet.refresh()
    if event.get("medium") not in (None, MEDIA[0]):
        member.tiered = True


def heard(state: RouterState, name: str, adapters: Iterable[str], *, tiered: bool) -> None:
    """Note what a replica's events have said beside blocks: adapters, and whether some lie outside of the GPU."""
    member = state.fleet[name]
    member.tiered = member.tiered or tiered
    new = [adapter for adapter in adapters if adapter not in member.adapters]
    for adapter in new:
        if len(member.adapters) >= MAX_ADAPTERS:
            del member.adapters[next(iter(member.adapters))]
        member.adapters[adapter] = None
    if new:
        state.fleet.refresh()


def check(state: RouterState, name: Any, replica: Any) -> None:
    """Raise :class:`ConfigError` for a name, a description or a capacity that no replica can have."""
    _check_name(name)
    if not _fits(name):
        raise ConfigError(
            f"a replica name must have at most {MAX_NAME_BYTES} bytes of valid Unicode, got {name[:80]!r}"
        )
    if not isinstance(replica, Replica):
        raise ConfigError(f"replica {shown(name)} must be described by a Replica or None, got {shown(replica)}")
    capacity = capacity_of(state, name, replica)
    if not isinstance(capacity, int | np.integer) or isinstance(capacity, bool) or not 0 <= capacity < 1 << 64:
        raise ConfigError(
            f"capacity in tokens of replica {shown(name)} must be an int from 0 to 2**64 - 1, got {shown(capacity)}"
        )


def capacity_of(state: RouterState, name: str, replica: Replica) -> int:
    """Return the KV-cache size of a replica in tokens."""
    if replica.capacity_tokens is not None:
        return replica.capacity_tokens
    capacities = state.config.capacity_tokens
    if not isinstance(capacities, Mapping):
        return capacities
    capacity = capacities.get(name)
    if capacity is None:
        raise ConfigError(f"capacity_tokens names no capacity for replica {shown(name)}")
    return capacity


def named(replicas: Replicas) -> Mapping[str, Replica | None]:
    """Return replicas by name, whichever way they were given; refuse a bare string and a name given twice."""
    if isinstance(replicas, str):
        raise ConfigError(f"replicas must be a collection of names, got the string {shown(replicas)}")
    if not isinstance(replicas, Iterable):
        raise ConfigError(f"replicas must be a collection of names, got {shown(replicas)}")
    if isinstance(replicas, Mapping):
        return replicas
    known: dict[str, Replica | None] = {}
    for name in replicas:
        _check_name(name)
        if name in known:
            raise ConfigError(f"replicas must have a name each, got {shown(name)} twice")
        known[name] = None
    return known


def described(
    hosts: Any, name_of: Callable[[Any], str], replica_of: Callable[[Any], Replica | None] | None
) -> dict[str, Replica | None]:
    """Return a host's objects as replicas by name, each with what is known of it."""
    check_callable("name_of", name_of)
    check_instance("replicas", hosts, Iterable)
    if replica_of is not None:
        check_callable("replica_of", replica_of)
    hosts = list(hosts)
    names = named(name_of(host) for host in hosts)
    return {name: None if replica_of is None else replica_of(host) for name, host in zip(names, hosts, strict=True)}


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"a replica name must be a non-empty string, got {shown(name)}")


def _fits(name: str) -> bool:
    """Return whether a name can be encoded (half an emoji cannot) and is short enough."""
    try:
        return len(name) <= MAX_NAME_BYTES and len(name.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:
        return False


def mirror(live: RouterState, shadow: RouterState, now: float) -> None:
    """Make a shadow's fleet that of the live router."""
    sync(shadow, {name: member.replica for name, member in live.fleet.members.items()}, now)
    for name, member in live.fleet.members.items():
        copy = shadow.fleet[name]
        if (copy.state, copy.resume_at, copy.started) != (member.state, member.resume_at, member.started):
            copy.state, copy.resume_at, copy.started = member.state, member.resume_at, member.started
            shadow.fleet.refresh()
