"""The same traffic at every API and on replicas of one's own: the first question of the decision tree, with numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from prefixroute.advise.size import FleetSize, size
from prefixroute.advise.slo import Slo
from prefixroute.costmodel import HOURS_PER_MONTH, Assumption, CostModel
from prefixroute.errors import ConfigError
from prefixroute.plan.burst import figures_assumed
from prefixroute.plan.traffic import Traffic, plan_trace
from prefixroute.providers import Model, providers
from prefixroute.sim import Scenario
from prefixroute.sim.scenario import AnyPolicy
from prefixroute.validation import check_float
from prefixroute.workload import Workload

PROMISE = Slo(95, 2.0)
"""What replicas of one's own must keep where nobody says (ASSUMED)."""
POLICY = "cache-aware"
_MONTH_S = HOURS_PER_MONTH * 3600
_DAYS_PER_MONTH = HOURS_PER_MONTH / 24


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to have the traffic served.

    Attributes:
        name: the model, or what the replicas are.
        provider: who serves it; ``own`` for replicas of one's own.
        way: the best lifetime, or the policy.
        hit_ratio: share of prompt tokens read from a cache; None where no fleet keeps the promise.
        usd_per_million_requests: prompts and answers; of replicas, their rent over the requests.
        usd_per_month: at the rate of the traffic.
        replicas: of one's own; None for an API.
        ttft_s: the promised percentile of time to first token, of replicas.
    """

    name: str
    provider: str
    way: str
    hit_ratio: float | None
    usd_per_million_requests: float | None
    usd_per_month: float | None
    replicas: int | None = None
    ttft_s: float | None = None


@dataclass(frozen=True, slots=True)
class OwnOrApi:
    """Offers for one traffic, the cheapest first; those without a price come last.

    Attributes:
        workload: the traffic's name.
        requests_per_month: its rate.
        span_s: seconds of traffic that this rate was measured over; 0 where the rate was given.
        promise: what replicas keep.
        offers: all of them.
        break_even_requests_per_month: requests from which the rent of the replicas is below the cheapest API; the rent
            of this fleet, which serves the rate above and not any rate. None without a fleet.
        assumptions: figures behind the offers.
        notes: of the traffic, and of the comparison.
    """

    workload: str
    requests_per_month: float
    span_s: float
    promise: Slo
    offers: tuple[Offer, ...]
    break_even_requests_per_month: float | None
    assumptions: tuple[Assumption, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the fields of a JSON object."""
        return {
            "workload": self.workload,
            "requests_per_month": self.requests_per_month,
            "span_s": self.span_s,
            "promise": str(self.promise),
            "offers": [asdict(offer) for offer in self.offers],
            "break_even_requests_per_month": self.break_even_requests_per_month,
        }


