"""The handle of one booked request, of whatever kind: how it goes on and how it ends."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from prefixroute.routing.ledger import Attempt, Lease

if TYPE_CHECKING:
    from prefixroute.router.tickets import Guarded

Chunk = TypeVar("Chunk")
RANK_HEADER = "X-data-parallel-rank"
"""The header of the data-parallel rank, of vLLM and SGLang alike."""


class Booking(Lease):
    """A booked request: load is up and the prompt's blocks are believed at its replica until it ends.

    Ends once, by :meth:`finish` or :meth:`abort`; any later call is a counted no-op. As a context manager (``with``
    or ``async with``) a normal exit finishes and an exception aborts: call :meth:`abort` yourself where a failure
    raises nothing, such as an answer with an error status. One without a key that is dropped while
    open is aborted at the router's next call; one with a key lives on in the ledger. Thread-safe.

    Attributes:
        attempt: what is booked and stands for the request, to be looked at only.
        host: the state that has it, guarded.
    """

    __slots__ = ("__weakref__",)

    host: Guarded

    @property
    def key(self) -> str | None:
        """The request's key."""
        key: str | None = self.attempt.decision.request.key
        return key

    @property
    def open(self) -> bool:
        """Whether the request is still in flight."""
        return self.attempt.open

    @property
    def started(self) -> bool:
        """Whether the replica has begun to answer: from then on a retry would send a part of the answer twice."""
        return self.attempt.started

    def first_token(self, *, now: float | None = None) -> None:
        """Note that the replica has begun to answer. Later calls count as progress and keep the ticket alive.

        Args:
            now: time on the router's clock in seconds.
        """
        self.host.first_token(self.attempt, now)

    def finish(
        self,
        *,
        output: Any = None,
        usage: Any = None,
        reported_hit_tokens: int | None = None,
        reported_prompt_tokens: int | None = None,
        now: float | None = None,
    ) -> None:
        """End the request normally, even if this raises: an output that cannot be hashed is then not believed.

        A wrong ``now`` ends it as :meth:`abort` does.

        Args:
            output: all generated token ids (or text, or message, by the router's prompt kind). Its blocks are then
                believed to be held as well, without the last token, which no engine has cached. Or a ``BlockHashes`` of
                prompt and output as they are held, without the last token.
            usage: the answer's usage, or the answer around it, as a dict or an SDK's object, of OpenAI, Anthropic and
                the others that :meth:`~prefixroute.providers.Usage.of` knows: the two counts below are read from it.
            reported_hit_tokens: cached prompt tokens that the engine reports; ``None`` = not reported, not zero. More
                than a prompt of token ids has count as the whole prompt, and in ``clamped_reports`` of ``stats()``.
            reported_prompt_tokens: length of the prompt that the engine reports; calibrates bytes per token of text.
            now: time on the router's clock.

        Raises:
            ConfigError: a reported count is no count or larger than any prompt, or the usage has no known form or
                raises when it is read: it is then not learned from. Or ``now`` is no time.
            TokensError: the output is not of the router's prompt kind, or holds something that is no token id.
        """
        self.host.finish(self.attempt, output, (reported_hit_tokens, reported_prompt_tokens), now, usage)

    def abort(self, *, now: float | None = None) -> None:
        """Give the request up: load goes back; before the first token its predicted blocks go back too.

        Args:
            now: time on the router's clock in seconds.
        """
        del now
        self.host.abort(self.attempt)

    async def stream(self, upstream: AsyncIterable[Chunk]) -> AsyncIterator[Chunk]:
        """Relay a stream: the first chunk is the first token, the end finishes, an error or a disconnect aborts.

        Call :meth:`finish` before the end to report output or cached tokens; the end then adds nothing.

        Args:
            upstream: what the engine answers, chunk by chunk; closed at the end if it can be.
        """
        try:
            async for chunk in upstream:
                if self.open:  # the caller may have finished at the usage, with chunks still to come
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
        if not self.attempt.open:
            return
        if error is None:
            self.finish()
        elif issubclass(error, GeneratorExit):
            self.host.drop(self.attempt)
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

    def __repr__(self) -> str:
        """Show where the request is and whether it is still in flight."""
        where = " ".join(repr(name) for name in self.replicas)
        return f"<{type(self).__name__} {where} {'open' if self.open else 'closed'} key={self.key!r}>"

    @property
    def replicas(self) -> tuple[str, ...]:
        """Names of the replicas that have the request."""
        raise NotImplementedError


def rank_headers(attempt: Attempt) -> dict[str, str]:
    """Return the HTTP headers that tell an engine which data-parallel rank has a request."""
    rank = attempt.member.replica.rank
    return {} if rank is None else {RANK_HEADER: str(rank)}
