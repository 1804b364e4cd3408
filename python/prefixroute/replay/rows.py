"""What a replay measured: a row for each request, figures for each policy, and differences with their intervals."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
RESAMPLES = 1_000
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """One request under one policy. Times are seconds from the start of its part.

    Attributes:
        policy: by which it was routed.
        part: which part of the trace, from 0.
        number: which request of the trace, from 0.
        session: its conversation.
        replica: where it went.
        due_s: when it should have been sent.
        sent_s: when it was.
        first_s: when the first token came.
        done_s: when the last came.
        prompt_tokens: tokens of its prompt.
        output_tokens: tokens of its answer.
        cached_tokens: prompt tokens that the engine had cached, as it says.
        predicted_tokens: prompt tokens that the router expected to be cached.
        in_flight: other requests of the router that were at the replica when it was sent.
        warm: it warmed the caches up and is in no figure.
        error: what went wrong; empty = nothing.
    """

    policy: str
    part: int
    number: int
    session: str | None
    replica: str
    due_s: float
    sent_s: float
    first_s: float | None
    done_s: float | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None
    predicted_tokens: int
    in_flight: int
    warm: bool
    error: str

    @property
    def ttft_s(self) -> float:
        """Seconds to the first token from when the request was due: what a late sender adds is not left out."""
        return float("nan") if self.first_s is None else self.first_s - self.due_s

    @property
    def tpot_s(self) -> float:
        """Seconds for each token after the first."""
        if self.first_s is None or self.done_s is None or self.output_tokens < 2:  # noqa: PLR2004  # none after the first
            return float("nan")
        return (self.done_s - self.first_s) / (self.output_tokens - 1)

    @property
    def total_s(self) -> float:
        """Seconds to the last token from when the request was due."""
        return float("nan") if self.done_s is None else self.done_s - self.due_s


@dataclass(frozen=True, slots=True)
class RequestSlo:
    """What a request must keep to count as good, in seconds; ``None`` = no bound."""

    ttft_s: float | None = None
    tpot_s: float | None = None

    def kept(self, row: ReplayRow) -> bool:
        """Return whether a request kept it.

        Args:
            row: of the request.
        """
        if row.error:
            return False
        slow = self.ttft_s is not None and not row.ttft_s <= self.ttft_s
        return not slow and (self.tpot_s is None or not row.tpot_s > self.tpot_s)


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one policy. Percentiles and means are over requests that were answered.

    ``recompute_ratio`` is over requests whose engine told its cached tokens, ``None`` if none did; ``goodput_rps``
    counts requests that kept the SLO, by the seconds that arrivals lasted; ``late_max_s`` is how late the sender was at
    worst.
    """

    policy: str
    requests: int
    errors: int
    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float
    tpot_mean_s: float
    total_mean_s: float
    recompute_ratio: float | None
    predicted_recompute_ratio: float
    skew: float
    goodput_rps: float
    good_share: float
    late_max_s: float

    @classmethod
    def of(cls, policy: str, rows: Sequence[ReplayRow], replicas: int, slo: RequestSlo) -> Figures:
        """Sum up the rows of a policy, those that warmed up left out.

        Args:
            policy: its name.
            rows: of all policies; those of others are left out.
            replicas: of the fleet.
            slo: of which the share that kept it is counted.

        Returns:
            The figures.
        """
        rows = [row for row in rows if not row.warm]
        served = [row for row in rows if not row.error]
        ttft = np.array([row.ttft_s for row in served], np.float64)
        told = [row for row in served if row.cached_tokens is not None]
        counts: dict[str, int] = {}
        for row in rows:
            counts[row.replica] = counts.get(row.replica, 0) + 1
        good = sum(slo.kept(row) for row in rows)
        span = sum(_span([row.due_s for row in rows if row.part == part]) for part in {row.part for row in rows})
        p50, p90, p99 = np.percentile(ttft, (50, 90, 99)) if len(ttft) else (np.nan,) * 3
        return cls(
            policy=policy,
            requests=len(rows),
            errors=len(rows) - len(served),
            ttft_mean_s=_mean(ttft),
            ttft_p50_s=float(p50),
            ttft_p90_s=float(p90),
            ttft_p99_s=float(p99),
            tpot_mean_s=_mean(np.array([row.tpot_s for row in served])),
            total_mean_s=_mean(np.array([row.total_s for row in served])),
            recompute_ratio=_recomputed(told, lambda row: row.cached_tokens or 0) if told else None,
            predicted_recompute_ratio=_recomputed(rows, lambda row: row.predicted_tokens),
            skew=max(counts.values(), default=0) * replicas / len(rows) if rows else 1.0,
            goodput_rps=good / span if span else 0.0,
            good_share=good / len(rows) if rows else 0.0,
            late_max_s=max((row.sent_s - row.due_s for row in rows), default=0.0),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of a JSON object; what is not a number is None."""
        return {name: None if value != value else value for name, value in asdict(self).items()}  # noqa: PLR0124  # NaN


@dataclass(frozen=True, slots=True)
class Difference:
    """How much a policy differs from the first one, on the same requests, with its interval.

    Attributes:
        policy: the policy.
        figure: ``ttft_s``, ``tpot_s``, ``total_s`` (means, seconds) or ``recompute_ratio``.
        value: the policy's figure minus that of the first policy.
        low: lower end of the interval at :data:`LEVEL`, over sessions; minus infinity where there is one session only.
        high: upper end.
        pairs: requests that both policies answered.
    """

    policy: str
    figure: str
    value: float
    low: float
    high: float
    pairs: int

    @property
    def is_noise(self) -> bool:
        """Whether the interval contains zero."""
        return self.low <= 0.0 <= self.high

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object; an end that is not known is null."""
        ends = {name: end if math.isfinite(end) else None for name, end in (("low", self.low), ("high", self.high))}
        return {**asdict(self), **ends, "within_noise": self.is_noise}


def differences(rows: Iterable[ReplayRow], policies: Sequence[str], seed: int = 0) -> list[Difference]:
    """Compare each policy with the first, request by request.

    Sessions are resampled whole: their turns are not independent.

    Args:
        rows: of all policies.
        policies: the first is the reference.
        seed: of the bootstrap.

    Returns:
        A difference with its interval for each further policy and figure that any request has under both.
    """
    by_policy: dict[str, dict[tuple[int, int], ReplayRow]] = {policy: {} for policy in policies}
    for row in rows:
        if not row.warm and not row.error:
            by_policy[row.policy][row.part, row.number] = row
    first = by_policy[policies[0]] if policies else {}
    found: list[Difference] = []
    for policy in policies[1:]:
        pairs = [(first[key], row) for key, row in by_policy[policy].items() if key in first]
        for figure in ("ttft_s", "tpot_s", "total_s"):
            known = [pair for pair in pairs if not any(math.isnan(getattr(row, figure)) for row in pair)]
            values = [(getattr(other, figure) - getattr(one, figure), 1.0) for one, other in known]
            found += _resampled(policy, figure, known, values, seed)
        told = [(one, other) for one, other in pairs if None not in (one.cached_tokens, other.cached_tokens)]
        saved = [((one.cached_tokens or 0) - (other.cached_tokens or 0), one.prompt_tokens) for one, other in told]
        found += _resampled(policy, "recompute_ratio", told, saved, seed)
    return found


def _resampled(
    policy: str,
    figure: str,
    pairs: Sequence[tuple[ReplayRow, ReplayRow]],
    values: Sequence[tuple[float, float]],
    seed: int,
) -> list[Difference]:
    """Bootstrap a ratio of sums over sessions; nothing without pairs."""
    if not pairs:
        return []
    names: dict[Any, int] = {}
    groups = [names.setdefault(one.session or (one.part, one.number), len(names)) for one, _ in pairs]
    above, below = np.zeros(len(names)), np.zeros(len(names))
    for group, (value, weight) in zip(groups, values, strict=True):
        above[group] += value
        below[group] += weight
    rng = np.random.default_rng([seed, 0x7265_706C])
    counts = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=RESAMPLES)
    weights = counts @ below
    ratios = (counts @ above)[weights > 0] / weights[weights > 0]
    low, high = np.quantile(ratios, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    if len(names) < 2:  # noqa: PLR2004  # one session alone tells nothing of another
        low, high = -math.inf, math.inf
    return [Difference(policy, figure, float(above.sum() / below.sum()), float(low), float(high), len(pairs))]


def write_rows(rows: Iterable[ReplayRow], out: IO[str]) -> None:
    """Write rows as CSV, with the column ``seconds`` that ``prefixroute fit`` reads.

    Args:
        rows: of a replay.
        out: takes the text.
    """
    names = [field.name for field in fields(ReplayRow)]
    table = csv.writer(out)
    table.writerow([*names, "seconds"])
    for row in rows:
        seconds = "" if row.first_s is None else row.first_s - row.sent_s
        table.writerow([*(("" if value is None else value) for value in asdict(row).values()), seconds])


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _span(times: Sequence[float]) -> float:
    return max(times) - min(times) if times else 0.0


def _recomputed(rows: Sequence[ReplayRow], hit: Callable[[ReplayRow], int]) -> float:
    prompt = sum(row.prompt_tokens for row in rows)
    return 1.0 - sum(hit(row) for row in rows) / prompt if prompt else 0.0
