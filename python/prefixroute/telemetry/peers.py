"""What other routers say, and how messages between them fare, as metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefixroute.telemetry.prometheus import MetricsText


def peer_notes(peers: Mapping[str, Any] | None) -> list[str]:
    """Return what an operator should know of other routers, in sentences: that what they say is refused."""
    if peers is None or peers["refusal"] is None:
        return []
    count = sum(peers["refused"].values())
    note = (
        f"messages of another router are refused ({count:,} so far), so that nothing is shared with it: {peers['refusal']}. "
        "Routers that share need the same block_size, hash_key, peer_secret and version"
    )
    return [note]


def add_peers(text: MetricsText, peers: Mapping[str, Any]) -> None:
    """Add the metrics of the commit feed, and of what carries it."""
    text.family("peers", "gauge", "Other routers that were heard of lately.", peers["living"])
    text.family("peers_inflight", "gauge", "Requests that they have in flight.", peers["in_flight"])
    if peers["heard_s"] is not None:
        text.family("peers_heard_seconds", "gauge", "Seconds since one of them was heard of.", peers["heard_s"])
    text.family("peer_received_total", "counter", "Messages of other routers.", peers["received"])
    sent = [({"type": kind}, count) for kind, count in sorted(peers["sent"].items())]
    text.family("peer_sent_total", "counter", "Messages to other routers; unsent = given to nobody.", sent)
    trouble = [({"type": kind}, count) for kind, count in sorted(peers["trouble"].items())]
    text.family("peer_trouble_total", "counter", "What was odd about messages of other routers.", trouble)
    refused = [({"reason": reason}, count) for reason, count in peers["refused"].items()]
    text.family("peer_refused_total", "counter", "Messages of other routers that were refused, by why.", refused)
    text.family("peer_expired_total", "counter", "Requests of silent routers that were given back.", peers["expired"])
    transport = peers.get("transport")
    if transport is not None:
        labels = {"transport": transport["kind"]}
        text.family(
            "peer_connected", "gauge", "1 = messages can reach other routers.", [(labels, int(transport["connected"]))]
        )
        counts = [({**labels, "type": name}, transport[name]) for name in ("lost", "refused") if name in transport]
        text.family("peer_transport_total", "counter", "Messages that the transport lost or could not read.", counts)
