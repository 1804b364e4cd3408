"""The compiled half of the commit feed.

Frames (``rust/core/src/peers/wire.rs`` lays them out), what tells and what hears them.
"""

from __future__ import annotations

from prefixroute._core import (
    MAX_PEER_FRAME_BYTES,
    MAX_PEER_VERSION,
    PEER_VERSION,
    PeerChains,
    PeerFrame,
    PeerInbox,
    PeerOutbox,
    PeerRing,
    PeerRings,
    PeerSeal,
)

__all__ = [
    "MAX_PEER_FRAME_BYTES", "MAX_PEER_VERSION", "PEER_VERSION",
    "PeerChains", "PeerFrame", "PeerInbox", "PeerOutbox", "PeerRing", "PeerRings", "PeerSeal",
]  # fmt: skip
