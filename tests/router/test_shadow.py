"""Shadows: the same policies on the same traffic, with state of their own, compared belief with belief."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from book import Refusing

from fake_belief import FakeBelief
from prefixroute.costmodel import CostModel
from prefixroute.hashing import hash_blocks
from prefixroute.policies import View
from prefixroute.router import Router

Make = Callable[..., Router]


def prompt(conversation: int, turn: int) -> list[int]:
    return [100_000 * conversation + i for i in range(320 * (turn + 1))]


def converse(router: Router, conversations: int = 6, turns: int = 8) -> None:
    for turn in range(turns):
        for conversation in range(conversations):
            with router.route(prompt(conversation, turn), session=f"c{conversation}") as ticket:
                ticket.first_token()


def test_regret_is_what_the_shadow_would_have_saved(make_router: Make) -> None:
    cost = CostModel()
    router = make_router(4, policy="round-robin", cost=cost)
    router.shadow("session", index=FakeBelief())
    router.shadow("round-robin", name="again", index=FakeBelief())
    converse(router)
    regret = router.regret()
    assert regret["again"].tokens == 0
    best = regret["session"]
    assert best.requests == 48
    assert best.recomputed_tokens == sum(320 for _ in range(48))
    assert best.live_recomputed_tokens - best.recomputed_tokens == best.tokens > 10_000
    assert best.seconds > 0
    assert best.usd == pytest.approx(cost.usd(best.seconds))
    assert best.skew >= 1.0


def test_a_shadow_decides_exactly_as_it_would_live(make_router: Make) -> None:
    router = make_router(4, policy="random")
    shadow = router.shadow("session", index=FakeBelief())
    converse(router)
    alone = make_router(4, policy="session")
    converse(alone)
    shadowed = {name: values["hit_tokens"] for name, values in shadow.stats()["replicas"].items()}
    assert shadowed == {name: values["hit_tokens"] for name, values in alone.stats()["replicas"].items()}


def test_a_shadow_changes_nothing_live(make_router: Make) -> None:
    plain, shadowed = make_router(4), make_router(4)
    shadowed.shadow("random", index=FakeBelief())
    converse(plain)
    converse(shadowed)
    assert plain.stats() == shadowed.stats()


def test_a_shadow_sees_the_same_fleet(make_router: Make) -> None:
    router = make_router(3)
    router.drain("r2")
    shadow = router.shadow("least-loaded", index=FakeBelief())
    router.add_replica("r3")
    router.suspend("r0")
    router.remove_replica("r1")
    assert shadow.replicas == router.replicas
    states = {name: values["state"] for name, values in router.stats()["replicas"].items()}
    assert states == {name: values["state"] for name, values in shadow.stats()["replicas"].items()}
    router.sync(["r3", "r9"])
    assert set(shadow.replicas) == {"r3", "r9"}
    router.new_epoch()
    assert shadow.choose(prompt(0, 0)).best_hit_tokens == 0


def test_shadows_follow_requests_not_attempts(make_router: Make) -> None:
    router = make_router(4, load="in_flight")
    shadow = router.shadow("least-loaded", index=FakeBelief())
    ticket = router.route(prompt(0, 0), key="k")
    assert shadow.stats()["in_flight"] == 1
    ticket = ticket.retry()
    second = ticket.hedge()
    assert shadow.stats()["in_flight"] == 1
    second.first_token()
    second.finish()
    assert shadow.stats()["in_flight"] == 0
    assert shadow.stats()["counts"]["finished"] == 1
    router.route(prompt(1, 0)).abort()
    dropped = router.route(prompt(1, 0))
    del dropped
    router.stats()
    assert shadow.stats()["in_flight"] == 0
    assert sum(shadow.load().values()) == 0


def test_a_shadow_that_has_no_replica_for_a_request_counts_it(make_router: Make) -> None:
    router = make_router(2)
    router.shadow("session", index=FakeBelief())
    with pytest.raises(RuntimeError):
        router.route(prompt(0, 0), exclude=["r0", "r1"])
    converse(router, 1, 1)
    assert router.regret()["session"].requests == 1


def test_a_failing_shadow_never_touches_the_live_request(make_router: Make) -> None:
    def broken(view: View) -> int:
        raise ZeroDivisionError

    router = make_router(2)
    router.shadow(broken, index=FakeBelief())
    converse(router, 2, 2)
    assert router.regret()["broken"].failures == 4
    assert router.stats()["counts"]["finished"] == 4


def test_a_shadow_that_cannot_finish_still_gives_its_load_back(make_router: Make) -> None:
    router = make_router(2)
    belief = Refusing()
    shadow = router.shadow("session", index=belief)
    ticket = router.route(prompt(0, 0), session="s")
    belief.refuses = True
    ticket.finish(output=[1, 2, 3])
    assert (router.stats()["in_flight"], shadow.stats()["in_flight"]) == (0, 0)


def test_the_live_copy_has_the_live_settings() -> None:
    router = Router(["a", "b"], policy="llmd-approx")
    shadow = router.shadow("cache-aware")
    live = router.shadows.all["cache-aware"].live
    assert live is not None
    assert live.state.belief.block_size == router.index.block_size == 64
    assert shadow.index.block_size == 16


def test_a_late_shadow_is_compared_over_its_own_time(make_router: Make) -> None:
    router = make_router(4, policy="session")
    router.shadow("session", name="early", index=FakeBelief())
    router.shadow("session", name="twin", index=FakeBelief())
    converse(router)
    router.shadow("session", name="late", index=FakeBelief())
    converse(router, conversations=3)
    regret = router.regret()
    assert (regret["early"].requests, regret["late"].requests) == (72, 24)
    assert regret["early"].tokens == regret["twin"].tokens == regret["late"].tokens == 0  # the same policy each time
    assert len(router.shadows.states) == 5  # three shadows, one copy for the two that began together, one for the late


def test_without_shadows_there_is_no_regret(make_router: Make) -> None:
    assert make_router(2).regret() == {}


@pytest.mark.parametrize("hash_key", [None, 7])
@pytest.mark.parametrize("policy", ["cache-aware", "llmd-approx"])
def test_a_prompt_that_comes_hashed_is_matched_in_every_shadow(policy: str, hash_key: int | None) -> None:
    router = Router(["a", "b"], hash_key=hash_key)
    router.shadow(policy, name="other")
    hashed = hash_blocks(prompt(0, 0), router.config.block_size, hash_key=router.hash_key)
    for _ in range(3):
        router.route(hashed).finish()
    regret = router.regret()["other"]
    assert (regret.requests, regret.failures) == (3, 0)
