"""Prefill and decode apart: which pair is picked, what is booked where, and how each half ends."""

from __future__ import annotations

import gc
import io
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prefixroute.costmodel import CostModel, Link
from prefixroute.errors import ConfigError, NoReplicaError, OverloadedError, UnknownReplicaError
from prefixroute.policies import TransferCost
from prefixroute.router import PairTicket, Router, Ticket, replay
from prefixroute.types import Caps, Replica, Timing

A, B = (np.arange(4_000, dtype=np.uint32) + 100_000 * number for number in (1, 2))
HELD = 3_984
"""Tokens of a whole prompt that count as held: full blocks, and not the last token."""
Make = Callable[..., Router]


def fleet(prefill: int = 2, decode: int = 2, mixed: int = 0) -> dict[str, Replica]:
    counts = {"prefill": prefill, "decode": decode, "mixed": mixed}
    return {f"{role[0]}{i}": Replica(role=role) for role, count in counts.items() for i in range(count)}


@pytest.fixture
def make(clock: Callable[[], float]) -> Make:
    def router(replicas: dict[str, Replica] | None = None, **options: Any) -> Router:
        return Router(fleet() if replicas is None else replicas, clock=clock, **options)

    return router


def loads(router: Router) -> dict[str, tuple[int, int, int]]:
    """Return requests, uncached tokens and decode tokens on the book, by replica, of those that have any."""
    replicas = router.stats()["replicas"].items()
    found = {name: (one["in_flight"], one["uncached_tokens"], one["decode_tokens"]) for name, one in replicas}
    return {name: load for name, load in found.items() if any(load)}


def held(router: Router, prompt: Any) -> dict[str, int]:
    pair = router.choose_pair(prompt)
    return dict(zip(pair.prefill.view.names, pair.prefill.view.hits, strict=True))


# -- roles -------------------------------------------------------------------------------------------------------------


def test_each_half_goes_to_a_replica_of_its_role(make: Make) -> None:
    router = make(fleet(3, 3))
    picks = Counter((ticket.prefill[0], ticket.decode[0]) for ticket in (router.route_pair(A) for _ in range(30)))
    assert picks == {("p", "d"): 30}


def test_a_whole_request_goes_to_mixed_replicas_alone(make: Make) -> None:
    router = make(fleet(2, 2, mixed=1))
    assert {router.route(A).replica for _ in range(10)} == {"m0"}
    apart = make()
    with pytest.raises(NoReplicaError, match="route_pair"):
        apart.route(A)


@pytest.mark.parametrize(("roles", "what"), [((0, 2), "prefill"), ((2, 0), "decode"), ((0, 0), "empty")])
def test_a_fleet_without_a_role_says_so(make: Make, roles: tuple[int, int], what: str) -> None:
    with pytest.raises(NoReplicaError, match=what):
        make(fleet(*roles)).route_pair(A)


@pytest.mark.parametrize("role", ["", "both", None, 1])
def test_a_role_is_one_of_three(role: object) -> None:
    with pytest.raises(ConfigError, match=f"role.*mixed, prefill .*decode.*{role!r}$"):
        Replica(role=role)  # type: ignore[arg-type]


def test_a_role_may_change(make: Make) -> None:
    router = make(fleet(1, 1))
    router.sync({"p0": Replica(role="decode"), "d0": Replica(role="prefill")})
    ticket = router.route_pair(A)
    assert (ticket.prefill, ticket.decode) == ("d0", "p0")


def test_candidates_and_exclusions_are_about_both_halves(make: Make) -> None:
    router = make(fleet(3, 3))
    ticket = router.route_pair(A, candidates=["p1", "d2"])
    assert (ticket.prefill, ticket.decode) == ("p1", "d2")
    ticket = router.route_pair(A, exclude=["p0", "p1", "d0", "d1"])
    assert (ticket.prefill, ticket.decode) == ("p2", "d2")
    with pytest.raises(NoReplicaError):
        router.route_pair(A, candidates=["p1"])


