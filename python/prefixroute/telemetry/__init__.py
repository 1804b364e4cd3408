"""What a router looks like from outside: statistics, metrics, explanations, records and shadows.

All of it reads the public names of a :class:`~prefixroute.routing.RouterState`; routing knows nothing of it.
"""

from prefixroute.telemetry.metrics import metrics_text
from prefixroute.telemetry.records import Sink, read_view, replay
from prefixroute.telemetry.shadows import Regret, Shadows
from prefixroute.telemetry.status import stats
from prefixroute.telemetry.volatile import VolatileSample

__all__ = ["Regret", "Shadows", "Sink", "VolatileSample", "metrics_text", "read_view", "replay", "stats"]
