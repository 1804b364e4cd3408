"""The fleet: joining, leaving, pausing, coming back, and what replicas report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from prefixroute.errors import ConfigError, EventError, NoReplicaError, OverloadedError, UnknownReplicaError
from prefixroute.index import PrefixIndex
from prefixroute.router import Router
from prefixroute.types import Caps, Namespace, Replica, Timing

Make = Callable[..., Router]
TOKENS = list(range(2_000))


def picks(router: Router, count: int = 60, **ask: Any) -> set[str]:
    return {router.choose(TOKENS, **ask).replica for _ in range(count)}


def test_an_empty_fleet_is_allowed_and_refuses_requests(make_router: Make) -> None:
    router = make_router(0)
    assert router
    with pytest.raises(NoReplicaError, match="fleet"):
        router.choose(TOKENS)
    router.add_replica("a")
    assert router.route(TOKENS).replica == "a"


def test_sync_is_idempotent(make_router: Make) -> None:
    router = make_router(["a", "b"])
    router.index.insert("a", TOKENS)
    held = router.route(TOKENS)
    wanted = {"a": Replica(), "c": Replica(capacity_tokens=1_600, weight=2.0)}
    router.sync(wanted)
    first = (router.stats(), router.replicas)
    router.sync(wanted)
    router.sync({"a": None, "c": None})
    assert (router.stats(), router.replicas) == first
    assert set(router.replicas) == {"a", "c"}
    assert router.replica("c").weight == 2.0
    assert router.choose(TOKENS, candidates=["a"]).hit_tokens == 1_984
    assert held.open


def test_a_new_incarnation_is_empty(make_router: Make, clock: Any) -> None:
    router = make_router({"a": Replica("1"), "b": Replica("1")})
    tickets = [router.route(TOKENS, candidates=["a"], session="s") for _ in range(5)]
    clock.now = 100.0
    router.sync({"a": Replica("2"), "b": Replica("1")})
    assert router.load() == {"a": 0, "b": 0}
    assert router.choose(TOKENS, candidates=["a"]).hit_tokens == 0
    assert router.choose(TOKENS, session="s").view.binding == -1
    for ticket in tickets:
        ticket.finish()
    assert router.load() == {"a": 0, "b": 0}
    assert router.choose(TOKENS, candidates=["a"]).hit_tokens == 0


def test_a_wrong_sync_changes_nothing(make_router: Make) -> None:
    router = make_router(["a"])
    for wrong in ({"": None, "b": None}, {"b": "fast"}, {"b": None, 3: None}):
        with pytest.raises(ConfigError):
            router.sync(wrong)  # type: ignore[arg-type]
        assert router.replicas == ("a",)
    with pytest.raises(ConfigError, match=r"replicas.*'ab'"):
        router.sync("ab")
    with pytest.raises(ConfigError, match=r"replicas.*'b'"):
        router.sync(["b", "b"])
    assert router.replicas == ("a",)


def test_drain_suspend_and_resume(make_router: Make) -> None:
    router = make_router(["a", "b"])
    router.drain("a")
    assert picks(router) == {"b"}
    router.suspend("b")
    with pytest.raises(NoReplicaError, match=r"2 of 2.*drained.*suspended"):
        router.choose(TOKENS)
    router.resume("a")
    router.resume("b")
    assert picks(router) == {"a", "b"}
    with pytest.raises(UnknownReplicaError, match=r"'z'.*a, b"):
        router.drain("z")


def test_candidates_and_exclude(make_router: Make) -> None:
    router = make_router(4)
    assert picks(router, candidates=["r1", "r2"]) == {"r1", "r2"}
    assert picks(router, exclude={"r1", "gone"}) == {"r0", "r2", "r3"}
    with pytest.raises(NoReplicaError, match=r"4 of 4.*candidates.*exclude.*role.*model"):
        router.choose(TOKENS, candidates=["r1"], exclude=["r1"])
    with pytest.raises(UnknownReplicaError):
        router.choose(TOKENS, candidates=["gone"])
    with pytest.raises(ConfigError, match=r"candidates.*'r1'"):
        router.choose(TOKENS, candidates="r1")


def test_a_replica_only_gets_models_that_it_serves(make_router: Make) -> None:
    router = make_router(
        {"a": Replica(models=frozenset({"base", "ad"})), "b": Replica(models=frozenset({"base"})), "c": None}
    )
    assert picks(router, namespace=Namespace(model="base")) == {"a", "b", "c"}
    assert picks(router, namespace=Namespace(model="base", lora="ad")) == {"a", "c"}
    assert picks(router, namespace=Namespace(model="other")) == {"c"}
    assert picks(router, namespace=Namespace(salt="tenant")) == {"a", "b", "c"}
    router.remove_replica("c")
    with pytest.raises(NoReplicaError, match="serving 'other'"):
        router.choose(TOKENS, namespace=Namespace(model="other"))


def test_weights_share_load_in_proportion(make_router: Make) -> None:
    router = make_router({"a": Replica(weight=3.0), "b": Replica(weight=1.0)}, policy="least-loaded")
    held = [router.route(TOKENS) for _ in range(400)]
    assert 290 <= Counter(ticket.replica for ticket in held)["a"] <= 310


def test_equal_weights_change_nothing(make_router: Make) -> None:
    router = make_router({name: Replica(weight=2.0) for name in ("a", "b", "c")})
    held = [router.route(TOKENS, candidates=["a"]) for _ in range(4)]
    assert router.load()["a"] == 4
    router.remove_replica("b")
    assert router.load()["a"] == len(held) == 4


def test_capacities_differ_and_change(make_router: Make) -> None:
    router = make_router(["a", "b"], capacity_tokens={"a": 1_600, "b": 160})
    for name in router.replicas:
        router.index.insert(name, TOKENS)
    assert router.choose(TOKENS, candidates=["a"]).hit_tokens == 1_600
    assert router.choose(TOKENS, candidates=["b"]).hit_tokens == 160
    router.sync({"a": Replica(capacity_tokens=320), "b": None})
    assert router.choose(TOKENS, candidates=["a"]).hit_tokens == 320
    with pytest.raises(ConfigError, match=r"capacity_tokens.*'c'"):
        router.add_replica("c")


def test_clear_and_new_epoch_void_belief(make_router: Make) -> None:
    router = make_router(2)
    for name in router.replicas:
        router.index.insert(name, TOKENS)
    router.clear("r0")
    assert router.choose(TOKENS, candidates=["r0"]).hit_tokens == 0
    assert router.choose(TOKENS).best_hit_tokens == 1_984
    ticket = router.route(TOKENS)
    router.new_epoch()
    assert router.choose(TOKENS).best_hit_tokens == 0
    ticket.finish(output=[1, 2, 3])  # computed with the old weights
    assert router.choose(TOKENS).best_hit_tokens == 0
    router.route(TOKENS).finish()
    assert router.choose(TOKENS).best_hit_tokens == 1_984


def test_caps_keep_full_replicas_out(make_router: Make) -> None:
    router = make_router(2, caps=Caps(in_flight=2, retry_after_s=3.0))
    held = [router.route(TOKENS) for _ in range(4)]
    assert Counter(ticket.replica for ticket in held) == {"r0": 2, "r1": 2}
    with pytest.raises(OverloadedError, match="2 replicas") as caught:
        router.choose(TOKENS)
    assert caught.value.retry_after_s == 3.0
    held[0].finish()
    assert router.choose(TOKENS).replica == held[0].replica


@pytest.mark.parametrize(
    ("caps", "report"),
    [
        (Caps(waiting=3), {"waiting": 3}),
        (Caps(running=3), {"running": 5}),
        (Caps(kv_use=0.9), {"kv_use": 0.95}),
    ],
)
def test_caps_on_reports_pass_what_is_unknown(
    make_router: Make, clock: Any, caps: Caps, report: dict[str, float]
) -> None:
    router = make_router(2, caps=caps)
    assert picks(router) == {"r0", "r1"}
    router.update_load("r0", **report)
    assert picks(router) == {"r1"}
    clock.now = 5.5  # the report is stale
    assert picks(router) == {"r0", "r1"}


def test_caps_on_uncached_tokens(make_router: Make) -> None:
    router = make_router(2, caps=Caps(uncached_tokens=2_000))
    held = router.route(TOKENS, candidates=["r0"])
    assert picks(router) == {"r1"}
    held.first_token()
    assert picks(router) == {"r0"}  # it holds the prefix now, and nothing waits there


@pytest.mark.parametrize("load", ["reported_requests", "reported_tokens", "kv_use", "seconds"])
def test_reports_count_only_when_every_replica_has_a_fresh_one(make_router: Make, clock: Any, load: str) -> None:
    router = make_router(2, load=load, policy="least-loaded")
    busy = router.route(TOKENS, candidates=["r1"])
    report = {"waiting": 9, "running": 9, "waiting_tokens": 90_000, "kv_use": 0.9, "tokens_per_s": 1_000}
    router.update_load("r0", **report)
    assert picks(router) == {"r0"}  # one report is no comparison: the book says r1 is busier
    router.update_load("r1", **dict.fromkeys(report, 0) | {"tokens_per_s": 1_000})
    assert picks(router) == {"r1"}
    clock.now = 6.0
    assert picks(router) == {"r0"}
    assert busy.open


def test_bookings_since_a_report_are_added_to_it(make_router: Make) -> None:
    router = make_router(2, load="reported_requests", policy="least-loaded")
    for name in router.replicas:
        router.update_load(name, waiting=0, running=10)
    held = [router.route(TOKENS, candidates=["r0"]) for _ in range(3)]
    assert router.load() == {"r0": 13, "r1": 10}
    held.pop().abort()  # it never reached the engine
    assert router.load() == {"r0": 12, "r1": 10}
    router.update_load("r0", waiting=0, running=11)
    assert router.load() == {"r0": 11, "r1": 10}
    held.pop().abort()
    assert router.load() == {"r0": 11, "r1": 10}
    router.update_load("r0", waiting=0)
    assert router.load() == {"r0": 11, "r1": 10}  # half a report: the router's own book, and what others have at r1


def test_an_older_report_is_ignored_and_a_wrong_one_refused(make_router: Make, clock: Any) -> None:
    router = make_router(1)
    clock.now = 10.0
    assert router.update_load("r0", at=9.0, waiting=1)
    assert not router.update_load("r0", at=8.0, waiting=7)
    with pytest.raises(ConfigError, match=r"'mood'; .*waiting,.*waiting_tokens"):
        router.update_load("r0", mood=1)
    with pytest.raises(UnknownReplicaError):
        router.update_load("r9", waiting=1)


@pytest.mark.parametrize("load", ["in_flight", "recent", "uncached_tokens", "tokens"])
def test_own_load_signals(make_router: Make, load: str) -> None:
    router = make_router(2, load=load, recent_window=3)
    tickets = [router.route(TOKENS, candidates=["r0"]) for _ in range(2)]
    tickets[0].first_token()
    expected = {"in_flight": 2, "recent": 2, "uncached_tokens": 16, "tokens": 2_016}  # of 2,000, 1,984 are a hit
    assert router.load() == {"r0": expected[load], "r1": 0}
    for ticket in tickets:
        ticket.finish()
    kept = [router.route(TOKENS, candidates=["r1"]) for _ in range(2)]
    assert router.load()["r0"] == (1 if load == "recent" else 0)
    assert len(kept) == 2


def test_zero_reported_hits_take_a_replica_s_belief_away(make_router: Make, caplog: pytest.LogCaptureFixture) -> None:
    router = make_router(["a", "b"], load="in_flight")
    for name in router.replicas:
        router.index.insert(name, TOKENS)
    for _ in range(20):
        router.route(TOKENS, candidates=["a"]).finish(reported_hit_tokens=0)
    assert router.stats()["replicas"]["a"]["distrusted"]
    assert "'a'" in caplog.text
    assert picks(router) == {"b"}
    assert router.choose(TOKENS, candidates=["a"]).hit_tokens == 0
    router.route(TOKENS, candidates=["a"]).finish(reported_hit_tokens=1_984)
    assert not router.stats()["replicas"]["a"]["distrusted"]
    assert picks(router) == {"a", "b"}


def test_one_reported_hit_ends_a_row_of_zeros(make_router: Make) -> None:
    router = make_router(["a"])
    router.index.insert("a", TOKENS)
    for reported in [0] * 19 + [16] + [0] * 19:
        router.route(TOKENS).finish(reported_hit_tokens=reported)
    assert not router.stats()["replicas"]["a"]["distrusted"]
    router.route(TOKENS).finish(reported_hit_tokens=0)
    assert router.stats()["replicas"]["a"]["distrusted"]


def test_absent_reports_are_unknown_not_zero(make_router: Make) -> None:
    router = make_router(["a"])
    router.index.insert("a", TOKENS)
    for _ in range(50):
        router.route(TOKENS).finish()
    stats = router.stats()
    assert (stats["reported_hit_tokens"], stats["unreported_requests"]) == (None, 50)
    assert not stats["replicas"]["a"]["distrusted"]
    router.route(TOKENS).finish(reported_hit_tokens=1_000)
    stats = router.stats()
    assert (stats["predicted_hit_tokens"], stats["reported_hit_tokens"]) == (1_984, 1_000)


def test_provisional_blocks_vanish_unless_confirmed(make_router: Make, clock: Any) -> None:
    router = make_router({"fed": Replica(events=True), "own": None})
    held = [router.route(TOKENS, candidates=[name]) for name in ("fed", "own")]
    assert router.choose(TOKENS, candidates=["fed"]).hit_tokens == 1_984
    clock.now = 4.0
    assert router.choose(TOKENS, candidates=["fed"]).hit_tokens == 0
    assert router.choose(TOKENS, candidates=["own"]).hit_tokens == 1_984
    for ticket in held:
        ticket.finish(output=[1, 2, 3])
    assert router.choose(TOKENS, candidates=["fed"]).hit_tokens == 0  # its events will tell


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Replica(weight=0.0), r"weight.* 0,.* 0\.0"),
        (lambda: Replica(capacity_tokens=0), "capacity_tokens.* 1,.* 0"),
        (lambda: Replica(models="base"), "models.*collection.*'base'"),  # type: ignore[arg-type]
        (lambda: Caps(in_flight=0), "in_flight.* 1,.* 0"),
        (lambda: Caps(kv_use=1.5), r"kv_use.* 0 .* 1,.* 1\.5"),
        (lambda: Timing(ticket_s=0.0), r"ticket_s.* 0,.* 0\.0"),
        (lambda: Timing(slow_start_s=-1.0), r"slow_start_s.* 0,.* -1\.0"),
        (lambda: Router(load="mood"), "load.*requests, in_flight.*'mood'"),
        (lambda: Router(recent_window=0), "recent_window.* 1,.* 0"),
        (lambda: Router(session_capacity=0), "session_capacity.* 1,.* 0"),
        (lambda: Router(prompt_kind="words"), "prompt_kind.*tokens, text, messages,.*'words'"),
        (lambda: Router(block_size=0), "block size.* 1 .* 65536,.* 0"),
        (lambda: Router("ab"), "replicas.*'ab'"),
        (lambda: Router(["a", "b", "a"]), "replicas.*'a'"),
        (lambda: Router(["a"]).add_replica("a"), "replica 'a'.*sync"),
    ],
)
def test_wrong_settings_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_readmitted_replica_keeps_what_matches_it(make_router: Make, clock: Any) -> None:
    router = make_router(["a", "b", "c"])
    router.index.insert("a", TOKENS)
    held = [router.route([i] * 3) for i in range(30)]
    router.suspend("a")
    router.resume("a")
    assert picks(router) == {"a"}  # its prefix is there, and it is no busier than the others
    cold = Counter(router.route([7_000 + i] * 3).replica for i in range(60))  # tickets dropped: no load is added
    assert cold["a"] == 0  # what matches nobody goes elsewhere for now
    clock.now = 31.0
    assert "a" in {router.choose([9_000 + i] * 3).replica for i in range(60)}
    assert len(held) == 30


def test_a_readmitted_replica_is_never_made_to_look_idle(make_router: Make) -> None:
    router = make_router(["a", "b", "c"])
    held = [router.route([1, 2, 3], candidates=[name]) for name in "a" * 20 + "b" * 2]
    router.suspend("a")
    router.resume("a")
    assert router.load() == {"a": 20, "b": 2, "c": 0}
    assert len(held) == 22


def test_rates_are_learned_from_the_work_ahead(make_router: Make, clock: Any) -> None:
    router = make_router(["a"], policy="min-ttft")
    tickets = [router.route([i * 10_000 + j for j in range(1_000)]) for i in range(2)]
    for number, ticket in enumerate(tickets, 1):
        clock.now = 0.5 * number  # one after another at 2,000 tokens a second
        ticket.first_token()
    assert router.stats()["replicas"]["a"]["tokens_per_s"] == pytest.approx(2_000.0)


@pytest.mark.parametrize("heard", [False, True], ids=["before the first event", "after it"])
def test_routed_blocks_are_provisional_for_as_long_as_the_router_was_told(clock: Any, heard: bool) -> None:
    router = Router({"fed": Replica(events=True)}, clock=clock, timing=Timing(provisional_s=30.0))
    if heard:
        router.apply_stored("fed", [1], token_ids=list(range(90_000, 90_016)))
    prompt = list(range(4_000))
    ticket = router.route(prompt)
    assert ticket.hit_tokens == 0
    hits = []
    for clock.now in (1.0, 3.0, 10.0, 29.0, 31.0):
        hits.append(router.choose(prompt).hit_tokens)
    assert hits == [3_984, 3_984, 3_984, 3_984, 0]
    assert ticket.open


def test_provisional_blocks_may_stay_for_good(clock: Any) -> None:
    router = Router({"fed": Replica(events=True)}, clock=clock, timing=Timing(provisional_s=float("inf")))
    router.route(TOKENS).first_token()
    clock.now = 1e6
    assert router.choose(TOKENS).hit_tokens == 1_984


def test_events_feed_the_belief_and_make_routed_blocks_provisional(clock: Any) -> None:
    router = Router(["fed", "own"], clock=clock)
    router.apply_stored("fed", [101, 102], parent=None, token_ids=list(range(32)))
    assert router.replica("fed").events
    assert router.choose(list(range(40)), candidates=["fed"]).hit_tokens == 32
    ticket = router.route(list(range(64)), candidates=["fed"])
    assert router.choose(list(range(80)), candidates=["fed"]).hit_tokens == 64
    clock.now = 4.0
    assert router.choose(list(range(80)), candidates=["fed"]).hit_tokens == 32  # unconfirmed blocks are gone
    router.apply_stored("fed", [103], parent=102, token_ids=list(range(32, 48)))
    assert router.choose(list(range(80)), candidates=["fed"]).hit_tokens == 48
    router.apply_removed("fed", [103])
    assert router.choose(list(range(80)), candidates=["fed"]).hit_tokens == 32
    router.apply_cleared("fed")
    assert router.choose(list(range(80)), candidates=["fed"]).hit_tokens == 0
    assert ticket.open


def test_confirmed_blocks_stay(clock: Any) -> None:
    router = Router({"fed": Replica(events=True)}, clock=clock)
    ticket = router.route(list(range(64)))
    router.apply_stored("fed", [1, 2], parent=None, token_ids=list(range(32)))
    clock.now = 4.0
    assert router.choose(list(range(80))).hit_tokens == 32
    ticket.abort()
    assert router.choose(list(range(80))).hit_tokens == 32


@pytest.mark.parametrize("kind", ["text", "messages"])
def test_a_text_router_refuses_token_events(kind: str) -> None:
    router = Router(["a"], prompt_kind=kind)
    with pytest.raises(EventError, match="token ids"):
        router.apply_stored("a", [1], token_ids=list(range(16)))
    with pytest.raises(UnknownReplicaError):
        Router(["a"], prompt_kind=kind, tokenizer=lambda _: [1]).apply_stored("b", [1], token_ids=list(range(16)))


@pytest.mark.parametrize("policy", ["round-robin", "session"])
def test_a_replica_that_came_back_has_not_been_tried(make_router: Make, policy: str) -> None:
    """A rolling restart of two: the request finds the one that is up again."""
    router = make_router(["a", "b"], policy=policy)
    ticket = router.route(TOKENS, session="s")
    first = ticket.replica
    (other,) = {"a", "b"} - {first}
    router.remove_replica(first)
    ticket = ticket.retry()
    assert ticket.replica == other
    router.add_replica(first)
    router.remove_replica(other)
    ticket = ticket.retry()
    assert ticket.replica == first
    assert ": a, b." in router.explain(ticket)
    with pytest.raises(NoReplicaError):
        ticket.retry()


def test_batches_of_events_reach_the_index_and_declare_the_replica(make_router: Make) -> None:
    fleet = {"a": None, "full": Replica(events=True, reuse_reports=True)}
    router = make_router(fleet, index=PrefixIndex())
    ids = list(range(32))
    event = {
        "type": "BlockStored",
        "block_hashes": [1, 2],
        "parent_block_hash": None,
        "token_ids": ids,
        "block_size": 16,
    }
    twice = msgpack.packb([1.5, [event, event, {"type": "BlockRemoved", "block_hashes": [2]}]])
    for name in ("a", "full"):
        router.apply(name, twice, sequence=7)
    assert router.choose([*ids, 1]).view.hits == [32, 16]
    with pytest.raises(EventError, match="batch"):
        router.apply("a", b"")
    with pytest.raises(UnknownReplicaError):
        router.apply("z", twice)
