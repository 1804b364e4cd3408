"""Decisions and simulations of two builds, in alternating processes: is this one slower than that?

    python benches/versus.py OTHER/python [--rounds 3] [--requests 30000] [--policies cache-aware,bounded]

``OTHER/python`` is the package folder of another checkout with its extension built (``maturin develop --release``). Each
figure is the least processor time of all rounds, in microseconds, so that other work on the machine counts as little as it
can. A million requests of the timed simulation take so many seconds as one takes microseconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time_ns
from typing import Any

PROMPT_TOKENS, BLOCKS_HELD, CALLS, REPEATS = 8_800, 18_750, 300, 7
HERE = Path(__file__).resolve().parents[1] / "python"

Figures = dict[str, float]


def best_us(work: Callable[[], object], calls: int = CALLS, repeats: int = REPEATS) -> float:
    """Return the least microseconds of a call."""
    least = float("inf")
    for _ in range(repeats):
        begun = process_time_ns()
        for _ in range(calls):
            work()
        least = min(least, (process_time_ns() - begun) / calls / 1_000)
    return least


def decisions(policies: list[str], replicas: int) -> Figures:
    """Time each step of a request whose prompt one of so many full replicas holds."""
    import numpy as np  # noqa: PLC0415  # of the build that is measured

    rng, figures = np.random.default_rng(0), {}
    count = -(-BLOCKS_HELD * 16 // PROMPT_TOKENS) * replicas
    prompts = [rng.integers(0, 150_000, PROMPT_TOKENS, dtype=np.uint32) for _ in range(count)]
    for name in policies:
        for what, us in _steps(name, prompts, replicas, np.zeros(replicas, np.uint32)).items():
            figures[f"{what}, {replicas}" if what == "match" else f"{name}: {what}, {replicas}"] = us
    return figures


def _steps(policy: str, prompts: list[Any], replicas: int, out: Any) -> Figures:
    from prefixroute.router import Router  # noqa: PLC0415

    router = Router([f"r{i}" for i in range(replicas)], policy=policy, capacity_tokens=BLOCKS_HELD * 16)
    for at, held in enumerate(prompts):
        router.index.insert(f"r{at % replicas}", held)
    prompt, tickets = prompts[-1], list[Any]()
    figures = {
        "match": best_us(lambda: router.index.hash_and_match(prompt, out)),
        "choose": best_us(lambda: router.choose(prompt)),
        "choose in a session": best_us(lambda: router.choose(prompt, session="chat-17")),
        "route + finish": best_us(lambda: router.route(prompt).finish()),
        "route": float("inf"),
        "finish": float("inf"),
    }
    for _ in range(REPEATS):
        figures["route"] = min(figures["route"], best_us(lambda: tickets.append(router.route(prompt)), repeats=1))
        figures["finish"] = min(figures["finish"], best_us(lambda: tickets.pop().finish(), repeats=1))
    return figures


def simulations(policies: list[str], requests: int) -> Figures:
    """Time a chat over 64 busy replicas, per request."""
    from prefixroute.costmodel import CostModel  # noqa: PLC0415
    from prefixroute.sim import EngineModel, Scenario, simulate  # noqa: PLC0415
    from prefixroute.workload import ChatShape, Poisson, chat  # noqa: PLC0415

    workload = chat(1, requests=requests, shape=ChatShape(slots=1_280), arrivals=Poisson(192.0))
    figures = {}
    for name in policies:
        for mode, engine in (("untimed", None), ("timed", EngineModel(CostModel()))):
            run = partial(simulate, workload, Scenario(policy=name, replicas=64, engine=engine))
            figures[f"{name}: {mode} request"] = best_us(run, 1, 1) / requests
    return figures


def measure(policies: list[str], requests: int) -> Figures:
    """Return all figures of the build that is imported."""
    from prefixroute.policies import POLICIES, presets  # noqa: PLC0415

    known = [name for name in policies or [*POLICIES, *presets()] if name in POLICIES or name in presets()]
    simulated = [name for name in known if name in POLICIES] if requests else []
    return decisions(known, 8) | decisions(known, 64) | simulations(simulated, requests)


def main() -> None:
    """Run both builds in turns, and print the figures of both and their ratio."""
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("other", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=30_000, help="of a simulation; 0 = none")
    parser.add_argument("--policies", default="", help="names, separated by commas; all of both builds by default")
    asked = parser.parse_args()
    if asked.other is None:  # a process that measures
        print(json.dumps(measure([name for name in asked.policies.split(",") if name], asked.requests)))
        return
    best: tuple[Figures, Figures] = ({}, {})
    command = [sys.executable, __file__, "--requests", str(asked.requests), "--policies", asked.policies]
    for _ in range(asked.rounds):
        for figures, build in zip(best, (HERE, asked.other.resolve()), strict=True):
            environment = os.environ | {"PYTHONPATH": str(build), "PYTHONDONTWRITEBYTECODE": "1"}
            run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            for what, us in json.loads(run.stdout).items():
                figures[what] = min(us, figures.get(what, us))
    print(f"{'us':52} {'this':>7} {'other':>7} ratio")
    for what, us in best[0].items():
        other = best[1].get(what)
        print(f"{what:52} {us:7.2f}" + ("" if other is None else f" {other:7.2f} {us / other:5.2f}"))


if __name__ == "__main__":
    main()
