"""Wrong arguments: refused by one of our errors, and nothing is half done."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from book import loads

from prefixroute.errors import ConfigError, PrefixRouteError, TokensError
from prefixroute.index import PrefixIndex
from prefixroute.router import Router
from prefixroute.router.options import RequestOptions
from prefixroute.testing import render, tokenize
from prefixroute.types import Caps, LoadReport, Replica, Timing
from prefixroute.workload.request import cached_tokens

Make = Callable[..., Router]
TOKENS = list(range(200))


@pytest.mark.parametrize(
    ("kind", "prompt", "output"),
    [
        ("tokens", TOKENS, [1.5, 2.5]), ("tokens", TOKENS, 5), ("tokens", TOKENS, [[1], [2, 3]]), ("tokens", TOKENS, "text"),
        ("tokens", TOKENS, [True, True]), ("text", "a" * 200, "half an emoji \ud83d"), ("text", "a" * 200, [1]),
        ("messages", [{"role": "user", "content": "a"}], "\ud83d"), ("messages", [{"role": "user", "content": "a"}], 5),
    ],
)  # fmt: skip
def test_an_output_that_cannot_be_hashed_ends_the_request_all_the_same(
    make_router: Make, kind: str, prompt: Any, output: Any
) -> None:
    router = make_router(2, prompt_kind=kind, index=PrefixIndex())
    router.shadow("random")
    for key in ("k", None):
        ticket = router.route(prompt, key=key)
        with pytest.raises(TokensError), ticket:
            ticket.finish(output=output)
        assert not ticket.open
    assert loads(router) == (0, 0, 0)
    assert router.stats()["counts"] == {"committed": 2, "keyless": 2, "finished": 2}
    assert router.shadow("random").stats()["in_flight"] == 0


@pytest.mark.parametrize("prompt", [TOKENS, np.array(TOKENS, np.uint64), np.array(TOKENS, np.uint8), tuple(TOKENS)])
@pytest.mark.parametrize("output", [[], (), np.array([]), [7] * 40, np.full(40, 7, np.int64), array("Q", [7] * 40)])
def test_an_output_of_any_integers_or_none_follows_its_prompt(make_router: Make, prompt: Any, output: Any) -> None:
    router = make_router(1, index=PrefixIndex())
    router.route(prompt).finish(output=output)
    context = [int(token) for token in (*prompt, *output)]
    assert router.choose([*context, 0]).hit_tokens == cached_tokens(len(prompt), len(output)) // 16 * 16


def nested(levels: int) -> Any:
    """Return mappings in each other, and lists in each other, so many levels deep."""
    value: Any = "x"
    for level in range(levels):
        value = [value] if level % 2 else {"x": value}
    return value


ITSELF: list[Any] = []
ITSELF.append(ITSELF)
ODD: list[dict[Any, Any]] = [
    {"role": "user", "content": ITSELF}, {"role": "user", "content": "x", "more": ITSELF},
    {"role": "user", "content": "x", 5: 1, ("a",): 2}, {"role": "user", "content": [{"type": "x", (1, 2): 3}]},
    {"role": "user", "content": "x", "more": {1: 2, "b": 3}}, {"role": "user", "content": b"x"},
    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {(1,): 2}}}]},
    *({"role": "user", "content": [{"type": "x", "deep": nested(levels)}]} for levels in (5_000, 100_000)),
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_messages_that_have_no_text_are_refused(odd: dict[Any, Any]) -> None:
    router = Router(["a"], prompt_kind="messages", index=PrefixIndex())
    for wrong in ([odd], {"messages": [{"role": "user", "content": "x"}], "tools": [odd]}):
        with pytest.raises(TokensError):
            router.choose(wrong)
    ticket = router.route([{"role": "user", "content": "x"}])
    with pytest.raises(TokensError):
        ticket.finish(output=odd)
    assert not ticket.open


@pytest.mark.parametrize("field", ["content", "tools", "arguments"])
def test_messages_of_any_depth_are_hashed_or_refused(field: str) -> None:
    """Where the interpreter's recursion ends depends on the depth of the call.

    No level around it may raise its error.
    """
    router = Router(["a"], prompt_kind="messages", index=PrefixIndex())
    refused = 0
    for levels in (*range(100, 900, 100), *range(900, 1_000, 2), 970, 1_500, 3_000):
        parts: Any = [{"type": "tool_result", "content": "x"}]
        for _ in range(levels):
            parts = [{"type": "tool_result", "content": parts}]
        deep, message = nested(levels), {"role": "user", "content": "x"}
        prompt = {
            "content": {"messages": [{**message, "content": parts}]},
            "tools": {"messages": [message], "tools": [{"name": "f", "parameters": deep}]},
            "arguments": {"messages": [{"role": "assistant", "function_call": {"name": "f", "arguments": deep}}]},
        }[field]
        try:
            router.choose(prompt)
        except TokensError:
            refused += 1
    assert refused > 0


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf"), "1", 10**400, 1j])
def test_a_time_that_is_none_changes_nothing(make_router: Make, wrong: Any) -> None:
    router = make_router(3)
    ticket = router.route(TOKENS, session="a", now=1.0)
    decision = router.choose(TOKENS, now=1.0)
    calls: list[Callable[..., Any]] = [
        partial(router.route, TOKENS), partial(router.choose, TOKENS), partial(router.commit, decision), router.load,
        ticket.first_token, ticket.retry, ticket.hedge, partial(router.alias, "a", "b"),
        partial(router.suspend, "r0"), partial(router.add_replica, "r9"), partial(router.sync, ["r9"]),
    ]  # fmt: skip
    before = router.stats()
    for call in calls:
        with pytest.raises(ConfigError, match=r"time.*seconds"):
            call(now=wrong)
    assert router.stats() == before
    assert ticket.open


def test_a_key_is_a_string_and_a_wrong_one_books_nothing(make_router: Make) -> None:
    router = make_router(2)
    for call in (partial(router.route, TOKENS), partial(router.commit, router.choose(TOKENS))):
        for wrong in (5, ["k"], b"k"):
            with pytest.raises(ConfigError, match=f"key.*string.*{re.escape(repr(wrong))}"):
                call(key=wrong)
    assert loads(router) == (0, 0, 0)


def test_retry_after_abort_is_not_late(make_router: Make) -> None:
    router = make_router(2)
    ticket = router.route(TOKENS)
    ticket.abort()
    ticket.retry().finish()
    assert router.stats()["counts"] == {"committed": 2, "keyless": 1, "aborted": 1, "finished": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        ["half an emoji \ud83d"], ["x" * 65_537], [f"r{i}" for i in range(1_025)], {"b": 5},
        {"b": Replica(capacity_tokens=1 << 64)},
    ],
)  # fmt: skip
def test_a_fleet_that_the_index_would_refuse_changes_nothing(make_router: Make, wrong: Any) -> None:
    router = make_router(["a"], index=PrefixIndex())
    router.route(TOKENS).finish()
    with pytest.raises(ConfigError):
        router.sync(wrong)
    assert router.replicas == ("a",)
    assert router.choose(TOKENS).hit_tokens == 192


@pytest.mark.parametrize("capacity", [None, "1", 1.5, True, -1, 1 << 64])
def test_a_capacity_is_a_count_of_tokens(make_router: Make, capacity: Any) -> None:
    for each in (capacity, {"a": capacity}):
        with pytest.raises(ConfigError, match="capacity"):
            make_router(["a"], capacity_tokens=each)


WRONG: list[Any] = [
    None, "x", -1, 1.5, float("nan"), float("inf"), True, [], {}, object(), 1 << 70, 10**400, [[]], [5], b"q", "\ud800", 1j
]  # fmt: skip
OPTIONS = (
    "policy", "block_size", "capacity_tokens", "prompt_kind", "seed", "hash_seed", "clock", "load", "recent_window", "index", "ttl_s",
    "max_bytes", "tier_credits", "caps", "timing", "session_capacity", "render", "tokenizer", "cost", "record", "timer",
)  # fmt: skip


def is_refused(call: Callable[[], object]) -> bool:
    """Return whether a call was refused; fail if by an error that is not ours."""
    try:
        call()
    except PrefixRouteError:
        return True
    return False


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_of_any_type_is_taken_or_refused_when_the_router_is_made(option: str) -> None:
    kind = "text" if option in {"render", "tokenizer"} else "tokens"
    refused = []
    for wrong in WRONG:
        made: list[Router] = []
        refused.append(is_refused(lambda: made.append(Router(["a"], **{"prompt_kind": kind, option: wrong}))))  # noqa: B023
        for router in made if kind == "tokens" else []:
            router.route(TOKENS).finish()
    assert any(refused)


@pytest.mark.parametrize("argument", [*RequestOptions.__annotations__, "now"])
@pytest.mark.parametrize("policy", ["document", "min-ttft"])
def test_an_argument_of_any_type_is_taken_or_refused_by_an_error_of_ours(argument: str, policy: str) -> None:
    router = Router(["a", "b"], policy=policy)
    refused = [is_refused(lambda: router.route(TOKENS, **{argument: wrong}).finish()) for wrong in WRONG]  # noqa: B023
    assert any(refused)
    assert loads(router) == (0, 0, 0)


@pytest.mark.parametrize(
    ("argument", "wrong", "message"),
    [
        ("max_tokens", "x", "max_tokens.*int.*'x'"),
        ("max_tokens", 1.0, r"max_tokens.*int.*1\.0"),
        ("max_tokens", True, "max_tokens.*int.*True"),
        ("max_tokens", -1, "max_tokens.* 0,.*-1"),
        ("priority", "high", "priority.*int.*'high'"),
        ("priority", True, "priority.*int.*True"),
    ],
)
def test_a_wrong_number_of_a_request_is_named(argument: str, wrong: Any, message: str) -> None:
    router = Router(["a", "b"])
    for call in (router.route, router.choose, router.route_pair):
        with pytest.raises(ConfigError, match=message):
            call(TOKENS, **{argument: wrong})
    assert loads(router) == (0, 0, 0)
    with router.route(TOKENS, max_tokens=0, priority=-3) as ticket:
        assert ticket.decision.prompt_tokens == len(TOKENS)


@pytest.mark.parametrize("kind", [Replica, Caps, Timing, partial(LoadReport, 0.0)])
def test_values_of_any_type_are_taken_or_refused_by_an_error_of_ours(kind: Any) -> None:
    cls = kind.func if isinstance(kind, partial) else kind
    passed_through = {"incarnation", "address", "rank", "at"}
    for field in set(cls.__dataclass_fields__) - passed_through:
        refused = [is_refused(lambda: kind(**{field: wrong})) for wrong in WRONG]  # noqa: B023
        assert refused[1], f"{field} = 'x'"


@pytest.mark.parametrize("name", ["reported_hit_tokens", "reported_prompt_tokens"])
@pytest.mark.parametrize("wrong", [-1, 1.5, float("nan"), "5", True, [], 1j])
def test_a_report_that_is_no_count_ends_the_request_and_teaches_nothing(name: str, wrong: Any) -> None:
    router = Router(["a"], prompt_kind="text")
    ticket = router.route("a" * 4_000)
    with pytest.raises(ConfigError, match=f"^{name} "):
        ticket.finish(**{name: wrong})
    stats = router.stats()
    assert not ticket.open
    assert (stats["counts"]["finished"], stats["reported_requests"], stats["tokens_per_estimate"]) == (1, 0, 1.0)


NAMED = (
    "replica",
    "drain",
    "suspend",
    "resume",
    "remove_replica",
    "add_replica",
    "clear",
    "update_load",
    "apply_cleared",
)


@pytest.mark.parametrize("call", [*NAMED, "sync", "forget", "alias", "bind", "explain", "shadow", "commit", "take"])
def test_a_name_of_any_type_is_known_or_refused_by_an_error_of_ours(call: str) -> None:
    router = Router(["a", "b"])
    ticket = router.route(TOKENS, session="s")
    calls: dict[str, Callable[[Any], object]] = {
        "alias": lambda wrong: (router.alias("s", wrong), router.alias(wrong, "s")),
        "bind": ticket.alias,
        "shadow": lambda wrong: router.shadow("random", name=wrong),
        "take": lambda wrong: router.commit(router.choose(TOKENS), wrong).abort(),
    }
    for wrong in WRONG:
        if wrong is not None:
            is_refused(lambda: calls.get(call, getattr(router, call, None))(wrong))  # type: ignore[misc]  # noqa: B023
    assert is_refused(lambda: calls.get(call, getattr(router, call, None))([[]]))  # type: ignore[misc]
    ticket.finish()
    assert loads(router) == (0, 0, 0)


def test_a_span_that_no_float_can_hold_is_refused() -> None:
    router = Router(["a"])
    with pytest.raises(ConfigError, match="for_s"):
        router.suspend("a", for_s=10**400)
    for field in ("session_idle_s", "slow_start_s", "provisional_s", "window_s"):
        with pytest.raises(ConfigError, match=field):
            Timing(**{field: 10**400})
    assert router.choose(TOKENS).replica == "a"


@pytest.mark.parametrize("sequence", [-1, 1 << 64, 1.0, "1"])
def test_a_batch_number_that_is_none_applies_nothing(sequence: Any) -> None:
    router = Router(["a"])
    with pytest.raises(ConfigError, match=r"^sequence "):
        router.apply("a", b"\x93\xcb\0\0\0\0\0\0\0\0\x90\xc0", sequence=sequence)
    assert router.index.feed_stats("a").batches == 0


class Raising:
    """A usage object that cannot be looked at."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class Dumped:
    """A usage object that cannot be dumped."""

    def model_dump(self) -> dict[str, Any]:
        raise ValueError("not loaded")


