"""Frames that somebody has recorded, and sends again: at a router that has heard them, nothing changes."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from mesh import NAMES, NOTHING, Mesh, load_of, meshed, prompt
from test_histories import Traffic

from prefixroute.router import Router


def shown(router: Router) -> dict[str, Any]:
    """Return all that peers' messages can change."""
    stats = router.stats()
    return {
        "load": load_of(router),
        "states": {name: replica["state"] for name, replica in stats["replicas"].items()},
        "held": [router.index.match(prompt(number, 2_000)).tolist() for number in range(6)],  # type: ignore[attr-defined]
        "homes": [router.choose(prompt(9), session=f"s{number}").view.binding for number in range(6)],
        "living": stats["peers"]["living"],
        "expired": stats["peers"]["expired"],
    }


def act(router: Router, rng: random.Random) -> None:
    """Change the fleet as a host does."""
    name = rng.choice(NAMES[1:])
    for change in rng.sample(
        [
            lambda: router.drain(name),
            lambda: router.suspend(name, for_s=rng.choice([None, 2.0])),
            lambda: router.resume(name),
            lambda: router.clear(name),
            router.new_epoch,
            lambda: router.forget(f"s{rng.randrange(6)}"),
            router.forget_sessions,
        ],
        2,
    ):
        change()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 3.0, 100.0]))
def test_a_day_that_is_played_again_changes_nothing(seed: int, later_s: float) -> None:
    """Bookings that have ended, replicas that were drained and resumed, caches that were cleared, a router that has died."""
    mesh = Mesh(3)
    traffic, recorded = Traffic(mesh, seed), list[bytes]()
    rng, listener = traffic.rng, mesh.routers[-1]
    for number in range(60):
        traffic.step()
        if number % 6 == 0:
            act(rng.choice(mesh.routers), rng)
        sent = mesh.take()
        recorded += [data for sender, data in sent if sender != 2]
        mesh.deliver(sent)
    for ticket in traffic.open:
        ticket.abort()
    for name in NAMES:
        mesh.routers[1].resume(name)
    sent = mesh.take()
    recorded += [data for sender, data in sent if sender != 2]
    mesh.deliver(sent)
    mesh.links[0].is_open = False  # it dies, and the other goes on
    mesh.play(12)
    mesh.now += later_s
    before, told = shown(listener), listener.stats()["peers"]["trouble"]["repeated"]
    rng.shuffle(recorded)
    for data in recorded:
        listener.apply_peer(data)
    assert shown(listener) == before
    assert listener.stats()["peers"]["trouble"]["repeated"] - told == len(recorded)


def test_what_a_dead_router_said_counts_once_and_for_a_while_at_one_that_never_heard_it() -> None:
    """Sent again and again it keeps nothing alive."""
    mesh, dead, listener = meshed(2)
    dead.route(prompt(1), candidates=["r1"])
    recorded = [data for sender, data in mesh.take() if sender == 0]
    mesh.links.pop(0)
    loads = list[int]()
    for _ in range(8):
        for data in recorded:
            listener.apply_peer(data)
        loads.append(load_of(listener)["r1"][0])
        mesh.tick(4.0)
    assert loads == [1, 1, 1, 0, 0, 0, 0, 0]
    assert load_of(listener) == NOTHING
