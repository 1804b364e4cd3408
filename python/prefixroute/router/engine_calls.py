"""What engines tell a router: their load, and what their caches store and remove."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from prefixroute.belief import Heard
from prefixroute.live import FollowOptions, KvFeed, LoadPoller, MetricsSource, PollOptions, Subscriber
from prefixroute.router.fleet_calls import FleetCalls
from prefixroute.routing import membership
from prefixroute.types import Namespace, Replica
from prefixroute.validation import check_instance


class EngineCalls(FleetCalls):
    """The calls of :class:`~prefixroute.router.Router` by which engines tell what they do."""

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
        subscriber = Subscriber(FeedSink(self, self._clear_for_feed), feeds, options=options)
        self._watching.append(subscriber)
        self._state.on_cleared = self._tell_feeds
        return subscriber.start() if start else subscriber

    def _clear_for_feed(self, name: str) -> None:
        """Clear a replica as its own feed asks for, which need not be told of it."""
        self._change(lambda state: state.belief.clear(state.fleet[name].name))
        if self._peers is not None:
            self._peers.cleared(name)

    def _tell_feeds(self, name: str) -> None:
        """Let a feed read again what the engine holds, as somebody else has cleared the replica."""
        for watch in self._watching:
            if isinstance(watch, Subscriber):
                watch.emptied(name)

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


class FeedSink:
    """What the feeds of :meth:`EngineCalls.follow` are applied to: a router that does not tell them of their own clears.

    Args:
        router: the router.
        clear: clears a replica.
    """

    def __init__(self, router: EngineCalls, clear: Callable[[str], None]) -> None:
        self._router, self._clear = router, clear

    def apply(self, name: str, payload: bytes) -> Heard:
        """Apply one batch, see :meth:`EngineCalls.apply`.

        Args:
            name: of the replica.
            payload: the batch.

        Returns:
            What the batch did.
        """
        return self._router.apply(name, payload)

    def clear(self, name: str) -> None:
        """Forget what a replica holds.

        Args:
            name: of the replica.
        """
        self._clear(name)

    def update_load(self, name: str, **loads: float | None) -> bool:
        """Keep a report of a replica's load, see :meth:`EngineCalls.update_load`.

        Args:
            name: of the replica.
            loads: fields of :class:`~prefixroute.types.LoadReport`.

        Returns:
            Whether the report was kept.
        """
        return self._router.update_load(name, **loads)
