"""The busiest part of a workload: a fleet has to carry that, not the mean of a day, nor its first hour."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from prefixroute.workload import Request, Workload


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a workload, with the requests before it that warm the caches.

    Attributes:
        workload: warm-up and part; arrivals count from its first request.
        warmup: its first requests, which only warm caches.
        requests: of the part.
        whole: whether it is all of the workload.
        begins_s: when the part begins, in the workload's seconds.
        span_s: how long it lasts.
        tokens_per_s: prompt tokens that come in a second of it.
        times_mean: the same over the mean of the workload.
    """

    workload: Workload
    warmup: int
    requests: int
    whole: bool
    begins_s: float
    span_s: float
    tokens_per_s: float
    times_mean: float


def busiest(workload: Workload, most: int) -> Part:
    """Return the ``most`` consecutive requests whose prompt tokens come fastest; all of a shorter workload. One pass.

    As many requests before them warm the caches, where there are as many.
    """
    arrivals, prompts = _columns(workload)
    count = len(arrivals)
    span = float(arrivals[-1] - arrivals[0]) if count else 0.0
    mean = float(prompts.sum()) / span if span else 0.0
    if count <= most:
        known = replace(workload, request_count=count)
        return Part(known, 0, count, whole=True, begins_s=0.0, span_s=span, tokens_per_s=mean, times_mean=1.0)
    total = np.concatenate([[0], np.cumsum(prompts)])
    spans = np.maximum(arrivals[most - 1 :] - arrivals[: count - most + 1], 1e-9)
    rates = (total[most:] - total[: count - most + 1]) / spans
    first = int(np.argmax(rates))
    begin = max(0, first - most)
    part = _slice(workload, begin, first + most, float(arrivals[begin]))
    rate = float(rates[first])
    return Part(
        part,
        first - begin,
        most,
        whole=False,
        begins_s=float(arrivals[first]),
        span_s=float(spans[first]),
        tokens_per_s=rate,
        times_mean=rate / mean if mean else 1.0,
    )


def _columns(workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    pairs = [(request.arrival_s, request.prompt_tokens) for request in workload.requests()]
    arrivals, prompts = zip(*pairs, strict=True) if pairs else ((), ())
    return np.array(arrivals, np.float64), np.array(prompts, np.int64)


def _slice(workload: Workload, begin: int, end: int, zero_s: float) -> Workload:
    def source() -> Iterator[Request]:
        for request in itertools.islice(workload.requests(), begin, end):
            yield request._replace(arrival_s=request.arrival_s - zero_s)

    return replace(workload, source=source, request_count=end - begin, volatile=None)
