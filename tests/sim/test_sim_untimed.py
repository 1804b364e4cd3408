"""Ordered mode: what is counted, warm caches, several routers, and a fleet that changes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError
from prefixroute.hashing import BlockHashes
from prefixroute.policies import Policy, View
from prefixroute.policies.keyed import text_hash
from prefixroute.sim import EngineModel, Events, FleetChange, Promise, Scenario, Split, floor, simulate, sweep
from prefixroute.validation import shown
from prefixroute.workload import Request, Workload, chat, documents

ENGINE = EngineModel(CostModel())
both_modes = pytest.mark.parametrize("engine", [None, ENGINE], ids=["untimed", "timed"])


def growing_chat(lengths: list[int]) -> Workload:
    """One conversation whose prompts have these lengths, in blocks of one token."""

    def source() -> Iterator[Request]:
        for number, length in enumerate(lengths):
            hashes = BlockHashes(np.arange(1, length + 1), token_count=length, block_size=1)
            yield Request(60.0 * number, hashes, hashes, length, 1, session="s")

    return Workload("growing", 1, source, len(lengths))


@both_modes
def test_a_turn_computes_only_what_the_turn_before_did_not(engine: EngineModel | None) -> None:
    """Case 44: a simulator that replays each turn as a fresh prefill over-predicts from the second turn on."""
    log = simulate(growing_chat([200, 250, 310]), Scenario(replicas=1, engine=engine)).log
    assert (log.column("prompt") - log.column("hit")).tolist() == [200, 50, 60]


@both_modes
def test_a_warm_start_is_possible(engine: EngineModel | None) -> None:
    workload, scenario = growing_chat([200, 250, 310]), Scenario(replicas=1, engine=engine)
    warm = simulate(workload, replace(scenario, warmup=2))
    assert warm.log.column("number").tolist() == [2]
    assert (warm.log.column("prompt") - warm.log.column("hit")).tolist() == [60]
    assert warm.outcome.requests == 1
    assert floor(workload, warmup=2) == pytest.approx(60 / 310)


class Modulo(Policy):
    """The hashing that moves nearly everything when the number of replicas changes."""

    name: ClassVar[str] = "modulo"
    signals: ClassVar[frozenset[str]] = frozenset()

    def decide(self, view: View) -> tuple[int, str]:
        return view.slots[text_hash(view.request.session or "") % len(view.slots)], "hashed"


@pytest.mark.parametrize(("policy", "worst"), [("rendezvous", 0.02), ("session", 0.02), ("cache-aware", 0.02)])
def test_a_ninth_replica_moves_a_ninth_except_under_modulo(policy: str, worst: float) -> None:
    """Tokens recomputed in the thousand requests after the fleet grows, against the same requests without growth."""
    grows = (FleetChange(6_000, "add", "replica-8"),)

    def after(chosen: object, changes: tuple[FleetChange, ...]) -> float:
        scenario = Scenario(policy=chosen, changes=changes, capacity_tokens=None)  # type: ignore[arg-type]
        log = simulate(chat(1, requests=7_000), scenario).log
        window = slice(6_000, 7_000)
        prompt, hit = log.column("prompt")[window], log.column("hit")[window]
        return float((prompt - hit).sum() / prompt.sum())

    steady = after(policy, ())
    moved = after(policy, grows) - steady
    all_moved = after(Modulo(), grows) - after(Modulo(), ())
    assert moved < worst
    assert all_moved > 4 * max(moved, 0.005)


def test_a_seed_is_a_placement_of_its_own_on_which_all_routers_agree() -> None:
    workload = chat(1, requests=600)

    def homes(seed: int) -> list[int]:
        log = simulate(workload, Scenario(policy="rendezvous", seed=seed, routers=3)).log
        placed = dict(zip(log.column("session").tolist(), log.column("replica").tolist(), strict=True))
        assert [placed[session] for session in log.column("session").tolist()] == log.column("replica").tolist()
        return list(placed.values())

    assert homes(0) == homes(0)
    assert len({tuple(homes(seed)) for seed in range(4)}) == 4


def test_several_routers_do_not_take_turns_in_step() -> None:
    """Else four of them send four requests in a row to the same replica, and round robin looks like session."""
    workload = chat(1, requests=2_000)
    one, four = (simulate(workload, Scenario(policy="round-robin", routers=count)) for count in (1, 4))
    replicas = four.log.column("replica")
    assert (replicas[1:] == replicas[:-1]).mean() < 0.05
    assert four.outcome.recompute_ratio == pytest.approx(one.outcome.recompute_ratio, abs=0.03)
    assert set(four.outcome.served) <= {249, 250, 251}


def test_load_in_order_counts_requests_by_part() -> None:
    run = simulate(chat(1, requests=103), Scenario(policy="round-robin", replicas=4))
    edges, load = run.load(buckets=10)
    assert edges.tolist() == pytest.approx([10.3 * part for part in range(11)])
    assert load.sum(axis=0).tolist() == [26.0, 26.0, 26.0, 25.0]
    assert set(load.sum(axis=1)) == {10.0, 11.0}


def test_a_dead_replica_gets_nothing_and_one_that_returns_is_empty() -> None:
    changes = (FleetChange(500, "die", "replica-2"), FleetChange(900, "return", "replica-2"))
    run = simulate(chat(1, requests=1_500), Scenario(policy="round-robin", replicas=4, changes=changes))
    replica, hit = run.log.column("replica"), run.log.column("hit")
    assert (replica[:500] == 2).any()
    assert not (replica[500:900] == 2).any()
    assert hit[900 + int(np.argmax(replica[900:] == 2))] == 0
    assert run.outcome.requests == 1_500


def test_a_drained_replica_gets_nothing_new() -> None:
    run = simulate(chat(1, requests=400), Scenario(replicas=3, changes=(FleetChange(100, "drain", "replica-0"),)))
    assert not (run.log.column("replica")[100:] == 0).any()


@pytest.mark.parametrize(("action", "name"), [("die", "replica-9"), ("drain", "replica-9"), ("add", "replica-0")])
def test_changes_that_make_no_sense_are_refused(action: Any, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"'{name}'.* {action} .*\b1$"):
        simulate(chat(1, requests=3), Scenario(changes=(FleetChange(1, action, name),)))


class FirstSeen(Policy):
    """A sticky router that binds a session to the least loaded replica when it first sees it, as many do."""

    name: ClassVar[str] = "first-seen"
    signals: ClassVar[frozenset[str]] = frozenset()

    def decide(self, view: View) -> tuple[int, str]:
        if view.binding is not None and view.binding in view.slots:
            return view.binding, "bound"
        return min(view.slots, key=lambda slot: (view.loads[slot], view.draw(slot))), "first"


def test_the_trap_of_several_routers_behind_a_round_robin_front() -> None:
    """Each router binds a conversation on its own, so it splits over as many replicas as there are routers."""

    def ratio(policy: object, routers: int, front: str = "round-robin") -> float:
        scenario = Scenario(policy=policy, routers=routers, front=front, capacity_tokens=None)  # type: ignore[arg-type]
        return simulate(chat(1, requests=8_000), scenario).outcome.recompute_ratio

    alone, two, four = (ratio(FirstSeen(), routers) for routers in (1, 2, 4))
    assert alone < two < four
    assert two > 2 * alone
    assert ratio(FirstSeen(), 4, "sticky") == pytest.approx(alone, abs=0.01)
    # Rendezvous hashing agrees without talking: our own session policy does not fall into the trap.
    assert ratio("session", 4) == pytest.approx(ratio("session", 1), abs=0.002)


def test_sweep_joins_seeds_and_is_the_same_over_processes() -> None:
    source = partial(chat, requests=600)
    here, there = (
        sweep(source, policies=("round-robin", "session"), replicas=(1, 2), seeds=2, jobs=jobs, infinite=True)
        for jobs in (1, 2)
    )
    assert here.to_json() == there.to_json()
    document = json.loads(here.to_json())
    assert (document["schema"], document["workload"]) == (1, "chat")
    assert [(row["replicas"], row["policy"]) for row in document["rows"]] == [
        (1, "round-robin"), (1, "session"), (2, "round-robin"), (2, "session"),
    ]  # fmt: skip
    for row in document["rows"]:
        assert row["floor"] <= row["recompute_ratio_infinite"] + 1e-9
        assert row["recompute_ratio_infinite"] <= row["recompute_ratio"] + 1e-9
        assert row["seeds"] == 2
        assert row["requests"] == 600
    source = document["assumptions"]["capacity_tokens"].pop("source")
    assert "2026-11" in source
    assert document["assumptions"]["capacity_tokens"] == {
        "value": 300_000,
        "unit": "tokens per replica",
        "assumed": True,
    }


def test_progress_ends_at_one_and_never_goes_back() -> None:
    shares: list[float] = []
    sweep(
        documents(1, requests=2_500),
        policies=("random",),
        replicas=(2,),
        seeds=2,
        progress=lambda x, _: shares.append(x),
    )
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize(("name", "value"), [("policies", ()), ("replicas", ()), ("seeds", 0), ("jobs", 0)])
def test_a_sweep_that_cannot_be_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        sweep(chat(1, requests=5), **{name: value})  # type: ignore[arg-type]


def test_what_other_processes_cannot_import_is_refused_before_they_start() -> None:
    with pytest.raises(ConfigError, match=r"2 jobs .*lambda"):
        sweep(chat, policies=[lambda view: (view.slots[0], "first")], jobs=2)
    with pytest.raises(ConfigError, match=r"2 jobs .*lambda"):
        sweep(lambda seed: chat(seed, requests=5), jobs=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"replicas": 0}, "replicas .* 1.* 0"),
        ({"routers": 0}, "routers .* 1.* 0"),
        ({"capacity_tokens": 0}, "capacity_tokens .* 1.* 0"),
        ({"cache": "paper"}, "cache .*blocks.*entries.*'paper'"),
        ({"front": "bent"}, "front .*round-robin.*sticky.*'bent'"),
        ({"observe": Events(delay_s=1.0)}, r"event delay .*1\.0"),
        ({"promise": Promise(ttft_s=1.0)}, "promise .*--timed"),
        ({"split": Split(4, 4)}, "prefill .*--timed"),
        ({"split": Split(1, 1), "engine": ENGINE}, r"1\+1 .*replicas=2.* 8"),
        ({"observe": Events(), "cache": "entries"}, "'entries'.*'blocks'"),
        ({"engine": ENGINE, "cache": "entries"}, "'entries'.*'blocks'"),
    ],
)
def test_a_scenario_that_cannot_be_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Scenario(**settings)  # type: ignore[arg-type]


def test_entries_need_a_workload_of_entries() -> None:
    with pytest.raises(ConfigError, match="cache 'blocks'"):
        simulate(growing_chat([10]), Scenario(cache="entries"))


@pytest.mark.parametrize("wrong", ["8", 1.5, float("nan"), True, [], 1j])
@pytest.mark.parametrize("setting", ["replicas", "routers", "warmup", "recent_window", "capacity_tokens"])
def test_a_setting_of_another_type_is_refused(setting: str, wrong: object) -> None:
    with pytest.raises(ConfigError, match=rf"{setting}.* {re.escape(shown(wrong))}"):
        Scenario(**{setting: wrong})  # type: ignore[arg-type]


@both_modes
def test_a_warm_up_leaves_requests_to_count(engine: EngineModel | None) -> None:
    workload = chat(1, requests=20)
    assert simulate(workload, Scenario(replicas=2, warmup=19, engine=engine)).outcome.requests == 1
    for warmup in (20, 500):
        with pytest.raises(ConfigError, match=rf"\b19\b.* {warmup}"):
            simulate(workload, Scenario(replicas=2, warmup=warmup, engine=engine))
        with pytest.raises(ConfigError, match=rf"\b19\b.* {warmup}"):
            floor(workload, warmup=warmup)
