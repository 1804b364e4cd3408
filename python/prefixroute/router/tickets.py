"""The ticket: the handle of one booked request, and the guarded state that it acts on. Dropping it gives everything back."""

from __future__ import annotations

from math import isfinite
from threading import RLock
from typing import TYPE_CHECKING, Any, Self, TypeVar

from prefixroute.errors import ConfigError
from prefixroute.providers import reported_tokens
from prefixroute.routing import steps
from prefixroute.routing.ledger import Lease
from prefixroute.telemetry.shadows import Shadows
from prefixroute.validation import check_instance

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator
    from types import TracebackType

    from prefixroute.routing import Decision, RouterState
    from prefixroute.routing.ledger import Attempt
    from prefixroute.routing.steps import Reported

Chunk = TypeVar("Chunk")
RANK_HEADER = "X-data-parallel-rank"
"""The header of the data-parallel rank, of vLLM and SGLang alike."""


class Ticket(Lease):
    """A booked request: load is up and the prompt's blocks are believed at its replica until it ends.

    Ends once, by :meth:`finish` or :meth:`abort`; any later call is a counted no-op. As a context manager (``with``
    or ``async with``) a normal exit finishes and an exception aborts: call :meth:`abort` yourself where a failure raises
    nothing, such as an answer with an error status. A ticket without a key that is dropped while
    open is aborted at the router's next call; one with a key lives on in the ledger. Thread-safe.

    Attributes:
        attempt: the booked attempt, to be looked at only.
        host: the state that has it, guarded.
    """

    __slots__ = ("__weakref__",)

    host: Guarded

    @property
    def replica(self) -> str:
        """Name of the replica that has the request."""
        return self.attempt.name

    @property
    def decision(self) -> Decision:
        """The decision that was committed. The replica may be another, see ``commit(replica=)``."""
        decision: Decision = self.attempt.decision
        return decision

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers to send with the request: the data-parallel rank, where the replica is one.

        vLLM and SGLang obey a rank only if they are told; else they pick one themselves, whatever was routed.
        """
        rank = self.attempt.member.replica.rank
        return {} if rank is None else {RANK_HEADER: str(rank)}

    @property
    def key(self) -> str | None:
        """The request's key."""
        return self.decision.view.request.key

    @property
    def hit_tokens(self) -> int:
        """Leading prompt tokens that the replica was believed to hold."""
        return self.attempt.hit

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

        Args:
            output: all generated token ids (or text, or message, by the router's prompt kind). Its blocks are then
                believed to be held as well, without the last token, which no engine has cached. Or a ``BlockHashes`` of
                prompt and output as they are held, without the last token.
            usage: the answer's usage, or the answer around it, as a dict or an SDK's object, of OpenAI, Anthropic and the
                others that :meth:`~prefixroute.providers.Usage.of` knows: the two counts below are read from it.
            reported_hit_tokens: cached prompt tokens that the engine reports; ``None`` = not reported, not zero.
            reported_prompt_tokens: length of the prompt that the engine reports; calibrates bytes per token of text.
            now: time on the router's clock.

        Raises:
            ConfigError: a reported count is no count, or the usage has no known form; it is then not learned from.
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

    def retry(self, *, now: float | None = None) -> Ticket:
        """Abort if still open, and route the request again to a replica that has not been tried.

        Args:
            now: time on the router's clock in seconds.

        Raises:
            NoReplicaError: none is left; the request has ended.
            OverloadedError: those left are over their admission caps; the request has ended.
        """
        return self.host.retry(self.attempt, now)

    def hedge(self, *, now: float | None = None) -> Ticket:
        """Route the request a second time, elsewhere. The first to answer wins; the other is refunded.

        Args:
            now: time on the router's clock in seconds.

        Raises:
            NoReplicaError: no other replica is left.
            OverloadedError: those left are over their admission caps.
        """
        return self.host.hedge(self.attempt, now)

    def alias(self, session: str, *, now: float | None = None) -> None:
        """Bind another session key to this replica, e.g. the response id that the next turn will name.

        Args:
            session: the key.
            now: time on the router's clock in seconds.
        """
        self.host.alias(self.attempt, session, now)

    async def stream(self, upstream: AsyncIterable[Chunk]) -> AsyncIterator[Chunk]:
        """Relay a stream: the first chunk is the first token, the end finishes, an error or a disconnect aborts.

        Call :meth:`finish` before the end to report output or cached tokens; the end then adds nothing.

        Args:
            upstream: what the engine answers, chunk by chunk; closed at the end if it can be.
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
        return f"<Ticket {self.replica!r} {'open' if self.open else 'closed'} key={self.key!r}>"


class Guarded:
    """The state of a router, its lock, and its shadows. Every method is one step under the lock.

    The lock may be taken again by its own thread: signal handlers and finalizers of the host run inside of a call.

    Attributes:
        state: the router's.
        lock: guards it.
        shadows: what follows the live requests.
        clock: tells the time in seconds.
    """

    __slots__ = ("clock", "lock", "shadows", "state")

    def __init__(self, state: RouterState) -> None:
        """Guard a state."""
        self.state, self.lock, self.shadows = state, RLock(), Shadows(state)
        self.clock = state.config.clock

    def time(self, now: float | None) -> float:
        """Return a time that can be compared with any other: that given, else the clock's."""
        now = self.clock() if now is None else now
        if type(now) is float and now - now == 0.0:  # neither infinite nor NaN; the hot path
            return now
        try:
            finite = isfinite(now)
        except (TypeError, OverflowError):
            finite = False
        if not finite:
            raise ConfigError(f"a time must be a finite number of seconds, got {now!r}")
        return now

    def find(self, key: str, what: str) -> Attempt | None:
        """Return the attempt in flight with this key; count a call for a key that is not among the latest ones either.

        A call for a request that has ended lately is silent: hosts end by key in several places, to be sure.
        """
        if not isinstance(key, str):
            raise ConfigError(f"a request's key must be a string, got {key!r}")
        with self.lock:
            attempt = self.state.ledger.find(key)
            if attempt is None and self.state.ledger.known(key) is None:
                self.state.ledger.count(f"{what}_unknown")
            return attempt

    def first_token(self, attempt: Attempt, now: float | None) -> None:
        """Note that an engine answers."""
        now = self.time(now)
        with self.lock:
            steps.first_token(self.state, attempt, now)

    def finish(self, attempt: Attempt, output: Any, reported: Reported, now: float | None, usage: Any = None) -> None:
        """End an attempt normally, even if this raises; see :meth:`Ticket.finish`."""
        now = self.time(now)
        if output is None and usage is None and reported == steps.NOTHING_REPORTED and not attempt.followers:
            with self.lock:  # the hot path
                steps.finish(self.state, attempt, None, now, reported)
            return
        reported, wrong = _checked(reported, usage)
        try:
            self._end(attempt, output, reported, now)
        except Exception:
            if attempt.open:  # the output cannot be hashed: not believed, but the request is over all the same
                self._end(attempt, None, reported, now)
            raise
        if wrong is not None:
            raise wrong

    def _end(self, attempt: Attempt, output: Any, reported: Reported, now: float) -> None:
        context = None
        if output is not None and attempt.open:
            decision = attempt.decision
            prompts = self.state.prompts.of(decision.prompt_kind)
            context = prompts.context(decision.prompt, output, decision.blocks.token_count)
        followers = attempt.followers
        with self.lock:
            if steps.finish(self.state, attempt, context, now, reported):
                for follower in followers:
                    follower.finish(output, now)

    def abort(self, attempt: Attempt) -> None:
        """Give an attempt up."""
        with self.lock:
            steps.abort(self.state, attempt)

    def drop(self, attempt: Attempt) -> None:
        """Leave an attempt to be given up by the next call. Takes no lock: the collector may call this at any time."""
        self.state.ledger.drop(attempt)

    def commit(self, decision: Decision, replica: str | None, now: float) -> Ticket:
        """Book a decision, with the lock held; see :meth:`Router.commit`."""
        state = self.state
        attempt = steps.draft(state, decision, replica, now)
        ticket = Ticket(self, attempt)
        try:
            steps.book(state, attempt, now)
            if self.shadows:
                attempt.followers = self.shadows.follow(attempt, now)
        except BaseException:
            self.drop(attempt)  # one with a key too: the caller has no ticket to end it by
            raise
        return ticket

    def retry(self, attempt: Attempt, now: float | None) -> Ticket:
        """Give an attempt up if it is open, and book its request again elsewhere; see :meth:`Ticket.retry`."""
        now = self.time(now)
        with self.lock:
            try:
                if attempt.open:
                    steps.abort(self.state, attempt, "retried")
                return self._again(attempt, now, hedge=False)
            except BaseException:
                steps.give_up(self.state, attempt)
                raise

    def hedge(self, attempt: Attempt, now: float | None) -> Ticket:
        """Book a request a second time, elsewhere; see :meth:`Ticket.hedge`."""
        now = self.time(now)
        with self.lock:
            return self._again(attempt, now, hedge=True)

    def _again(self, attempt: Attempt, now: float, *, hedge: bool) -> Ticket:
        decision = steps.again(self.state, attempt, now)
        following = steps.draft(self.state, decision, None, now, steps.tried(attempt))
        ticket = Ticket(self, following)
        try:
            steps.book(self.state, following, now, attempt, hedge=hedge)
        except BaseException:
            self.drop(following)
            raise
        return ticket

    def alias(self, attempt: Attempt, session: str, now: float | None) -> None:
        """Bind another session key to the replica of an attempt."""
        check_instance("session", session, str)
        now = self.time(now)
        with self.lock:
            if attempt.member.generation == attempt.generation:
                self.state.ledger.bind(session, attempt.slot, attempt.generation, now)


def _checked(reported: Reported, usage: Any) -> tuple[Reported, ConfigError | None]:
    """Return what an engine reports, and what is wrong with it: then nothing is reported."""
    if usage is None and reported == steps.NOTHING_REPORTED:
        return reported, None
    hit, length = reported
    try:
        if usage is not None:
            read = reported_tokens(usage)
            hit, length = read[0] if hit is None else hit, read[1] if length is None else length
    except ConfigError as error:
        return steps.NOTHING_REPORTED, error
    wrong = steps.wrong_report(hit, length)
    return ((hit, length), None) if wrong is None else (steps.NOTHING_REPORTED, wrong)
