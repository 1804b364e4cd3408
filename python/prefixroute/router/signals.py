"""What goes into a view: the optional signals, and which replicas are under their caps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefixroute.errors import OverloadedError

if TYPE_CHECKING:
    from prefixroute.belief import Belief
    from prefixroute.router.book import LoadBook
    from prefixroute.types import Caps, LoadReport


def gather(  # noqa: PLR0917  # one caller
    signals: frozenset[str], book: LoadBook, index: Belief, head: int | None, now: float, load: str
) -> tuple[Any, ...]:
    """Return the optional fields of a view in its order, ``None`` where the policy does not look.

    Under the load signal ``recent`` the window of recent decisions stands for what is in flight in every field, so that
    policies that weigh requests, queued tokens and decode tokens balance the same thing as those that read ``loads``.
    """
    in_flight, queued, decoding = book.in_flight, book.queued, book.decoding
    if load == "recent":
        in_flight, queued, decoding = book.recent, book.recent_queued, book.recent_decoding
    return (
        in_flight[:] if "in_flight" in signals else None,
        queued[:] if "queued" in signals else None,
        decoding[:] if "decoding" in signals else None,
        book.recent[:] if "recent" in signals else None,
        book.fresh(now) if "reports" in signals else None,
        head,
        index.held_tokens() if "held" in signals else None,
        book.last_miss[:] if "last_miss" in signals else None,
        book.window_s(now) if "window_s" in signals else None,
        book.rates[:] if "rates" in signals else None,
    )


def admitted(caps: Caps, book: LoadBook, slots: tuple[int, ...], now: float) -> tuple[int, ...]:
    """Return the slots under every cap; raise :class:`OverloadedError` if none is."""
    reports = book.fresh(now)
    under = tuple(slot for slot in slots if _under(caps, book.in_flight[slot], book.queued[slot], reports[slot]))
    if under:
        return under
    raise OverloadedError(
        f"all {len(slots)} replicas that may take the request are over their admission caps", caps.retry_after_s
    )


def _under(caps: Caps, in_flight: int, queued: int, report: LoadReport | None) -> bool:
    """Return whether a replica is under every cap; what is not known does not count against it."""
    if caps.in_flight is not None and in_flight >= caps.in_flight:
        return False
    if caps.uncached_tokens is not None and queued >= caps.uncached_tokens:
        return False
    if report is None:
        return True
    known = ((caps.waiting, report.waiting), (caps.running, report.running), (caps.kv_use, report.kv_use))
    return all(cap is None or value is None or value < cap for cap, value in known)
