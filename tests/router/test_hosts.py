"""What hosts need of the Router: keys given late, kinds by call, usages as they come, and ends that are told twice."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from prefixroute.errors import ConfigError, NoReplicaError, TokensError, UnknownReplicaError
from prefixroute.policies import catalog
from prefixroute.router import Router, Ticket
from prefixroute.types import Replica, Timing

Make = Callable[..., Router]
TOKENS = list(range(2_000))
TEXT = "one two three four five six seven eight " * 40
MESSAGES = [{"role": "user", "content": TEXT}]


# -- keys --------------------------------------------------------------------------------------------------------


def test_the_key_may_be_given_at_commit(make_router: Make) -> None:
    router = make_router(4)
    decision = router.choose(TOKENS, session="a")
    ticket = router.commit(decision, "r3", key="req-1@r3")
    assert (ticket.key, ticket.replica, decision.view.request.key) == ("req-1@r3", "r3", None)
    router.finish("req-1@r3")
    assert not ticket.open
    assert "r3" in router.explain("req-1@r3")


def test_a_decision_under_one_key_replaces_the_one_before(make_router: Make) -> None:
    router = make_router(4)
    for _ in range(5):
        router.commit(router.choose(TOKENS), key="k")
    router.route(TOKENS, key="k")
    assert router.stats()["in_flight"] == 1
    assert router.stats()["counts"]["rebooked"] == 5
    router.finish("k")
    assert router.stats()["in_flight"] == 0


def test_one_decision_may_be_booked_under_several_keys(make_router: Make) -> None:
    router = make_router(4)
    decision = router.choose(TOKENS)
    first, second = (router.commit(decision, name, key=f"k@{name}") for name in ("r1", "r2"))
    router.abort("k@r1")
    assert (first.open, second.open) == (False, True)


def test_a_retry_keeps_the_key_given_at_commit(make_router: Make) -> None:
    router = make_router(2)
    ticket = router.commit(router.choose(TOKENS), key="k").retry()
    router.finish("k")
    assert not ticket.open


# -- ranking -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", sorted(catalog.POLICIES))
def test_the_top_is_the_beginning_of_the_ranking(policy: str, make_router: Make) -> None:
    router = make_router(6, policy=policy)
    router.route(TOKENS, session="a").finish()
    decision = router.choose(TOKENS, session="a")
    assert decision.ranked[0] == decision.replica
    assert sorted(decision.ranked) == list(router.replicas)
    for count in (1, 3, 6, 9):
        assert decision.ranked_top(count) == decision.ranked[:count]


def test_a_top_of_none_is_refused(make_router: Make) -> None:
    with pytest.raises(ConfigError, match="count"):
        make_router(2).choose(TOKENS).ranked_top(0)


# -- candidates --------------------------------------------------------------------------------------------------


def test_unknown_candidates_are_left_out_if_asked_for(make_router: Make) -> None:
    router = make_router(4)
    with pytest.raises(UnknownReplicaError):
        router.route(TOKENS, candidates=["gone", "r2"])
    ticket = router.route(TOKENS, candidates=["gone", "r2"], unknown_candidates="ignore")
    assert ticket.replica == "r2"
    with pytest.raises(NoReplicaError):
        router.route(TOKENS, candidates=["gone"], unknown_candidates="ignore")
    with pytest.raises(ConfigError, match=r"unknown_candidates.*raise, ignore.*'skip'"):
        router.route(TOKENS, unknown_candidates="skip")


def test_a_retry_ignores_unknown_candidates_as_its_request_did(make_router: Make) -> None:
    ticket = make_router(4).route(TOKENS, candidates=["gone", "r1", "r2"], unknown_candidates="ignore")
    assert {ticket.replica, ticket.retry().replica} == {"r1", "r2"}


# -- kinds of prompts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tokens", "text", "messages"])
def test_a_call_may_name_the_kind_of_its_prompt(kind: str) -> None:
    router = Router(["a", "b"], prompt_kind=kind)
    for prompt, own in ((TOKENS, "tokens"), (TEXT, "text"), (MESSAGES, "messages")):
        ticket = router.route(prompt, prompt_kind=own)
        ticket.finish()
        again = router.choose(prompt, prompt_kind=own)
        assert (again.replica, again.hit_tokens > 0) == (ticket.replica, True)
        if own != kind:
            with pytest.raises(TokensError):
                router.choose(prompt)
    with pytest.raises(ConfigError, match=r"prompt_kind.*tokens, text, messages.*'audio'"):
        router.choose(TOKENS, prompt_kind="audio")


def test_an_output_is_of_the_kind_of_its_prompt() -> None:
    router = Router(["a", "b"], prompt_kind="messages")
    router.route(TEXT, prompt_kind="text").finish(output=TEXT)
    assert router.choose(2 * TEXT, prompt_kind="text").hit_tokens > len(TEXT) // 4
    router.route(TOKENS, prompt_kind="tokens").finish(output=TOKENS)
    assert router.choose(2 * TOKENS, prompt_kind="tokens").hit_tokens > len(TOKENS)


def test_only_texts_are_calibrated() -> None:
    router = Router(["a"], prompt_kind="messages")
    for _ in range(9):
        router.route(MESSAGES).finish(reported_prompt_tokens=len(TEXT) // 2)
        router.route(TOKENS, prompt_kind="tokens").finish(reported_prompt_tokens=3_000)
    assert router.choose(MESSAGES).prompt_tokens == pytest.approx(len(TEXT) / 2, rel=0.1)
    assert router.choose(TEXT, prompt_kind="text").prompt_tokens == pytest.approx(len(TEXT) / 2, rel=0.1)
    assert router.choose(TOKENS, prompt_kind="tokens").prompt_tokens == len(TOKENS)


def test_a_tokenizer_serves_every_kind() -> None:
    router = Router(["a", "b"], prompt_kind="messages", tokenizer=lambda text: list(text.encode()))
    router.route(TEXT, prompt_kind="text").finish()
    same = router.choose(list(TEXT.encode()), prompt_kind="tokens")
    assert same.hit_tokens > len(TEXT) // 2


def test_shadows_and_retries_know_the_kind() -> None:
    router = Router(["a", "b"], prompt_kind="tokens")
    router.shadow("session")
    router.route(MESSAGES, prompt_kind="messages").retry().finish(output="yes")
    assert (router.regret()["session"].failures, router.regret()["session"].requests) == (0, 1)


# -- usages ------------------------------------------------------------------------------------------------------

CHAT = {"prompt_tokens": 2_000, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 1_600}}
ANTHROPIC = {
    "input_tokens": 300,
    "cache_read_input_tokens": 1_600,
    "cache_creation_input_tokens": 100,
    "output_tokens": 9,
}
RESPONSES = {"input_tokens": 2_000, "input_tokens_details": {"cached_tokens": 1_600}, "output_tokens": 9}


@pytest.mark.parametrize(
    "usage", [CHAT, ANTHROPIC, RESPONSES, {"usage": CHAT}, SimpleNamespace(usage=SimpleNamespace(**CHAT))]
)
@pytest.mark.parametrize("by_key", [True, False])
def test_a_usage_is_read(usage: Any, make_router: Make, *, by_key: bool) -> None:
    router = make_router(1)
    router.route(TOKENS, session="a").finish()
    ticket = router.route(TOKENS, session="a", key="k" if by_key else None)
    if by_key:
        router.finish("k", usage=usage)
    else:
        ticket.finish(usage=usage)
    replica = router.stats()["replicas"]["r0"]
    assert replica["reported_hit_tokens"] == 1_600
    assert router.stats()["unreported_requests"] == 1


def test_what_a_usage_does_not_say_is_not_zero(make_router: Make) -> None:
    router = make_router(1)
    router.route(TOKENS).finish(usage={"prompt_tokens": 2_000, "completion_tokens": 9, "prompt_tokens_details": None})
    assert router.stats()["unreported_requests"] == 1


def test_a_count_that_is_given_goes_before_the_usage(make_router: Make) -> None:
    router = make_router(1)
    router.route(TOKENS).finish(usage=CHAT, reported_hit_tokens=16)
    assert router.stats()["replicas"]["r0"]["reported_hit_tokens"] == 16


@pytest.mark.parametrize("usage", [{}, 7, {"prompt_tokens": -1}, {"choices": []}])
def test_a_wrong_usage_is_an_error_of_a_request_that_has_ended(usage: Any, make_router: Make) -> None:
    router = make_router(1)
    ticket = router.route(TOKENS)
    with pytest.raises(ConfigError):
        ticket.finish(usage=usage)
    assert not ticket.open
    assert router.stats()["counts"]["finished"] == 1


# -- expiry ------------------------------------------------------------------------------------------------------


def test_a_host_hears_of_requests_that_expire(make_router: Make, clock: Any) -> None:
    expired: list[Ticket] = []
    router = make_router(2, timing=Timing(ticket_s=30.0), on_expired=expired.append)
    kept = router.route(TOKENS)
    router.route(TOKENS, key="k", session="a")
    clock.now = 20.0
    kept.first_token()
    clock.now = 31.0
    router.choose(TOKENS)
    assert [(ticket.key, ticket.open, ticket.replica in router.replicas) for ticket in expired] == [("k", False, True)]
    assert router.stats()["in_flight"] == 1


def test_a_hook_may_call_the_router_and_may_fail(
    make_router: Make, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def on_expired(ticket: Ticket) -> None:
        ticket.retry().finish()
        raise ValueError

    router = make_router(2, timing=Timing(ticket_s=30.0), on_expired=on_expired)
    router.route(TOKENS, key="k")
    clock.now = 31.0
    with caplog.at_level(logging.ERROR, "prefixroute"):
        assert router.route(TOKENS).open
    assert "on_expired" in caplog.text
    assert router.stats()["in_flight"] == 0
    with pytest.raises(ConfigError, match=r"on_expired.*'log'"):
        make_router(2, on_expired="log")


# -- a host's own objects ----------------------------------------------------------------------------------------


@dataclass
class Server:
    url: str
    pod: str


def test_the_fleet_is_synced_with_a_hosts_own_objects(make_router: Make) -> None:
    router = make_router(["a", "b"])
    servers = [Server("b", "pod-1"), Server("c", "pod-2")]
    router.sync(servers, name_of=lambda server: server.url, replica_of=lambda server: Replica(incarnation=server.pod))
    assert set(router.replicas) == {"b", "c"}
    assert router.replica("c").incarnation == "pod-2"
    router.sync(iter(servers[:1]), name_of=lambda server: server.url)
    assert (router.replicas, router.replica("b").incarnation) == (("b",), "pod-1")


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": [Server("a", "")], "name_of": "url"},
        {"replicas": [Server("a", "")], "name_of": lambda _: 7},
        {"replicas": [Server("a", ""), Server("a", "")], "name_of": lambda server: server.url},
        {"replicas": [Server("a", "")], "name_of": lambda server: server.url, "replica_of": lambda _: "x"},
        {"replicas": ["a"], "replica_of": lambda _: None},
        {"replicas": 7, "name_of": str},
    ],
)
def test_objects_that_cannot_be_replicas_change_nothing(wrong: dict[str, Any], make_router: Make) -> None:
    router = make_router(["a", "b"])
    with pytest.raises(ConfigError):
        router.sync(**wrong)
    assert router.replicas == ("a", "b")
