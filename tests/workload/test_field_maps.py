"""Field maps: where a log of its own layout has what."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from logs import Rows, chat_rows, read, write

from prefixroute.errors import ConfigError
from prefixroute.workload import FieldMap, Options, measure, read_trace

FIELDS = """
time_unit = "ms"
reorder_s = 30

[fields]
time = "ts"
messages = "http.request.body.messages"
model = ["http.request.body.model", "model"]
session = "http.request.headers.x-chat"
output = "http.response.body.choices.0.message"
prompt_tokens = "billing.gen_ai.usage.input_tokens"
cached_tokens = "billing.cached"
"""


def test_a_field_map_reads_through_nested_bodies(tmp_path: Path) -> None:
    rows = []
    for at, row in enumerate(chat_rows()):
        body = json.dumps({"model": "m", "messages": row["messages"]})
        answer = json.dumps({"choices": row["response"].get("choices", [])})
        http = {"request": {"headers": {"x-chat": f"chat-{at % 2}"}, "body": body}, "response": {"body": answer}}
        billing = {"gen_ai.usage.input_tokens": 300 + 200 * at, "cached": 16 * at}
        rows.append({"ts": row["timestamp"] * 1_000, "billing": billing, "http": http})
    (tmp_path / "map.toml").write_text(FIELDS)
    options = Options(fields=FieldMap.read(tmp_path / "map.toml"))
    mapped = read(write(tmp_path / "log.jsonl", rows), options)
    plain = read(write(tmp_path / "plain.jsonl", chat_rows()))
    assert [request.session for request in mapped] == ["chat-0", "chat-1", "chat-0"]
    assert [request.arrival_s for request in mapped] == [0, 2, 9.5]
    assert mapped[0].reported_hit_tokens == 0
    assert (mapped[2].prompt.array[: len(mapped[0].context)] == mapped[0].context.array).all()
    assert len(plain) == len(mapped)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour = 1", "colour.*block_size"),
        ("[fields]\nprice = 'x'", r"\[fields\] .*'price'; .*time, "),
        ("[fields]\ntime = 3", r"fields\.time .*3"),
        ("time_unit = 'days'", "time_unit .*s, ms, us, ns.*'days'"),
        ("block_size = 0", "block_size .*1 to 65536.* 0"),
        ("bytes_per_token = true", r"bytes_per_token .*0\.25 to 256.*True"),
        ("bytes_per_token = inf", r"bytes_per_token .*0\.25 to 256.*inf"),
        ("bytes_per_token = 1e300", r"bytes_per_token .*0\.25 to 256.*1e\+300"),
        ("block_size = 65_537", "block_size .*1 to 65536.*65537"),
        ("cached_apart = 1", "cached_apart .*true .*false.* 1"),
        ("block_size = 8.5", r"block_size .*1 to 65536.*8\.5"),
        ("reorder_s = nan", "reorder_s .*0 to 1000000000.*nan"),
        ("time_unit = ['s']", r"time_unit .*s, ms, us, ns.*\['s'\]"),
        ("duration_unit = {}", "duration_unit .*s, ms, us, ns.*{}"),
        ("fields = 3", r"\[fields\] .*3"),
        ("= 3", r"map\.toml.*line 1"),
    ],
)
def test_bad_field_maps_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "map.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        FieldMap.read(tmp_path / "map.toml")


@pytest.mark.parametrize("early", [False, True])
def test_paths_are_tried_in_the_order_given_in_every_row(tmp_path: Path, *, early: bool) -> None:
    """A row where only a later path leads to something changes nothing for the rows behind it."""
    rows = [{"ts": at, "created": 5, "chat": "a", "sid": f"u{at}", "token_ids": [1] * 40} for at in range(10, 14)]
    if early:
        rows.insert(0, {"created": 9, "chat": "", "sid": "z", "token_ids": [1] * 40})
    layout = FieldMap.from_table({"fields": {"time": ["ts", "created"], "session": ["chat", "sid"]}})
    requests = read(write(tmp_path / "t.jsonl", rows), Options(fields=layout))
    assert [request.session for request in requests] == ["z"] * early + ["a"] * 4
    assert requests[-1].arrival_s == 3 + early


def test_a_body_that_is_no_json_has_no_fields(tmp_path: Path) -> None:
    rows = [{"time": 1, "request_body": "{broken", "prompt": "hello there"}]
    (request,) = read(write(tmp_path / "t.jsonl", rows))
    assert request.prompt_tokens == 3


def test_a_field_that_the_map_names_and_no_row_has_is_said(tmp_path: Path) -> None:
    log, fields = tmp_path / "log.jsonl", tmp_path / "map.toml"
    log.write_text("\n".join(json.dumps({"t": 10 + at, "prompt": f"{at} " * 60, "latency": 2}) for at in range(5)))
    for path, told in (("latency", 0), ("latencyy", 1)):
        fields.write_text(f'time_unit = "s"\n[fields]\nend_time = "t"\nduration = "{path}"\n')
        notes = read_trace(log, Options(fields=FieldMap.read(fields))).notes
        assert sum(bool(re.search(rf"\b5 .*duration .*\b{path}$", note)) for note in notes) == told


def test_a_field_map_says_what_the_engine_does_not_render(tmp_path: Path) -> None:
    def floor_of(layout: dict[str, Any]) -> float:
        text = "the rules are these. " * 60
        rows: Rows = [{"time": at, "messages": [{"role": "system", "content": text, "mood": at}]} for at in range(8)]
        for row in rows:
            row["messages"].append({"role": "user", "content": text, "id": "x"})
        options = Options(fields=FieldMap.from_table(layout))
        return measure(read_trace(write(tmp_path / "log.jsonl", rows), options)).floor

    assert floor_of({}) > 0.5
    assert floor_of({"dropped": ["mood", "id"]}) < 0.2
    with pytest.raises(ConfigError, match=r"dropped .*'mood'"):
        floor_of({"dropped": "mood"})
