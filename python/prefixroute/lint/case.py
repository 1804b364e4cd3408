"""What the checks look at: a log, measured, its bodies, the settings, and what a lost token costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from prefixroute.costmodel import HOURS_PER_MONTH, CostModel
from prefixroute.lint.log import LogEntry
from prefixroute.lint.settings import ApiSettings, LintSettings
from prefixroute.plan.traffic import Binding, TracePlan, plan_trace
from prefixroute.providers import Lifetime, Model
from prefixroute.workload import TraceStatistics, Workload, measure

MONTH_S = HOURS_PER_MONTH * 3600


@dataclass(frozen=True)
class Case:
    """A log and its settings.

    Attributes:
        workload: the log.
        entries: its bodies, where it has any.
        settings: of engines, router and API.
        model: the model of an API; None where engines of one's own serve.
        cost: prices of one's own engines.
    """

    workload: Workload
    entries: Sequence[LogEntry]
    settings: LintSettings
    model: Model | None
    cost: CostModel

    @property
    def api(self) -> ApiSettings:
        """What is said of calls to an API."""
        return self.settings.api or ApiSettings()

    @cached_property
    def statistics(self) -> TraceStatistics:
        """The log, measured."""
        return measure(self.workload)

    @cached_property
    def plan(self) -> TracePlan | None:
        """The log under the rules of the API; None for engines of one's own."""
        if self.model is None:
            return None
        binding = None if self.api.binding_s is None else Binding(self.api.binding_s, self.api.targets)
        return plan_trace(self.workload, self.model, by=(), binding=binding)

    @property
    def lifetime(self) -> Lifetime | None:
        """The lifetime that calls to the API ask for."""
        return None if self.model is None else self.model.mode().lifetime(self.api.lifetime)

    @cached_property
    def ideal_ratio(self) -> float:
        """Share of the prompt tokens that could be reused: with the best lifetime of the API, or for ever."""
        if self.plan is not None:
            return max(self.plan.total.ratio(reuse) for reuse in self.plan.total.kept.values())
        return self.statistics.ideal_hit_ratio

    @cached_property
    def usd_per_lost_token(self) -> float:
        """US dollars of a token that could have been read from the cache: written and not read, or computed again.

        At an API write - read; on engines of one's own the GPU time of prefill, at the mean length of the prompts.
        """
        mean = max(1, round(self.statistics.prompt_lengths.mean))
        if self.model is not None and self.lifetime is not None:
            price = self.model.price(mean)
            return max(0.0, price.writing(self.lifetime.name) - price.read) / 1e6
        return self.cost.usd_per_token(mean)

    def monthly(self, tokens: float) -> float | None:
        """Return US dollars a month of tokens lost in the span of the log; None if it has no span.

        Args:
            tokens: lost in the span of the log.
        """
        return self.usd_monthly(tokens * self.usd_per_lost_token)

    def usd_monthly(self, usd: float) -> float | None:
        """Return US dollars a month of dollars in the span of the log; None if it has no span.

        Args:
            usd: US dollars in the span of the log.
        """
        return usd / self.statistics.span_s * MONTH_S if self.statistics.span_s > 0 else None
