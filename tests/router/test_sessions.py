"""Sessions: bound once, kept through a blip, moved with a reason, forgotten when idle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from prefixroute.errors import ConfigError, NoReplicaError
from prefixroute.router import Router
from prefixroute.types import Caps, Timing

Make = Callable[..., Router]
TOKENS = list(range(320))


def turn(router: Router, session: str = "s", **ask: Any) -> tuple[str, str]:
    """Route one turn to its end; return the replica and the reason."""
    with router.route(TOKENS, session=session, **ask) as ticket:
        return ticket.replica, ticket.decision.reason


def test_assigned_then_primary(make_router: Make) -> None:
    router = make_router(8, policy="session")
    home, reason = turn(router)
    assert reason == "assigned"
    assert {turn(router) for _ in range(10)} == {(home, "primary")}
    assert home == make_router(8, policy="rendezvous").choose(TOKENS, session="s").replica


def test_a_hash_seed_is_another_placement_that_routers_share(make_router: Make) -> None:
    def placed(policy: str = "session", **options: int) -> list[str]:
        router = make_router(8, policy=policy, **options)
        return [router.route(TOKENS, session=f"s{i}").replica for i in range(200)]

    placements = [placed(hash_seed=seed) for seed in (0, 1, 2, -1)]
    assert placements[0] == placed()
    assert placements[1] == placed(hash_seed=np.int64(1), seed=9) == placed("rendezvous", hash_seed=1)
    for first, second in combinations(placements, 2):
        stayed = sum(a == b for a, b in zip(first, second, strict=True))
        assert 8 <= stayed <= 50  # one in eight by chance
    for placement in placements:
        assert max(Counter(placement).values()) <= 45  # each is as even as chance makes it
    with pytest.raises(ConfigError, match=r"hash_seed.*int.*'x'"):
        make_router(8, hash_seed="x")


def test_a_blip_is_a_detour(make_router: Make) -> None:
    router = make_router(8, policy="session")
    home, _ = turn(router)
    router.suspend(home)
    away, reason = turn(router)
    assert (away != home, reason) == (True, "detour")
    router.resume(home)
    assert turn(router) == (home, "primary")
    assert turn(router, exclude=[home])[1] == "detour"
    assert turn(router) == (home, "primary")


@pytest.mark.parametrize("how", ["drain", "remove_replica"])
def test_leaving_moves_the_session(make_router: Make, how: str) -> None:
    router = make_router(8, policy="session")
    home, _ = turn(router)
    getattr(router, how)(home)
    away, reason = turn(router)
    assert (away != home, reason) == (True, "rebound")
    assert turn(router) == (away, "primary")
    moves = router.stats()["session_moves"]
    assert moves["removed" if how == "remove_replica" else "drained"] == 1
    assert moves["assigned"] == 1


def test_a_replica_that_came_back_empty_is_not_home(make_router: Make) -> None:
    router = make_router(2, policy="session")
    home, _ = turn(router)
    router.remove_replica(home)
    router.add_replica(home)
    assert turn(router)[1] == "rebound"


def test_a_full_home_moves_the_session(make_router: Make) -> None:
    router = make_router(4, policy="session", caps=Caps(in_flight=1))
    home, _ = turn(router)
    held = router.route(TOKENS, candidates=[home])
    away, reason = turn(router)
    assert (away != home, reason) == (True, "rebound")
    held.finish()
    assert turn(router) == (away, "primary")


def test_a_retry_moves_the_session(make_router: Make) -> None:
    router = make_router(4, policy="session")
    home, _ = turn(router)
    with router.route(TOKENS, session="s").retry() as second:
        assert second.replica != home
    assert turn(router) == (second.replica, "primary")


def test_other_policies_keep_bindings_too(make_router: Make) -> None:
    router = make_router(4, policy="cache-aware")
    home, _ = turn(router)
    assert router.choose(TOKENS, session="s").view.binding == router.replicas.index(home)


def test_idle_sessions_are_forgotten(make_router: Make, clock: Any) -> None:
    router = make_router(8, policy="session", timing=Timing(session_idle_s=600.0))
    turn(router, "a")
    turn(router, "b")
    clock.now = 500.0
    turn(router, "a")
    clock.now = 700.0
    assert router.stats()["sessions"] == 1
    assert turn(router, "a")[1] == "primary"
    assert turn(router, "b")[1] == "assigned"
    assert router.stats()["session_moves"]["idle"] == 1


def test_an_idle_session_is_forgotten_between_two_sweeps(make_router: Make) -> None:
    router = make_router(8, policy="session", timing=Timing(session_idle_s=10.0))
    router.route(TOKENS, session="s", now=100.0).finish(now=100.0)
    assert router.choose(TOKENS, session="s", now=109.5).reason == "primary"
    assert router.choose(TOKENS, session="s", now=110.2).reason == "assigned"


def test_the_longest_unused_session_goes_first(make_router: Make) -> None:
    router = make_router(8, policy="session", session_capacity=2)
    for session in ("a", "b", "a", "c"):
        turn(router, session)
    assert [turn(router, session)[1] for session in ("a", "c", "b")] == ["primary", "primary", "assigned"]
    assert router.stats()["sessions"] == 2


def test_forget_drops_a_binding(make_router: Make) -> None:
    router = make_router(8, policy="session")
    turn(router)
    assert router.forget("s")
    assert not router.forget("s")
    assert turn(router)[1] == "assigned"


def test_response_ids_chain_by_alias(make_router: Make) -> None:
    router = make_router(8, policy="session")
    with router.route(TOKENS, session="conversation") as ticket:
        ticket.alias("resp_1")
    assert turn(router, "resp_1") == (ticket.replica, "primary")
    assert router.alias("resp_1", "resp_2")
    assert turn(router, "resp_2") == (ticket.replica, "primary")
    assert not router.alias("never", "resp_3")


def test_hard_affinity_goes_home_or_nowhere(make_router: Make) -> None:
    router = make_router(8, policy="cache-aware")
    with router.route(TOKENS, session="s", affinity="hard") as ticket:
        home = ticket.replica
    assert {turn(router, affinity="hard")[0] for _ in range(10)} == {home}
    router.suspend(home)
    with pytest.raises(NoReplicaError, match="'s'"):
        router.choose(TOKENS, session="s", affinity="hard")
    assert router.choose(TOKENS, session="s").replica != home
    router.remove_replica(home)
    with pytest.raises(NoReplicaError):
        router.choose(TOKENS, session="s", affinity="hard")


def test_a_session_is_a_string_and_affinity_soft_or_hard(make_router: Make) -> None:
    router = make_router(2)
    with pytest.raises(ConfigError, match=r"session key.*string.*7"):
        router.choose(TOKENS, session=7)
    with pytest.raises(ConfigError, match=r"affinity.*soft, hard.*'firm'"):
        router.route(TOKENS, affinity="firm")


def test_the_bindings_of_sglang_s_sessions_are_one_router_s_own(make_router: Make) -> None:
    """The trap of bindings in memory: behind two routers a session has two homes; by its key it has one."""
    homes = {}
    for policy in ("sglang-session", "session"):
        routers = [make_router(8, policy=policy, seed=seed) for seed in (1, 2)]
        homes[policy] = sum(
            len({router.route(TOKENS, session=f"s{i}").replica for router in routers}) > 1 for i in range(40)
        )
        for router in routers:
            assert {turn(router, "s0")[1] for _ in range(5)} == {"primary"}
    assert homes["session"] == 0
    assert homes["sglang-session"] >= 25
