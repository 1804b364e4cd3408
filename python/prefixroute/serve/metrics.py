"""Metrics of the server, beside those of its Router; and of several workers as one text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from time import monotonic

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from prefixroute.serve.downstream import Downstream
from prefixroute.serve.trail import Trail

PREFIX = "prefixroute_serve"
TEXT_FORMAT = "text/plain; version=0.0.4"
"""Media type of metrics."""
OVERHEAD_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
"""Bounds of the time that the proxy itself takes, in seconds."""
FIRST_BYTE_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Bounds of the time to the first byte, in seconds."""


class Metrics:
    """Counters of one worker, in a registry of their own.

    Attributes:
        open: requests in progress.
        retries: further engines asked, by why.
        draining: 1 once SIGTERM has come.
        failures: failures of engines, by kind.
        discovery_failures: looks at a source that failed.
    """

    def __init__(self) -> None:
        """Count from zero."""
        self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self.requests = counter(f"{PREFIX}_requests", "Requests by how they ended.", ["path", "status", "outcome"])
        self.open = gauge(f"{PREFIX}_open_requests", "Requests in progress.")
        self.retries = counter(f"{PREFIX}_retries", "Further engines asked before the first byte.", ["why"])
        self.hedges = counter(f"{PREFIX}_hedges", "Second engines asked beside a slow first one.", ["winner"])
        self.failures = counter(f"{PREFIX}_engine_failures", "Failures of engines and of their checks.", ["kind"])
        self.breakers = counter(f"{PREFIX}_breaker_changes", "Changes of circuit breakers.", ["to"])
        self.discovery_failures = counter(
            f"{PREFIX}_discovery_failures", "Looks at a source of replicas that failed.", ["source"]
        )
        self.draining = gauge(f"{PREFIX}_draining", "1 = told to end; takes no new connections.")
        self.overhead = histogram(
            f"{PREFIX}_overhead_seconds", "From a request's head to asking its engine.", buckets=OVERHEAD_S
        )
        self.first_byte = histogram(
            f"{PREFIX}_first_byte_seconds", "From a request's head to the first byte out.", buckets=FIRST_BYTE_S
        )
        self.duration = histogram(
            f"{PREFIX}_request_seconds", "From a request's head to its end.", buckets=FIRST_BYTE_S
        )

    def ended(self, trail: Trail, client: Downstream) -> None:
        """Count a request that is over."""
        self.requests.labels(trail.api, str(client.status), trail.outcome).inc()
        if trail.asked_at:
            self.overhead.observe(trail.asked_at - trail.began_at)
        if client.first_at:
            self.first_byte.observe(client.first_at - trail.began_at)
        self.duration.observe(monotonic() - trail.began_at)

    def text(self) -> str:
        """Return the text format of Prometheus."""
        return generate_latest(self.registry).decode()


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def merged(texts: Mapping[str, str]) -> str:
    """Return the metrics of several workers as one text, each sample with the label ``worker``."""
    families: dict[str, Metric] = {}
    for worker, text in texts.items():
        for family in text_string_to_metric_families(text):
            known = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                known.add_sample(sample.name, {**sample.labels, "worker": worker}, sample.value)
    registry = CollectorRegistry()
    registry.register(_Families(families.values()))
    return generate_latest(registry).decode()
