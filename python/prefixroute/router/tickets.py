"""The ticket: the handle of one booked request. Dropping it gives everything back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator
    from types import TracebackType

    from prefixroute.router.decision import Decision
    from prefixroute.router.ledger import Attempt
    from prefixroute.router.router import Router

Chunk = TypeVar("Chunk")


class Ticket:
    """A booked request: load is up and the prompt's blocks are believed at its replica until it ends.

    Ends once, by :meth:`finish` or :meth:`abort`; any later call is a counted no-op. As a context manager (``with``
    or ``async with``) a normal exit finishes and an exception aborts: call :meth:`abort` yourself where a failure raises
    nothing, such as an answer with an error status. A ticket without a key that is dropped while
    open is aborted at the router's next call; one with a key lives on in the ledger. Thread-safe.
    """

    __slots__ = ("__weakref__", "_attempt", "_router")

    def __init__(self, router: Router, attempt: Attempt) -> None:
        """Made by :meth:`Router.commit` and :meth:`Router.route`."""
        self._router, self._attempt = router, attempt

    @property
    def replica(self) -> str:
        """Name of the replica that has the request."""
        return self._attempt.name

    @property
    def decision(self) -> Decision:
        """The decision that was committed. The replica may be another, see ``commit(replica=)``."""
        return self._attempt.decision

    @property
    def key(self) -> str | None:
        """The request's key."""
        return self._attempt.key

    @property
    def hit_tokens(self) -> int:
        """Leading prompt tokens that the replica was believed to hold."""
        return self._attempt.hit

    @property
    def open(self) -> bool:
        """Whether the request is still in flight."""
        return self._attempt.open

    def first_token(self, *, now: float | None = None) -> None:
        """Note that the replica has begun to answer. Later calls count as progress and keep the ticket alive."""
        self._router._first_token(self._attempt, now)

    def finish(
        self,
        *,
        output: Any = None,
        reported_hit_tokens: int | None = None,
        reported_prompt_tokens: int | None = None,
        now: float | None = None,
    ) -> None:
        """End the request normally, even if this raises: an output that cannot be hashed is then not believed.

        Args:
            output: the generated token ids (or text, or message, by the router's prompt kind), or a ``BlockHashes`` of
                prompt + output; its blocks are then believed to be held as well.
            reported_hit_tokens: cached prompt tokens that the engine reports; ``None`` = not reported, not zero.
            reported_prompt_tokens: length of the prompt that the engine reports; calibrates bytes per token of text.
            now: time on the router's clock.

        Raises:
            ConfigError: a reported count is no count; it is then not learned from.
            TokensError: the output is not of the router's prompt kind, or holds something that is no token id.
        """
        self._router._finish(self._attempt, output, (reported_hit_tokens, reported_prompt_tokens), now)

    def abort(self, *, now: float | None = None) -> None:
        """Give the request up: load goes back; before the first token its predicted blocks go back too."""
        self._router._abort(self._attempt, now)

    def retry(self, *, now: float | None = None) -> Ticket:
        """Abort if still open, and route the request again to a replica that has not been tried.

        Raises:
            NoReplicaError: none is left; the request has ended.
            OverloadedError: those left are over their admission caps; the request has ended.
        """
        return self._router._retry(self._attempt, now)

    def hedge(self, *, now: float | None = None) -> Ticket:
        """Route the request a second time, elsewhere. The first to answer wins; the other is refunded."""
        return self._router._hedge(self._attempt, now)

    def alias(self, session: str, *, now: float | None = None) -> None:
        """Bind another session key to this replica, e.g. the response id that the next turn will name."""
        self._router._alias(self._attempt, session, now)

    async def stream(self, upstream: AsyncIterable[Chunk]) -> AsyncIterator[Chunk]:
        """Relay a stream: the first chunk is the first token, the end finishes, an error or a disconnect aborts.

        Call :meth:`finish` before the end to report output or cached tokens; the end then adds nothing.
        """
        try:
            async for chunk in upstream:
                self.first_token()
                yield chunk
        except BaseException as error:
            self._leave(type(error))
            raise
        else:
            self._leave(None)
        finally:
            close = getattr(upstream, "aclose", None)
            if close is not None:
                await close()

    def _leave(self, error: type[BaseException] | None) -> None:
        """Finish, or abort on an error; a generator that is closed may be so by the collector, and takes no lock."""
        if not self._attempt.open:
            return
        if error is None:
            self.finish()
        elif issubclass(error, GeneratorExit):
            self._router._ledger.dropped.append(self._attempt.ident)
        else:
            self.abort()

    def __enter__(self) -> Self:
        """Begin; nothing more happens."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish, or abort on an exception."""
        self._leave(kind)

    async def __aenter__(self) -> Self:
        """Begin; nothing more happens."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish, or abort on an exception or a cancellation."""
        self._leave(kind)

    def __del__(self) -> None:
        """Queue an open ticket without a key for the router's next call. Takes no lock."""
        attempt = self._attempt
        if attempt.open and attempt.key is None:
            self._router._ledger.dropped.append(attempt.ident)

    def __repr__(self) -> str:
        """Show where the request is and whether it is still in flight."""
        return f"<Ticket {self.replica!r} {'open' if self.open else 'closed'} key={self.key!r}>"
