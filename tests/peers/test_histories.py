"""Random histories of routers whose messages are lost, doubled and reordered, against the reference model.

And hostile bytes.
"""

from __future__ import annotations

import random
from contextlib import suppress

import numpy as np
import pytest
from frames import HEADER, KINDS, framed, kinds
from hypothesis import given, settings
from hypothesis import strategies as st
from mesh import KEY, NAMES, NOTHING, Mesh, load_of, meshed, prompt, stranger
from peer_twin import TwinPeers

from prefixroute.errors import NoReplicaError, PeerError
from prefixroute.hashing import hash_blocks
from prefixroute.peers.names import process_mark
from prefixroute.router import Ticket

SEEDS = st.integers(0, 2**32)


class Traffic:
    """Random requests at every router of a mesh but the last, which only listens."""

    def __init__(self, mesh: Mesh, seed: int) -> None:
        self.mesh, self.rng = mesh, random.Random(seed)  # noqa: S311
        self.open: list[Ticket] = []

    def step(self) -> None:
        self.mesh.now += 0.001
        with suppress(NoReplicaError):  # a request has tried them all
            self._step()
        self.open = [each for each in self.open if each.open]

    def _step(self) -> None:
        rng, choice = self.rng, self.rng.random()
        if choice < 0.35 or not self.open:
            number = rng.randrange(6)
            router = rng.choice(self.mesh.routers[:-1])
            tokens = prompt(number, 16 * rng.randrange(1, 80))
            self.open.append(router.route(tokens, session=rng.choice([None, f"s{number}"])))
            return
        ticket = rng.choice(self.open)
        if choice < 0.5:
            ticket.first_token()
        elif choice < 0.75:
            ticket.finish(output=np.arange(rng.randrange(1, 100), dtype=np.uint32))
        elif choice < 0.8:
            ticket.abort()
        elif choice < 0.85 and not ticket.started:
            self.open.append(ticket.retry())
        elif choice < 0.9:
            self.open.append(ticket.hedge())
        else:
            self.mesh.tick(rng.choice([0.2, 1.0]))


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sampled_from([0.0, 0.1, 0.5]), st.sampled_from([0, 5, 40]))
def test_load_is_a_function_of_the_messages_that_came(seed: int, loss: float, reach: int) -> None:
    """Whatever is lost, doubled or late by up to ``reach`` places, the twin, which looks at no order, agrees."""
    mesh = Mesh(4)
    mesh.take()
    listener = mesh.routers[-1]
    twin = TwinPeers()
    traffic = Traffic(mesh, seed)
    rng, waiting = traffic.rng, list[tuple[float, bytes]]()
    for number in range(150):
        traffic.step()
        for sender, data in mesh.take():
            if sender < 3 and rng.random() >= loss:
                waiting += [(number + rng.random() * reach, data)] * rng.choice([1, 1, 2])
        waiting.sort(key=lambda item: item[0])
        while waiting and waiting[0][0] <= number:
            data = waiting.pop(0)[1]
            listener.apply_peer(data)
            twin.apply(data)
        if number % 10 == 0:
            assert load_of(listener) == twin.load(NAMES)
    for _, data in waiting:
        listener.apply_peer(data)
        twin.apply(data)
    assert load_of(listener) == twin.load(NAMES)
    mesh.tick(1.1)  # more than a beat, whatever rounding does
    mesh.deliver([item for item in mesh.take() if item[0] < 3])
    assert all(load_of(router) == load_of(listener) for router in mesh.routers[:3])  # a beat of each heals it all


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_routers_that_hear_everything_believe_the_same(seed: int) -> None:
    mesh = Mesh(3)
    traffic = Traffic(mesh, seed)
    for _ in range(80):
        traffic.step()
        mesh.deliver()
    for number in range(6):
        held = [router.index.match(prompt(number, 2_000)).tolist() for router in mesh.routers]  # type: ignore[attr-defined]
        assert held[1:] == held[:-1]
        homes = {router.choose(prompt(9), session=f"s{number}").view.binding for router in mesh.routers}
        assert len(homes) == 1
    for ticket in traffic.open:
        ticket.abort()
    mesh.deliver()
    for router in mesh.routers:
        assert load_of(router) == NOTHING


@pytest.fixture(scope="module")
def frames() -> list[bytes]:
    """Return a frame of every kind."""
    mesh = Mesh(2)
    a = mesh.routers[0]
    outbox, blocks = stranger(mesh.sent[0].append), hash_blocks(prompt(5), hash_key=KEY)
    found = dict[str, bytes]()
    for act in (
        lambda: a.route(prompt(1), session="s").finish(output=list(range(99))),
        lambda: a.route(prompt(2), key="k"),
        lambda: a.first_token("k"),
        lambda: a.suspend("r0", for_s=3.0),
        lambda: a.clear("r1"),
        lambda: a.forget("s"),
        lambda: mesh.links[0].tick(now=50.0),
        lambda: outbox.missing(2, 3, 4),
        lambda: outbox.chain(blocks),
        lambda: outbox.held(process_mark(mesh.states[0].fleet["r1"]), blocks),
        mesh.links[0].close,
        mesh.join,
        lambda: (
            mesh.tick(90.0),
            mesh.links[0].close(),
            [r.apply_peer(d) for _, d in mesh.take() for r in mesh.routers],
        ),
        lambda: mesh.tick(9.0),
    ):
        act()
        for sent in mesh.sent:
            found |= {kinds(data)[-1]: data for data in sent}
    assert set(found) == set(KINDS)
    return list(found.values())


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_hostile_bytes_raise_typed_errors_and_leave_a_sound_router(frames: list[bytes], data: st.DataObject) -> None:
    mesh, router = meshed(1)
    ticket = router.route(prompt(1))
    for _ in range(data.draw(st.integers(1, 8))):
        raw = bytearray(data.draw(st.one_of(st.sampled_from(frames), st.binary(max_size=200))))
        for _ in range(data.draw(st.integers(0, 4))):
            if len(raw) > HEADER.size:
                raw[data.draw(st.integers(HEADER.size, len(raw) - 1))] = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(0, len(raw)))
        hostile = bytes(raw[:cut] if data.draw(st.booleans()) else raw)
        body, sequence = hostile[HEADER.size :], data.draw(st.integers(0, 2**63))
        sealed = framed(body, peer=data.draw(st.integers(2, 3)), sequence=sequence, block_size=16, hash_key=KEY)
        with suppress(PeerError):
            router.apply_peer(sealed)
        with suppress(PeerError):
            router.apply_peer(hostile)
    for numbers in load_of(router).values():
        assert min(numbers) >= 0
    for name in NAMES:
        router.resume(name)
    ticket.finish()
    mesh.now = 1_000.0
    assert load_of(router) == NOTHING  # all that a stranger made up has expired
    router.route(prompt(3)).finish()
