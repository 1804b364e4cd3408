"""What engines really hold and really have to do: their KV events, load reports and metrics. Extra ``events``."""

from __future__ import annotations

from prefixroute.live.connection import Sink
from prefixroute.live.diagnosis import likely_reason
from prefixroute.live.feed import KvFeed
from prefixroute.live.metrics import EngineReading, read_metrics
from prefixroute.live.poller import LoadPoller, MetricsSource, PollOptions
from prefixroute.live.sequence import Sequence, SequenceStats
from prefixroute.live.subscriber import Subscriber
from prefixroute.live.subscription import FollowOptions

__all__ = [
    "EngineReading",
    "FollowOptions",
    "KvFeed",
    "LoadPoller",
    "MetricsSource",
    "PollOptions",
    "Sequence",
    "SequenceStats",
    "Sink",
    "Subscriber",
    "likely_reason",
    "read_metrics",
]