# -- who is picked -----------------------------------------------------------------------------------------------------


def test_the_prompt_goes_to_its_prefix_and_the_answer_to_the_least_load(make: Make) -> None:
    router = make(fleet(4, 4), policy="cache-aware", decode_policy="least-loaded")
    first = router.route_pair(A)
    first.first_token()
    second = router.route_pair(A)
    assert second.prefill == first.prefill
    assert second.hit_tokens == HELD
    assert second.decode != first.decode


@pytest.mark.parametrize(
    ("link", "stays"), [(Link("slow", 1e9), True), (Link("fast", 1e12), False), (Link("distant", 1e12, 30.0), False)]
)
def test_holding_the_prefix_counts_as_much_as_the_link_makes_of_it(make: Make, link: Link, stays: bool) -> None:
    """One replica holds the prompt and decodes one request more than the others."""
    cost = CostModel()
    router = make(fleet(1, 4), decode_policy=TransferCost(link, output_tokens=500, cost=cost))
    first = router.route_pair(A)
    first.first_token()
    saved = cost.transfer_seconds(4_000, link) - cost.transfer_seconds(4_000 - HELD, link)
    beside = 500 * (cost.decode_seconds(2, 8_000) - cost.decode_seconds(1, 4_000))
    assert (saved > beside) == stays
    second = router.route_pair(A)
    assert (second.decode == first.decode) == stays
    assert second.moved_tokens == (4_000 - HELD if stays else 4_000)


def test_a_limit_of_the_answer_makes_load_count_less(make: Make) -> None:
    router = make(fleet(1, 2), decode_policy=TransferCost(Link("", 20e9), output_tokens=2_000))
    first = router.route_pair(A)
    first.first_token()
    assert router.choose_pair(A, max_tokens=1).decode.replica == first.decode
    assert router.choose_pair(A).decode.replica != first.decode


def test_weights_are_speeds_of_decoding_too(make: Make) -> None:
    replicas = {
        "p": Replica(role="prefill"),
        "slow": Replica(role="decode"),
        "fast": Replica(role="decode", weight=3.0),
    }
    router = make(replicas)
    tickets = [router.route_pair(np.arange(500) + 10_000 * i) for i in range(40)]
    picks = Counter(ticket.decode for ticket in tickets)
    assert 1 <= picks["slow"] < picks["fast"] / 2


def test_a_mixed_replica_decodes_what_it_computes_unless_others_have_less_to_do(make: Make) -> None:
    router = make(fleet(0, 0, mixed=3), policy="least-loaded", decode_policy=TransferCost("ethernet"))
    tickets = [router.route_pair(np.arange(2_000) + 10_000 * i) for i in range(6)]
    assert all(ticket.prefill == ticket.decode and ticket.moved_tokens == 0 for ticket in tickets)
    assert Counter(ticket.decode for ticket in tickets) == {"m0": 2, "m1": 2, "m2": 2}


def test_a_session_is_bound_to_the_replica_that_computes_its_prompts(make: Make) -> None:
    router = make(fleet(4, 4), policy="session")
    first = router.route_pair(A, session="chat")
    first.alias("answer-1")
    assert {router.route_pair(B, session="chat").prefill for _ in range(5)} == {first.prefill}
    assert router.route_pair(B, session="answer-1").prefill == first.prefill
    hard = router.route_pair(B, session="chat", affinity="hard")
    assert hard.prefill == first.prefill


def test_caps_count_for_each_half(make: Make) -> None:
    router = make(fleet(1, 2), caps=Caps(in_flight=1))
    first = router.route_pair(A)
    first.first_token()
    second = router.route_pair(A)
    assert second.decode != first.decode
    with pytest.raises(OverloadedError):
        router.route_pair(A)


