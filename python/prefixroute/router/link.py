"""The link of a router to its peers: the commit feed behind the router's lock."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any
from weakref import ref

from prefixroute.errors import PeerError
from prefixroute.peers.feed import PeerFeed
from prefixroute.peers.seal import REFUSALS, Terms, block_size_of, refusal_of
from prefixroute.peers.transport import Forkable, Transport
from prefixroute.peers.transports import RingPeers
from prefixroute.router.tickets import Guarded
from prefixroute.routing import RouterState, steps
from prefixroute.types import Replica
from prefixroute.validation import check_callable, check_instance

_LOG = logging.getLogger("prefixroute")
_LINKS: weakref.WeakSet[PeerLink] = weakref.WeakSet()
_FORKING = threading.local()
_KEPT_BYTES = 16
"""Bytes of a refused message that are kept: its version and its fingerprint are among them."""


def _weakly(link: PeerLink, method: str) -> Callable[..., object]:
    """Return a function that calls a method of a link for as long as that lives.

    A thread must not keep a router alive.
    """
    known = ref(link)

    def call(*arguments: object) -> object:
        link = known()
        return None if link is None else getattr(link, method)(*arguments)

    return call


def _close_later(transport: Transport) -> None:
    """Close in a thread of its own: the collector may run anywhere, within a call of a transport too."""
    threading.Thread(target=transport.close, name="prefixroute-close", daemon=True).start()


def _close_all() -> None:
    for link in list(_LINKS):
        link.close()


def _hold_all() -> None:
    """Take every router's lock before a fork, so that no thread that is not there in the child has it."""
    _FORKING.held = sorted(_LINKS, key=id)
    for link in _FORKING.held:
        link.hold()


def _let_go_all() -> None:
    while _FORKING.held:
        _FORKING.held.pop().let_go()


def _go_on_forked() -> None:
    _let_go_all()
    for link in list(_LINKS):
        link.go_on_forked()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_let_go_all, after_in_child=_go_on_forked)


