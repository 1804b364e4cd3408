"""What a router is told about requests that it has booked, by key, and about sessions."""

from __future__ import annotations

from typing import Any

from prefixroute.router.calls import RouterCalls
from prefixroute.validation import check_instance


class RequestCalls(RouterCalls):
    """The calls of :class:`~prefixroute.router.Router` about requests by key, and about sessions."""

    def first_token(self, key: str, *, now: float | None = None) -> None:
        """Note the first token of the request with this key, see :meth:`Ticket.first_token`.

        Of a hedged request its latest attempt wins; only the ticket can say of another one that it answers.

        Args:
            key: the caller's name for the request; an unknown or late one is counted and does nothing.
            now: time on the router's clock, in seconds.
        """
        attempt = self._guarded.find(key, "first_token")
        if attempt is not None:
            self._guarded.first_token(attempt, now)

    def finish(
        self,
        key: str,
        *,
        output: Any = None,
        usage: Any = None,
        reported_hit_tokens: int | None = None,
        reported_prompt_tokens: int | None = None,
        now: float | None = None,
    ) -> None:
        """End the request with this key normally, see :meth:`Ticket.finish`.

        Args:
            key: the caller's name for the request; an unknown or late one is counted and does nothing.
            output: the answer, in the prompt's kind: its blocks count as cached.
            usage: the usage object or mapping of an OpenAI or Anthropic answer, in place of the two numbers.
            reported_hit_tokens: prompt tokens that the engine took from its cache.
            reported_prompt_tokens: prompt tokens that the engine counted.
            now: time on the router's clock, in seconds.
        """
        attempt = self._guarded.find(key, "finish")
        if attempt is not None:
            self._guarded.finish(attempt, output, (reported_hit_tokens, reported_prompt_tokens), now, usage)

    def abort(self, key: str, *, now: float | None = None) -> None:
        """Give the request with this key up, with all its attempts, see :meth:`Ticket.abort`.

        Args:
            key: the caller's name for the request; an unknown or late one is counted and does nothing.
            now: time on the router's clock, in seconds.
        """
        del now
        self._guarded.abort_request(key)

    def alias(self, session: str, alias: str, *, now: float | None = None) -> bool:
        """Bind another key to a session's replica, e.g. the response id that the next turn will name.

        Args:
            session: a session that is bound.
            alias: the other key.
            now: time on the router's clock, in seconds.

        Returns:
            Whether the session was bound.
        """
        check_instance("session", session, str)
        check_instance("alias", alias, str)
        now = self._time(now)
        with self._lock:
            state = self._state
            bound = state.ledger.alias(session, alias, now)
            slot = state.ledger.bound(alias, now) if state.listener is not None else None
            if state.listener is not None and slot is not None and slot >= 0:
                state.listener.bound(alias, slot)
            return bound

    def is_bound(self, session: str, *, now: float | None = None) -> bool:
        """Return whether a session is bound, if only to a replica that has left.

        Args:
            session: its name.
            now: time on the router's clock, in seconds.
        """
        check_instance("session", session, str)
        now = self._time(now)
        with self._lock:
            return self._state.ledger.bound(session, now) is not None

    def forget(self, session: str) -> bool:
        """Drop a session's binding; return whether there was one.

        Args:
            session: its name.

        Returns:
            Whether it was bound.
        """
        check_instance("session", session, str)
        with self._lock:
            if self._state.listener is not None:
                self._state.listener.forgot(session)
            return self._state.ledger.forget(session)

    def forget_sessions(self) -> int:
        """Drop every session's binding, e.g. after :meth:`new_epoch`; return how many there were."""
        with self._lock:
            if self._state.listener is not None:
                self._state.listener.forgot(None)
            count = self._state.ledger.forget_sessions()
            self.shadows.apply(lambda state: state.ledger.forget_sessions())
            return count