def test_choosing_changes_nothing_and_can_be_committed_elsewhere(make: Make) -> None:
    router = make(fleet(3, 3))
    pair = router.choose_pair(A, session="s")
    assert not loads(router)
    assert pair.moved_tokens == 4_000
    ticket = router.commit_pair(pair, prefill="p2", decode="d1", key="k")
    assert (ticket.prefill, ticket.decode, ticket.key) == ("p2", "d1", "k")
    assert loads(router) == {"p2": (1, 4_000, 0), "d1": (1, 0, 4_000)}
    with pytest.raises(UnknownReplicaError):
        router.commit_pair(pair, decode="d9")
    with pytest.raises(ConfigError):
        router.commit_pair(pair.prefill)  # type: ignore[arg-type]


def test_turns_are_taken_over_pairs(make: Make) -> None:
    router = make(fleet(2, 4), policy="round-robin", decode_policy="round-robin")
    tickets = [router.route_pair(A) for _ in range(8)]
    assert Counter(ticket.prefill for ticket in tickets) == {"p0": 4, "p1": 4}
    assert Counter(ticket.decode for ticket in tickets) == {"d0": 2, "d1": 2, "d2": 2, "d3": 2}


def test_same_seed_same_pairs() -> None:
    def run(seed: int) -> list[tuple[str, ...]]:
        router = Router(fleet(4, 4), seed=seed, hash_key=1)
        return [router.route_pair(np.arange(800) + 1_000 * (i % 7)).replicas for i in range(60)]

    assert run(1) == run(1)
    assert run(1) != run(2)


# -- load and belief ---------------------------------------------------------------------------------------------------


def test_load_is_booked_apart(make: Make) -> None:
    router = make(fleet(1, 1))
    ticket = router.route_pair(A)
    assert loads(router) == {"p0": (1, 4_000, 0), "d0": (1, 0, 4_000)}
    ticket.first_token()
    assert loads(router) == {"d0": (1, 0, 4_000)}
    ticket.first_token()
    ticket.finish()
    assert not loads(router)
    assert router.stats()["counts"] == {"committed": 1, "finished": 1, "keyless": 1}


def test_a_pair_on_one_replica_has_both_loads_there(make: Make) -> None:
    router = make(fleet(0, 0, mixed=1))
    ticket = router.route_pair(A)
    assert loads(router) == {"m0": (2, 4_000, 4_000)}
    ticket.first_token()
    assert loads(router) == {"m0": (1, 0, 4_000)}


def test_the_prompt_is_believed_at_both_and_the_answer_where_it_was_decoded(make: Make) -> None:
    router = make(fleet(1, 2))
    ticket = router.route_pair(A)
    other = "d1" if ticket.decode == "d0" else "d0"
    assert held(router, A) == {"p0": HELD, ticket.decode: HELD, other: 0}
    ticket.first_token()
    ticket.finish(output=list(range(101)))
    longer = np.concatenate([A, np.arange(101, dtype=np.uint32), np.arange(50, dtype=np.uint32)])
    assert held(router, longer) == {"p0": 4_000, ticket.decode: 4_096, other: 0}


@pytest.mark.parametrize("started", [False, True])
def test_an_abort_gives_both_halves_back(make: Make, started: bool) -> None:
    router = make(fleet(1, 1))
    ticket = router.route_pair(A)
    if started:
        ticket.first_token()
    ticket.abort()
    assert not loads(router)
    assert held(router, A) == {"p0": HELD * started, "d0": HELD * started}
    assert router.stats()["counts"]["aborted"] == 1
    assert not ticket.open


def test_finishing_without_a_first_token_ends_both(make: Make) -> None:
    router = make(fleet(1, 1))
    router.route_pair(A).finish()
    assert not loads(router)
    assert held(router, A) == {"p0": HELD, "d0": HELD}


