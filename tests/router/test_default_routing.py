"""What the Router does when nothing is set: ordinary chats, common heads, light load, reports that come and go."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from prefixroute.errors import ConfigError, NoReplicaError
from prefixroute.policies import POLICIES, as_policy, presets
from prefixroute.router import Router
from prefixroute.types import Caps, Timing

Make = Callable[..., Router]


def text(number: int, tokens: int) -> list[int]:
    """Return tokens that share nothing with those of another number."""
    return [1_000_000 + 200_000 * number + i for i in range(tokens)]


def chats(
    router: Router, heads: Iterable[list[int]], turns: int, per_turn: int, *, keyed: bool
) -> dict[int, list[str]]:
    """Let conversations behind their heads take turns one after another; return the replicas that each one saw."""
    seen: dict[int, list[str]] = {}
    histories = dict(enumerate(heads))
    for turn in range(turns):
        for number, history in histories.items():
            history.extend(text(10_000 + 100 * number + turn, per_turn))
            with router.route(list(history), session=f"c{number}" if keyed else None) as ticket:
                seen.setdefault(number, []).append(ticket.replica)
    return seen


def test_a_conversation_with_short_turns_stays_at_its_replica(make_router: Make) -> None:
    seen = chats(make_router(4), [[] for _ in range(40)], turns=6, per_turn=800, keyed=True)
    assert all(len(set(replicas)) == 1 for replicas in seen.values())
    assert max(Counter(replicas[0] for replicas in seen.values()).values()) <= 16


def test_a_chat_without_a_key_stays_while_its_turns_are_short(make_router: Make) -> None:
    seen = chats(make_router(2), [[]], turns=10, per_turn=60, keyed=False)
    assert len(set(seen[0])) == 1


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("head", [400, 1_062, 3_000])
def test_a_common_head_does_not_herd_light_traffic(make_router: Make, head: int, *, keyed: bool) -> None:
    router = make_router(4)
    seen = chats(router, [text(0, head) for _ in range(100)], turns=2, per_turn=100, keyed=keyed)
    homes = Counter(replicas[0] for replicas in seen.values())
    assert max(homes.values()) <= 40
    stayed = sum(len(set(replicas)) == 1 for replicas in seen.values())
    assert stayed >= (100 if keyed else 95)


def test_six_light_users_of_one_system_prompt_are_spread(make_router: Make) -> None:
    seen = chats(make_router(4), [text(0, 1_050) for _ in range(6)], turns=5, per_turn=50, keyed=True)
    requests = Counter(replica for replicas in seen.values() for replica in replicas)
    assert len(requests) >= 3
    assert max(requests.values()) <= 20


def test_documents_that_few_ask_for_are_followed(make_router: Make) -> None:
    router = make_router(4)
    for question in range(12):
        for document in range(20):
            with router.route(text(document, 4_000) + text(500 + 20 * question + document, 50)):
                pass
    hits = router.stats()["hit_tokens"] / router.stats()["prompt_tokens"]
    assert hits > 0.8


def test_a_fresh_replica_gets_its_share_of_sessions_behind_a_common_head(make_router: Make, clock: Any) -> None:
    router = make_router(3)
    chats(router, [text(0, 2_000) for _ in range(60)], turns=1, per_turn=50, keyed=True)
    router.add_replica("r3")
    clock.now = 60.0
    homes = Counter(
        router.route(text(0, 2_000) + text(900 + i, 50), session=f"new{i}", now=60.0).replica for i in range(80)
    )
    assert homes["r3"] >= 12


def test_two_routers_agree_on_the_first_home_of_a_session(make_router: Make) -> None:
    one, two = make_router(8, seed=1), make_router(8, seed=2)
    homes = [[router.choose(text(i, 200), session=f"s{i}").replica for i in range(50)] for router in (one, two)]
    assert homes[0] == homes[1]


@pytest.mark.parametrize("name", ["sglang-prefer", "ray", "production-stack-prefix", "smg-2026-08", "preble-e2"])
def test_a_head_that_a_fixed_rule_follows_to_one_replica_is_named(make_router: Make, clock: Any, name: str) -> None:
    router = make_router(4, policy=name)
    for i in range(60):
        with router.route(text(0, 3_000) + text(900 + i, 100)):
            clock.now += 1.0
    notes = " ".join(router.stats()["notes"])
    picks = {name: values["hit_tokens"] for name, values in router.stats()["replicas"].items()}
    if max(picks.values()) > 0.9 * sum(picks.values()):
        assert re.search(rf"(3,000|2,992|2,976) .* 1 .* 4 .*'{name}'", notes)


def test_a_silent_replica_does_not_hide_what_the_others_report(make_router: Make, clock: Any) -> None:
    router = make_router(8, load="reported_tokens")
    for name in router.replicas:
        router.update_load(name, waiting_tokens=500_000 if name == "r3" else 1_000)
    clock.now = 4.0
    for name in router.replicas[1:]:
        router.update_load(name, waiting_tokens=500_000 if name == "r3" else 1_000)
    clock.now = 8.0  # the report of r0 is too old now
    held = [router.route(text(i, 500)) for i in range(80)]
    picks = Counter(ticket.replica for ticket in held)
    assert picks["r3"] == 0
    assert max(picks.values()) <= 20
    assert 4 <= picks["r0"] <= 20
    assert router.stats()["replicas"]["r0"]["report_lapsed"]


def test_what_was_booked_since_a_report_counts_on_kv_use(make_router: Make) -> None:
    router = make_router(8, load="kv_use", policy="least-loaded")
    for name in router.replicas:
        router.update_load(name, kv_use=0.2)
    held = [router.route(text(i, 64)) for i in range(100)]
    assert max(Counter(ticket.replica for ticket in held).values()) <= 14


@pytest.mark.parametrize("options", [{"load": "reported_tokens"}, {"caps": Caps(kv_use=0.95)}])
def test_reports_count_for_as_long_as_they_usually_take(make_router: Make, clock: Any, options: Any) -> None:
    router = make_router(4, **options)
    picks: Counter[str] = Counter()
    for step in range(60):
        clock.now = float(step)
        if step % 15 == 0:
            for name in router.replicas:
                saturated = name == "r0"
                router.update_load(name, waiting_tokens=90_000 if saturated else 0, kv_use=0.99 if saturated else 0.1)
        if step >= 15:
            with router.route(text(step, 200)) as ticket:
                picks[ticket.replica] += 1
    assert picks["r0"] == 0
    clock.now = 100.0  # nothing for 55 s: the reports are too old now
    stats = router.stats()
    assert all(values["report_lapsed"] for values in stats["replicas"].values())
    assert any("r0, r1, r2, r3" in note for note in stats["notes"])
    assert 'prefixroute_load_report_lapsed{replica="r0"} 1' in router.metrics_text()
    assert "r0, r1, r2, r3" in router.explain(router.choose(text(1, 200)))


def test_of_several_suspensions_the_one_that_ends_last_counts(make_router: Make, clock: Any) -> None:
    router = make_router(2)
    router.suspend("r0", for_s=60.0)
    router.suspend("r0", for_s=1.0)
    for now, state in ((0.0, "suspended"), (2.0, "suspended"), (59.0, "suspended"), (60.0, "active")):
        clock.now = now
        assert router.stats()["replicas"]["r0"]["state"] == state
    router.suspend("r0", for_s=5.0)
    router.suspend("r0")
    clock.now = 1_000.0
    assert router.stats()["replicas"]["r0"]["state"] == "suspended"
    router.suspend("r0", for_s=1.0)  # one without an end ends last
    clock.now = 2_000.0
    assert router.stats()["replicas"]["r0"]["state"] == "suspended"
    router.resume("r0")
    assert router.stats()["replicas"]["r0"]["state"] == "active"
    with pytest.raises(ConfigError, match=r"for_s.*0"):
        router.suspend("r0", for_s=0.0)


def test_sessions_can_be_forgotten_all_at_once(make_router: Make) -> None:
    router = make_router(4)
    chats(router, [[] for _ in range(8)], turns=1, per_turn=100, keyed=True)
    router.new_epoch()
    assert router.stats()["sessions"] == 8
    assert router.forget_sessions() == 8
    assert router.stats()["sessions"] == 0


@pytest.mark.parametrize("policy", ["weighted", "preble-e2", "cache-aware", "lmetric", "linear-cost", "min-ttft"])
def test_a_hot_prompt_is_shed(make_router: Make, policy: str) -> None:
    router = make_router(8, policy=policy)
    held = [router.route(text(0, 2_000)) for _ in range(480)]
    assert max(Counter(ticket.replica for ticket in held).values()) <= 150


def test_a_short_match_at_a_busy_replica_is_left_and_a_long_one_followed(make_router: Make) -> None:
    router = make_router(["A", "B"], policy="weighted")
    router.index.insert("A", text(0, 64))
    router.index.insert("A", text(1, 10_000))
    busy = [router.route([7] * 3, candidates=["A"]) for _ in range(100)]
    assert router.choose(text(0, 70)).replica == "B"
    del busy[10:]
    router.stats()
    assert router.choose(text(1, 20_000)).replica == "A"


def test_long_keys_and_free_reasons_take_bounded_memory(make_router: Make) -> None:
    numbers = iter(range(10**9))
    router = make_router(2, policy=lambda view: (view.slots[0], f"reason {next(numbers)} " + "x" * 1_000))
    for i in range(300):
        router.route([1, 2, 3], session="s" * 8_000 + str(i), key="k" * 8_000 + str(i)).finish()
    assert router.stats()["sessions"] == 300
    assert router.metrics_text().count("prefixroute_decisions_total{") <= 130
    assert router.choose([1], session="s" * 8_000 + "7").view.binding is not None
    assert "8000" not in router.explain("k" * 8_000 + "299")


def test_a_retry_that_has_tried_all_says_so(make_router: Make) -> None:
    router = make_router(2)
    ticket = router.route([1, 2, 3]).retry()
    with pytest.raises(NoReplicaError, match="r0, r1"):
        ticket.retry()


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "./tokenizer.json"])
def test_the_name_of_a_tokenizer_is_refused_at_once(name: str) -> None:
    with pytest.raises(ConfigError, match=r"Tokenizer.from_pretrained\('.*'\) or .*from_file"):
        Router(["a"], prompt_kind="text", tokenizer=name)


@pytest.mark.parametrize("wrong", [float("nan"), "warm", None, -1.0])
@pytest.mark.parametrize("policy", ["linear-cost", "weighted"])
def test_a_temperature_is_a_number(policy: str, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=f"{policy}.*temperature"):
        POLICIES[policy](temperature=wrong)  # type: ignore[call-arg]


def test_a_reason_is_a_text(make_router: Make) -> None:
    for reason in (None, b"why", object()):
        router = make_router(2, policy=lambda view, reason=reason: (view.slots[0], reason))
        with pytest.raises(ConfigError, match=rf"\(slot, reason\).*{re.escape(repr(reason))}"):
            router.choose([1, 2, 3])


def test_unknown_options_name_those_that_exist() -> None:
    with pytest.raises(ConfigError, match=r"polcy.*\bpolicy\b"):
        Router(["a"], polcy="random")  # type: ignore[call-arg]


def test_every_preset_keeps_the_rule_of_its_original() -> None:
    for preset in presets().values():
        assert not getattr(preset.policy, "adaptive", False), preset.name
    assert as_policy("cache-aware").required_signals() == {"shared"}


def test_the_options_of_a_router_are_its_configuration() -> None:
    router = Router(["a"], policy="dynamo", timing=Timing(ticket_s=5.0))
    assert router.config.ttl_s == 120.0
    assert router.config.timing.ticket_s == 5.0
