"""What engines really hold and really have to do: their KV events, load reports and metrics. Extra ``events``."""

from __future__ import annotations

from prefixroute.live.connection import FollowOptions, Sink
from prefixroute.live.feed import KvFeed
from prefixroute.live.sequence import Sequence, SequenceStats
from prefixroute.live.subscriber import Subscriber

__all__ = ["FollowOptions", "KvFeed", "Sequence", "SequenceStats", "Sink", "Subscriber"]