def test_reports_of_hits_are_about_the_replica_that_computes(make: Make) -> None:
    router = make(fleet(1, 1))
    router.route_pair(A).finish(reported_hit_tokens=0)
    router.route_pair(A).finish(usage={"prompt_tokens": 4_000, "prompt_tokens_details": {"cached_tokens": 3_968}})
    replicas = router.stats()["replicas"]
    assert (replicas["p0"]["predicted_hit_tokens"], replicas["p0"]["reported_hit_tokens"]) == (HELD, 3_968)
    assert replicas["d0"]["reported_hit_tokens"] is None
    assert (router.stats()["prompt_tokens"], router.stats()["hit_tokens"]) == (8_000, HELD)


def test_a_prefill_rate_is_learned(make: Make, clock: Any) -> None:
    router = make(fleet(1, 1))
    ticket = router.route_pair(A)
    clock.now = 2.0
    ticket.first_token()
    assert router.stats()["replicas"]["p0"]["tokens_per_s"] == 2_000.0
    assert router.stats()["replicas"]["d0"]["tokens_per_s"] is None


# -- retries, deaths, ends ---------------------------------------------------------------------------------------------


def test_a_half_that_fails_goes_elsewhere_and_the_other_stays(make: Make) -> None:
    router = make(fleet(3, 3))
    first = router.route_pair(A)
    prefill, decode = first.replicas
    second = first.retry("prefill")
    assert second is first  # the half that decodes goes on
    assert second.decode == decode
    assert second.prefill != prefill
    third = second.retry("decode")
    assert third.prefill == second.prefill
    assert third.decode != decode
    assert not second.open
    fourth = third.retry()
    assert fourth.prefill not in {prefill, third.prefill}
    assert fourth.decode not in {decode, third.decode}
    assert loads(router) == {fourth.prefill: (1, 4_000, 0), fourth.decode: (1, 0, 4_000)}
    with pytest.raises(NoReplicaError, match="tried"):
        fourth.retry("decode")
    assert not loads(router)
    counts = router.stats()["counts"]
    assert (counts["committed"], counts["retried"], counts["aborted"]) == (4, 3, 1)


def test_after_the_first_token_a_lost_decode_replica_costs_a_new_prefill(make: Make) -> None:
    router = make(fleet(1, 2))
    first = router.route_pair(A, key="k")
    first.first_token()
    second = first.retry("decode")
    assert (second.prefill, second.started) == ("p0", False)
    assert second.decode != first.decode
    assert second.hit_tokens == HELD
    assert loads(router) == {"p0": (1, 16, 0), second.decode: (1, 0, 4_000)}
    router.first_token("k")
    router.finish("k")
    assert not loads(router)


def test_what_has_failed_is_one_of_three(make: Make) -> None:
    router = make(fleet(1, 1))
    ticket = router.route_pair(A)
    with pytest.raises(ConfigError, match=r"both, prefill.*decode.*'transfer'"):
        ticket.retry("transfer")
    assert ticket.open


def test_the_old_ticket_of_a_retried_pair_may_go(make: Make) -> None:
    router = make(fleet(2, 2))
    ticket = router.route_pair(A)
    for failed in ("prefill", "decode"):
        ticket = ticket.retry(failed)
        gc.collect()
        router.choose_pair(B)
        assert ticket.open
        assert sum(load[0] for load in loads(router).values()) == 2
    del ticket
    gc.collect()
    router.choose_pair(B)
    assert not loads(router)
    assert router.stats()["counts"]["dropped"] == 1


def test_a_keyed_pair_lives_without_its_ticket(make: Make) -> None:
    router = make(fleet(1, 1))
    router.route_pair(A, key="k")
    gc.collect()
    assert loads(router) == {"p0": (1, 4_000, 0), "d0": (1, 0, 4_000)}
    router.route_pair(A, key="k")  # the same request again: charged once
    assert loads(router) == {"p0": (1, 16, 0), "d0": (1, 0, 4_000)}
    assert "Prefill:" in router.explain("k")
    router.abort("k")
    assert not loads(router)


