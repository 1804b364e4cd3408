"""The ticket: the handle of one booked request, and the guarded state that it acts on.

Dropping it gives everything back.
"""

from __future__ import annotations

from math import isfinite
from threading import RLock
from typing import Any

from prefixroute.errors import ConfigError
from prefixroute.providers import reported_tokens
from prefixroute.router.booking import Booking, rank_headers
from prefixroute.router.pairs import PairTicket
from prefixroute.routing import Decision, RouterState, pairs, steps
from prefixroute.routing.ledger import Attempt
from prefixroute.routing.pairs import Halves
from prefixroute.routing.steps import Reported
from prefixroute.telemetry.shadows import Shadows
from prefixroute.telemetry.volatile import VolatileSample
from prefixroute.validation import check_instance, shown


class Ticket(Booking):
    """A booked request: load is up and the prompt's blocks are believed at its replica until it ends.

    Made by :meth:`Router.commit` and :meth:`Router.route`. Ends once, by :meth:`finish` or :meth:`abort`; any later
    call is a counted no-op. As a context manager (``with`` or ``async with``) a normal exit finishes and an exception
    aborts: call :meth:`abort` yourself where a failure raises nothing, such as an answer with an error status. A ticket
    without a key that is dropped while open is aborted at the router's next call; one with a key lives on in the
    ledger. Thread-safe.

    Attributes:
        attempt: the booked attempt, to be looked at only.
        host: the state that has it, guarded.
    """

    __slots__ = ()

    @property
    def replica(self) -> str:
        """Name of the replica that has the request."""
        return self.attempt.name

    @property
    def replicas(self) -> tuple[str, ...]:
        """The same, alone."""
        return (self.attempt.name,)

    def headers(self) -> dict[str, str]:
        """Return the HTTP headers to send with the request: the data-parallel rank, where the replica is one.

        vLLM and SGLang obey a rank only if they are told; else they pick one themselves, whatever was routed.
        """
        return rank_headers(self.attempt)

    @property
    def decision(self) -> Decision:
        """The decision that was committed. The replica may be another, see ``commit(replica=)``."""
        decision: Decision = self.attempt.decision
        return decision

    @property
    def hit_tokens(self) -> int:
        """Leading prompt tokens that the replica was believed to hold."""
        return self.attempt.hit

    def retry(self, *, now: float | None = None) -> Ticket:
        """Abort if still open, and route the request again to a replica that has not been tried.

        A ticket is retried once: the one that this returns stands for the request from then on.

        Args:
            now: time on the router's clock in seconds.

        Returns:
            The handle of the new attempt.

        Raises:
            NoReplicaError: none is left; the request has ended. Or there is nothing to try again, and nothing has
                changed: the request was over before, by whichever of its tickets; it was given up for another request
                with its key; or this ticket has been retried already.
            OverloadedError: those left are over their admission caps; the request has ended.
        """
        return self.host.retry(self.attempt, now)

    def hedge(self, *, now: float | None = None) -> Ticket:
        """Route the request a second time, elsewhere. The first to answer wins; the other is refunded.

        Args:
            now: time on the router's clock in seconds.

        Returns:
            The handle of the second attempt.

        Raises:
            NoReplicaError: no other replica is left, or the request is over as for :meth:`retry`.
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

    def __init__(self, state: RouterState, sample: VolatileSample | None = None) -> None:
        """Guard a state; ``sample`` looks at some of its prompts."""
        self.state, self.lock, self.shadows = state, RLock(), Shadows(state, sample)
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
            raise ConfigError(f"a time must be a finite number of seconds, got {shown(now)}")
        return now

    def find(self, key: str, what: str) -> Attempt | None:
        """Return the attempt in flight with this key; count a call for a key that is not among the latest ones either.

        A call for a request that has ended lately is silent: hosts end by key in several places, to be sure.
        """
        if not isinstance(key, str):
            raise ConfigError(f"a request's key must be a string, got {shown(key)}")
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
        try:
            now, wrong = self.time(now), None
        except ConfigError:
            self.abort(attempt)
            raise
        hit = reported[0]
        if usage is not None or reported[1] is not None or type(hit) is not int or not 0 <= hit <= steps.MOST_REPORTED:
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
            decision, prompts = attempt.decision, self.state.prompts
            if decision.query.kind is not None:
                prompts = prompts.of(decision.query.kind)
            context = prompts.context(decision.prompt, output, decision.blocks.token_count)
        followers = attempt.followers
        with self.lock:
            if steps.finish(self.state, attempt, context, now, reported) and followers:
                for follower in followers:
                    follower.finish(output, now)
            if attempt.keyed and not attempt.open:  # remembered for a while, see Router.explain
                for half in (attempt,) if attempt.prefill is None else (attempt.prefill, attempt):
                    half.decision.forget_prompt()
        if followers and self.shadows.sample is not None:
            self.shadows.sample.look()

    def abort(self, attempt: Attempt) -> None:
        """Give an attempt up."""
        with self.lock:
            steps.abort(self.state, attempt)

    def abort_request(self, key: str) -> None:
        """Give all attempts of the request with this key up: the key goes from one that ends to one that is left."""
        with self.lock:
            attempt = self.find(key, "abort")
            while attempt is not None:
                steps.abort(self.state, attempt)
                attempt = self.state.ledger.find(key)

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
            if self.shadows.follows:
                attempt.followers = self.shadows.follow(attempt, now)
        except BaseException:
            self.drop(attempt)  # one with a key too: the caller has no ticket to end it by
            raise
        return ticket

    def retry(self, attempt: Attempt, now: float | None) -> Ticket:
        """Give an attempt up if it is open, and book its request again elsewhere; see :meth:`Ticket.retry`."""
        now = self.time(now)
        with self.lock:
            steps.check_not_over(self.state, attempt)
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
            steps.check_not_over(self.state, attempt)
            return self._again(attempt, now, hedge=True)

    def _again(self, attempt: Attempt, now: float, *, hedge: bool) -> Ticket:
        decision = steps.again(self.state, attempt, now)
        following = steps.draft(self.state, decision, None, now, steps.tried(attempt), earlier=attempt)
        ticket = Ticket(self, following)
        try:
            steps.book(self.state, following, now, attempt, hedge=hedge)
        except BaseException:
            self.drop(following)
            raise
        return ticket

    def ticket(self, attempt: Attempt) -> Ticket | PairTicket:
        """Return a ticket of an attempt that stands for a request."""
        return Ticket(self, attempt) if attempt.prefill is None else PairTicket(self, attempt)

    def commit_pair(self, halves: Halves, now: float) -> PairTicket:
        """Book both halves of a request, with the lock held; see :meth:`Router.commit_pair`."""
        ticket = PairTicket(self, halves.decode)
        try:
            pairs.book(self.state, halves, now)
            if self.shadows.follows:
                halves.decode.followers = self.shadows.follow(halves.decode, now)
        except BaseException:
            self.drop(halves.decode)
            raise
        return ticket

    def retry_pair(self, ticket: PairTicket, failed: str, now: float | None) -> PairTicket:
        """Book again what has failed of a pair; see :meth:`PairTicket.retry`."""
        pairs.check_half(failed)
        now, earlier = self.time(now), ticket.halves
        with self.lock:
            steps.check_not_over(self.state, earlier.decode)
            try:
                halves = pairs.again(self.state, earlier, failed, now)
                following = ticket if halves.decode is earlier.decode else PairTicket(self, halves.decode)
                try:
                    booked = pairs.book(self.state, halves, now, earlier)
                except BaseException:
                    self.drop(halves.decode)
                    raise
            except BaseException:
                if earlier.decode.open:
                    steps.abort(self.state, earlier.decode)
                steps.give_up(self.state, earlier.decode)
                raise
            return following if booked else ticket

    def alias(self, attempt: Attempt, session: str, now: float | None) -> None:
        """Bind another session key to the replica of an attempt."""
        check_instance("session", session, str)
        now = self.time(now)
        with self.lock:
            if attempt.member.generation == attempt.generation:
                self.state.ledger.bind(session, attempt.slot, attempt.generation, now)
                if self.state.listener is not None:
                    self.state.listener.bound(session, attempt.slot)


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
