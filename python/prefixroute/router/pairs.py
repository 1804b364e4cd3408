"""The handle of a request that two replicas serve: one computes the prompt, the other decodes the answer."""

from __future__ import annotations

from prefixroute.router.booking import Booking, rank_headers
from prefixroute.routing.pairs import BOTH, Halves, PairDecision


class PairTicket(Booking):
    """A request that is booked at two replicas, as :meth:`Router.route_pair` returns it.

    The prefill replica has the uncached prompt tokens as load until :meth:`first_token`, the decode replica the
    prompt's context until the end. The prompt's blocks are believed at both: the decode replica keeps what is moved to
    it. Everything else is as with a :class:`Ticket`: it ends once, an exception in a ``with`` block aborts it, and
    dropping it gives everything back. Thread-safe.

    Attributes:
        attempt: the half that decodes and stands for the request, to be looked at only.
        host: the state that has it, guarded.
    """

    __slots__ = ()

    @property
    def halves(self) -> Halves:
        """The attempts at both replicas, to be looked at only."""
        return Halves(self.attempt.prefill, self.attempt)

    @property
    def prefill(self) -> str:
        """Name of the replica that computes the prompt."""
        return self.halves.prefill.name

    @property
    def decode(self) -> str:
        """Name of the replica that decodes the answer; it may be the same."""
        return self.attempt.name

    @property
    def replicas(self) -> tuple[str, ...]:
        """Both names."""
        return self.prefill, self.decode

    @property
    def decision(self) -> PairDecision:
        """The decisions that were committed. The replicas may be others, see :meth:`Router.commit_pair`."""
        return PairDecision(self.attempt.prefill.decision, self.attempt.decision)

    @property
    def hit_tokens(self) -> int:
        """Leading prompt tokens that the prefill replica was believed to hold."""
        return self.halves.prefill.hit

    @property
    def moved_tokens(self) -> int:
        """Prompt tokens whose keys and values the decode replica needed, as believed; 0 if it computes the prompt."""
        same = self.attempt.slot == self.attempt.prefill.slot
        return 0 if same else self.attempt.decision.prompt_tokens - self.attempt.hit

    def prefill_headers(self) -> dict[str, str]:
        """Return the HTTP headers to send with the prompt, see :meth:`Ticket.headers`."""
        return rank_headers(self.attempt.prefill)

    def decode_headers(self) -> dict[str, str]:
        """Return the HTTP headers to send to the replica that decodes, see :meth:`Ticket.headers`."""
        return rank_headers(self.attempt)

    def retry(self, failed: str = BOTH, *, now: float | None = None) -> PairTicket:
        """Give up what has failed, and route that again to a replica that has not been tried.

        A half that has not failed stays booked where it is, if it can go on there: a prompt that is being computed, or
        a place to decode that has not begun. Else it is routed again too, and may go to the same replica.

        Returns:
            The ticket to go on with. It is this one where the half that decodes stays.

        Args:
            failed: ``prefill``, ``decode`` or ``both``.
            now: time on the router's clock in seconds.

        Raises:
            NoReplicaError: none is left; the request has ended. Or it was over before, see :meth:`Ticket.retry`.
            OverloadedError: those left are over their admission caps; the request has ended.
            ConfigError: ``failed`` is none of the three; nothing has changed.
        """
        return self.host.retry_pair(self, failed, now)

    def alias(self, session: str, *, now: float | None = None) -> None:
        """Bind another session key to the prefill replica, e.g. the response id that the next turn will name.

        Args:
            session: the key.
            now: time on the router's clock in seconds.
        """
        self.host.alias(self.attempt.prefill, session, now)