def test_a_pair_without_progress_expires_whole(clock: Any) -> None:
    heard: list[PairTicket] = []
    router = Router(fleet(1, 1), clock=clock, timing=Timing(ticket_s=50.0), on_expired=heard.append)  # type: ignore[arg-type]
    kept = router.route_pair(A), router.route_pair(B)
    clock.now = 40.0
    kept[1].first_token()
    clock.now = 80.0
    assert loads(router) == {"d0": (1, 0, 4_000)}
    assert [ticket.replicas for ticket in heard] == [("p0", "d0")]
    assert (kept[0].open, kept[1].open) == (False, True)
    clock.now = 100.0
    assert not loads(router)
    assert router.stats()["counts"]["expired"] == 2


def test_each_of_many_expired_requests_is_told_once(clock: Any) -> None:
    heard: list[Ticket | PairTicket] = []
    router = Router(fleet(2, 2, 1), clock=clock, timing=Timing(ticket_s=50.0), on_expired=heard.append)
    kept = [router.route_pair(A, key=f"p{number}") for number in range(20)]
    single = [router.route(A, key=f"s{number}") for number in range(20)]
    clock.now = 60.0
    assert not loads(router)
    assert sorted(ticket.key or "" for ticket in heard) == sorted(ticket.key or "" for ticket in (*kept, *single))
    assert {type(ticket) for ticket in heard} == {Ticket, PairTicket}


@pytest.mark.parametrize("gone", ["p0", "d0"])
@pytest.mark.parametrize("returns", [False, True])
def test_a_half_whose_replica_dies_ends_as_nothing_there(make: Make, gone: str, returns: bool) -> None:
    router = make(fleet(2, 2))
    pair = router.choose_pair(A)
    ticket = router.commit_pair(pair, prefill="p0", decode="d0")
    router.remove_replica(gone)
    if returns:
        router.add_replica(gone, Replica(role="prefill" if gone == "p0" else "decode"))
    assert gone not in loads(router)
    again = ticket.retry("prefill" if gone == "p0" else "decode")
    assert gone not in again.replicas or returns
    again.first_token()
    again.finish()
    assert not loads(router)


def test_a_draining_replica_takes_no_half(make: Make) -> None:
    router = make(fleet(2, 2))
    router.drain("p0")
    router.suspend("d1")
    assert {router.route_pair(A).replicas for _ in range(8)} == {("p1", "d0")}


def test_a_context_manager_and_a_stream_end_both(make: Make) -> None:
    router = make(fleet(1, 1))
    with router.route_pair(A) as ticket:
        assert ticket.open
    assert not loads(router)
    with pytest.raises(ValueError, match="broken"), router.route_pair(A):
        raise ValueError("broken")
    assert not loads(router)
    assert router.stats()["counts"]["aborted"] == 1


def test_headers_name_the_ranks_of_both() -> None:
    router = Router({"p": Replica(role="prefill", rank=3), "d": Replica(role="decode", rank=5)})
    ticket = router.route_pair(A)
    assert ticket.prefill_headers() == {"X-data-parallel-rank": "3"}
    assert ticket.decode_headers() == {"X-data-parallel-rank": "5"}


# -- looking at it -----------------------------------------------------------------------------------------------------


