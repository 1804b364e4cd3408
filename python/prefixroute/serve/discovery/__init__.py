"""Where engines are found: sources that are looked at again and again, and what follows from what they say."""

from prefixroute.serve.discovery.sources import EngineSource, check, sources_of
from prefixroute.serve.discovery.watch import FleetWatch

__all__ = ["EngineSource", "FleetWatch", "check", "sources_of"]
