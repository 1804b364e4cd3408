"""What a run measured: one outcome per run, one row over the seeds.

Every mean is over requests unless a name says otherwise; ratios are token-weighted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PERCENTILES = (50, 90, 99)
LEAST_PER_REPLICA = 10
"""Requests of a replica from which a short burst says whether it keeps up."""
CURVE = tuple(share / 100 for share in range(101))
"""Shares of requests at which the distribution of TTFT is kept."""


@dataclass(frozen=True, slots=True)
class Timings:
    """A time of each request of one run, in seconds: to the first token, per output token, or to the last.

    ``curve`` is the time within which each share of :data:`CURVE` was answered; empty for a run without requests.
    """

    mean: float
    p50: float
    p90: float
    p99: float
    curve: tuple[float, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, seconds: Floats) -> Timings:
        """Summarise one number of seconds per request; zeros if there is none.

        Args:
            seconds: one for each request.

        Returns:
            Mean and percentiles, in seconds.
        """
        if not len(seconds):
            return cls(0.0, 0.0, 0.0, 0.0)
        p50, p90, p99 = np.percentile(seconds, PERCENTILES)
        curve = tuple(np.quantile(seconds, CURVE).tolist())
        return cls(float(seconds.mean()), float(p50), float(p90), float(p99), curve)


@dataclass(frozen=True, slots=True)
class TokenGaps:
    """Gaps between two tokens of an answer (inter-token latency), over all tokens of a timed run.

    Seconds, and how many.

    ``seconds`` ascend, and are known to within 0.4 %; one that spans a preemption is as long as the reader waited.
    """

    seconds: Floats = field(repr=False)
    counts: Integers = field(repr=False)

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, int]]) -> TokenGaps:
        """Return those that a :class:`~prefixroute.sim.engine.Cluster` counted."""
        seconds, counts = zip(*pairs, strict=True) if pairs else ((), ())
        return cls(np.array(seconds, np.float64), np.array(counts, np.int64))

    def percentile(self, percent: float) -> float:
        """Return the seconds that this share of the gaps, in per cent, do not exceed; zero without gaps."""
        if not len(self.counts):
            return 0.0
        below = np.cumsum(self.counts)
        return float(self.seconds[np.searchsorted(below, percent / 100 * below[-1])])

    def timings(self, mean: float) -> Timings:
        """Return them beside a mean that is known exactly."""
        p50, p90, p99 = map(self.percentile, PERCENTILES)
        return Timings(mean, p50, p90, p99)


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """Load of a fleet over a run, in equal parts of it: of its least loaded replica, the mean, and its most loaded.

    Timed: requests in flight (the mean over the part), and ``middles`` are seconds. Untimed: requests received in the
    part, and ``middles`` count requests. Each has one value a part.
    """

    timed: bool
    middles: tuple[float, ...]
    least: tuple[float, ...]
    mean: tuple[float, ...]
    most: tuple[float, ...]

    @classmethod
    def of(cls, edges: Floats, load: Floats, *, timed: bool) -> LoadCurve:
        """Summarise a load, shape ``[parts, replicas]``, between the ``edges`` of the parts, shape ``[parts + 1]``."""
        middles = (edges[:-1] + edges[1:]) / 2
        columns = (middles, load.min(axis=1), load.mean(axis=1), load.max(axis=1))
        return cls(timed, *(tuple(column.tolist()) for column in columns))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run gave, for one policy, one fleet and one seed.

    ``served`` counts requests per replica. ``usd_per_million_requests_busiest`` is what prefill costs if every replica
    is bought to carry what the busiest one carries: its prefill seconds x replicas.

    The rest is None where it was not measured; an untimed run has no clock. ``queue_mean_s``: seconds before prefill
    starts; ``requests_per_s`` finished over the span of the run; ``busy``: the share of replica time with work;
    ``arrivals_per_s`` over the span of the arrivals. ``tpot``: seconds per output token after the first, of each
    request that has two or more; ``itl``: seconds between two tokens, over all tokens (:class:`TokenGaps`); ``e2e``:
    seconds from arrival to the last token. ``preemptions``: how often a request was preempted for want of memory;
    ``goodput_per_s``: requests a second that kept the scenario's promise, ``missed_ratio`` the share of those that did
    not; ``kv_duplicated_gb``: what caches held at the end that another one held as well. ``load``, for pictures, is
    there where it was asked for.

    Where prefill and decode are apart, ``served`` counts prompts per prefill replica and ``decoded`` answers per decode
    replica.
    ``prefill_busy`` and ``decode_busy``: the same share of each kind; ``handover_mean_s``: seconds from the end of
    prefill until the request decodes, which TTFT and ``queue_mean_s`` include; ``moved_tokens``: prompt tokens whose
    keys and values moved.
    """

    policy: str
    replicas: int
    seed: int
    requests: int
    prompt_tokens: int
    recomputed_tokens: int
    served: tuple[int, ...]
    ttft: Timings
    usd_per_million_requests: float
    usd_per_million_requests_busiest: float = 0.0
    queue_mean_s: float | None = None
    requests_per_s: float | None = None
    busy: float | None = None
    arrivals_per_s: float | None = None
    tpot: Timings | None = None
    itl: Timings | None = None
    e2e: Timings | None = None
    preemptions: int | None = None
    goodput_per_s: float | None = None
    missed_ratio: float | None = None
    kv_duplicated_gb: float | None = None
    prefill_replicas: int | None = None
    decode_replicas: int | None = None
    decoded: tuple[int, ...] = ()
    prefill_busy: float | None = None
    decode_busy: float | None = None
    handover_mean_s: float | None = None
    moved_tokens: int | None = None
    load: LoadCurve | None = field(default=None, repr=False, compare=False)

    @property
    def recompute_ratio(self) -> float:
        """Recomputed prompt tokens over prompt tokens; zero for a run without tokens."""
        return self.recomputed_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def skew(self) -> float:
        """Requests at the busiest replica over the mean of all replicas of its kind; one for a run without requests."""
        pools = [pool for pool in (self.served, self.decoded) if pool]
        return max(max(pool) * len(pool) for pool in pools) / self.requests if self.requests else 1.0


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One line of ``simulate --json``: a policy on a fleet, over ``seeds`` runs.

    ``requests`` and the token counts are of one run (the mean over the seeds); ``recompute_ratio`` is of all runs
    together, its spread the largest minus the smallest run; the rest are means over the runs.
    ``recompute_ratio_infinite`` is the same policy with caches that never evict. For pictures, and not part of the
    JSON:
    ``ttft_curve_s``, and ``load``, which is that of the first run.
    """

    policy: str
    replicas: int
    seeds: int
    requests: int
    prompt_tokens: int
    recomputed_tokens: int
    recompute_ratio: float
    recompute_ratio_spread: float
    floor: float | None
    skew: float
    usd_per_million_requests: float
    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float
    usd_per_million_requests_busiest: float = 0.0
    recompute_ratio_infinite: float | None = None
    queue_mean_s: float | None = None
    requests_per_s: float | None = None
    busy: float | None = None
    arrivals_per_s: float | None = None
    tpot_mean_s: float | None = None
    tpot_p50_s: float | None = None
    tpot_p90_s: float | None = None
    tpot_p99_s: float | None = None
    itl_mean_s: float | None = None
    itl_p50_s: float | None = None
    itl_p90_s: float | None = None
    itl_p99_s: float | None = None
    e2e_mean_s: float | None = None
    e2e_p50_s: float | None = None
    e2e_p90_s: float | None = None
    e2e_p99_s: float | None = None
    preemptions: float | None = None
    goodput_per_s: float | None = None
    missed_ratio: float | None = None
    kv_duplicated_gb: float | None = None
    prefill_replicas: int | None = None
    decode_replicas: int | None = None
    prefill_busy: float | None = None
    decode_busy: float | None = None
    handover_mean_s: float | None = None
    moved_tokens: float | None = None
    ttft_curve_s: tuple[float, ...] = field(default=(), repr=False)
    load: LoadCurve | None = field(default=None, repr=False)

    @classmethod
    def over(cls, runs: Sequence[Outcome], floor: float | None = None, infinite: float | None = None) -> ResultRow:
        """Join the runs of one policy and fleet that differ by their seed. Needs at least one run.

        Args:
            runs: one for each seed.
            floor: compulsory recompute ratio of the workload; ``None`` = not known.
            infinite: recompute ratio with unlimited caches; ``None`` = not known.

        Returns:
            The means, with the least and greatest of the seeds.
        """
        ratios = [run.recompute_ratio for run in runs]
        prompt, recomputed = (
            sum(getattr(run, name) for run in runs) for name in ("prompt_tokens", "recomputed_tokens")
        )
        count = len(runs)
        measured: dict[str, Any] = {name: _mean_if_all([getattr(run, name) for run in runs]) for name in _MEASURED}
        for name in ("ttft", "tpot", "itl", "e2e"):
            measured |= _times(name, [getattr(run, name) for run in runs])
        return cls(
            policy=runs[0].policy,
            replicas=runs[0].replicas,
            seeds=count,
            requests=round(sum(run.requests for run in runs) / count),
            prompt_tokens=round(prompt / count),
            recomputed_tokens=round(recomputed / count),
            recompute_ratio=recomputed / prompt if prompt else 0.0,
            recompute_ratio_spread=max(ratios) - min(ratios),
            floor=floor,
            skew=_mean([run.skew for run in runs]),
            usd_per_million_requests=_mean([run.usd_per_million_requests for run in runs]),
            usd_per_million_requests_busiest=_mean([run.usd_per_million_requests_busiest for run in runs]),
            recompute_ratio_infinite=infinite,
            prefill_replicas=runs[0].prefill_replicas,
            decode_replicas=runs[0].decode_replicas,
            **measured,
            ttft_curve_s=tuple(map(_mean, zip(*(run.ttft.curve for run in runs), strict=False))),
            load=runs[0].load,
        )

    @property
    def preempted(self) -> float | None:
        """Preemptions a request; None untimed."""
        return None if self.preemptions is None else self.preemptions / max(1, self.requests)

    @property
    def is_overloaded(self) -> bool:
        """Whether requests came faster than they were served: waiting then grows for as long as they come.

        They waited for a twentieth of the span of the arrivals in the mean, and were served at less than 95 % of the
        rate. What is too short to tell is not: see :attr:`is_too_short`.
        """
        return self._is_late and not self.is_too_short

    @property
    def is_too_short(self) -> bool:
        """Whether it cannot be told if requests came faster than they were served: they waited, but were a short burst.

        Fewer than :data:`LEAST_PER_REPLICA` came to a replica in the mean, and the last before the first was answered:
        what looks like a rate of service is the end of the burst.
        """
        if not self._is_late or self.e2e_mean_s is None or self.queue_mean_s is None:
            return False
        few = self.requests < LEAST_PER_REPLICA * self.replicas
        return few and self._span_s < self.e2e_mean_s - self.queue_mean_s

    @property
    def _span_s(self) -> float:
        return self.requests / self.arrivals_per_s if self.arrivals_per_s else 0.0

    @property
    def _is_late(self) -> bool:
        if not self.arrivals_per_s or self.queue_mean_s is None or self.requests_per_s is None:
            return False
        return self.queue_mean_s > self._span_s / 20 and self.requests_per_s < 0.95 * self.arrivals_per_s

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object: fields in order; what this run did not measure is left out, the floor never."""
        fields = dataclasses.asdict(self)
        del fields["ttft_curve_s"], fields["load"]
        return {name: value for name, value in fields.items() if value is not None or name == "floor"}


_MEASURED = [
    field.name
    for field in dataclasses.fields(ResultRow)
    if field.type == "float | None" and field.name in Outcome.__dataclass_fields__
]
"""Figures that a row has of its runs as they are: the mean, where each run has measured it."""


def _times(name: str, runs: Sequence[Timings | None]) -> dict[str, float]:
    known = [run for run in runs if run is not None]
    if len(known) < len(runs):
        return {}
    return {f"{name}_{part}_s": _mean([getattr(run, part) for run in known]) for part in ("mean", "p50", "p90", "p99")}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _mean_if_all(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _mean(known) if len(known) == len(values) else None
