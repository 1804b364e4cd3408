"""Prompt kinds: tokens, text and messages, each against the real index, and what does not fit is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from prefixroute.errors import ConfigError, TokensError
from prefixroute.hashing import BlockHashes, hash_blocks
from prefixroute.limits import FIXED_HASH_KEY
from prefixroute.messages import canonical
from prefixroute.router import Router
from prefixroute.types import Namespace

SYSTEM = {"role": "system", "content": "You answer in one sentence. " * 20}
QUESTION = {"role": "user", "content": "What is a prefix cache, and why does it matter where a request goes? " * 4}


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def test_tokens_in_every_form_are_one_prompt() -> None:
    router = Router(["a"])
    tokens = list(range(1_000))
    router.route(tokens).finish()
    forms = [tokens, tuple(tokens), np.arange(1_000), np.arange(1_000, dtype=np.uint32)]
    forms.append(hash_blocks(tokens, hash_key=router.hash_key))
    assert {router.choose(form).hit_tokens for form in forms} == {992}


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("tokens", "text"),
        ("tokens", b"text"),
        ("tokens", {"messages": []}),
        ("tokens", [SYSTEM]),
        ("text", [1, 2, 3]),
        ("text", [SYSTEM]),
        ("messages", "text"),
        ("messages", 7),
    ],
)
def test_another_kind_is_refused(kind: str, wrong: Any) -> None:
    router = Router(["a"], prompt_kind=kind)
    others = "', '".join(each for each in ("tokens", "text", "messages") if each != kind)
    with pytest.raises(TokensError, match=rf"'{kind}'.*prompt_kind.*'{others}'"):
        router.choose(wrong)
    assert router.stats()["in_flight"] == 0


def test_text_counts_four_bytes_as_a_token() -> None:
    router = Router(["a"], prompt_kind="text")
    text = "prefix " * 200
    decision = router.choose(text)
    assert decision.prompt_tokens == 350
    router.commit(decision).finish(output="and an answer " * 10)
    assert router.choose(text + "and an answer " * 10 + "next").hit_tokens == (1_400 + 140) // 64 * 16
    assert router.choose(text.encode()).hit_tokens == 336


@pytest.mark.parametrize(("words", "held"), [(7, 32), (8, 48), (0, 32)])
@pytest.mark.parametrize("encoded", [False, True])
def test_the_last_token_of_a_text_is_not_believed(words: int, held: int, *, encoded: bool) -> None:
    """A block has 64 bytes, and four of the answer are not cached: 56 bytes fill none, 68 fill one."""
    router = Router(["a"], prompt_kind="text")
    whole = ["prompt: " * 16, "answer: " * words + ("last" if held == 48 else "")]
    given = [text.encode() for text in whole] if encoded else whole
    router.route(given[0]).finish(output=given[1])
    assert router.choose(whole[0] + whole[1] + "the next turn " * 10).hit_tokens == held


def test_the_last_token_of_an_answer_in_a_conversation_is_not_believed() -> None:
    for fill in range(64):
        router = Router(["a"], prompt_kind="messages")
        answer = {"role": "assistant", "content": "x" * (100 + fill)}
        router.route([SYSTEM, QUESTION]).finish(output=answer)
        whole = router.choose([SYSTEM, QUESTION, answer]).prompt_tokens
        assert whole == -(-len(canonical([SYSTEM, QUESTION, answer]).encode()) // 4)
        assert router.choose([SYSTEM, QUESTION, answer, QUESTION]).hit_tokens == (whole - 1) // 16 * 16


def test_text_is_calibrated_from_reported_lengths() -> None:
    router = Router(["a"], prompt_kind="text")
    text = "prefix " * 1_200  # 8,400 bytes, 2,100 tokens by estimate
    router.route(text).finish(reported_prompt_tokens=1_050)
    decision = router.choose(text)
    assert (decision.prompt_tokens, decision.hit_tokens) == (1_050, 1_048)
    assert router.stats()["tokens_per_estimate"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("reported", "learned"), [(1_049, False), (1_050, True), (5_600, True), (5_601, False), (1, False), (10**9, False)]
)
def test_an_implausible_length_is_counted_and_not_learned_from(reported: int, *, learned: bool) -> None:
    router = Router(["a"], prompt_kind="text")
    router.route("prefix " * 1_200).finish(reported_prompt_tokens=reported)  # 8,400 bytes: 8 and 1.5 a token
    stats = router.stats()
    assert stats["tokens_per_estimate"] == pytest.approx(reported / 2_100 if learned else 1.0)
    assert stats["implausible_prompt_tokens"] == (not learned)


def test_a_text_prompt_takes_text_as_output() -> None:
    router = Router(["a"], prompt_kind="text")
    with pytest.raises(TokensError, match=r"\bstr\b.*\blist\b"):
        router.route("text " * 50).finish(output=[1, 2])


def test_messages_extend_each_other() -> None:
    router = Router(["a"], prompt_kind="messages")
    conversation = [SYSTEM, QUESTION]
    ticket = router.route(conversation)
    conversation.append({"role": "assistant", "content": "It holds computed prefixes. " * 10})
    ticket.finish(output="It holds computed prefixes. " * 10)  # the caller's list has grown meanwhile
    conversation.append({"role": "user", "content": "And then?"})
    decision = router.choose(conversation)
    covered = len(canonical(conversation[:3]).encode())
    assert decision.hit_tokens == covered // 64 * 16


def test_tools_stand_before_messages() -> None:
    router = Router(["a"], prompt_kind="messages")
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"b": 1, "a": 2}}}]
    router.route({"messages": [SYSTEM, QUESTION], "tools": tools}).finish()
    same = [{"function": {"parameters": {"a": 2, "b": 1}, "name": "look"}, "type": "function"}]
    assert router.choose({"messages": [SYSTEM, QUESTION], "tools": same}).hit_tokens > 0
    other = [{"type": "function", "function": {"name": "listen"}}]
    assert router.choose({"messages": [SYSTEM, QUESTION], "tools": other}).hit_tokens == 0
    answer = {"role": "assistant", "content": "It holds computed prefixes. " * 10}
    router.route({"messages": [SYSTEM, QUESTION], "tools": tools}).finish(output=answer)
    longer = {"messages": [SYSTEM, QUESTION, answer, QUESTION], "tools": tools}
    covered = len(canonical([SYSTEM, QUESTION, answer], tools).encode())
    assert router.choose(longer).hit_tokens == covered // 64 * 16


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"role": "user", "content": "x"}, {"role": "system", "content": "x"}),
        ({"role": "user", "content": "x"}, {"role": "user", "name": "n", "content": "x"}),
        ({"role": "user", "content": "a\x1eb"}, {"role": "user", "content": "a\x1brb"}),
        ({"role": "user", "content": "u\x1fx"}, {"role": "user", "content": ["u", "x"]}),
        ({"role": "user", "content": [image("a")]}, {"role": "user", "content": [image("b")]}),
        ({"role": "assistant", "content": None}, {"role": "assistant", "tool_calls": [{"id": "1"}]}),
    ],
)
def test_different_messages_have_different_texts(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert canonical([a]) != canonical([b])


def test_an_image_counts_by_digest_not_by_length() -> None:
    def ask(picture: str) -> list[dict[str, Any]]:
        return [SYSTEM, {"role": "user", "content": [image(picture), "What is it?"]}]

    router = Router(["a"], prompt_kind="messages")
    first = router.choose(ask("data:" + "A" * 400_000))
    assert first.prompt_tokens < 600
    router.commit(first).finish()
    again, other = (router.choose(ask("data:" + "A" * 399_999 + end)) for end in "AB")
    assert again.hit_tokens > other.hit_tokens


def test_equal_content_forms_are_one_prompt() -> None:
    plain = [{"role": "user", "content": "hello"}]
    parts = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    assert canonical(plain) == canonical(parts)


def test_a_message_without_a_role_is_named() -> None:
    with pytest.raises(TokensError, match=r"message 1.*role"):
        canonical([SYSTEM, {"content": "x"}])


def test_render_replaces_the_canonical_form() -> None:
    seen: list[Any] = []

    def render(messages: Any) -> str:
        seen.append(messages)
        return "".join(f"<|{m['role']}|>{m['content']}" for m in messages)

    router = Router(["a"], prompt_kind="messages", render=render)
    decision = router.choose([SYSTEM, QUESTION])
    assert seen == [[SYSTEM, QUESTION]]
    assert decision.prompt_tokens == -(-len(render([SYSTEM, QUESTION])) // 4)


def test_a_tokenizer_makes_text_tokens() -> None:
    router = Router(["a"], prompt_kind="text", tokenizer=lambda text: [len(word) for word in text.split()])
    decision = router.choose("one three fifteen " * 40)
    assert decision.prompt_tokens == 120
    router.commit(decision).finish(output="more words " * 20)
    assert router.choose("one three fifteen " * 40 + "more words " * 20 + "end").hit_tokens == 144


def test_a_hugging_face_tokenizer_is_taken_as_it_is() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = {f"w{i}": i for i in range(50)} | {"?": 50}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    router = Router(["a"], prompt_kind="text", tokenizer=tokenizer)
    text = " ".join(f"w{i % 50}" for i in range(64))
    router.route(text).finish()
    assert router.choose(text + " w1").hit_tokens == 64


def test_hashing_may_leave_the_event_loop() -> None:
    router = Router(["a"], prompt_kind="messages")
    namespace = Namespace(salt="tenant")

    async def ask() -> BlockHashes:
        blocks = await router.hash([SYSTEM, QUESTION], namespace=namespace)
        router.route(blocks).finish()
        return blocks

    blocks = asyncio.run(ask())
    assert router.choose([SYSTEM, QUESTION], namespace=namespace).hit_tokens == len(blocks) * 16
    assert router.choose([SYSTEM, QUESTION]).hit_tokens == 0


def test_namespaces_never_share() -> None:
    router = Router(["a"])
    tokens = list(range(320))
    router.route(tokens, namespace=Namespace(salt="x")).finish(output=list(range(64)))
    assert router.choose(tokens, namespace=Namespace(salt="x")).hit_tokens == 304
    assert router.choose([*tokens, *range(64), 1], namespace=Namespace(salt="x")).hit_tokens == 368
    for other in (None, Namespace(salt="y"), Namespace(lora="x"), Namespace(model="x")):
        assert router.choose(tokens, namespace=other).hit_tokens == 0


def test_finer_hashes_fit_a_coarser_belief() -> None:
    router = Router(["a"], policy="llmd-approx")  # blocks of 64
    prompt = hash_blocks(list(range(1_000)), block_size=16)
    router.route(prompt).finish()
    longer = hash_blocks([*range(1_000), *range(100)], block_size=16)
    assert router.choose(longer).hit_tokens == 960
    with pytest.raises(TokensError, match=r"\b48\b.*\b64\b"):
        router.choose(hash_blocks(list(range(1_000)), block_size=48))


def test_output_of_hashes_must_be_hashes() -> None:
    router = Router(["a"], hash_key=FIXED_HASH_KEY)
    assert router.hash_key == FIXED_HASH_KEY
    prompt = hash_blocks(list(range(100)))
    with pytest.raises(TokensError, match=r"output.*BlockHashes"):
        router.route(prompt).finish(output=[1, 2, 3])
    router.route(prompt).finish(output=hash_blocks(list(range(160))))
    assert router.choose(list(range(200))).hit_tokens == 160


def test_a_list_may_grow_while_its_request_is_in_flight() -> None:
    router = Router(["a"])
    tokens = list(range(160))
    ticket = router.route(tokens)
    tokens += [7] * 33
    ticket.finish(output=[7] * 33)
    assert router.choose([*tokens, 1]).hit_tokens == 192
    assert router.choose([*tokens, *[7] * 32, 1]).hit_tokens == 192  # the answer is not believed twice


@pytest.mark.parametrize("option", [{"render": str}, {"tokenizer": str}])
def test_tokens_need_no_rendering(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"prompt_kind 'text'.*'messages'.*'tokens'"):
        Router(["a"], **option)


def test_a_tokenizer_must_be_one() -> None:
    with pytest.raises(ConfigError, match=r"tokenizer.*encode\(\).*3"):
        Router(["a"], prompt_kind="text", tokenizer=3)


@pytest.mark.parametrize("content", [7, True, {"k": 1}, [7, None, "text"], [{"type": ["odd"]}], [[]], {}])
def test_a_content_of_no_known_form_is_routed_and_matches_itself(content: Any) -> None:
    router = Router(["a"], prompt_kind="messages")
    prompt = {"messages": [{"role": "user", "content": content}, QUESTION], "tools": True}
    router.route(prompt).finish()
    assert router.choose(prompt).hit_tokens > 0
    assert router.choose({**prompt, "messages": [{"role": "user", "content": "other"}, QUESTION]}).hit_tokens == 0
