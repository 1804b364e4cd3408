"""Is the advisor right about load signals on traffic that its thresholds were not chosen on?

``python benches/load_signals.py TRACES_FOLDER [WORKLOAD ...] [--replicas 4,8,16] [--seeds 2]``

Each workload comes as fast as ``cache-aware`` can serve with every replica keeping up, and busy for 60 % at most. On it
run ``cache-aware`` by requests, by the prompt tokens that wait with several gaps, and ``lmetric``. A line has the mean
TTFT of each in milliseconds, what the advisor takes, and what it would take if it tried every signal whatever the
lengths of prompts. The thresholds of :mod:`prefixroute.advise.choice` were chosen on the first 3,000 requests of the
Mooncake traces over 8 replicas; nothing of these is here.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from prefixroute.advise import Comparison, compare_scenarios, profile
from prefixroute.advise.behind import replicas_behind
from prefixroute.advise.choice import AWARE, BY_TOKENS, LMETRIC, METRIC, TOKEN_GAP, TOKENS, UNEQUAL, choose
from prefixroute.costmodel import CostModel
from prefixroute.policies import CacheAware
from prefixroute.sim import EngineModel, Scenario, simulate
from prefixroute.workload import (
    Poisson,
    Request,
    Workload,
    agents,
    chat,
    documents,
    fan_out,
    few_shot,
    read_trace,
    tenants,
)
from prefixroute.workload.streams import chain_key, stream
from prefixroute.workload.text import Text

CAPACITY = 300_000
REQUESTS = 3_000
BUSY = 0.6
"""Share of time with work that ``cache-aware`` is given, about."""
GAPS = (4_096, 16_384, 65_536)
FRESH = 11
"""The first seed."""
MADE = ("long-0.5", "long-1.0", "long-1.5", "long-2.0", "agents", "documents", "chat", "few-shot", "tenants", "fan-out")
"""Workloads that have seeds."""


def long_tailed(seed: int, sigma: float) -> Workload:
    """Return conversations whose messages have a lognormal length, with a median of 300 tokens and this ``sigma``."""

    def source() -> Iterator[Request]:
        draws, times = stream(seed, "long.draws"), Poisson(10.0).times(stream(seed, "long.arrivals"))
        open_now: dict[int, tuple[str, Text]] = {}
        for number, time in zip(range(REQUESTS), times, strict=False):
            slot = int(draws.integers(120))
            name, text = open_now.get(slot, ("", Text.empty(16)))
            if not name or draws.random() < 0.2 or text.tokens > 100_000:
                name, text = f"long-{seed}-{number}", Text.empty(16)
            message = int(min(60_000, max(16, draws.lognormal(np.log(300), sigma))))
            answer = int(min(4_000, max(2, draws.lognormal(np.log(150), 1.0))))
            prompt_tokens = text.tokens + message
            text = text.then(chain_key(seed, "long.turn", number), message + answer)
            prompt, context = text.split(prompt_tokens)
            open_now[slot] = name, text
            yield Request(time, prompt, context, prompt_tokens, answer, session=name)

    return Workload(f"long-{sigma:g}", 16, source, REQUESTS)


def later(path: Path, begin: int) -> Workload:
    """Return requests of a trace from number ``begin`` on."""
    whole = read_trace(path)

    def source() -> Iterator[Request]:
        part = list(itertools.islice(whole.requests(), begin, begin + REQUESTS))
        return (request._replace(arrival_s=request.arrival_s - part[0].arrival_s) for request in part)

    return replace(whole, source=source, request_count=len(list(source())), volatile=None)


def workloads(folder: Path) -> dict[str, Callable[[int], Workload]]:
    """Return the workloads by name, as functions of a seed; traces have one."""
    conversation, synthetic = (folder / f"mooncake_{name}.jsonl.gz" for name in ("conversation", "synthetic"))
    return {
        "conversation, late": lambda _: later(conversation, 6_000),
        "synthetic, late": lambda _: later(synthetic, 3_000),
        "weka": lambda _: read_trace(folder / "claude_code_weka.jsonl.gz").head(REQUESTS),
        "long-0.5": lambda seed: long_tailed(seed, 0.5),
        "long-1.0": lambda seed: long_tailed(seed, 1.0),
        "long-1.5": lambda seed: long_tailed(seed, 1.5),
        "long-2.0": lambda seed: long_tailed(seed, 2.0),
        "agents": lambda seed: agents(seed, requests=REQUESTS, arrivals=Poisson(10.0)),
        "documents": lambda seed: documents(seed, requests=REQUESTS, arrivals=Poisson(10.0)),
        "chat": lambda seed: chat(seed, requests=REQUESTS, arrivals=Poisson(10.0)),
        "few-shot": lambda seed: few_shot(seed, requests=REQUESTS, arrivals=Poisson(10.0)),
        "tenants": lambda seed: tenants(seed, requests=REQUESTS, arrivals=Poisson(10.0)),
        "fan-out": lambda seed: fan_out(seed, requests=REQUESTS, arrivals=Poisson(10.0)),
    }


def paced(workload: Workload, base: Scenario, cost: CostModel) -> Workload:
    """Return the workload as fast as ``cache-aware`` serves with every replica keeping up, and busy for :data:`BUSY` at most."""
    low, high = 1e-3, 1e3
    for _ in range(9):
        speed = (low * high) ** 0.5
        run = simulate(workload.scaled(speed), replace(base, policy=AWARE), cost=cost)
        keeps_up = (run.outcome.busy or 0.0) < BUSY and not replicas_behind(run.log, base.replicas)
        low, high = (speed, high) if keeps_up else (low, speed)
    return workload.scaled(low)


def scenarios(base: Scenario) -> list[Scenario]:
    """Return what is compared."""
    by_tokens = [
        replace(base, policy=replace(CacheAware(), spill_gap=float(gap)), load=TOKENS, label=f"{BY_TOKENS}, gap {gap}")
        for gap in GAPS
    ]
    return [replace(base, policy="round-robin"), replace(base, policy=AWARE), *by_tokens, replace(base, policy=LMETRIC)]


def taken(found: Comparison, unequal: float) -> tuple[str, str]:
    """Return what the advisor takes, and what it would take if it tried every signal whatever the lengths."""
    known = ["round-robin", AWARE]
    every = [*known, f"{BY_TOKENS}, gap {TOKEN_GAP:.0f}", LMETRIC]
    return choose(found, among=every if unequal >= UNEQUAL else known).policy, choose(found, among=every).policy


def line(name: str, replicas: int, unequal: float, found: Comparison) -> str:
    """Return a row of the table; * marks a TTFT that is apart from that by requests beyond the noise."""
    own = found.row(AWARE)
    cells = [name, str(replicas), f"{unequal:.2f}", f"{1e3 * own.ttft_mean_s:,.0f}"]
    for row in found.rows[2:]:
        mark = "*" * found.gap(row.policy, AWARE, "ttft_mean_s").excludes_zero
        cells.append(f"{1e3 * row.ttft_mean_s:,.0f}{mark}")
    took, best = taken(found, unequal)
    cells += [took, "the same" if took == best else f"{best}: {1e3 * found.row(best).ttft_mean_s:,.0f} ms"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--replicas", default="4,8,16")
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    made, cost = workloads(given.folder), CostModel()
    heads = [
        "workload",
        "replicas",
        "new tokens, deviation / mean",
        "by requests",
        *(f"by tokens, gap {gap:,}" for gap in GAPS),
        LMETRIC,
    ]
    print("| " + " | ".join([*heads, "advised", "if all were tried"]) + " |")
    print("|---" * (len(heads) + 2) + "|")
    for name in given.names or made:
        for replicas in map(int, given.replicas.split(",")):
            base = Scenario(replicas=replicas, capacity_tokens=CAPACITY, engine=EngineModel(cost))
            for seed in range(FRESH, FRESH + (given.seeds if name in MADE else 1)):
                pace = paced(made[name](seed), base, cost)
                found = compare_scenarios(pace, scenarios(base), seeds=1, metric=METRIC, cost=cost)
                print(line(name, replicas, profile(pace).unequal, found), flush=True)


if __name__ == "__main__":
    main()
