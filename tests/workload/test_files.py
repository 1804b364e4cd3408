"""Files: packed, rotated, with a byte order mark, with halves of characters, and of no known format."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from logs import BAILIAN, chat_rows, read, refused, write

from prefixroute.errors import ConfigError, TraceError
from prefixroute.workload import FieldMap, Options, chat, convert, read_trace


def test_a_named_format_is_taken_at_its_word(tmp_path: Path) -> None:
    path = write(tmp_path / "b.jsonl", BAILIAN)
    assert read_trace(path, Options(format="mooncake")).block_size == 16
    with pytest.raises(ConfigError, match=r"format .*private, bailian,.*'csv'"):
        read_trace(path, Options(format="csv"))
    refused(path, Options(format="lengths"), match=r"b\.jsonl:1: ")


@pytest.mark.parametrize(
    "lines", [[json.dumps({"time": 1, "token_ids": [1]})], ["TIMESTAMP,ContextTokens,GeneratedTokens", "1,2,3"]]
)
def test_a_byte_order_mark_is_no_text(tmp_path: Path, lines: list[str]) -> None:
    (tmp_path / "t").write_text("\n".join(lines), encoding="utf-8-sig")
    assert len(read(tmp_path / "t")) == 1


@pytest.mark.parametrize("line", [b"\n", b"", b"  \n", b"\r\n\n"])
def test_a_byte_order_mark_may_stand_before_a_blank_line(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "t").write_bytes(b"\xef\xbb\xbf" + line + b'{"time": 1, "token_ids": [1]}\n')
    assert len(read(tmp_path / "t")) == 1


CUT = "cut \ud83d"
"""What is left of a text that was cut inside of a pair of surrogates."""


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": CUT, "usage": {"prompt_tokens": 3}},
        {"prompt": f"{CUT}\ude00 \ude00\ud83d"},
        {"messages": [{"role": CUT, "content": CUT, "name": CUT}], "tools": [{"name": CUT}], "system": CUT},
        {"messages": [{"role": "user", "content": [{"type": "image", "data": CUT}, {"type": "text", "text": CUT}]}]},
        {"prompt": "x", "content": [{"type": "tool_use", "input": {CUT: CUT}}]},
        {"prompt": "x", "output_text": CUT},
        {"prompt": "x", "choices": [{"message": {"content": CUT, "tool_calls": [{"id": CUT}]}}]},
        {"prompt": "x", "session": CUT, "tenant": CUT, "model": CUT},
        {"body": json.dumps({"prompt": CUT, "model": CUT}), "session": f"{CUT}\\"},
        {"prompt": "x", CUT: CUT},
    ],
    ids=str,
)
def test_half_a_character_is_read_as_a_replacement_character(tmp_path: Path, row: dict[str, Any]) -> None:
    written = json.dumps(row)
    whole = re.sub("[\ud800-\udfff]", "\ufffd", json.dumps(json.loads(written), ensure_ascii=False))
    if "body" in row:
        whole = written.replace("ud83d", "ufffd")
    found = []
    for name, text in (("cut", written), ("whole", whole)):
        line = f'{{"time": 1, {text[1:]}'
        (tmp_path / name).write_text(line, encoding="utf-8")
        workload = read_trace(tmp_path / name)
        convert(workload, tmp_path / f"{name}.jsonl", bytes(16))
        found.append((list(workload.sampled(1.0).requests()), (tmp_path / f"{name}.jsonl").read_bytes()))
    assert found[0] == found[1]
    for request in found[0][0]:
        for text in (request.session, request.tenant, request.model):
            assert text is None or text.encode()


@pytest.mark.parametrize("layout", ["weka", "lmcache"])
def test_half_a_character_in_the_name_of_a_recorded_session(tmp_path: Path, layout: str) -> None:
    requests = [{"t": 0, "in": 64, "out": 1, "keep": 0, "add": [[5, 1]]}]
    row = {"session": CUT, "requests": requests} | ({"tool_tokens": 0, "system_tokens": 0} if layout == "weka" else {})
    (request,) = read(write(tmp_path / "r.jsonl", [row]))
    assert request.session == "cut \ufffd"


@pytest.mark.parametrize("fields", [{"model": {CUT: CUT}}, {CUT: 1}])
def test_half_a_character_in_what_is_wrong_names_its_line(tmp_path: Path, fields: dict[str, Any]) -> None:
    row = {"time": 1, "prompt": "x"} | fields if "model" in fields else fields
    error = refused(write(tmp_path / "g.jsonl", [row]), match=r"g\.jsonl:1: ")
    assert error.encode()


def test_a_private_trace_has_no_half_a_character_either(tmp_path: Path) -> None:
    header = {"prefixroute_trace": 1, "block_size": 16, "window": 9, "notes": [CUT]}
    row = {"t": 0, "in": 5, "out": 1, "session": CUT, "tenant": CUT, "model": CUT}
    workload = read_trace(write(tmp_path / "p.jsonl", [header, row]))
    (request,) = workload.requests()
    assert {*workload.notes, request.session, request.tenant, request.model} == {"cut \ufffd"}


def test_a_file_whose_name_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.csv")
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n1,20,3\n")
    assert len(read(path)) == 1


def test_nothing_known(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    refused(tmp_path / "x.csv", match=r"x\.csv:1: .*JSON.*TIMESTAMP, .*'a,b'")
    fields = FieldMap(paths={"prompt": ("a",)})
    refused(tmp_path / "x.csv", Options(fields=fields), match=r"x\.csv:1: .*JSON.*field map.*'a,b'")


@pytest.mark.parametrize("name", ["gateway", "tokens", "bailian", "azure"])
def test_gzip_of_every_format(tmp_path: Path, name: str) -> None:
    texts: dict[str, Callable[[], str]] = {
        "gateway": lambda: write(tmp_path / "x", chat_rows()).read_text(),
        "tokens": lambda: '{"time": 1, "token_ids": [1, 2, 3]}\n',
        "bailian": lambda: write(tmp_path / "x", BAILIAN).read_text(),
        "azure": lambda: "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,2\n",
    }
    text = texts[name]()
    (tmp_path / "plain").write_text(text)
    (tmp_path / "zipped").write_bytes(gzip.compress(text.encode()))
    assert read(tmp_path / "plain") == read(tmp_path / "zipped")


def test_files_of_a_rotated_log_are_one_trace(tmp_path: Path) -> None:
    rows = chat_rows()
    whole = read(write(tmp_path / "whole.jsonl", rows))
    parts = [write(tmp_path / f"{at}.jsonl", [row]) for at, row in enumerate(rows)]
    workload = read_trace(parts)
    joined = list(workload.requests())
    assert re.fullmatch(r"0\.jsonl .*2 .*", workload.name)
    assert [request.arrival_s for request in joined] == [request.arrival_s for request in whole]
    assert [request.session for request in joined] == [request.session for request in whole]
    # The first file alone settles how many bytes a token has.
    assert (joined[2].prompt.array[: len(joined[0].context)] == joined[0].context.array).all()
    refused(parts[::-1], Options(reorder_s=0), match=r"1\.jsonl:1: time .*s$")
    with pytest.raises(ConfigError, match=r"trace.*none$"):
        read_trace([])


def test_private_traces_with_other_blocks_do_not_join(tmp_path: Path) -> None:
    for size in (16, 32):
        convert(chat(1, requests=20, block_size=size), tmp_path / f"{size}.jsonl", bytes(16))
    refused([tmp_path / "16.jsonl", tmp_path / "32.jsonl"], match=r"32\.jsonl:1: .*32 .*16")


def test_a_checked_trace_is_parsed_once_and_a_streamed_one_is_not_held(tmp_path: Path) -> None:
    path = write(tmp_path / "g.jsonl", chat_rows())
    checked, streamed = read_trace(path), read_trace(path, check=False)
    assert (checked.request_count, streamed.request_count) == (3, None)
    assert list(streamed.requests()) == list(checked.requests())
    path.unlink()
    assert len(list(checked.requests())) == 3
    with pytest.raises(TraceError, match=r"g\.jsonl: .*No such"):
        next(streamed.requests())
