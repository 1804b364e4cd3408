"""``prefixroute plan``: the published figures, traces, own prices, JSON, page and picture, and mistakes in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prefixroute.report.figures import dollars

Prefixroute = Callable[..., Any]


def answer(prefixroute: Prefixroute, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = prefixroute("plan", *arguments, "--json --quiet").json
    return found


def test_the_seed_articles_ten_calls(prefixroute: Prefixroute) -> None:
    told = answer(prefixroute, "anthropic", "--requests", 10, "--shared-tokens", "20k")
    assert [order["usd"] for order in told["burst"]["orders"]] == pytest.approx([0.40, 0.50, 0.068, 0.07])
    assert told["burst"]["best"] == told["burst"]["orders"][2]["name"]
    shown = prefixroute("plan", "anthropic")
    for needed in ("$0.40", "$0.50", "$0.068", "$0.07", "ASSUMED requests = 10"):
        assert needed in shown.out


def test_misses_and_prices_of_ones_own(prefixroute: Prefixroute) -> None:
    given = "--requests 10 --shared-tokens 20000 --input 2 --write 2.5 --read 0.1 --miss-probability 0.4"
    order = answer(prefixroute, "anthropic", given)["burst"]["orders"][2]
    assert (order["best_usd"], order["usd"], order["worst_usd"]) == pytest.approx((0.068, 0.2408, 0.5))


def test_2000_tokens_under_a_minimum_of_4096_are_said_to_be_not_cacheable(prefixroute: Prefixroute) -> None:
    given = ("anthropic", "--model", "claude-opus-4-6", "--shared-tokens", 2_000)
    found = answer(prefixroute, *given)["burst"]
    assert (found["is_cacheable"], found["minimum_tokens"]) == (False, 4_096)
    assert found["best"] == found["orders"][0]["name"]  # without a cache
    assert prefixroute("plan", *given).lines("2,000 ", "claude-opus-4-6", " 4,096")


def test_120_a_minute_take_8_keys(prefixroute: Prefixroute) -> None:
    told = answer(prefixroute, "openai", "--model", "gpt-5", "--per-minute", 120, "--users", 1_000)
    assert told["keys"]["shards"] == 8
    assert told["keys"]["is_promised"] is False


def test_keys_and_lifetimes_of_a_trace_are_those_of_its_prompts(
    prefixroute: Prefixroute, trace: Path, log: Path
) -> None:
    """What a log does not tell, the prefix that all prompts share, is not made up; nor is the length of prompts."""
    told = answer(prefixroute, "openai", "--trace", trace)
    assert told.keys() & {"keys", "lifetimes"} == set()
    total = told["trace"]["total"]
    shared = answer(prefixroute, "openai", "--trace", trace, "--shared-tokens", 1_024)["keys"]["load"]
    assert shared["shared_tokens"] + shared["own_tokens"] == round(total["prompt_tokens"] / total["requests"])
    load = answer(prefixroute, "openai", "--trace", log)["keys"]["load"]
    assert load["users"] == 12
    assert load["requests_per_minute"] == pytest.approx(60 * 60 / 413)


def test_without_a_trace_every_figure_of_the_load_is_in_the_answer(prefixroute: Prefixroute) -> None:
    found = answer(prefixroute, "openai", "--per-minute", 90, "--own-tokens", 7)
    assert found["keys"]["load"] == {
        "requests_per_minute": 90.0, "users": 1_000, "shared_tokens": 20_000, "user_tokens": 0, "own_tokens": 7,
    }  # fmt: skip
    assert found["lifetimes"]["source"].split()[0] == f"{60 * 90 / found['keys']['shards']:g}"


def test_gemini_breaks_even_at_its_rent(prefixroute: Prefixroute) -> None:
    told = answer(prefixroute, "gemini", "--model", "gemini-2.5-pro", "--shared-tokens", 100_000, "--per-hour", 10)
    assert told["storage"]["break_even_per_hour"] == pytest.approx(5.75 / 1.125)


@pytest.mark.parametrize("command", ["anthropic", "openai"])
def test_on_a_trace(prefixroute: Prefixroute, trace: Path, command: str) -> None:
    told = answer(prefixroute, command, "--trace", trace)
    total = told["trace"]["total"]
    assert total["requests"] == 180
    shown = prefixroute("plan", command, "--trace", trace, "--quiet")
    for name, reuse in total["lifetimes"].items():
        assert shown.lines(f" {name} ", f" {100 * reuse['hit_ratio']:.1f} %")


def test_a_binding_is_named_as_a_trap(prefixroute: Prefixroute) -> None:
    slow = "chat,requests=200,arrivals=even:0.02,slots=2"
    given = ("anthropic", "--trace", slow, "--binding-s", 60, "--targets", 3)
    lost = answer(prefixroute, *given)["trace"]["binding_loss_usd"]
    assert lost.keys() == {"5m", "1h"}
    shown = prefixroute("plan", *given, "--quiet")
    assert all(shown.lines(" 1 min, ", name, dollars(usd)) for name, usd in lost.items())


def test_breakpoints_of_prompts(prefixroute: Prefixroute, tmp_path: Path) -> None:
    rules = "The rules of the house. " * 300
    rows = [
        {"system": f"Today is 2026-11-{day:02}. {rules}", "messages": [{"role": "user", "content": f"Question {day}?"}]}
        for day in range(1, 9)
    ]
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({"body": row}) + "\n" for row in rows))
    told = answer(prefixroute, "anthropic", "--prompts", path)
    (change,) = told["breakpoints"]["changes"]
    assert (change["where"], change["kind"], change["character"]) == ("system[0]", "date", len("Today is "))
    assert "system[0], character 9" in prefixroute("plan", "anthropic", "--prompts", path).out


def test_compare_puts_own_replicas_beside_the_apis(prefixroute: Prefixroute) -> None:
    given = ("compare", "chat,requests=500,arrivals=poisson:3", "--models", "claude-sonnet-5-5,gpt-5", "--price", 2)
    told = answer(prefixroute, *given)["comparison"]
    assert {offer["provider"] for offer in told["offers"]} == {"anthropic", "openai", "own"}
    own = next(offer for offer in told["offers"] if offer["provider"] == "own")
    assert own["usd_per_month"] == pytest.approx(own["replicas"] * 730 * 2)
    assert told["break_even_requests_per_month"] > 0


def test_a_users_own_prices_and_their_age(prefixroute: Prefixroute, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        'name = "own"\ntitle = "Own"\ndate = 2025-01-01\nsource = "contract"\ndefault_model = "m"\nusage = "anthropic"\n'
        '[[modes]]\nname = "marks"\nkind = "marks"\nmatch = "prefix"\nsource = "contract"\n'
        'lifetimes = [{ name = "5m", seconds = 300 }]\n'
        '[[models]]\nid = "m"\nminimum_tokens = 1\nmodes = ["marks"]\n'
        'prices = [{ input = 1.0, output = 1.0, read = 0.5, write = { "5m" = 1.0 } }]\n'
    )
    told = answer(prefixroute, "anthropic", "--prices", path)
    assert told["model"]["id"] == "m"
    assert "2025-01-01" in told["notes"][0]
    assert told["burst"]["orders"][0]["usd"] == pytest.approx(0.2)


def test_an_empty_trace(prefixroute: Prefixroute, tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text("")
    said = prefixroute("plan", "anthropic", "--trace", path, "--quiet")
    assert said.code == 2
    assert "empty" in said.err
