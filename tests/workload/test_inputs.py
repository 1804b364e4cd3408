"""What is read: standard input, pipes, packed files, patterns; of it what was asked for.

And what is too long, deep or odd.
"""

from __future__ import annotations

import gc
import gzip
import importlib
import io
import json
import math
import os
import re
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logs import Rows, chat_rows, figures, read, refused, write

from prefixroute.errors import ConfigError, FieldMapError, TraceError
from prefixroute.validation import shown
from prefixroute.workload import FieldMap, Options, convert, log_files, measure, read_trace
from prefixroute.workload.readers.kinds import FAILED
from prefixroute.workload.selection import EARLIER, LATER, LEFT_OUT

zstd: Any = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def packed(rows: Rows) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def test_standard_input_is_read_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(gzip.compress(packed(chat_rows())))

    monkeypatch.setattr(sys, "stdin", Stdin)
    workload = read_trace("-")
    assert workload.name == "stdin"
    assert list(workload.requests()) == read(write(tmp_path / "log.jsonl", chat_rows()))


def test_a_wrong_line_of_standard_input_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(packed(chat_rows()) + b"{\n")

    monkeypatch.setattr(sys, "stdin", Stdin)
    refused("-", match=r"^stdin:4: ")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_is_read_once_and_used_as_often_as_needed(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(packed(chat_rows()),))
    writer.start()
    workload = read_trace(pipe, check=False)
    writer.join()
    assert list(workload.requests()) == list(workload.requests()) == read(write(tmp_path / "log.jsonl", chat_rows()))