def own_or_api(
    workload: Workload,
    models: Sequence[Model],
    *,
    cost: CostModel | None = None,
    scenario: Scenario | None = None,
    policy: AnyPolicy = POLICY,
    promise: Slo = PROMISE,
    most: int = 64,
    requests_per_day: float | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> OwnOrApi:
    """Price a traffic at each model's API under the rules of its provider, and on replicas of one's own.

    APIs: :func:`~prefixroute.plan.plan_trace`, each model with its cheapest lifetime. Replicas: the smallest fleet that
    keeps the promise in a timed simulation, with a reserve (:class:`~prefixroute.advise.Headroom`), rented by the
    month, idle hours included. Models answer differently: prices are compared and not answers.

    Args:
        workload: the traffic; its arrivals count.
        models: models of APIs.
        cost: GPU, model and prices of one's own replicas; the defaults unless given.
        scenario: caches and engines of the replicas, timed; the simulator's defaults unless given.
        policy: of the router before them.
        promise: percentile of TTFT that they keep.
        most: replicas beyond which no fleet is tried.
        requests_per_day: rate to plan for; arrivals are sped up to it. The traffic's own rate unless given.
        progress: told the share done and what is being done.

    Raises:
        ConfigError: no model; or the traffic spans no time and no rate was given.
        TraceError: a bad line, or no request.
    """
    if not models:
        raise ConfigError("the comparison needs at least one model of an API")
    tell = progress or (lambda _share, _what: None)
    cost = cost or CostModel()
    offers: list[Offer] = []
    assumptions: list[Assumption] = []
    requests, span_s = 0, 0.0
    for number, model in enumerate(models):
        tell(number / (len(models) + 1), f"pricing {model.id}")
        plan = plan_trace(workload, model, by=())
        requests, span_s = plan.total.requests, plan.span_s
        offers.append(_api(model, plan.total))
        assumptions += figures_assumed(model)
    month, paced = _rate(workload, requests, span_s, requests_per_day)
    priced = [_monthly(offer, month) for offer in offers]
    tell(len(models) / (len(models) + 1), "finding the smallest fleet")
    sizing = size(paced, promise, [policy], scenario=scenario, most=most, cost=cost)
    own = _own(sizing.fleets[0], month, cost)
    cheapest = min(offer.usd_per_million_requests or 0.0 for offer in priced)
    even = None if own.usd_per_month is None or cheapest == 0 else own.usd_per_month / cheapest * 1e6
    ranked = sorted([*priced, own], key=lambda offer: (offer.usd_per_month is None, offer.usd_per_month or 0.0))
    figures = {item.name: item for item in (*assumptions, *cost.assumptions, *workload.assumptions)}
    notes = (*workload.notes, "prices are compared, and not the answers of different models")
    measured_s = span_s if requests_per_day is None else 0.0
    return OwnOrApi(workload.name, month, measured_s, promise, tuple(ranked), even, tuple(figures.values()), notes)


def default_models(workload: Workload, span_s: float) -> tuple[Offer, ...]:
    """Return the default model of every provider with its price a month at the workload's rate, the cheapest first.

    Args:
        workload: the traffic, read once for each model.
        span_s: seconds from its first arrival to its last; nothing is returned where that is 0.
    """
    if span_s <= 0:
        return ()
    offers = []
    for model in (provider.model() for provider in providers()):
        total = plan_trace(workload, model, by=()).total
        offers.append(_monthly(_api(model, total), total.requests / span_s * _MONTH_S))
    return tuple(sorted(offers, key=lambda offer: offer.usd_per_month or 0.0))


def _api(model: Model, total: Traffic) -> Offer:
    """Return an API with its cheapest lifetime as an offer, without a rate."""
    best = total.best
    return Offer(
        model.id, model.provider, best.lifetime, total.ratio(best), 1e6 * best.usd / total.requests, usd_per_month=None
    )


def _rate(workload: Workload, requests: int, span_s: float, per_day: float | None) -> tuple[float, Workload]:
    """Return requests a month, and the workload at that pace."""
    if per_day is None:
        if span_s <= 0:
            raise ConfigError(f"{workload.name} has no span in time: give the requests a day")
        return requests / span_s * _MONTH_S, workload
    check_float("requests_per_day", per_day, 0, 1e12, above=True)
    if span_s <= 0:
        return per_day * _DAYS_PER_MONTH, workload
    return per_day * _DAYS_PER_MONTH, workload.scaled(per_day / 86_400 * span_s / requests)


def _monthly(offer: Offer, month: float) -> Offer:
    return replace(offer, usd_per_month=(offer.usd_per_million_requests or 0.0) * month / 1e6)


def _own(fleet: FleetSize, month: float, cost: CostModel) -> Offer:
    """Return the smallest fleet as an offer; without prices where none keeps the promise."""
    name = f"{cost.model.name} on {cost.gpu.name}"
    way = fleet.policy
    if fleet.replicas is None or fleet.usd_per_month is None:
        return Offer(name, "own", way, None, None, None, None, fleet.seconds[0])
    hits, million = 1 - fleet.recompute_ratio, fleet.usd_per_month / month * 1e6
    return Offer(name, "own", way, hits, million, fleet.usd_per_month, fleet.replicas, fleet.seconds[0])
