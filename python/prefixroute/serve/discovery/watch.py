"""Looking at sources again and again, and telling the fleet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from prefixroute.serve.discovery.sources import EngineSource, Found
from prefixroute.serve.fleet import ServedFleet
from prefixroute.serve.metrics import Metrics
from prefixroute.serve.settings import Discovery

_LOG = logging.getLogger("prefixroute.serve")


class FleetWatch:
    """Keeps the fleet equal to what the sources list together.

    A source that cannot tell, or that lists nothing after it has listed something, changes nothing: a resolver that
    fails, a file that is being written, or an API server that restarts would otherwise empty a fleet that works. Checks
    and breakers see which engines are really gone.

    Args:
        sources: together they are the fleet.
        fleet: is told.
        metrics: counts failures.
        options: times.
    """

    def __init__(
        self, sources: Sequence[EngineSource], fleet: ServedFleet, metrics: Metrics, options: Discovery
    ) -> None:
        self._sources, self._fleet, self._metrics, self._options = sources, fleet, metrics, options
        self._last: dict[str, Found] = {}
        self._complaints: dict[str, str] = {}

    async def look(self) -> None:
        """Look at every source once, and tell the fleet."""
        found = await asyncio.gather(*(self._find(source) for source in self._sources))
        wanted: Found = {}
        for each in found:
            wanted |= each
        self._fleet.update(wanted)

    async def run(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(self._options.interval_s)
            await self.look()

    async def _find(self, source: EngineSource) -> Found:
        last = self._last.get(source.name, {})
        try:
            async with asyncio.timeout(self._options.timeout_s):
                found = await source.find()
        except Exception as error:  # noqa: BLE001  # whatever a source's library raises
            self._complain(source.name, f"cannot tell: {error!r}")
            return last
        if not found and last:
            self._complain(source.name, "lists nothing: its last engines stay")
            return last
        self._complaints.pop(source.name, None)
        self._last[source.name] = found
        return found

    def _complain(self, source: str, what: str) -> None:
        self._metrics.discovery_failures.labels(source).inc()
        if self._complaints.get(source) != what:  # once, not every two seconds
            _LOG.warning("discovery by %s %s", source, what)
            self._complaints[source] = what