def test_a_spooled_copy_goes_with_its_process(tmp_path: Path) -> None:
    code = "from prefixroute.workload import log_files; print(log_files('-')[0].path)"
    env = os.environ | {"TMPDIR": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", code], input=b"{}", capture_output=True, check=True, env=env)
    assert not Path(said.stdout.decode().strip()).exists()
    assert not list(tmp_path.iterdir())


def test_zstd_and_gzip_are_told_by_their_first_bytes(tmp_path: Path) -> None:
    lines = packed(chat_rows())
    (tmp_path / "a").write_bytes(zstd.compress(lines[:300]) + zstd.compress(lines[300:]))  # as rotated logs are joined
    (tmp_path / "b").write_bytes(gzip.compress(lines))
    plain = read(write(tmp_path / "c", chat_rows()))
    assert read(tmp_path / "a") == read(tmp_path / "b") == plain


@pytest.mark.parametrize(
    "pack", [partial(zstd.compress, options={zstd.CompressionParameter.checksum_flag: 1}), gzip.compress]
)
def test_packed_data_that_ends_early_or_is_damaged_names_its_line(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    drawn = np.random.default_rng(3)
    whole = pack(packed([{"time": at, "prompt": drawn.bytes(60).hex()} for at in range(2_000)]))
    holed = whole[: len(whole) // 2] + bytes(64) + whole[len(whole) // 2 + 64 :]  # some of which may unpack
    named = {whole[:-30]: "(gzip|zstd) .*early", whole + b"no such data" * 9: "(gzip|zstd) .*damaged", holed: ""}
    for data, ended in named.items():
        (tmp_path / "packed").write_bytes(data)
        refused(tmp_path / "packed", match=rf"packed:\d+: .*{ended}")


def test_a_pattern_and_several_files_are_one_log(tmp_path: Path) -> None:
    rows = chat_rows()
    for at, row in enumerate(rows):
        write(tmp_path / f"{at}.jsonl", [row])
    whole = read(write(tmp_path / "whole", rows))
    assert re.fullmatch(r"0\.jsonl .*2 .*", read_trace(tmp_path / "*.jsonl").name)
    assert [request.arrival_s for request in read(tmp_path / "[0-2].jsonl")] == [request.arrival_s for request in whole]
    write(tmp_path / "odd[1].jsonl", rows)  # a file that looks like a pattern
    assert len(read(tmp_path / "odd[1].jsonl")) == 3
    with pytest.raises(TraceError, match=r"\*\.csv"):
        log_files(str(tmp_path / "*.csv"))


def timed(count: int = 20) -> Rows:
    return [
        {"time": 1_790_000_000 + 60 * at, "model": "ab"[at % 2], "user": f"u{at % 4}", "prompt": f"{at} " * 40,
         "metadata": {"team": "search" if at < 5 else "chat"}}
        for at in range(count)
    ]  # fmt: skip


def test_requests_are_chosen_by_time_and_field_and_the_others_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", timed())
    some = read_trace(path, Options(since=1_790_000_000 + 120, until=1_790_000_000 + 600))
    assert [request.arrival_s for request in some.requests()] == [60.0 * at for at in range(8)]
    assert some.left_out == {LATER: 10, EARLIER: 2}
    chosen = read_trace(path, Options(where=(("model", "a"), ("metadata.team", "search"))))
    assert chosen.request_count == 3
    assert chosen.left_out == {LEFT_OUT.format(name="metadata.team"): 7, LEFT_OUT.format(name="model"): 10}
    assert {request.tenant for request in read(path, Options(where=(("tenant", "u1"),)))} == {"u1"}
    refused(path, Options(where=(("colour", "red"),)), match=r"log\.jsonl: .*20 .*colour")


def test_a_choice_applies_to_every_format(tmp_path: Path) -> None:
    rows = [{"timestamp": 1000 * at, "input_length": 600, "output_length": 1, "hash_ids": [at, 99]} for at in range(9)]
    assert read_trace(write(tmp_path / "m.jsonl", rows), Options(since=4, until=6)).request_count == 2
    (tmp_path / "b.csv").write_text("Timestamp,Request tokens,Response tokens,Model\n1,5,5,x\n2,5,5,y\n3,5,0,y\n")
    burst = read_trace(tmp_path / "b.csv", Options(where=(("model", "y"),)))
    assert (burst.request_count, burst.left_out) == (1, {FAILED: 1, LEFT_OUT.format(name="model"): 1})
    assert figures(burst.notes[-1:]) == [[1, 1]]


def test_a_line_has_a_limit(tmp_path: Path) -> None:
    rows = timed(30)
    rows[7]["prompt"] = "x" * 5_000
    path = write(tmp_path / "log.jsonl", rows)
    refused(path, Options(line_bytes=2_000), match=r"log\.jsonl:8: .*2,000 bytes")
    skipped = read_trace(path, Options(line_bytes=2_000, skip_bad=1))
    assert (skipped.request_count, skipped.skipped and skipped.skipped.lines) == (29, 30)
    with pytest.raises(ConfigError, match=r"line_bytes .*1.* 0"):
        read_trace(path, Options(line_bytes=0))


@pytest.mark.parametrize("pack", [zstd.compress, gzip.compress])
@pytest.mark.parametrize("start", [b'{"time": 1, "prompt": "', b"[", b'{"a":\n'])
def test_a_small_file_with_an_endless_line_takes_no_memory(
    tmp_path: Path, pack: Callable[[bytes], bytes], start: bytes
) -> None:
    (tmp_path / "bomb").write_bytes(pack(start + b"x" * (1 << 26)))
    tracemalloc.start()
    refused(tmp_path / "bomb", Options(line_bytes=1 << 20), match=r"bomb:\d+: ")
    assert tracemalloc.get_traced_memory()[1] < 1 << 24
    tracemalloc.stop()


def nested(levels: int, inner: str = "1") -> str:
    return "[" * levels + inner + "]" * levels


@pytest.mark.parametrize("levels", [300, 970, 3_000])
@pytest.mark.parametrize(
    "row",
    [
        '{"time": 1, "messages": [{"role": "user", "content": DEEP}]}',
        '{"time": 1, "messages": [{"role": "user", "more": DEEP, "content": "x"}]}',
        '{"time": 1, "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": DEEP}}]}]}',
        '{"time": 1, "token_ids": DEEP}',
        '{"time": 1, "prompt": DEEP}',
        '{"time": DEEP, "prompt": "x"}',
        '{"time": 1, "prompt": "x", "model": DEEP}',
        '{"time": 1, "prompt": "x", "response": DEEP}',
        '{"time": 1, "prompt": "x", "usage": {"prompt_tokens": DEEP}}',
        '{"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": DEEP}',
        '{"session": "a", "requests": DEEP}',
        '{"colour": DEEP, "cut": "\\ud83d"}',
        "DEEP",
    ],
)
def test_nesting_ends_in_an_error_of_its_line_or_in_requests(tmp_path: Path, row: str, levels: int) -> None:
    path = tmp_path / "deep.jsonl"
    path.write_text(row.replace("DEEP", nested(levels)) + "\n")
    raised = ""
    try:
        read_trace(path)
    except TraceError as error:
        raised = str(error)
    assert not raised or "deep.jsonl" in raised


@pytest.mark.parametrize(
    "text",
    [
        "block_size = 0x" + "f" * 9_000,
        "block_size = " + "9" * 5_000,
        "reorder_s = " + "9" * 5_000,
        "[fields]\ntime = " + "[" * 2_000 + "]" * 2_000,
        "[fields]\ntime = 'a." + "9" * 5_000 + "'",
        "[fields]\ntime = '" + "a." * 5_000 + "b'",
        "fields = " + "{a=" * 500 + "1" + "}" * 500,
        "time_unit = " + "[" * 900 + "]" * 900,
        "cached_apart = 0x" + "f" * 9_000,
    ],
    ids=range(9),
)
def test_a_hostile_field_map_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "map.toml").write_text(text)
    with pytest.raises(FieldMapError, match=r"map\.toml|path .* 64 ") as error:
        FieldMap.read(tmp_path / "map.toml")
    assert isinstance(error.value, ConfigError)
    assert isinstance(error.value, TraceError)


@pytest.mark.parametrize("path", ["messages." + "0" * 5_000, "messages." + "9" * 5_000 + ".content", "a." * 200 + "b"])
def test_a_hostile_path_is_refused_when_a_log_is_read(tmp_path: Path, path: str) -> None:
    layout = FieldMap(paths={**FieldMap().paths, "messages": (path,)})
    refused(write(tmp_path / "log.jsonl", chat_rows()), Options(fields=layout), match=r"path .* 64 ")


def test_a_table_of_a_header_alone_holds_no_request(tmp_path: Path) -> None:
    (tmp_path / "azure.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    refused(tmp_path / "azure.csv", match=r"azure\.csv: ")
    with pytest.raises(TraceError, match=r"azure\.csv: "):
        convert(read_trace(tmp_path / "azure.csv", check=False), tmp_path / "out.jsonl", bytes(16))
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are not listed on this system")
@pytest.mark.parametrize("check", [True, False])
def test_files_are_closed_when_reading_fails(tmp_path: Path, *, check: bool) -> None:
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(gzip.compress(packed(chat_rows()) + b"{\n"))
    for _ in range(3):
        with pytest.raises(TraceError):
            measure(read_trace(path, check=check))
    gc.collect()
    opened = [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]
    assert str(path.resolve()) not in opened


DOCUMENTS: dict[str, Callable[[Rows], str]] = {
    "list": json.dumps,
    "indented": lambda rows: json.dumps(rows, indent=2),
    "a line each": lambda rows: "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n",
}


@pytest.mark.parametrize("form", DOCUMENTS)
def test_a_document_is_read_element_by_element(tmp_path: Path, form: str) -> None:
    (tmp_path / "log.json").write_text(DOCUMENTS[form](chat_rows()))
    assert read(tmp_path / "log.json") == read(write(tmp_path / "log.jsonl", chat_rows()))


def test_a_document_that_is_cut_names_its_element(tmp_path: Path) -> None:
    text = json.dumps(chat_rows())
    for cut, element in ((text[:-400], 3), (text[:-1] + ", 7]", 4), (text.replace("}, {", "} {", 1), 1)):
        (tmp_path / "log.json").write_text(cut)
        refused(tmp_path / "log.json", match=rf"log\.json:{element}: ")


def test_what_is_shown_of_a_wrong_value_is_short_whatever_it_is(tmp_path: Path) -> None:
    row: dict[str, Any] = {"time": 1, "prompt": "x"}
    for wrong in ("9" * 4_000, "1" * 10_000, "[" * 800 + "]" * 800, json.dumps("x" * 10_000)):
        (tmp_path / "log.jsonl").write_text(json.dumps(row)[:-1] + f', "model": [{wrong}]}}')
        error = refused(tmp_path / "log.jsonl", match=r"log\.jsonl:1: ")
        assert len(error) < len(str(tmp_path)) + 160


def test_a_file_that_is_named_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its requests would count double, and the second time every prompt would be seen before."""
    path, link = write(tmp_path / "day.jsonl", chat_rows()), tmp_path / "link.jsonl"
    link.symlink_to(path)
    for names in ([path, path], [path, link], [path, str(tmp_path / "*.jsonl")]):
        refused(names, match=r"(day|link)\.jsonl: .*twice")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    refused(["-", "-"], match=r"stdin: .*twice")
    copy = write(tmp_path / "copy.txt", chat_rows())
    assert read_trace([path, copy]).request_count == 2 * read_trace(path).request_count


@pytest.mark.parametrize("named", [3, None, b"day.jsonl", object(), "a\0b", ["day.jsonl", 3]])
def test_what_names_no_file_is_refused(named: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(shown(named[1] if isinstance(named, list) else named))):
        read_trace(named)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("skip_bad", -1), ("skip_bad", "x"), ("line_bytes", 0), ("line_bytes", 1.5), ("block_size", 0), ("block_size", 65_537),
        ("since", math.nan), ("since", "2026"), ("until", math.inf), ("reorder_s", -1), ("reorder_s", "a"), ("reorder_s", math.nan),
        ("seed", "x"), ("sessions_per_hour", 0), ("sessions_per_hour", math.nan), ("fields", {"time": "t"}), ("canonical", 3),
        ("where", "model=a"), ("where", (("model",),)), ("where", (("model", 3),)),
    ],
)  # fmt: skip
def test_an_option_outside_of_what_is_allowed_is_refused_at_once(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        Options(**{name: value})


def test_the_first_line_of_a_log_says_why_it_is_no_json(tmp_path: Path) -> None:
    for text, why in (
        ('{"timestamp": 1, "prompt": "x"', "','.* column 31"),
        ('{"prompt": "x", "a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested"),
    ):
        (tmp_path / "log.jsonl").write_text(text + "\n")
        refused(tmp_path / "log.jsonl", match=rf"log\.jsonl:1: .*JSON: .*{why}")
