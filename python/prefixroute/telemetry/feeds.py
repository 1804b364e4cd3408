"""What feeds of KV events and polled metrics say of each replica, and why events may match nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from prefixroute.live import likely_reason
from prefixroute.live.connection import BLOCKS, FEED_COUNTS
from prefixroute.live.diagnosis import is_mostly_unfilled, is_of_few
from prefixroute.routing import RouterState
from prefixroute.routing.fleet import Member
from prefixroute.telemetry.prometheus import MetricsText
from prefixroute.telemetry.volatile import VolatileSample

NOTHING_MATCHES_BLOCKS = 1_000
"""Blocks that a replica reports without any prompt matching one there, from which on that is worth telling."""


class Watched(NamedTuple):
    """What is known besides the state.

    Event feeds and polled metrics by replica, what peers say, and a sample of prompts.

    ``None`` = there are none.
    """

    feeds: Mapping[str, dict[str, Any]]
    polls: Mapping[str, dict[str, Any]]
    peers: Mapping[str, Any] | None = None
    sample: VolatileSample | None = None


NOTHING_WATCHED = Watched({}, {})


def told(state: RouterState, member: Member, watched: Watched) -> dict[str, Any]:
    """Return what is heard of a replica.

    ``feed`` and ``poll``, where there is one, ``nothing_matches`` and ``crowded_blocks``.

    ``crowded_blocks`` are those with more copies than requests can have made: the engine reports reuse in the shape of
    stores, and the replica should be declared with ``reuse_reports``. ``nothing_matches`` is ``None``, or blocks
    reported since a prompt last matched one there, by several batches, with the likely reason.
    """
    found: dict[str, Any] = {}
    feed, poll = watched.feeds.get(member.name), watched.polls.get(member.name)
    if feed is not None:
        found["feed"] = {name: value for name, value in feed.items() if name not in ("recent", "samples")}
    if poll is not None:
        found["poll"] = poll
    found["crowded_blocks"] = state.belief.crowded_blocks()[member.slot]
    found["nothing_matches"] = _nothing_matches(state, state.belief.unmatched_event_blocks()[member.slot], feed)
    return found


def _nothing_matches(state: RouterState, blocks: int, feed: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the blocks that no prompt matches with the likely reason, ``None`` if they are few or of few batches.

    Args:
        state: of the router.
        blocks: blocks that the index has stored since a prompt last matched one at the replica.
        feed: what its feed tells; ``None`` = it has none, and events are applied by the host.
    """
    samples: Sequence[bytes] = ()
    recent: Sequence[int] = ()
    unfilled = unindexed = 0
    if feed is not None:
        samples, recent, events = feed["samples"], feed["recent"], Counter(feed["events"])
        stored = events["stored"] + events["confirmed"]
        if blocks >= stored:  # No prompt has ever matched. Then blocks that the index could not store count as well.
            if blocks + events["unfilled"] >= NOTHING_MATCHES_BLOCKS and is_mostly_unfilled(
                samples, stored, events["unfilled"], state.block_size
            ):
                unfilled = events["unfilled"]
            blocks += unfilled + (events["placeless"] if events["placeless"] > stored else 0)
        if stored + blocks == 0:
            unindexed = blocks = events["unindexed"]
    if blocks < NOTHING_MATCHES_BLOCKS or (not unindexed and is_of_few(blocks, recent)):
        return None
    names = state.fleet.now.cache_names
    routed = [names.of(namespace) for namespace in list(state.recent_namespaces)]
    reason, detail = likely_reason(
        samples, routed, unfilled_size=state.block_size if unfilled else None, unindexed=unindexed > 0
    )
    return {"blocks": blocks, "reason": reason, "detail": detail}


_GAUGES = {
    "feed_connected": ("connected", "1 = the engine's event socket is connected."),
    "feed_degraded": ("degraded", "1 = event batches are missing now."),
    "feed_partial": ("partial", "1 = the engine may hold blocks from before anything that could be read."),
    "feed_waiting_batches": ("waiting", "Batches that wait for missing ones."),
    "feed_lag_seconds": ("lag_s", "Age of the last batch when it was applied, by both machines' clocks."),
    "feed_idle_seconds": ("idle_s", "Seconds since the last batch."),
}


def add_feeds(text: MetricsText, replicas: Mapping[str, dict[str, Any]]) -> None:
    """Add the metrics of every event feed and poll."""
    feeds = {name: values["feed"] for name, values in replicas.items() if "feed" in values}
    if feeds:
        for metric, (field, about) in _GAUGES.items():
            known = [({"replica": n}, float(feed[field])) for n, feed in feeds.items() if feed[field] is not None]
            text.family(metric, "gauge", about, known)
        counts = [({"replica": n, "type": f}, feed[f]) for n, feed in feeds.items() for f in FEED_COUNTS]
        text.family("feed_total", "counter", "What happened to the batches and connections of event feeds.", counts)
        blocks = [({"replica": n, "type": f}, feed["events"].get(f, 0)) for n, feed in feeds.items() for f in BLOCKS]
        about = "What events did to the index, in blocks; orphaned = they wait for a parent that is not known."
        text.family("feed_blocks_total", "counter", about, blocks)
    polls = {name: values["poll"] for name, values in replicas.items() if "poll" in values}
    if polls:
        ages = [({"replica": n}, poll["age_s"]) for n, poll in polls.items() if poll["age_s"] is not None]
        text.family("poll_age_seconds", "gauge", "Age of the last reading of the engine's metrics.", ages)
        failures = [({"replica": n}, poll["failures"]) for n, poll in polls.items()]
        text.family("poll_failures_total", "counter", "Readings of the engine's metrics that failed.", failures)
    lost = [({"replica": n}, int(values["nothing_matches"] is not None)) for n, values in replicas.items()]
    text.family(
        "nothing_matches", "gauge", "1 = events arrive and no prompt matches them; stats() has the reason.", lost
    )
    found = {name: values["nothing_matches"] for name, values in replicas.items()}
    reasons = [({"replica": n, "reason": why["reason"]}, 1) for n, why in found.items() if why is not None]
    text.family("nothing_matches_reason", "gauge", "Why no prompt matches what events say, most likely.", reasons)
