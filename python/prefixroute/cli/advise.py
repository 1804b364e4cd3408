"""``prefixroute advise``, ``backtest`` and ``size``: what to do about a trace, and whether to believe it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import typer

from prefixroute.advise import IN_USE, Headroom, Question, Slo, advise, backtest, size
from prefixroute.advise.size import MOST_REPLICAS
from prefixroute.cli import arguments, console, options
from prefixroute.cli.fleets import FrontOptions, ObserveOptions, Simulated, link_of, scenario_of
from prefixroute.cli.groups import grouped, option
from prefixroute.cli.hardware import Hardware, PricedHardware
from prefixroute.cli.output import Outputs, print_json
from prefixroute.cli.reading import TraceOptions, parts
from prefixroute.cli.table import show_sheet
from prefixroute.report import advice_dict, advice_text
from prefixroute.report.backtests import backtest_sheet
from prefixroute.report.sizing import sizing_sheet
from prefixroute.sim import Scenario
from prefixroute.sim.grid import open_source

ADVISE_EXAMPLE = "Example: prefixroute advise day.jsonl.gz --replicas 8 --current round-robin"
BACKTEST_EXAMPLE = "Example: prefixroute backtest day.jsonl.gz --replicas 8 --policies round-robin,least-loaded"
SIZE_EXAMPLE = "Example: prefixroute size day.jsonl.gz --slo ttft_p95=1.5s,tpot_p95=50ms"


@dataclass(frozen=True, slots=True)
class AskedOptions:
    """What advice is sought for."""

    replicas: int | None = options.replicas()
    current: str | None = option(
        None, "Policy in use now: savings are against it.", metavar="NAME", show_default=IN_USE
    )
    policies: str | None = option(None, "Further policies and presets to compare.", metavar="NAME,...")
    objective: str = option("balanced", "What decides: cost (dollars of prefill), ttft, or balanced (both alike).")
    timed: bool | None = option(
        None,
        "Simulate with a clock, or without one.",
        "--timed/--untimed",
        show_default="timed, where the workload spans time",
    )
    slo: str | None = options.slos()
    tier: list[str] | None = options.tiers()
    lifetimes: str | None = option(
        None,
        "The model is behind an API that keeps a prefix so long after its last use: 5m,1h. Nothing is routed then.",
        metavar="TIME,...",
    )
    apart: bool = option(
        False, "Try the advised policy on replicas that prefill and decode apart too, at equal GPUs.", "--apart"
    )
    link: str | None = options.link()
    sensitivity: str | None = option(
        None, "Would it change with another capacity, price, replicas?", metavar="WHAT,..."
    )
    seeds: int = options.seeds(3)
    seed: int = options.seed(1)

    def question(self, workload: list[str], scenario: Scenario, headroom: Headroom) -> Question:
        """Return the question, about a fleet that has to carry so much beyond the traffic.

        Raises:
            ConfigError: one of the options cannot be read.
        """
        return Question(
            scenario=scenario,
            timed=self.timed,
            current=self.current,
            policies=None if self.policies is None else arguments.policies(self.policies, workload),
            objective=self.objective,
            slos=() if self.slo is None else Slo.parse_all(self.slo),
            headroom=headroom,
            lifetimes=() if self.lifetimes is None else arguments.times(self.lifetimes, what="--lifetimes"),
            apart=link_of(self.link, apart=self.apart),
            vary=() if self.sensitivity is None else arguments.names(self.sensitivity, what="--sensitivity"),
            seeds=range(self.seed, self.seed + self.seeds),
        )


@grouped
def advise_command(
    workload: options.WorkloadName,
    *,
    asked: AskedOptions,
    reserve: options.Reserve,
    runs: options.RunOptions,
    outputs: Outputs,
    observed: ObserveOptions,
    front: FrontOptions,
    hardware: PricedHardware,
    reading: TraceOptions,
) -> None:
    """Advise on routing: what to use, what to fix first, what it saves, and the decision tree with measured numbers."""
    time_is_up, cost = runs.deadline(), hardware.cost
    simulated = Simulated(observe=observed.observe, load=observed.load)
    tiers = arguments.tiers(asked.tier, cost) or None
    scenario = scenario_of(hardware, simulated, front, timed=asked.timed, replicas=asked.replicas, tiers=tiers)
    question = asked.question(workload, scenario, reserve.headroom)
    with console.progress(quiet=outputs.quiet) as told:
        read, run = parts(workload, told)
        source = reading.source(workload, read)
        found = advise(source, question, cost=cost, jobs=runs.jobs, progress=run, time_is_up=time_is_up)
    outputs.answer(lambda: advice_dict(found), partial(console.say, advice_text(found).rstrip("\n")))
    if outputs.draws:
        from prefixroute.report.advice import advice_page, advice_picture

        outputs.draw(lambda: advice_page(found), lambda: advice_picture(found))


@grouped
def backtest_command(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A log that reports cached tokens.")],
    *,
    replicas: int | None = options.replicas(),
    current: str | None = option(None, "Policy that routed the log.", metavar="NAME", show_default=IN_USE),
    policies: str | None = option(
        None, "Policies to try as explanations, each with the capacity that fits best.", metavar="NAME,..."
    ),
    runs: options.RunOptions,
    as_json: bool = options.as_json(False),
    quiet: bool = options.quiet(False),
    simulated: Simulated,
    hardware: Hardware,
    reading: TraceOptions,
) -> None:
    """Test the simulator: simulated hits against the cached tokens that the log itself reports."""
    time_is_up = runs.deadline()
    policy = None if current is None else arguments.policies(current, trace)[0]
    scenario = scenario_of(hardware, simulated, replicas=replicas, policy=policy)
    scenario = replace(scenario, policy=policy or IN_USE)
    search = () if policies is None else arguments.policies(policies, trace)
    with console.progress(quiet=quiet) as told:
        read, run = parts(trace, told)
        opened = open_source(reading.source(trace, read), 1)
        found = backtest(
            opened, scenario, search=search, cost=hardware.cost, jobs=runs.jobs, progress=run, time_is_up=time_is_up
        )
    if as_json:
        print_json(found.to_dict())
    else:
        show_sheet(backtest_sheet(found, searched=policies is not None), console.stdout())


@grouped
def size_command(
    workload: options.WorkloadName,
    *,
    slo: str | None = options.slos(),
    policies: str | None = options.policies(),
    tier: list[str] | None = options.tiers(),
    reserve: options.Reserve,
    seeds: int = options.seeds(1),
    seed: int = options.seed(1),
    most: int = option(MOST_REPLICAS, "Replicas beyond which no fleet is tried.", min=1),
    apart: bool = option(
        False, "Size fleets that prefill and decode apart too, and compare them at equal GPUs.", "--apart"
    ),
    link: str | None = options.link(),
    runs: options.RunOptions,
    outputs: Outputs,
    hardware: PricedHardware,
    reading: TraceOptions,
) -> None:
    """Size a fleet: the fewest replicas and GPUs that keep promises on answer times, with a reserve."""
    time_is_up = runs.deadline()
    promises, chosen = () if slo is None else Slo.parse_all(slo), arguments.policies(policies, workload)
    tiers = arguments.tiers(tier, hardware.cost)
    scenario = scenario_of(hardware, Simulated(timed=True), tiers=tiers or None)
    with console.progress(quiet=outputs.quiet) as told:
        read, run = parts(workload, told)
        found = size(
            reading.source(workload, read),
            promises,
            chosen,
            link=link_of(link, apart=apart),
            scenario=scenario,
            headroom=reserve.headroom,
            seeds=range(seed, seed + seeds),
            most=most,
            cost=hardware.cost,
            jobs=runs.jobs,
            progress=run,
            time_is_up=time_is_up,
        )
    outputs.give(sizing_sheet(found, most), found.to_dict)