class Closed(dict[str, Any]):
    """A mapping that cannot be read."""

    def get(self, *_: Any) -> Any:
        raise KeyError("closed")


ENDS: list[dict[str, Any]] = [
    *({name: wrong} for name in ("reported_hit_tokens", "reported_prompt_tokens") for wrong in (2**63, 2**100, -1, 1.0)),
    {"reported_hit_tokens": np.uint64(2**64 - 1)},
    {"usage": {"input_tokens": 2**64, "cache_read_input_tokens": 2**64}}, {"usage": Raising()}, {"usage": Dumped()},
    {"usage": Closed(a=1)}, {"usage": {"prompt_tokens": 5, "prompt_tokens_details": Raising()}},
    {"now": float("nan")}, {"now": "1"}, {"now": 10**400},
]  # fmt: skip


@pytest.mark.parametrize("wrong", ENDS, ids=range(len(ENDS)))
@pytest.mark.parametrize("by", ["ticket", "key", "pair"])
def test_finish_ends_the_request_even_if_it_raises(make_router: Make, by: str, wrong: dict[str, Any]) -> None:
    router = make_router(2)
    ticket = (router.route_pair if by == "pair" else router.route)(TOKENS, key="k")
    with pytest.raises(ConfigError):
        router.finish("k", **wrong) if by == "key" else ticket.finish(**wrong)
    assert not ticket.open
    assert loads(router) == (0, 0, 0)


