"""A public run: llm-d-kv-cache-manager's benchmark ``37-capacity``, 4 pods with a model of 70B.

Published are the pods' KV capacity, the prompts (83 groups that share 8,000 tokens, 3 questions of 1,000 each, answers of 1,000), the
requests per second of each stage and, per stage and router, output tokens per second and mean TTFT. Not published and assumed here:
4 x H100 a pod, even arrivals at random within a stage, and stages that drain before the next.
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
GROUPS, QUESTIONS, SHARED, OWN, ANSWER = 83, 3, 8_000, 1_000, 1_000
STAGES = ((10, 25), (3, 210), (4, 180), (5, 120), (6, 120), (8, 90), (10, 70), (12, 60), (15, 50), (20, 50))
"""Requests a second and seconds of each stage; the first warms up."""
PAUSE_S = 600.0
SHOWN = (4, 8, 20)


@dataclass(frozen=True)
class Measured:
    """A router of the benchmark: our policy for it, and what was published of it by requests a second.

    Attributes:
        policy: our policy.
        seconds: mean TTFT.
        tokens: output tokens per second.
    """

    policy: str | Policy
    seconds: dict[int, float]
    tokens: dict[int, float]


LOAD = (("load", 1.0), ("kv-use", 1.0))
ROUTERS = {
    "precise": Measured(
        Weighted(scorers=(("prefix", 2.0), *LOAD)),
        {4: 0.304, 8: 0.248, 20: 0.250},
        {4: 3_345.2, 8: 5_557.1, 20: 8_003.9},
    ),
    "random": Measured("random", {4: 7.257, 8: 40.124, 20: 93.345}, {4: 2_829.5, 8: 3_108.8, 20: 3_241.0}),
    "load": Measured(Weighted(scorers=LOAD), {4: 5.021, 8: 42.683, 20: 86.643}, {4: 2_967.6, 8: 2_506.3, 20: 2_334.5}),
}


def compare() -> Iterator[Comparison]:
    """Yield the capacity of a pod, and TTFT and throughput at some stages for each router."""
    cost = CostModel("H100", "Llama-3.1-70B", tensor_parallel=4)
    yield Comparison(
        "published", "KV capacity of a pod, Llama-3.1-70B on 4 x H100", SOURCE, CAPACITY, cost.capacity_tokens, "tokens"
    )
    stages, arrivals, workload = benchmark()
    begins = np.array([arrivals[stages == stage].min() for stage in range(len(STAGES))])
    for name, measured in ROUTERS.items():
        scenario = Scenario(
            policy=measured.policy, replicas=PODS, engine=EngineModel(cost), capacity_tokens=CAPACITY, observe=Events()
        )
        log = simulate(workload, scenario, cost=cost).log
        order = np.argsort(log.column("number"))
        arrival, first, finish = (log.column(column)[order] for column in ("arrival", "first_token", "finish"))
        for stage, (rate, _) in enumerate(STAGES):
            if stage == 0 or rate not in SHOWN:
                continue
            chosen = stages == stage
            seconds = float((first - arrival)[chosen].mean())
            tokens = chosen.sum() * ANSWER / float(finish[chosen].max() - begins[stage])
            yield Comparison(
                "published", f"{name}, {rate} requests/s: mean TTFT", SOURCE, measured.seconds[rate], seconds, "s"
            )
            yield Comparison(
                "published", f"{name}, {rate} requests/s: output", SOURCE, measured.tokens[rate], tokens, "tokens/s"
            )


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
