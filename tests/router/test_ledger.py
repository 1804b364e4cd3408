"""The ledger: what is booked comes back, once, whatever happens to the request."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress

import numpy as np
import pytest
from book import Refusing, loads
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_belief import FakeBelief
from prefixroute.errors import ConfigError, NoReplicaError, TokensError, UnknownReplicaError
from prefixroute.policies import View
from prefixroute.router import Router, Ticket
from prefixroute.routing import RouterConfig, RouterState
from prefixroute.routing.ledger import Attempt
from prefixroute.types import Timing

Make = Callable[..., Router]
TOKENS = list(range(2_000))


def test_a_request_from_start_to_end(make_router: Make) -> None:
    router = make_router(2)
    ticket = router.route(TOKENS, session="a")
    assert loads(router) == (1, 2_000, 0)
    ticket.first_token()
    assert loads(router) == (1, 0, 2_000)
    ticket.finish(output=list(range(100)))
    assert loads(router) == (0, 0, 0)
    assert router.choose([*TOKENS, *range(100), 5]).hit_tokens == 2_096


def test_abort_before_the_first_token_takes_the_blocks_back(make_router: Make) -> None:
    router = make_router(2)
    router.route(TOKENS).abort()
    assert router.choose(TOKENS).best_hit_tokens == 0
    ticket = router.route(TOKENS)
    ticket.first_token()
    ticket.abort()
    assert router.choose(TOKENS).best_hit_tokens == 1_984


def test_late_and_duplicate_calls_are_counted_and_do_nothing(make_router: Make) -> None:
    router = make_router(2)
    ticket = router.route(TOKENS, key="k")
    ticket.finish()
    ticket.finish()
    ticket.abort()
    ticket.first_token()
    for end in (router.finish, router.abort, router.first_token):
        end("k")  # a known key: silent
        end("never")
    counts = router.stats()["counts"]
    assert loads(router) == (0, 0, 0)
    odd = {name: counts[name] for name in counts if "late" in name or "unknown" in name}
    assert odd == {f"{end}_{why}": 1 for end in ("finish", "abort", "first_token") for why in ("late", "unknown")}


def test_context_managers_finish_or_abort(make_router: Make) -> None:
    router = make_router(2)
    with router.route(TOKENS):
        assert loads(router)[0] == 1
    with pytest.raises(RuntimeError), router.route(TOKENS):
        raise RuntimeError
    counts = router.stats()["counts"]
    assert (counts["finished"], counts["aborted"], loads(router)) == (1, 1, (0, 0, 0))


async def _chunks(count: int, error: Exception | None = None) -> AsyncIterator[int]:
    for i in range(count):
        await asyncio.sleep(0)
        yield i
    if error is not None:
        raise error


async def test_a_stream_finishes_at_its_end(make_router: Make) -> None:
    router = make_router(2)
    assert [chunk async for chunk in router.route(TOKENS).stream(_chunks(3))] == [0, 1, 2]
    assert router.stats()["counts"]["finished"] == 1
    assert loads(router) == (0, 0, 0)


async def test_chunks_after_the_callers_own_finish_count_nothing(make_router: Make) -> None:
    router = make_router(2)
    ticket, seen = router.route(TOKENS), list[int]()
    async for chunk in ticket.stream(_chunks(4)):
        if chunk == 1:  # the usage; what ends the stream follows
            ticket.finish(reported_hit_tokens=0)
        seen.append(chunk)
    assert seen == [0, 1, 2, 3]
    counts = router.stats()["counts"]
    assert counts["finished"] == 1
    assert [name for name in counts if "late" in name] == []


async def test_any_asynchronous_iterator_can_be_streamed(make_router: Make) -> None:
    class Plain:
        """An iterator that cannot be closed."""

        left = 2

        def __aiter__(self) -> Plain:
            return self

        async def __anext__(self) -> int:
            self.left -= 1
            if self.left < 0:
                raise StopAsyncIteration
            return self.left

    router = make_router(2)
    assert [chunk async for chunk in router.route(TOKENS).stream(Plain())] == [1, 0]
    assert router.stats()["counts"]["finished"] == 1


@pytest.mark.parametrize("seen", [0, 1, 2])
async def test_a_disconnect_gives_the_load_back_at_once(make_router: Make, seen: int) -> None:
    router = make_router(2)
    stream = router.route(TOKENS).stream(_chunks(3))
    for _ in range(seen):
        await anext(stream)
    await stream.aclose()
    del stream
    gc.collect()
    assert loads(router) == (0, 0, 0)
    assert router.choose(TOKENS).best_hit_tokens == (0 if seen == 0 else 1_984)


async def test_a_relay_around_the_stream_gives_it_back_too(make_router: Make) -> None:
    router = make_router(2)

    async def relay() -> AsyncIterator[int]:
        async for chunk in router.route(TOKENS).stream(_chunks(3)):
            yield chunk

    outer = relay()
    await anext(outer)
    assert loads(router)[0] == 1
    await outer.aclose()  # which leaves the inner generator to the loop
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert loads(router) == (0, 0, 0)


def test_the_collector_may_close_a_relay_while_the_lock_is_held(make_router: Make) -> None:
    relays: list[Iterator[int]] = []

    def rule(view: View) -> int:
        if len(relays) == 2:
            relays.clear()
        return view.slots[0]

    router = make_router(2, policy=rule)

    def relay(key: str | None) -> Iterator[int]:
        with router.route(TOKENS, key=key) as ticket:
            ticket.first_token()
            yield 1

    for key in (None, "k"):
        begun = relay(key)
        next(begun)
        relays.append(begun)
    del begun
    router.choose(TOKENS)
    assert relays == []
    assert loads(router) == (0, 0, 0)
    assert router.stats()["counts"]["dropped"] == 2


async def test_a_cancelled_task_gives_the_load_back(make_router: Make) -> None:
    router = make_router(2)

    async def request() -> None:
        async with router.route(TOKENS):
            await asyncio.sleep(3_600)

    task = asyncio.create_task(request())
    await asyncio.sleep(0)
    assert loads(router)[0] == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert loads(router) == (0, 0, 0)


async def test_an_error_upstream_aborts(make_router: Make) -> None:
    router = make_router(2)
    with pytest.raises(ConnectionError):
        [chunk async for chunk in router.route(TOKENS).stream(_chunks(2, ConnectionError()))]
    assert (router.stats()["counts"]["aborted"], loads(router)) == (1, (0, 0, 0))


def test_retry_goes_elsewhere_until_none_is_left(make_router: Make) -> None:
    router = make_router(3)
    ticket = router.route(TOKENS, session="a")
    seen = [ticket.replica]
    for _ in range(2):
        ticket = ticket.retry()
        seen.append(ticket.replica)
        assert loads(router)[0] == 1
    assert sorted(seen) == ["r0", "r1", "r2"]
    with pytest.raises(NoReplicaError):
        ticket.retry()
    assert loads(router) == (0, 0, 0)


def test_a_retry_keeps_to_the_limits_of_the_request(make_router: Make) -> None:
    router = make_router(4)
    ticket = router.route(TOKENS, candidates=iter(["r0", "r1", "r2"]), exclude=iter(["r2"]))
    assert {ticket.replica, ticket.retry().replica} == {"r0", "r1"}


@pytest.mark.parametrize("winner", [0, 1])
def test_a_hedge_refunds_the_loser_and_binds_the_winner(make_router: Make, winner: int) -> None:
    router = make_router(4, policy="session")
    first = router.route(TOKENS, session="a")
    both = [first, first.hedge()]
    assert both[0].replica != both[1].replica
    assert loads(router)[0] == 2
    both[winner].first_token()
    assert [ticket.open for ticket in both] == [winner == 0, winner == 1]
    assert loads(router) == (1, 0, 2_000)
    assert router.choose([1], session="a").replica == both[winner].replica
    both[winner].finish()
    both[1 - winner].finish()
    assert loads(router) == (0, 0, 0)


def test_a_hedge_by_key_goes_on_with_whoever_is_left(make_router: Make) -> None:
    router = make_router(4)
    shadow = router.shadow("random", index=FakeBelief())
    first = router.route(TOKENS, key="k")
    second = first.hedge()
    second.abort()
    assert (first.open, shadow.stats()["in_flight"]) == (True, 1)
    router.finish("k")
    assert (first.open, shadow.stats()["in_flight"], loads(router)) == (False, 0, (0, 0, 0))
    assert router.stats()["prompt_tokens"] == 2_000  # one request, whatever attempts it took


@pytest.mark.parametrize("steps", [["hedge"], ["hedge", "hedge"], ["hedge", "retry"], ["retry", "hedge"]])
@pytest.mark.parametrize("end", ["abort", "finish"])
def test_a_key_ends_all_attempts_of_its_request(make_router: Make, steps: list[str], end: str) -> None:
    router = make_router(4)
    shadow = router.shadow("random", index=FakeBelief())
    tickets = [router.route(TOKENS, key="k")]
    tickets.extend(getattr(tickets[-1], step)() for step in steps)
    other = router.route(TOKENS, key="other")
    getattr(router, end)("k")
    assert [ticket.open for ticket in tickets] == [False] * len(tickets)
    assert (router.stats()["in_flight"], shadow.stats()["in_flight"], other.open) == (1, 1, True)
    other.abort()
    assert loads(router) == (0, 0, 0)


def test_the_key_of_a_hedge_follows_its_winner(make_router: Make) -> None:
    router = make_router(4)
    first = router.route(TOKENS, key="k")
    second = first.hedge()
    first.first_token()
    assert (first.open, second.open) == (True, False)
    assert "in flight" in router.explain("k")
    router.finish("k")
    assert not first.open
    assert loads(router) == (0, 0, 0)


def test_what_the_belief_refuses_leaves_nothing_half_done(make_router: Make) -> None:
    belief = Refusing()
    router = make_router(2, index=belief)
    ticket = router.route(TOKENS, session="a")
    belief.refuses = True
    with pytest.raises(TokensError):
        router.route(TOKENS, key="k")
    with pytest.raises(TokensError):
        ticket.finish(output=[1])
    assert loads(router) == (1, 2_000, 0)
    assert ticket.open
    belief.refuses = False
    ticket.finish()
    assert loads(router) == (0, 0, 0)


def test_the_host_may_take_another_replica(make_router: Make) -> None:
    router = make_router(4, policy="session")
    decision = router.choose(TOKENS, session="a")
    other = decision.ranked[1]
    ticket = router.commit(decision, replica=other)
    assert ticket.replica == other
    assert router.stats()["replicas"][other]["in_flight"] == 1
    assert router.choose(TOKENS, session="a").replica == other
    with pytest.raises(UnknownReplicaError, match=r"'elsewhere'.*r0, r1"):
        router.commit(decision, replica="elsewhere")


@pytest.mark.parametrize(
    "first", [["retry"], ["hedge", "route"], ["hedge", "retry", "route"], ["hedge", "hedge", "route"]]
)
def test_only_one_request_answers_to_a_key(make_router: Make, first: list[str]) -> None:
    router = make_router(4)
    ticket = router.route(TOKENS, key="k")
    tickets = [
        ticket,
        *(router.route(TOKENS, key="k") if step == "route" else getattr(ticket, step)() for step in first),
    ]
    assert [each.open for each in tickets] == [False] * len(first) + [True]
    assert loads(router)[0] == 1
    router.abort("k")
    assert loads(router) == (0, 0, 0)


@pytest.mark.parametrize("call", ["retry", "hedge", "retry_pair"])
@pytest.mark.parametrize("end", ["finished", "rebooked", "aborted and rebooked", "retried and rebooked"])
def test_what_is_over_is_not_tried_again_and_harms_no_other(make_router: Make, call: str, end: str) -> None:
    router = make_router(4)
    route = router.route_pair if call == "retry_pair" else router.route
    ticket = route(TOKENS, key="k")
    if end == "finished":
        ticket.finish()
    elif end.startswith("aborted"):
        ticket.abort()
    elif end.startswith("retried"):
        ticket.retry()
    other = None if end == "finished" else route(TOKENS, key="k")
    before = router.stats()
    with pytest.raises(NoReplicaError, match=r"'r[0-3]'|'k'"):
        ticket.hedge() if call == "hedge" else ticket.retry()
    assert router.stats() == before
    assert other is None or other.open


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("given_up", [False, True])
def test_a_ticket_is_retried_once(make_router: Make, key: str | None, pair: bool, given_up: bool) -> None:
    """A late failure of the first attempt books nothing beside its successor, in flight or finished."""
    router = make_router(4)
    ticket = router.route_pair(TOKENS, key=key) if pair else router.route(TOKENS, key=key)
    if given_up:
        ticket.abort()
    following = ticket.retry()
    before = router.stats()
    with pytest.raises(NoReplicaError, match=r"'r[0-3]'.*retry\(\)"):
        ticket.retry()
    assert router.stats() == before
    following.finish()
    with pytest.raises(NoReplicaError, match=r"'r[0-3]'"):
        ticket.retry()
    assert loads(router) == (0, 0, 0)


def test_what_a_hedge_has_decided_is_over_for_all_attempts(make_router: Make) -> None:
    router = make_router(4)
    first = router.route(TOKENS)
    hedge = first.hedge()
    first.abort()
    hedge.finish()
    other = router.route(TOKENS)
    lost = other.hedge()
    other.first_token()
    for ticket in (first, hedge, lost):
        with pytest.raises(NoReplicaError, match=r"'r[0-3]'"):
            ticket.retry()
    assert loads(router)[0] == 1


def test_a_pair_with_a_key_given_at_commit_is_one_request(make_router: Make) -> None:
    router = make_router(4)
    ticket = router.commit_pair(router.choose_pair(TOKENS), key="k")
    assert ticket.retry().retry().open
    router.abort("k")
    assert loads(router) == (0, 0, 0)


def test_a_retry_and_the_hedge_that_is_out_race_on(make_router: Make) -> None:
    router = make_router(4)
    ticket = router.route(TOKENS, key="k")
    hedge = ticket.hedge()
    retried = ticket.retry()
    assert (hedge.open, retried.open) == (True, True)
    hedge.first_token()
    assert (hedge.open, retried.open) == (True, False)
    router.finish("k")
    assert loads(router) == (0, 0, 0)


def test_a_key_outlives_its_ticket(make_router: Make) -> None:
    router = make_router(3)
    router.route(TOKENS, key="k")
    gc.collect()
    assert loads(router)[0] == 1
    router.first_token("k")
    router.finish("k", output=[1, 2, 3])
    assert loads(router) == (0, 0, 0)


def test_requests_without_progress_expire(make_router: Make, clock: Callable[[], float]) -> None:
    router = make_router(3, timing=Timing(ticket_s=600.0))
    silent, lively = router.route(TOKENS), router.route(TOKENS)
    clock.now = 599.0  # type: ignore[attr-defined]
    lively.first_token()
    clock.now = 601.0  # type: ignore[attr-defined]
    assert loads(router)[0] == 1
    assert (silent.open, lively.open) == (False, True)
    assert router.stats()["counts"]["expired"] == 1


def test_a_removed_replica_takes_its_load_along(make_router: Make) -> None:
    router = make_router(2)
    tickets = [router.route(TOKENS) for _ in range(10)]
    router.remove_replica("r0")
    router.add_replica("r0")
    for ticket in tickets:
        ticket.first_token()
        ticket.finish(output=[1])
    assert loads(router) == (0, 0, 0)
    assert router.choose(TOKENS, candidates=["r0"]).hit_tokens == 0


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["first", "finish", "abort", "retry", "hedge", "drop", "remove", "late", "tick"]),
        st.integers(0, 30),
    ),
    max_size=60,
)


@settings(max_examples=60)
@given(steps=STEPS)
def test_whatever_happens_the_book_ends_at_zero(steps: list[tuple[str, int]]) -> None:
    now = [0.0]
    state = RouterState(RouterConfig(clock=lambda: now[0]), FakeBelief())
    router = Router.of(state)
    router.sync([f"r{i}" for i in range(4)])
    tickets: list[Ticket] = [
        router.route(TOKENS[:64], session=f"s{i}", key=f"k{i}" if i % 3 == 0 else None) for i in range(8)
    ]
    attempts: set[Attempt] = {ticket.attempt for ticket in tickets}
    for step, at in steps:
        ticket = tickets[at % len(tickets)]
        with suppress(NoReplicaError):
            _do(router, step, ticket, tickets, now)
        del ticket
        attempts |= {ticket.attempt for ticket in tickets}
        assert min(loads(router)) >= 0
        replicas = router.stats()["replicas"]  # which refunds what was dropped
        alive = Counter(e.name for e in attempts if e.open and e.member.generation == e.generation)
        assert {name: values["in_flight"] for name, values in replicas.items()} == {
            name: alive[name] for name in replicas
        }
        assert {entry for entry in attempts if entry.open} == set(state.ledger.attempts)
    for ticket in tickets:
        ticket.abort()
    now[0] += 10_000.0
    assert loads(router) == (0, 0, 0)


def _do(router: Router, step: str, ticket: Ticket, tickets: list[Ticket], now: list[float]) -> None:
    if step == "first":
        ticket.first_token()
    elif step == "finish":
        ticket.finish(output=[1, 2, 3])
    elif step == "abort":
        ticket.abort()
    elif step in ("retry", "hedge"):
        with suppress(NoReplicaError):  # it is over
            tickets.append(getattr(ticket, step)())
    elif step == "drop" and len(tickets) > 1:
        tickets.remove(ticket)
    elif step == "remove":
        router.remove_replica(ticket.replica) if ticket.replica in router.replicas else None
        router.add_replica(ticket.replica)
    elif step == "late":
        router.finish(ticket.key or "none")
    elif step == "tick":
        now[0] += 100.0


def test_what_is_remembered_of_an_ended_request_with_a_key_has_no_prompt() -> None:
    """The last 256 are, for ``explain``: their prompts were held with them, of any length."""
    router = Router(["a", "b"], clock=lambda: 0.0)
    prompts = [np.arange(4_000, dtype=np.uint32) + number for number in range(4)]
    held = [weakref.ref(prompt) for prompt in prompts]
    router.route(prompts[0], key="one").finish(output=[1, 2])
    decision = router.choose(prompts[1], key="two")
    for _ in range(2):  # the host's own decision stays as it is
        router.commit(decision).finish(output=[1, 2])
    router.route_pair(prompts[2], key="three").finish(output=[1, 2])
    chosen = router.choose_pair(prompts[3], key="four")
    for _ in range(2):
        router.commit_pair(chosen).finish(output=[1, 2])
    assert all("(4000 " in router.explain(key) for key in ("one", "two", "three", "four"))
    assert decision.prompt is prompts[1]
    del decision, chosen, prompts
    gc.collect()
    assert [ref() is None for ref in held] == [True] * 4


def test_a_key_has_a_bounded_length() -> None:
    router = Router(["a"])
    router.route(TOKENS, key="k" * 65_536).finish()
    decision = router.choose(TOKENS)
    for call in (
        lambda key: router.route(TOKENS, key=key),
        lambda key: router.choose(TOKENS, key=key),
        lambda key: router.commit(decision, key=key),
        lambda key: router.route_pair(TOKENS, key=key),
    ):
        with pytest.raises(ConfigError, match=r"key.*65,536.*65,537"):
            call("k" * 65_537)
    assert router.stats()["in_flight"] == 0
