"""Tokens that a log reports: of prompts, cached or not, under the names of every API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from logs import chat_rows, read, refused, write

from prefixroute.workload import FieldMap, Options, read_trace


def test_bytes_a_token_are_measured_and_reported_hits_scaled(tmp_path: Path) -> None:
    workload = read_trace(write(tmp_path / "gateway.jsonl", chat_rows()))
    assumed = {item.name: item for item in workload.assumptions}
    assert not assumed["bytes_per_token"].assumed
    requests = list(workload.requests())
    assert sum(request.prompt_tokens for request in (requests[0], requests[2])) == pytest.approx(1_000, rel=0.04)
    assert [request.reported_hit_tokens for request in requests][:2] == [0, None]
    assert requests[2].reported_hit_tokens == round(480 * requests[2].prompt_tokens / 600)
    rows = [{key: value for key, value in row.items() if key != "response"} for row in chat_rows()]
    unknown = read_trace(write(tmp_path / "bare.jsonl", rows))
    assert {item.name: (item.value, item.assumed) for item in unknown.assumptions}["bytes_per_token"] == (4.0, True)


def test_anthropic_usage_counts_cached_tokens_apart(tmp_path: Path) -> None:
    row = {
        "time": "2026-11-29T10:00:00Z",
        "body": {"model": "c", "system": "Be brief. " * 100, "messages": [{"role": "user", "content": "Hello there"}]},
        "response": {"content": [{"type": "text", "text": "Hi"}], "usage": {
            "input_tokens": 20, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 30, "output_tokens": 3}},
    }  # fmt: skip
    (request,) = read(write(tmp_path / "g.jsonl", [row]))
    assert request.reported_hit_tokens == round(200 * request.prompt_tokens / 250)
    assert request.output_tokens == 3


ANTHROPIC = {"input_tokens": 45, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 155}
"""1,200 tokens in all, of which 1,000 were cached."""


CACHE = {"cache_read_input_tokens": 1000, "cache_creation_input_tokens": 155}


LITELLM = {"prompt_tokens": 1200, "prompt_tokens_details": {"cached_tokens": 1000}, **CACHE}


@pytest.mark.parametrize(
    ("usage", "layout"),
    [
        (ANTHROPIC, {}),
        ({"prompt_tokens": 1200, "cache_read_input_tokens": 1000}, {}),
        ({"prompt_tokens": 1200, "prompt_tokens_details": {"cached_tokens": 1000}}, {}),
        ({"in": 200, "read": 1000}, {"cached_apart": True}),
        ({"in": 1200, "read": 1000}, {"cached_apart": False}),
        ({"in": 1200, "read": 1000}, {}),
        # LiteLLM names the counts of both APIs side by side.
        (LITELLM, {}),
        (LITELLM | {"prompt_tokens_details": None}, {}),
        (LITELLM, {"cached_apart": False}),
        ({"prompt_tokens": 45} | CACHE, {"cached_apart": True}),
        ({"input_tokens": 1200} | CACHE, {"cached_apart": False}),
        ({"input_tokens": 1200, "input_tokens_details": {"cached_tokens": 1000}}, {}),
        ({"input_tokens": 1200, "input_tokens_details": {"cached_tokens": 1000}} | CACHE, {}),
        ({"in": 45, "read": 1000, "written": 155}, {"cached_apart": True}),
        ({"in": 1200, "read": 1000, "written": 155}, {"cached_apart": False}),
        ({"in": 1200, "read": 1000, "written": 155}, {}),
    ],
)
def test_cached_tokens_count_once_whether_or_not_the_prompts_have_them(
    tmp_path: Path, usage: dict[str, Any], layout: dict[str, Any]
) -> None:
    mapped = {"prompt_tokens": "in", "cached_tokens": "read", "cache_write_tokens": "written"}
    fields = {name: f"usage.{path}" for name, path in mapped.items() if path in usage}
    row = {"time": 1, "prompt": "word " * 960, "usage": usage}
    options = Options(fields=FieldMap.from_table({**layout, "fields": fields}) if layout or fields else None)
    (request,) = read(write(tmp_path / "g.jsonl", [row]), options)
    assert (request.prompt_tokens, request.reported_hit_tokens) == (1200, 1000)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 2000, "prompt_tokens_details": {"cached_tokens": 0}}, 2000),
        ({"prompt_tokens": 2000, "cache_read_input_tokens": 0}, 2000),
        ({"prompt_tokens": 2000}, 2000),
        ({"input_tokens": 100}, 2000),
        ({"input_tokens": 100, "cache_read_input_tokens": 0}, 2000),
        ({"input_tokens": 2000, "input_tokens_details": {"cached_tokens": 0}}, 2000),
    ],
)
def test_tokens_written_to_a_cache_count_once(tmp_path: Path, usage: dict[str, Any], tokens: int) -> None:
    row = {"time": 1, "prompt": "word " * 1600, "usage": {**usage, "cache_creation_input_tokens": 1900}}
    workload = read_trace(write(tmp_path / "g.jsonl", [row]))
    assert [request.prompt_tokens for request in workload.requests()] == [tokens]


TEXT, IDS = {"prompt": "word " * 80}, {"token_ids": [1] * 100}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**TEXT, "usage": {"in": 45, "read": 1000}}, "45.* 1000.*cached_apart"),
        ({**IDS, "usage": {"in": 100, "read": 101}}, "100.* 101"),
        ({**IDS, "usage": {"read": 101}}, "100.* 101"),
        ({**TEXT, "usage": {"read": 401}}, "400.* 401"),
    ],
)
def test_more_cached_tokens_than_the_prompt_has_are_a_bad_line(
    tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    layout = FieldMap.from_table({"fields": {"prompt_tokens": "usage.in", "cached_tokens": "usage.read"}})
    path = write(tmp_path / "g.jsonl", [{"time": 1, **TEXT}] * 20 + [{"time": 1, **row}])
    refused(path, Options(fields=layout), match=rf"g\.jsonl:21: cached_tokens .*{message}")
    assert read_trace(path, Options(fields=layout, skip_bad=9)).request_count == 20