def test_peers_feeds_and_sources_of_another_class_are_refused() -> None:
    router = Router(["a"])
    with pytest.raises(ConfigError, match=r"peers.*Transport.*3"):
        Router(["a"], peers=3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"feed.*'a'.*KvFeed.*'tcp://x'"):
        router.follow({"a": "tcp://x"})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=r"'a'.*MetricsSource.*3"):
        router.poll({"a": 3})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=r"\bblock\b.*on_expired, peer_secret, peers.*record"):
        Router(["a"], block=16)  # type: ignore[call-arg]


def test_more_reported_than_the_estimate_of_a_text_is_taken() -> None:
    router = Router(["a"], prompt_kind="text")
    router.route("hello " * 99).finish(reported_hit_tokens=512)
    stats = router.stats()
    assert (stats["reported_hit_tokens"], stats["clamped_reports"]) == (512, 0)


def test_more_reported_than_the_prompt_has_is_clamped_and_counted() -> None:
    router = Router(["a"])
    router.route(list(range(99))).finish(reported_hit_tokens=5_000)
    stats = router.stats()
    losses = stats["hit_losses"]
    assert stats["clamped_reports"] == 1
    assert stats["reported_hit_tokens"] == 99
    assert losses["first_sight"] + losses["elsewhere"] + losses["evicted"] - losses["unknown"] == 0


