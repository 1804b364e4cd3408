"""Read an engine's load out of its Prometheus metrics. Names by engine and release are data: ``metrics.toml``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any

from prefixroute.errors import EventError
from prefixroute.extras import extra_module
from prefixroute.shipped import shipped_table
from prefixroute.validation import check_choice

MAX_TEXT_BYTES = 8 << 20
"""Metrics longer than this are not read."""
MAX_SERIES = 2_048
"""Metrics with more series of the load than this are not read: those of all replicas are parsed by one thread."""


@dataclass(frozen=True, slots=True)
class MetricNames:
    """What one engine calls its metrics; of several names the first that is present counts.

    Attributes:
        engine: the engine.
        path: where it serves them.
        prefix: how all of its names begin.
        rank_label: the label that tells data-parallel ranks apart.
        copy_labels: labels that tell processes apart which report the same figure, as those of tensor parallelism.
        total_labels: labels whose empty value is the total of the others.
        running: requests in the batch.
        waiting: requests in the queue.
        kv_use: share of the KV cache in use.
        hit_tokens: prompt tokens found in the prefix cache, since the engine started.
        prompt_tokens: prompt tokens looked up, since the engine started.
    """

    engine: str
    path: str
    prefix: str
    rank_label: str
    copy_labels: tuple[str, ...]
    total_labels: tuple[str, ...]
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    kv_use: tuple[str, ...]
    hit_tokens: tuple[str, ...]
    prompt_tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EngineReading:
    """An engine's load at one moment. ``None`` = the engine does not tell."""

    engine: str
    running: float | None
    waiting: float | None
    kv_use: float | None
    hit_tokens: float | None
    prompt_tokens: float | None


@lru_cache(maxsize=1)
def metric_names() -> dict[str, MetricNames]:
    """Return the names by engine: ``vllm``, ``sglang``, ``tensorrt-llm``."""
    data = shipped_table("prefixroute.live", "metrics.toml")
    tables: dict[str, dict[str, Any]] = {
        engine: {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
        for engine, table in data.items()
    }
    return {engine: MetricNames(engine, **table) for engine, table in tables.items()}


def engine_named(engine: str) -> MetricNames:
    """Return the names of an engine; raise ConfigError if it is not known."""
    check_choice("engine", engine, metric_names())
    return metric_names()[engine]


def read_metrics(text: str, engine: str | None = None, *, rank: int | None = None) -> EngineReading:
    """Read the metrics of one engine, or of one of its data-parallel ranks.

    Args:
        text: Prometheus text format.
        engine: which engine; ``None`` = the one whose names are found.
        rank: only series of this rank, where they are labelled by rank; ``None`` = all, counts added up and the fullest
            cache taken. What several processes of one rank report is taken once.

    Returns:
        The figures that the text has; ``None`` for each that it lacks.

    Raises:
        EventError: the text has no metrics of the engine, too many series of them, or is malformed.
        ConfigError: the engine is not known.
    """
    candidates = [engine_named(engine)] if engine is not None else list(metric_names().values())
    for names in candidates:
        if names.prefix in text:
            return _read(text, names, rank)
    raise EventError(f"no metrics of {' or '.join(names.engine for names in candidates)}: is the address right?")


def _read(text: str, names: MetricNames, rank: int | None) -> EngineReading:
    fields = ("running", "waiting", "kv_use", "hit_tokens", "prompt_tokens")
    wanted = {name for field in fields for name in getattr(names, field)}
    series: dict[str, list[tuple[dict[str, str], float]]] = {}
    for name, labels, value in _samples(text, wanted):
        told = labels.get(names.rank_label)
        if rank is None or told is None or told == str(rank):
            series.setdefault(name, []).append((labels, value))
    found: dict[str, float | None] = {}
    for field in fields:
        values = next((series[name] for name in getattr(names, field) if name in series), None)
        found[field] = None if values is None else (max if field == "kv_use" else sum)(_figures(values, names))
    if all(value is None for value in found.values()):
        raise EventError(f"the metrics have none of {', '.join(sorted(wanted))}")
    use = found.pop("kv_use")
    return EngineReading(names.engine, kv_use=None if use is None else min(1.0, use), **found)


def _figures(series: list[tuple[dict[str, str], float]], names: MetricNames) -> list[float]:
    """Return the figures that series are of: each once, whoever reports it, and no part of a total."""
    if any(labels.get(label) == "" for labels, _ in series for label in names.total_labels):
        series = [one for one in series if not any(one[0].get(label) for label in names.total_labels)]
    figures: dict[frozenset[tuple[str, str]], float] = {}
    for labels, value in series:
        figure = frozenset((label, text) for label, text in labels.items() if label not in names.copy_labels)
        figures[figure] = max(value, figures.get(figure, 0.0))
    return list(figures.values())


def _samples(text: str, wanted: set[str]) -> Iterator[tuple[str, dict[str, str], float]]:
    """Parse the lines of wanted metrics alone: engines serve thousands of others."""
    lines = [line for line in text.splitlines() if line.partition("{")[0].partition(" ")[0] in wanted]
    if len(lines) > MAX_SERIES:
        raise EventError(f"{len(lines):,} series of {', '.join(sorted(wanted))}: at most {MAX_SERIES:,} are read")
    parse = extra_module("prometheus_client.parser", "events").text_string_to_metric_families
    try:
        for family in parse("\n".join(lines) + "\n"):
            for sample in family.samples:
                if isfinite(sample.value) and sample.value >= 0:
                    yield sample.name, sample.labels, sample.value
    except (ValueError, IndexError) as error:
        raise EventError(f"malformed metrics: {error}") from error
