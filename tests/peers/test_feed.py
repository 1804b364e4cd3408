"""The commit feed: what one router books, the others know; nothing of it counts as their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frames import HEADER, kinds, read
from mesh import KEY, NAMES, NOTHING, Mesh, load_of, meshed, prompt, total

from prefixroute.errors import ConfigError, PeerError
from prefixroute.peers.seal import seal_of
from prefixroute.peers.transports import ZmqPeers
from prefixroute.policies import View
from prefixroute.router import Router
from prefixroute.types import Replica, Timing


def test_peers_know_load_and_blocks_and_bindings() -> None:
    peers, a, b = meshed(2)
    ticket = a.route(prompt(1), session="chat")
    peers.deliver()
    decision = b.choose(prompt(1), session="chat")
    assert (decision.replica, decision.hit_tokens) == (ticket.replica, 3_984)
    assert decision.view.binding == decision.slot
    assert load_of(b)[ticket.replica] == (1, 4_000, 0)
    ticket.first_token()
    peers.deliver()
    assert load_of(b)[ticket.replica] == (1, 0, 4_000)
    ticket.finish(output=list(range(100)))
    peers.deliver()
    assert load_of(b) == NOTHING
    following = np.concatenate([prompt(1), np.arange(300, dtype=np.uint32)])
    assert b.choose(following, session="chat").hit_tokens == 4_096  # 4,099 tokens are cached: all but the last one


def test_nothing_counts_as_own() -> None:
    peers, a, b = meshed(2)
    b.shadow("session")
    before, seen = b.stats(), b.choose(prompt(9)).decision_id
    for number in range(20):
        ticket = a.route(prompt(number), session=f"s{number}")
        ticket.first_token()
        ticket.finish()
    peers.deliver()
    after = b.stats()
    for field in ("counts", "prompt_tokens", "hit_tokens", "best_hit_tokens", "unreported_requests", "session_moves"):
        assert after[field] == before[field], field
    assert b.choose(prompt(9)).decision_id == seen + 1
    assert b.load() == dict.fromkeys(NAMES, 0.0)  # the window of served requests has the router's own alone
    assert b.regret()["session"].requests == 0
    assert "decisions_total{" not in b.metrics_text()


def test_own_requests_and_those_of_all_are_told_apart() -> None:
    peers, a, b = meshed(2)
    tickets = [a.route(prompt(number), candidates=["r1"]) for number in range(2)]
    b.route(prompt(7), candidates=["r1"], key="k")
    peers.deliver()
    for router, own in ((a, 2), (b, 1)):
        stats, lines = router.stats(), router.metrics_text().splitlines()
        assert stats["in_flight"] == stats["replicas"]["r1"]["own_in_flight"] == own
        assert stats["replicas"]["r1"]["in_flight"] == 3
        assert f'prefixroute_inflight{{replica="r1"}} {own}' in lines
        assert 'prefixroute_inflight_with_peers{replica="r1"} 3' in lines
    for ticket in tickets:
        ticket.finish()
    a.remove_replica("r1")
    assert b.stats()["replicas"]["r1"]["own_in_flight"] == 1


def test_an_abort_takes_blocks_back_everywhere() -> None:
    peers, a, b = meshed(2)
    ticket = a.route(prompt(1))
    peers.deliver()
    assert b.choose(prompt(1)).best_hit_tokens == 3_984
    ticket.abort()
    peers.deliver()
    assert b.choose(prompt(1)).best_hit_tokens == 0
    started = a.route(prompt(2))
    started.first_token()
    started.abort()
    peers.deliver()
    assert b.choose(prompt(2)).best_hit_tokens == 3_984  # what an engine has begun to answer it has computed


def test_retry_and_hedge_leave_no_load() -> None:
    peers, a, b, _ = meshed(3)
    first = a.route(prompt(1), session="s")
    second = first.retry()
    hedge = second.hedge()
    peers.deliver()
    assert total(b) == 2
    hedge.first_token()
    peers.deliver()
    assert [name for name, load in load_of(b).items() if load[0]] == [hedge.replica]
    assert b.choose(prompt(1), session="s").replica == hedge.replica
    hedge.finish()
    peers.deliver()
    assert load_of(b) == NOTHING


def test_a_turn_is_small() -> None:
    peers, a = meshed(1)
    history = prompt(1, 12_000)
    a.route(history[:8_800], session="s").finish(output=history[8_800:9_001])
    peers.take()
    ticket = a.route(history[:9_200], session="s")
    ticket.first_token()
    ticket.finish(output=history[9_200:9_401])
    bodies = [len(data) - HEADER.size for _, data in peers.take()]
    new_blocks = 25
    assert sum(bodies) - 8 * new_blocks == 57


def test_sessions_are_forgotten_and_aliased_everywhere() -> None:
    peers, a, b = meshed(2)
    ticket = a.route(prompt(1), session="s")
    ticket.alias("response-1")
    peers.deliver()
    assert b.choose(prompt(2), session="response-1").view.binding is not None
    assert b.forget("s")
    peers.deliver()
    assert a.choose(prompt(2), session="s").view.binding is None
    assert b.choose(prompt(2), session="s").view.binding is None
    a.forget_sessions()
    peers.deliver()
    assert b.choose(prompt(2), session="response-1").view.binding is None


def test_the_last_use_of_a_session_counts() -> None:
    peers, a, b = meshed(2)
    a.route(prompt(1), session="s", candidates=["r0"])
    peers.deliver()
    peers.now = 1.0
    b.route(prompt(2), candidates=["r1"]).alias("s")
    peers.deliver()
    for router in (a, b):
        decision = router.choose(prompt(1), session="s")
        assert decision.view.binding == NAMES.index("r1")


def test_event_fed_replicas_share_load_and_bindings_alone() -> None:
    peers, a, b = meshed(2)
    for router in (a, b):
        router.sync(dict.fromkeys(NAMES, Replica(events=True)))
    peers.take()
    ticket = a.route(prompt(1), session="s")
    (booking,) = [message for _, data in peers.take() for message in read(data)]
    assert booking.fields["context"] == 4_000
    assert (booking.fields["known"], booking.fields["rest"]) == (0, [])
    ticket.finish()
    assert b.choose(prompt(1)).best_hit_tokens == 0


# -- the fleet ---------------------------------------------------------------------------------------------------


def states(router: Router) -> list[str]:
    return [numbers["state"] for numbers in router.stats()["replicas"].values()]


def test_drain_suspend_and_resume_reach_everybody() -> None:
    peers, a, b, c = meshed(3)
    shadow = b.shadow("session")
    a.drain("r0")
    b.suspend("r1")
    c.suspend("r2", for_s=5.0)
    peers.deliver()
    for router in (a, b, c, shadow):
        assert states(router) == ["draining", "suspended", "suspended", "active"]
    b.resume("r0")
    peers.deliver()
    peers.play(seconds=6.0)
    for router in peers.routers:
        assert states(router) == ["active", "suspended", "active", "active"]
    assert peers.take() == []


def test_the_last_change_of_a_replica_wins_in_any_order() -> None:
    peers, a, b = meshed(2)
    peers.take()
    a.drain("r0")
    a.resume("r0")
    a.suspend("r0")
    first, second, third = [data for _, data in peers.take()]
    for data in (third, first, second, third):
        b.apply_peer(data)
    assert states(b)[0] == "suspended"


def test_two_changes_at_once_end_alike() -> None:
    peers, a, b = meshed(2)
    a.drain("r0")
    b.suspend("r0")
    peers.deliver()
    assert states(a)[0] == states(b)[0] == "suspended"


def test_a_new_incarnation_empties_the_replica_everywhere() -> None:
    peers, a, b = meshed(2)
    a.route(prompt(1), candidates=["r0"]).finish()
    open_one = a.route(prompt(2), candidates=["r0"])
    peers.deliver()
    a.sync({name: Replica(incarnation="2" if name == "r0" else "") for name in NAMES})
    peers.deliver()
    assert b.replica("r0").incarnation == "2"
    assert b.choose(prompt(1)).best_hit_tokens == 0
    assert load_of(b)["r0"] == (0, 0, 0)
    open_one.finish()
    peers.deliver()
    assert load_of(b)["r0"] == (0, 0, 0)
    b.sync(dict.fromkeys(NAMES, Replica()))  # its discovery lags behind: no news
    peers.deliver()
    assert a.replica("r0").incarnation == b.replica("r0").incarnation == "2"
    b.sync({name: Replica(incarnation="3" if name == "r0" else "") for name in NAMES})
    peers.deliver()
    assert a.replica("r0").incarnation == "3"


def test_bookings_of_another_process_of_a_replica_are_not_believed() -> None:
    peers, a, b = meshed(2)
    a.sync({name: Replica(incarnation="2") for name in NAMES})
    booking = a.route(prompt(1))
    bookings = [data for _, data in peers.take() if kinds(data) == ["booked"]]
    b.apply_peer(bookings[0])
    assert b.choose(prompt(1)).best_hit_tokens == 0
    assert load_of(b) == NOTHING
    booking.abort()


def test_clear_and_new_epoch_reach_everybody() -> None:
    peers, a, b = meshed(2)
    a.route(prompt(1), candidates=["r0"]).finish()
    a.route(prompt(1), candidates=["r1"]).finish()
    peers.deliver()
    b.clear("r0")
    peers.deliver()
    assert a.choose(prompt(1), candidates=["r0"]).hit_tokens == 0
    assert a.choose(prompt(1), candidates=["r1"]).hit_tokens == 3_984
    a.new_epoch()
    peers.deliver()
    assert b.choose(prompt(1)).best_hit_tokens == 0


def test_a_peer_clears_no_replica_that_reports_its_own_events() -> None:
    peers, a, b = meshed(2)
    for router in (a, b):
        router.apply_stored("r0", [7], parent=None, token_ids=[5] * 16)
    b.clear("r0")
    peers.deliver()
    hits = [router.choose([5] * 16 + [0], candidates=["r0"]).hit_tokens for router in (a, b)]
    assert hits == [16, 0]


def test_a_replica_that_joins_later_takes_its_register() -> None:
    peers, a, b = meshed(2)
    a.add_replica("r9")
    a.drain("r9")
    peers.deliver()
    b.add_replica("r9")
    assert states(b)[-1] == "draining"


# -- late, lost, silent ------------------------------------------------------------------------------------------


def test_a_late_router_gets_a_snapshot() -> None:
    peers, a, b = meshed(2)
    a.route(prompt(1), session="s", candidates=["r2"]).finish(output=list(range(200)))
    b.route(prompt(2), session="t", candidates=["r3"], key="open")
    a.drain("r0")
    peers.deliver()
    peers.tick(10.0)
    late = peers.join()
    peers.deliver()
    assert load_of(late) == load_of(a)
    assert states(late)[0] == "draining"
    longer = np.concatenate([prompt(1), np.arange(300, dtype=np.uint32)])
    assert late.choose(longer, session="s").hit_tokens == 4_192
    assert late.choose(longer, session="s").view.binding == NAMES.index("r2")
    assert late.choose(prompt(2), session="t").hit_tokens == 3_984


def test_one_peer_alone_sends_the_snapshot() -> None:
    peers = Mesh(3)
    for number, router in enumerate(peers.routers):
        router.route(prompt(number)).finish()
    peers.deliver()
    peers.play(seconds=8.0)
    hello = peers.join()
    message, _ = peers.take()
    for router in peers.routers[:3]:
        router.apply_peer(message[1])
    held = [sender for sender, data in peers.take() if kinds(data) == ["held"]]
    assert held
    assert set(held) == {0}
    assert len(hello.replicas) == len(NAMES)


def test_a_newcomer_asks_again_if_the_elder_was_dead() -> None:
    peers = Mesh(2)
    peers.routers[1].route(prompt(1)).finish()
    peers.deliver()
    peers.play(2, 8.0)
    late = peers.join()
    message, _ = peers.take()
    peers.routers[1].apply_peer(message[1])  # the elder never hears it
    peers.links[0].is_open = False
    peers.deliver()
    assert late.choose(prompt(1)).best_hit_tokens == 0
    peers.play(3, 6.0)
    assert late.choose(prompt(1)).best_hit_tokens == 3_984


def test_a_lost_booking_is_a_miss_and_heals() -> None:
    peers, a, b = meshed(2)
    peers.deliver()
    history = prompt(1, 8_000)
    first = a.route(history[:4_000], session="s", candidates=["r1"])
    lost = peers.take()
    assert lost
    assert b.choose(history[:4_000]).best_hit_tokens == 0
    peers.play()
    assert load_of(b) == load_of(a)  # the next beat lists it
    first.finish(output=history[4_000:4_401])
    peers.deliver()  # names a chain that b does not know: it asks, and gets it
    assert b.choose(history, session="s").hit_tokens == 4_400
    assert load_of(b) == NOTHING


def test_a_silent_peer_expires_once() -> None:
    peers, a, b = meshed(2, timing=Timing(peer_s=10.0))
    peers.deliver()
    for number in range(3):
        a.route(prompt(number), key=f"k{number}")
    messages = peers.take()
    peers.deliver(messages)
    assert total(b) == 3
    peers.now = 11.0
    assert load_of(b) == NOTHING
    assert peers.links[1].stats()["expired"] == 3
    for _, data in messages:  # late doubles open nothing again
        b.apply_peer(data)
    assert load_of(b) == NOTHING
    peers.now = 22.0
    b.stats()
    assert peers.links[1].stats()["expired"] == 3
    peers.links[0].tick()  # it was only paused: its next beat says what it still has
    peers.deliver()
    assert load_of(b) == load_of(a)
    a.finish("k0")
    peers.deliver()
    assert total(b) == 2


def test_a_peer_that_leaves_gives_back_at_once() -> None:
    peers, a, b = meshed(2)
    a.route(prompt(1), key="k")
    b.route(prompt(2), key="k")
    peers.deliver()
    peers.links[0].close()
    peers.deliver()
    assert total(b) == 1
    assert total(a) == 1
    peers.links[0].close()
    assert not a.apply_peer(b"anything")  # it listens no more
    a.finish("k")
    assert peers.take() == []


def test_the_load_signal_counts_peers() -> None:
    peers, a, b = meshed(2, policy="least-loaded", load="reported_requests")
    for number in range(3):
        a.route(prompt(number), candidates=[f"r{number}"], key=f"k{number}")
    peers.deliver()
    assert b.choose(prompt(4)).replica == "r3"
    for name in NAMES:
        b.update_load(name, waiting=0, running=1)
    a.route(prompt(5), candidates=["r0"], key="k5")
    peers.deliver()
    assert b.load() == {"r0": 2, "r1": 1, "r2": 1, "r3": 1}


# -- strangers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"block_size": 32}, {"hash_key": KEY + 1}, {"secret": "another secret!!"}])
def test_strangers_are_refused(options: dict[str, Any]) -> None:
    peers = Mesh(1)
    stranger = peers.join(**options)
    peers.take()
    stranger.route(prompt(1))
    for _, data in peers.take():
        with pytest.raises(PeerError, match="fingerprint"):
            peers.routers[0].apply_peer(data)
    assert load_of(peers.routers[0]) == NOTHING


def test_the_fingerprint_covers_block_size_key_and_secret() -> None:
    seals = [seal_of(16, 1), seal_of(32, 1), seal_of(16, 2), seal_of(16, 1, b"x" * 16), seal_of(16, 1, b"y" * 16)]
    assert len({seal.fingerprint for seal in seals}) == 5


def test_broken_messages_are_refused() -> None:
    peers, a, b = meshed(2)
    peers.take()
    a.route(prompt(1))
    ((_, data),) = peers.take()
    for place in range(len(data)):
        broken = bytearray(data)
        broken[place] ^= 1
        with pytest.raises(PeerError):
            b.apply_peer(bytes(broken))
    for length in range(len(data)):
        with pytest.raises(PeerError):
            b.apply_peer(data[:length])
    with pytest.raises(ConfigError, match=r"data.*bytes.*'text'"):
        b.apply_peer("text")  # type: ignore[arg-type]
    assert load_of(b) == NOTHING
    assert b.apply_peer(data)


def test_what_send_raises_harms_no_request() -> None:
    def send(_: bytes) -> None:
        raise OSError("gone")

    router = Router(NAMES)
    link = router.peer_feed(send)
    router.route(prompt(1)).finish()
    assert link.stats()["sent"]["unsent"] >= 3


def test_wrong_calls_are_refused() -> None:
    router = Router(NAMES)
    with pytest.raises(ConfigError, match=r"peer_feed\(\)"):
        router.apply_peer(b"")
    with pytest.raises(ConfigError, match=r"send.*None"):
        router.peer_feed(None)  # type: ignore[arg-type]
    link = router.peer_feed(lambda _: None)
    with pytest.raises(ConfigError, match=r"close\(\)"):
        router.peer_feed(lambda _: None)
    link.close()
    router.peer_feed(lambda _: None)


def test_own_messages_change_nothing() -> None:
    peers, a = meshed(1)
    a.route(prompt(1), key="k")
    assert [a.apply_peer(data) for _, data in peers.take()] == [False]
    assert total(a) == 1


def test_unshared_routers_agree_on_first_homes() -> None:
    """Without a match ``cache-aware`` places a session by rendezvous: routers that share nothing mostly agree."""
    first, second = (Router(NAMES, seed=seed) for seed in (1, 2))
    homes = [[router.choose(prompt(n), session=f"s{n}").replica for n in range(100)] for router in (first, second)]
    assert homes[0] == homes[1]
    assert len(set(homes[0])) == len(NAMES)


def test_views_read_the_shared_load() -> None:
    seen: list[View] = []

    def policy(view: View) -> tuple[int, str]:
        seen.append(view)
        return view.slots[0], "first"

    peers, a, b = meshed(2, policy=policy)
    a.route(prompt(1), key="k")
    peers.deliver()
    b.choose(prompt(2))
    assert list(seen[-1].loads) == [1.0, 0.0, 0.0, 0.0]


def test_pairs_of_prefill_and_decode_are_shared() -> None:
    peers, a, b = meshed(2)
    for router in (a, b):
        router.sync({name: Replica(role="prefill" if name in {"r0", "r1"} else "decode") for name in NAMES})
    pair = a.route_pair(prompt(1), key="k")
    peers.deliver()
    assert load_of(b) == load_of(a)
    assert total(b) == 2
    pair.first_token()
    peers.deliver()
    assert load_of(b) == load_of(a)
    pair.finish()
    peers.deliver()
    assert load_of(b) == NOTHING


def test_metrics_of_peers_are_numbers() -> None:
    transport = ZmqPeers("tcp://127.0.0.1:*")
    router = Router(NAMES, peers=transport, hash_key=KEY)
    try:
        lines = [line for line in router.metrics_text().splitlines() if line.startswith("prefixroute_peer")]
        assert len(lines) >= 5
        assert all(float(line.rpartition(" ")[2]) >= 0 for line in lines)
        assert any(line.startswith('prefixroute_peer_connected{transport="zmq"} ') for line in lines)
    finally:
        router.close()
