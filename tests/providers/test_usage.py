"""Usage objects of every provider, in dicts and objects, and what they cost; diagnoses in the provider's own words."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from prefixroute import ConfigError, hash_blocks
from prefixroute.providers import Account, Usage, diagnosis_of, find_model

FORMS = {
    "claude": (
        {"input_tokens": 10, "cache_read_input_tokens": 2_000, "cache_creation_input_tokens": 300, "output_tokens": 7,
         "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200}},
        Usage(10, 2_000, {"5m": 100, "1h": 200}, 7),
    ),
    "claude, no breakdown": (
        {"input_tokens": 10, "cache_read_input_tokens": None, "cache_creation_input_tokens": 300, "output_tokens": 7},
        Usage(10, 0, {"": 300}, 7),
    ),
    "claude batch": ({"input_tokens": 10, "output_tokens": 1, "service_tier": "batch"}, Usage(10, 0, {}, 1, "batch")),
    "chat completions": (
        {"prompt_tokens": 2_310, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 2_000}},
        Usage(310, 2_000, {}, 7),
    ),
    "responses": (
        {"input_tokens": 2_310, "output_tokens": 7, "input_tokens_details": {
            "cached_tokens": 2_000, "cache_write_tokens": 300,
            "cache_write_tokens_details": {"ttl_30m_tokens": 100, "ttl_12h_tokens": 200}}},
        Usage(10, 2_000, {"30m": 100, "12h": 200}, 7),
    ),
    "chat completions with writes": (
        {"prompt_tokens": 2_310, "completion_tokens": 7, "service_tier": "default",
         "prompt_tokens_details": {"cached_tokens": 2_000, "cache_write_tokens": 300}},
        Usage(10, 2_000, {"": 300}, 7),
    ),
    "gemini": (
        {"promptTokenCount": 2_310, "cachedContentTokenCount": 2_000, "candidatesTokenCount": 4, "thoughtsTokenCount": 3},
        Usage(310, 2_000, {}, 7),
    ),
    "gemini sdk": ({"prompt_token_count": 20, "candidates_token_count": None}, Usage(20, 0, {}, 0)),
    "deepseek": (
        {"prompt_tokens": 2_310, "prompt_cache_hit_tokens": 2_000, "prompt_cache_miss_tokens": 310, "completion_tokens": 7},
        Usage(310, 2_000, {}, 7),
    ),
    "bedrock": (
        {"inputTokens": 10, "cacheReadInputTokens": 2_000, "cacheWriteInputTokens": 300, "outputTokens": 7},
        Usage(10, 2_000, {"": 300}, 7),
    ),
}  # fmt: skip


def as_object(value: object) -> object:
    if isinstance(value, dict):
        return SimpleNamespace(**{name: as_object(inner) for name, inner in value.items()})
    return value


@pytest.mark.parametrize(("given", "usage"), FORMS.values(), ids=FORMS)
def test_every_form_as_dict_object_and_inside_of_a_response(given: dict[str, object], usage: Usage) -> None:
    assert Usage.of(given) == usage
    assert Usage.of(as_object(given)) == usage
    around = "usageMetadata" if "promptTokenCount" in given else "usage"
    assert Usage.of({"id": "x", around: given}) == usage
    assert Usage.of({"type": "message_start", "message": {around: given}}) == usage


@pytest.mark.parametrize(
    "given",
    [
        {},
        None,
        3,
        {"tokens": 3},
        {"input_tokens": -1},
        {"input_tokens": "many"},
        {"input_tokens": float("nan")},
        {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 20}},
        {"usage": {"usage": {"usage": {}}}},
    ],
)
def test_what_is_no_usage(given: object) -> None:
    with pytest.raises(ConfigError):
        Usage.of(given)


def test_dollars_by_lifetime_tier_and_length() -> None:
    sonnet = find_model("claude-sonnet-5-5")
    million = 1_000_000
    assert Usage(million, million, {"5m": million, "1h": million}, million).usd(sonnet) == pytest.approx(
        2 + 0.1 + 2.5 + 4 + 10
    )
    assert Usage(million, tier="batch").usd(sonnet) == pytest.approx(1)
    assert Usage(0, 0, {"": million}).usd(sonnet, "1h") == pytest.approx(4)
    assert Usage(100_000).usd(find_model("claude-haiku-5-5")) == pytest.approx(0.01)
    assert Usage(100_001).usd(find_model("claude-haiku-5-5")) == pytest.approx(0.0500005)


def test_diagnoses_in_the_providers_own_words() -> None:
    claude = {"diagnostics": {"cache_miss_reason": {"type": "tools_changed", "cache_missed_input_tokens": 900}}}
    openai = {"prompt_cache_diagnostics": {"type": "cache_miss", "reason": "input_changed", "cache_missed_tokens": 30}}
    for response, reason, tokens in ((claude, "tools_changed", 900), (openai, "input_changed", 30)):
        for given in (response, as_object(response)):
            found = diagnosis_of(given)
            assert found is not None
            assert (found.reason, found.missed_tokens) == (reason, tokens)
    assert diagnosis_of({"prompt_cache_diagnostics": {"type": "cache_hit"}}) is None
    assert diagnosis_of({"diagnostics": None}) is None


PROMPT = "The same beginning of every prompt. " * 400  # 3,600 tokens


def claude_usage(read: int, written: int) -> dict[str, object]:
    return {
        "input_tokens": 10,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": 0,
    }


def account() -> Account:
    return Account(find_model("claude-sonnet-5-5"))


def test_hit_ratio_dollars_and_what_the_ideal_would_have_cost() -> None:
    book = account()
    book.add(claude_usage(0, 3_590), prompt=PROMPT, started_s=0, begun_s=1)
    found = book.add(claude_usage(0, 3_590), prompt=PROMPT, started_s=0.5, begun_s=1.5)
    assert found.reason == "too parallel"
    assert found.lost_usd == pytest.approx(3_590 * 2.4e-6, rel=0.01)
    told = book.to_dict()
    assert told["hit_ratio"] == 0
    assert told["reasons"] == {"too parallel": {"calls": 1, "lost_usd": pytest.approx(found.lost_usd)}}
    assert book.usd - book.lost_usd == pytest.approx(3_590 * 2.6e-6 + 20 * 2e-6, rel=0.01)


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ({"started_s": 400.0}, "expired"),
        ({"started_s": 10.0, "scope": "w2"}, "another workspace"),
        ({"started_s": 10.0, "key": "k2"}, "another key"),
        ({"started_s": 0.1}, "too parallel"),
        ({"started_s": 10.0}, "not promised, or not told"),
        ({}, "not promised, or not told"),
    ],
)
def test_likely_reasons(second: dict[str, object], reason: str) -> None:
    book = account()
    book.add(claude_usage(0, 3_590), prompt=PROMPT, started_s=0.0, begun_s=2.0)
    assert book.add(claude_usage(0, 3_590), prompt=PROMPT, **second).reason == reason  # type: ignore[arg-type]


def test_the_providers_word_comes_before_a_guess() -> None:
    book = account()
    book.add(claude_usage(0, 3_590), prompt=PROMPT, started_s=0.0)
    told = {"usage": claude_usage(0, 3_590), "diagnostics": {"cache_miss_reason": {"type": "model_changed"}}}
    found = book.add(told, prompt=PROMPT, started_s=400.0)
    assert (found.reason, found.told_by_provider) == ("model_changed", True)


def test_a_changed_prefix_names_its_position() -> None:
    book = account()
    messages = [{"role": "user", "content": PROMPT}]
    book.add(claude_usage(0, 3_590), prompt=messages, started_s=0.0, session="s")
    changed = [{"role": "user", "content": PROMPT[:7_200] + "Changed here. " + PROMPT[7_200:]}]
    found = book.add(claude_usage(0, 3_590), prompt=changed, started_s=1.0, session="s")
    # Its first half is known and was not read either: what is told is where the change stands.
    assert found.expected_tokens == pytest.approx(3_600, abs=40)
    assert found.reason != ""
    better = account()
    better.add(claude_usage(0, 3_590), prompt=messages, started_s=0.0, session="s")
    found = better.add(claude_usage(1_800, 1_790), prompt=changed, started_s=1.0, session="s")
    assert found.reason == "prefix changed"
    assert found.position == pytest.approx(1_800, abs=40)


def test_under_the_minimum_and_full_hits() -> None:
    book = Account(find_model("claude-opus-4-6"))
    short = PROMPT[:8_000]
    book.add({"input_tokens": 2_000, "output_tokens": 0}, prompt=short, started_s=0.0)
    assert book.add({"input_tokens": 2_000, "output_tokens": 0}, prompt=short, started_s=1.0).reason == "under minimum"
    good = account()
    good.add(claude_usage(0, 3_590), prompt=PROMPT, started_s=0.0)
    assert good.add(claude_usage(3_590, 0), prompt=PROMPT, started_s=10.0).reason == ""
    assert good.lost_usd == 0


def test_memory_is_bounded() -> None:
    book = Account(find_model("claude-sonnet-5-5"), max_blocks=1_000)
    for number in range(50):
        prompt = f"{number} " + PROMPT
        book.add(claude_usage(0, 3_590), prompt=prompt, started_s=float(number), scope=str(number), session=str(number))
    assert 0 < book.blocks <= 1_000
    assert book.calls == 50


@pytest.mark.parametrize("given", [{"started_s": float("nan")}, {"prompt": object()}, {"started_s": "now"}])
def test_mistakes(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        account().add(claude_usage(0, 1), **({"prompt": PROMPT} | given))  # type: ignore[arg-type]


def test_hashes_of_another_block_size_count_their_own_tokens() -> None:
    book = account()
    hashed = hash_blocks(list(range(3_600)), 64)
    book.add(claude_usage(0, 3_590), prompt=hashed, started_s=0.0)
    assert book.add(claude_usage(3_584, 6), prompt=hashed, started_s=10.0).reason == ""
    assert book.add(claude_usage(0, 3_590), prompt=hashed, started_s=400.0).expected_tokens == 3_584
