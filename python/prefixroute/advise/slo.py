"""Promises on answer times, what a run tells about them, and which requests keep them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from prefixroute.advise.behind import replicas_behind
from prefixroute.errors import ConfigError
from prefixroute.sim import Promise, ResultRow, Run
from prefixroute.validation import check_choice

TIMES = ("ttft", "tpot", "itl", "e2e")
"""What can be promised: time to first token; per further token of an answer, as the mean of each answer (TPOT) or
between any two tokens (ITL); to the last token."""


@dataclass(frozen=True, slots=True)
class Slo:
    """A promise: this percentile of a time is at most so many seconds. ``time`` is one of :data:`TIMES`."""

    percentile: float
    seconds: float
    time: str = "ttft"

    def __post_init__(self) -> None:
        """Check the figures."""
        check_choice("the time of an SLO", self.time, TIMES)
        if not 0 < self.percentile < 100:  # noqa: PLR2004
            raise ConfigError(f"an SLO's percentile must be above 0 and below 100, got {self.percentile:g}")
        if not 0 < self.seconds < float("inf"):
            raise ConfigError(f"an SLO's time must be a finite number of seconds above 0, got {self.seconds:g}")

    @classmethod
    def parse(cls, text: str) -> Slo:
        """Read ``ttft_p95=1.5s``, ``tpot_p99=50ms``, ``itl_p99=100ms``, or ``e2e_p95=20``, which is seconds.

        Args:
            text: metric, percentile and longest time, with ``ms`` or ``s``; without a unit in seconds.

        Returns:
            The promise.

        Raises:
            ConfigError: the text has another form.
        """
        match = re.fullmatch(rf"({'|'.join(TIMES)})_p(\d+(?:\.\d+)?)=(\d+(?:\.\d+)?)(ms|s|)", text.strip())
        if match is None:
            raise ConfigError(
                f"an SLO looks like ttft_p95=1.5s, tpot_p95=50ms, itl_p99=100ms or e2e_p99=20s, got {text!r}"
            )
        time, percentile, value, unit = match.groups()
        return cls(float(percentile), float(value) / (1_000 if unit == "ms" else 1), time)

    @classmethod
    def parse_all(cls, text: str) -> tuple[Slo, ...]:
        """Read several, separated by commas; each time and percentile once.

        Args:
            text: promises as :meth:`parse` reads them, separated by commas.

        Returns:
            The promises in the order of the text.

        Raises:
            ConfigError: one has another form, or there are two of one kind.
        """
        slos = tuple(cls.parse(part) for part in text.split(","))
        if len({(slo.time, slo.percentile) for slo in slos}) < len(slos):
            raise ConfigError(f"an SLO promises each percentile once, got {text!r}")
        return slos

    def measured(self, run: Run) -> float:
        """Return this percentile of a timed run; 0 where there is nothing to measure.

        TPOT counts outputs of two tokens or more.

        Args:
            run: a timed run.
        """
        if self.time == "itl":
            return run.gaps.percentile(self.percentile)
        seconds = _seconds(run, self.time)
        return float(np.percentile(seconds, self.percentile)) if len(seconds) else 0.0

    def __str__(self) -> str:
        """Return the form that :meth:`parse` reads."""
        return f"{self.time}_p{self.percentile:g}={self.seconds:g}s"


def _seconds(run: Run, time: str) -> np.ndarray:
    log = run.log
    first, finish = log.column("first_token"), log.column("finish")
    if time == "tpot":
        output = log.column("output")
        several = output > 1
        return np.asarray((finish - first)[several] / (output[several] - 1))
    return np.asarray((first if time == "ttft" else finish) - log.column("arrival"))


def promise_of(slos: Sequence[Slo]) -> Promise | None:
    """Return what a request must keep to count as goodput under these promises; None without promises.

    Of several percentiles of one time the highest counts. That of ITL is of the gaps of each request.
    """
    limits: dict[str, Any] = {}
    for slo in sorted(slos, key=lambda slo: slo.percentile):
        limits[f"{slo.time}_s"] = slo.seconds
        if slo.time == "itl":
            limits["itl_percentile"] = slo.percentile
    return Promise(**limits) if limits else None


class SloReading(NamedTuple):
    """What a run, or the worst of several, tells about promises.

    Percentiles in seconds, the share of prompt tokens computed again, the share of time with work, preemptions a
    request, whether a replica cannot keep up, and requests a second that kept every promise (None without promises).
    """

    seconds: tuple[float, ...]
    recompute_ratio: float
    busy: float
    preempted: float
    is_overloaded: bool
    goodput_per_s: float | None = None

    def keeps(self, slos: Sequence[Slo], most_preempted: float | None) -> bool:
        """Whether no promise is broken, and memory suffices.

        One that grows with the length of the log is no promise kept.
        """
        kept_all = all(value <= slo.seconds for value, slo in zip(self.seconds, slos, strict=True))
        remembers = most_preempted is None or self.preempted <= most_preempted
        return kept_all and not self.is_overloaded and remembers


def worst(runs: Sequence[SloReading]) -> SloReading:
    """Return the worst of several runs, figure by figure: a seed that breaks a promise breaks it."""
    return SloReading(
        tuple(max(each) for each in zip(*(run.seconds for run in runs), strict=True)),
        max(run.recompute_ratio for run in runs),
        max(run.busy for run in runs),
        max(run.preempted for run in runs),
        any(run.is_overloaded for run in runs),
        min((run.goodput_per_s for run in runs if run.goodput_per_s is not None), default=None),
    )


@dataclass(frozen=True, slots=True)
class SloMeter:
    """Reads the promised percentiles of a run; an object so that other processes can have it."""

    slos: tuple[Slo, ...]

    def __call__(self, run: Run) -> SloReading:
        """Read them."""
        seconds = tuple(slo.measured(run) for slo in self.slos)
        row = ResultRow.over([run.outcome])
        behind = replicas_behind(run.log, len(run.names)) > 0 or row.is_overloaded
        preempted = row.preempted or 0.0
        return SloReading(seconds, row.recompute_ratio, row.busy or 0.0, preempted, behind, row.goodput_per_s)