def fails(_: Any) -> Any:
    """Raise what a template or a tokenizer of one's own may raise."""
    return {}["role"]


@pytest.mark.parametrize("what", ["render", "tokenizer"])
@pytest.mark.parametrize("kind", ["text", "messages"])
async def test_what_a_function_of_the_callers_raises_is_a_tokens_error_that_names_it(
    make_router: Make, what: str, kind: str
) -> None:
    router = make_router(2, prompt_kind=kind, index=PrefixIndex(), **{what: fails})
    prompt = "a" * 200 if kind == "text" else [{"role": "user", "content": "a"}]
    for call in (router.route, router.choose):
        with pytest.raises(TokensError, match=f"{what}.*KeyError.*'role'$") as raised:
            call(prompt)
        assert isinstance(raised.value.__cause__, KeyError)
    with pytest.raises(TokensError, match=what):
        await router.hash(prompt)
    assert loads(router) == (0, 0, 0)


@pytest.mark.parametrize("error", [ConfigError("ours"), TokensError("ours")])
def test_our_own_errors_pass_a_tokenizer_as_they_are(make_router: Make, error: PrefixRouteError) -> None:
    def raises(_: str) -> list[int]:
        raise error

    router = make_router(1, prompt_kind="text", index=PrefixIndex(), tokenizer=raises)
    with pytest.raises(type(error), match=r"^ours$"):
        router.route("a" * 200)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([5], "message.*role.* 5$"),
        ([None], "message.*role.* None$"),
        ([{"role": "user", "content": "a\ud83d"}], r"text.*Unicode.*'\\ud83d'.* 8$"),
    ],
)
def test_the_template_and_the_tokenizer_of_fake_engines_say_what_is_wrong(
    make_router: Make, prompt: Any, message: str
) -> None:
    router = make_router(1, prompt_kind="messages", index=PrefixIndex(), render=render, tokenizer=tokenize)
    with pytest.raises(TokensError, match=message):
        router.route(prompt)


def test_a_part_without_text_has_none() -> None:
    assert render([{"role": "user", "content": [{"text": None}, None, "a"]}]) == render(
        [{"role": "user", "content": "a"}]
    )
