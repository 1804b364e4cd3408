"""What a router looks like from outside: statistics, metrics, explanations, records and shadows.

All of it reads the public names of a :class:`~prefixroute.routing.RouterState`; routing knows nothing of it.
"""

from prefixroute.telemetry.records import Sink, read_view, replay
from prefixroute.telemetry.shadows import Regret, Shadows
from prefixroute.telemetry.status import metrics_text, stats

__all__ = ["Regret", "Shadows", "Sink", "metrics_text", "read_view", "replay", "stats"]