def test_both_decisions_are_recorded_and_can_be_taken_again() -> None:
    records = io.StringIO()
    router = Router(fleet(3, 3), record=records, hash_key=1)
    tickets = [router.route_pair(np.arange(900) + 1_000 * (i % 3)) for i in range(9)]
    lines = [json.loads(line) for line in records.getvalue().splitlines()]
    assert [line["decision_id"] for line in lines] == [i // 2 for i in range(18)]
    assert [line["policy"] for line in lines] == ["cache-aware", "transfer-cost"] * 9
    assert [replay(line)[0] for line in lines] == [name for ticket in tickets for name in ticket.replicas]


def test_an_explanation_speaks_of_both(make: Make) -> None:
    router = make(fleet(1, 1))
    assert re.search(r"'p0'.* 4000 .*\(4000 .*'d0'", router.explain(router.route_pair(A)))


def test_counters_tell_the_policies_apart(make: Make) -> None:
    router = make(fleet(1, 1))
    router.route_pair(A)
    text = router.metrics_text()
    assert 'prefixroute_decisions_total{policy="transfer-cost",reason="least_transfer",replica="d0"} 1' in text
    assert 'policy="cache-aware"' in text


def test_a_shadow_follows_pairs() -> None:
    router = Router(fleet(3, 3), policy="round-robin", hash_key=1)
    shadow = router.shadow("cache-aware")
    for i in range(30):
        ticket = router.route_pair(np.arange(1_600) + 10_000 * (i % 4))
        ticket.first_token()
        if i % 5:
            ticket.finish(output=[1, 2, 3])
        else:
            ticket.abort()
    regret = router.regret()["cache-aware"]
    assert (regret.requests, regret.failures) == (30, 0)
    assert regret.tokens > 0
    for state in (router, shadow):
        assert not loads(state)


# -- a machine ---------------------------------------------------------------------------------------------------------


class Pairs(RuleBasedStateMachine):
    """Pairs in any order of calls beside a plain account of them: who has which half, and what is on the book."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.router = Router(fleet(3, 3, mixed=1), clock=lambda: self.now, timing=Timing(ticket_s=1e6), hash_key=1)
        self.open: list[PairTicket] = []
        self.tokens: dict[int, int] = {}

    @rule(prompt=st.integers(0, 5), tokens=st.sampled_from([1, 15, 16, 400]), keyed=st.booleans())
    def route(self, prompt: int, tokens: int, keyed: bool) -> None:
        ticket = self.router.route_pair(np.arange(tokens) + 1_000 * prompt, key=str(id(self)) if keyed else None)
        self.open = [one for one in self.open if one.open]
        self.open.append(ticket)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), call=st.sampled_from(["first_token", "finish", "abort", "prefill", "decode", "both"]))
    def go_on(self, data: st.DataObject, call: str) -> None:
        at = data.draw(st.integers(0, len(self.open) - 1))
        ticket = self.open.pop(at)
        if call in {"prefill", "decode", "both"}:
            try:
                self.open.append(ticket.retry(call))
            except NoReplicaError:
                assert not ticket.open
            return
        getattr(ticket, call)()
        if ticket.open:
            self.open.append(ticket)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.open) - 1))
        if self.open[at].key is None:
            del self.open[at]
            gc.collect(0)
            self.router.choose_pair([1])

    @rule(name=st.sampled_from(["p0", "d0", "m0"]), drain=st.booleans())
    def change(self, name: str, drain: bool) -> None:
        if drain:
            self.router.drain(name)
        else:
            self.router.resume(name)

    @invariant()
    def book_is_the_sum_of_halves(self) -> None:
        expected: Counter[tuple[str, str]] = Counter()
        for ticket in self.open:
            prefill, half = ticket.halves
            assert ticket.open
            assert prefill.open != ticket.started
            expected[half.name, "in_flight"] += 1
            expected[half.name, "decode_tokens"] += half.decision.prompt_tokens
            if prefill.open:
                expected[prefill.name, "in_flight"] += 1
                expected[prefill.name, "uncached_tokens"] += half.decision.prompt_tokens - prefill.hit
        stats = self.router.stats()
        for name, one in stats["replicas"].items():
            for field in ("in_flight", "uncached_tokens", "decode_tokens"):
                assert one[field] == expected[name, field]
        counts = Counter(stats["counts"])
        ended = sum(counts[why] for why in ("finished", "aborted", "retried", "dropped", "rebooked"))
        assert counts["committed"] == ended + len(self.open)

    def teardown(self) -> None:
        for ticket in self.open:
            ticket.abort()
        assert not loads(self.router)


TestPairs = Pairs.TestCase
TestPairs.settings = settings(max_examples=25, stateful_step_count=25)