class PeerLink:
    """What :meth:`Router.peer_feed` returns. Thread-safe: every method is one step under the router's lock.

    Attributes:
        ident: number of this router among its peers.
    """

    def __init__(
        self,
        guarded: Guarded,
        carry: Transport | Callable[[bytes], object],
        change: Callable[[Callable[[RouterState], object]], object],
        *,
        ident: int | None = None,
        first_sequence: int | None = None,
        secret: str | bytes | None = None,
    ) -> None:
        """Begin to tell.

        Args:
            guarded: the router's state.
            carry: takes the frames that have gathered, or a function that takes each message at once.
            change: makes a change of the fleet, in shadows too.
            ident: number of the router.
            first_sequence: number of its first message.
            secret: what frames are sealed with.

        Raises:
            ConfigError: a value is not allowed, or the transport cannot be used.
            PeerError: the routers of this host that share a name have another block size, hash key, secret or version.
        """
        self._guarded, self._change, self._secret = guarded, change, secret
        belief = guarded.state.belief
        self._terms = Terms.of(belief.block_size, belief.hash_key, secret)
        self._refused, self._last_refused = dict.fromkeys(REFUSALS, 0), (float("-inf"), b"")
        self._transport = transport = carry if isinstance(carry, Transport) else None
        self._send: Callable[[bytes], object] | None = None
        if not isinstance(carry, Transport):
            check_callable("send", carry)
            self._send = carry
        self._begin(ident, first_sequence)
        if transport is not None:
            _LINKS.add(self)
            weakref.finalize(self, _close_later, transport).atexit = False

    def _begin(self, ident: int | None, first_sequence: int | None = None) -> None:
        guarded, transport = self._guarded, self._transport
        loads = transport.join(guarded.state, self._terms) if isinstance(transport, RingPeers) else None
        self._feed = PeerFeed(
            guarded.state,
            self._send,
            self._change,
            ident=ident,
            first_sequence=first_sequence,
            secret=self._secret,
            loads=loads,
        )
        self.ident, self.is_open = self._feed.ident, True
        if transport is not None:
            transport.open(_weakly(self, "apply"), _weakly(self, "tick"), _weakly(self, "flush"))
        if isinstance(transport, RingPeers):
            self._feed.show_in(transport.ring)
        with guarded.lock:
            self._feed.open(guarded.time(None))

    def hold(self) -> None:
        """Take the router's lock: a fork is coming."""
        self._guarded.lock.acquire()

    def let_go(self) -> None:
        """Give the router's lock back behind a fork."""
        self._guarded.lock.release()

    def go_on_forked(self) -> None:
        """In a child: begin anew as a router of its own. What was in flight is the parent's, and is not counted here.

        Not every transport can: without ``forked()`` the child routes without peers.
        """
        transport, state = self._transport, self._guarded.state
        if transport is None or not self.is_open:
            return
        if not isinstance(transport, Forkable):
            state.listener, self.is_open = None, False
            _LOG.warning(
                "this process was forked from one whose router has peers, and has none: make its router after the fork"
            )
            return
        with self._guarded.lock:
            self._feed.abandon()
            for attempt in state.ledger.attempts:
                steps.abort(state, attempt, "dropped")
            transport.forked()
        self._begin(None)

    def apply(self, data: bytes, now: float | None = None) -> bool:
        """Take in a message, see :meth:`Router.apply_peer`."""
        if type(data) is not bytes:
            check_instance("data", data, bytes)
        guarded, feed = self._guarded, self._feed
        now, state = guarded.time(now), guarded.state
        with guarded.lock:
            if not self.is_open:
                return False
            if state.step is not None:
                state.repair()
            step = state.begin()
            try:
                applied = feed.apply(data, now)
            except PeerError:  # nothing was changed
                state.end(step)
                self._refused[refusal_of(data, self._terms)[0]] += 1
                self._last_refused = now, data[:_KEPT_BYTES]
                raise
            state.end(step)
            return applied

    def tick(self, *, now: float | None = None) -> None:
        """Let time pass: call it about once a second while no request does, so that peers know this router lives.

        Args:
            now: time on the router's clock, in seconds.
        """
        guarded = self._guarded
        now, state = guarded.time(now), guarded.state
        with guarded.lock:
            if state.step is not None:
                state.repair()
            state.sweep(now)

    def flush(self) -> None:
        """Hand the messages that have gathered to the transport: it calls this every few milliseconds."""
        transport, feed = self._transport, self._feed
        if transport is None or not self.is_open:
            return
        if feed.goes_on:
            with self._guarded.lock:
                feed.go_on()
        for frame in feed.take():
            transport.publish(frame)

    def close(self) -> None:
        """End: peers give back at once what this router has in flight, and this one what they have."""
        with self._guarded.lock:
            if not self.is_open:
                return
            self.is_open = False
            step = self._guarded.state.begin()
            self._feed.close()
            self._guarded.state.end(step)
        if self._transport is not None:  # without the lock: its thread may wait for that
            for frame in self._feed.take():
                self._transport.publish(frame)
            self._transport.close()

    def stats(self, *, now: float | None = None) -> dict[str, Any]:
        """Return counters and gauges as plain data: peers heard of, their requests in flight, messages, trouble.

        Args:
            now: time on the router's clock, in seconds.
        """
        now = self._guarded.time(now)
        with self._guarded.lock:
            found = self._feed.stats(now)
            found["refused"], found["refusal"] = dict(self._refused), self._refusal(now)
        if self._transport is not None:
            found["transport"] = dict(self._transport.status())
        return found

    def _refusal(self, now: float) -> str | None:
        """Return why the latest message was refused, if one was lately."""
        at, frame = self._last_refused
        state = self._guarded.state
        if now - at > state.config.timing.peer_s:
            return None
        kind, why = refusal_of(frame, self._terms)
        size = block_size_of(frame, state.belief.hash_key, self._secret) if kind == "settings" else None
        return why if size is None else f"its block_size is {size}, this router's is {self._terms.block_size}"

    def changed(self) -> None:
        """Tell of what the host has changed in the fleet."""
        if self.is_open:
            self._feed.look(self._guarded.time(None))

    def cleared(self, name: str | None) -> None:
        """Tell that the caches of one replica, or of all, were cleared."""
        with self._guarded.lock:
            names = [*self._guarded.state.fleet.members] if name is None else [name]
            for each in names if self.is_open else ():
                self._feed.cleared(each)

    def renewed(self) -> None:
        """Tell that the weights have changed."""
        with self._guarded.lock:
            if self.is_open:
                self._feed.cleared(None)

    def reconcile(self, wanted: Mapping[str, Replica | None]) -> Mapping[str, Replica | None]:
        """Return replicas as a host lists them, without incarnations that a peer knows to be gone."""
        with self._guarded.lock:
            return self._feed.registers.reconcile(wanted) if self.is_open else wanted
