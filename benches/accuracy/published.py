"""A public run: llm-d-kv-cache-manager's benchmark ``37-capacity``, 4 pods with a model of 70B.

Published are the pods' KV capacity, the prompts (83 groups that share 8,000 tokens, 3 questions of 1,000 each, answers
of 1,000), the requests per second of each stage and, per stage and router, output tokens per second, mean TTFT and mean
inter-token latency. Not published, and assumed here: 4 x H100 a pod, arrivals at random within a stage, and stages that
drain before the next.

Two more figures are not published and can be worked out of what is. Neither is fitted to the rows that are compared:

- The tokens of a prompt. By its name a pod holds 37 % of what is asked for, which is 1.247 M tokens; prompts and
  answers of the nominal lengths are 1.162 M. Prompts of random token ids that are sent as text are tokenized again, and
  then are longer: 9.4 % is what the name says.
- The time outside of the engine: client, gateway, tokenizer. It is measured TTFT less ours where nothing waits: precise
  routing at 3 requests a second, a row that is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from accuracy.comparison import Comparison
from prefixroute.costmodel import CostModel
from prefixroute.draws import chain
from prefixroute.hashing import BlockHashes
from prefixroute.policies import Policy
from prefixroute.policies.scored import Weighted
from prefixroute.sim import EngineModel, Events, Scenario, simulate
from prefixroute.workload import Request, Workload

SOURCE = "llm-d-kv-cache-manager benchmarking/37-capacity"
PODS, CAPACITY, BLOCK = 4, 461_376, 16
GROUPS, QUESTIONS, NOMINAL_SHARED, NOMINAL_OWN, ANSWER = 83, 3, 8_000, 1_000, 1_000
HELD = 0.37
"""Share of all that is asked for that a pod holds: the benchmark's name."""
LONGER = (CAPACITY / HELD - GROUPS * QUESTIONS * ANSWER) / (GROUPS * (NOMINAL_SHARED + QUESTIONS * NOMINAL_OWN))
"""Times as long as its nominal length a prompt is, see above: 1.093."""
SHARED, OWN = (round(LONGER * tokens / BLOCK) * BLOCK for tokens in (NOMINAL_SHARED, NOMINAL_OWN))
STAGES = ((10, 25), (3, 210), (4, 180), (5, 120), (6, 120), (8, 90), (10, 70), (12, 60), (15, 50), (20, 50))
"""Requests a second and seconds of each stage; the first warms up."""
PAUSE_S = 600.0
SHOWN = (4, 8, 20)
LIGHT, LIGHT_TTFT_S = 3, 0.246
"""Requests a second at which precise routing has nothing wait, and its measured TTFT there."""


@dataclass(frozen=True)
class Measured:
    """A router of the benchmark: our policy for it, and what was published of it by requests a second.

    Attributes:
        policy: our policy.
        seconds: mean TTFT.
        tokens: output tokens per second.
        gaps: mean seconds between two tokens.
    """

    policy: str | Policy
    seconds: dict[int, float]
    tokens: dict[int, float]
    gaps: dict[int, float]


LOAD = (("load", 1.0), ("kv-use", 1.0))
ROUTERS = {
    "precise": Measured(
        Weighted(scorers=(("prefix", 2.0), *LOAD)),
        {4: 0.304, 8: 0.248, 20: 0.250},
        {4: 3_345.2, 8: 5_557.1, 20: 8_003.9},
        {4: 0.015, 8: 0.019, 20: 0.031},
    ),
    "random": Measured(
        "random",
        {4: 7.257, 8: 40.124, 20: 93.345},
        {4: 2_829.5, 8: 3_108.8, 20: 3_241.0},
        {4: 0.026, 8: 0.027, 20: 0.028},
    ),
    "load": Measured(
        Weighted(scorers=LOAD),
        {4: 5.021, 8: 42.683, 20: 86.643},
        {4: 2_967.6, 8: 2_506.3, 20: 2_334.5},
        {4: 0.026, 8: 0.027, 20: 0.028},
    ),
}


def compare() -> Iterator[Comparison]:
    """Yield the capacity of a pod, and TTFT, throughput and inter-token latency at some stages for each router."""
    cost = CostModel("H100", "Llama-3.1-70B", tensor_parallel=4)
    yield _row("KV capacity of a pod, Llama-3.1-70B on 4 x H100", CAPACITY, cost.capacity_tokens, "tokens")
    stages, arrivals, workload = benchmark()
    begins = np.array([arrivals[stages == stage].min() for stage in range(len(STAGES))])
    outside_s = 0.0
    for name, measured in ROUTERS.items():
        scenario = Scenario(
            policy=measured.policy, replicas=PODS, engine=EngineModel(cost), capacity_tokens=CAPACITY, observe=Events()
        )
        log = simulate(workload, scenario, cost=cost).log
        order = np.argsort(log.column("number"))
        arrival, first, finish = (log.column(column)[order] for column in ("arrival", "first_token", "finish"))
        if name == "precise":
            light = [stage for stage, (rate, _) in enumerate(STAGES) if rate == LIGHT]
            outside_s = LIGHT_TTFT_S - float((first - arrival)[np.isin(stages, light)].mean())
        for stage, (rate, _) in enumerate(STAGES):
            if stage == 0 or rate not in SHOWN:
                continue
            chosen = stages == stage
            what = f"{name}, {rate} requests/s"
            seconds = outside_s + float((first - arrival)[chosen].mean())
            tokens = chosen.sum() * ANSWER / float(finish[chosen].max() - begins[stage])
            gap = float((finish - first)[chosen].mean()) / (ANSWER - 1)
            yield _row(f"{what}: mean TTFT", measured.seconds[rate], seconds, "s")
            yield _row(f"{what}: output", measured.tokens[rate], tokens, "tokens/s")
            yield _row(f"{what}: mean ITL", measured.gaps[rate], gap, "s")


def _row(quantity: str, independent: float, ours: float, unit: str) -> Comparison:
    return Comparison("published", quantity, SOURCE, independent, ours, unit)


def benchmark() -> tuple[np.ndarray, np.ndarray, Workload]:
    """Return the stage and the arrival of each request, and the requests."""
    rng = np.random.default_rng(1)
    heads = [chain(1 + group, 0, SHARED // BLOCK) for group in range(GROUPS)]
    total = SHARED + OWN
    prompts = [
        np.concatenate([heads[group], chain(1_000 + QUESTIONS * group + question, SHARED // BLOCK, total // BLOCK)])
        for group in range(GROUPS)
        for question in range(QUESTIONS)
    ]
    order, stages, arrivals, begin = rng.permutation(len(prompts)), [], [], 0.0
    for stage, (rate, length) in enumerate(STAGES):
        count = rate * length
        stages += [stage] * count
        arrivals += sorted(rng.uniform(begin, begin + length, count))
        begin += length + PAUSE_S

    def source() -> Iterator[Request]:
        for number, at in enumerate(arrivals):
            ids = prompts[order[number % len(prompts)]]
            prompt = BlockHashes(ids, token_count=total, block_size=BLOCK)
            answer = chain(10_000 + number, total // BLOCK, (total + ANSWER) // BLOCK)
            context = BlockHashes(np.concatenate([ids, answer]), token_count=total + ANSWER, block_size=BLOCK)
            yield Request(float(at), prompt, context, total, ANSWER)

    return np.array(stages), np.array(arrivals), Workload("37-capacity", BLOCK, source, len(arrivals))
