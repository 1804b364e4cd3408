"""A private trace says the same of prefixes, lengths and times as its source, and nothing else."""

from __future__ import annotations

import gzip
import json
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import figures, refused, write

from prefixroute.errors import ConfigError, TraceError
from prefixroute.hashing import BlockHashes
from prefixroute.workload import Options, Request, Workload, chat, convert, documents, measure, read_trace
from prefixroute.workload.readers.siphash import siphash

KEY = bytes(range(16))
OTHER_KEY = bytes(range(1, 17))


def test_siphash_is_the_published_function() -> None:
    # The reference vector of eight bytes 00..07 under the key 00..0f (Aumasson and Bernstein).
    assert int(siphash(np.array([0x0706050403020100], np.uint64), KEY)[0]) == 0x93F5F5799A932462
    assert len(siphash(np.empty(0, np.uint64), KEY)) == 0
    with pytest.raises(ConfigError, match=r"key .*16 .*3"):
        siphash(np.empty(0, np.uint64), b"abc")


def outline(workload: Workload) -> list[tuple[Any, ...]]:
    """Everything of a workload but the values of its hashes, which become numbers in order of appearance."""
    numbers: dict[int, int] = {}

    def named(blocks: BlockHashes) -> list[int]:
        return [numbers.setdefault(block, len(numbers)) for block in blocks.array.tolist()]

    sessions: dict[str | None, int] = {None: -1}
    return [
        (
            round(request.arrival_s, 6),
            named(request.prompt),
            named(request.context),
            request.prompt_tokens,
            request.output_tokens,
            sessions.setdefault(request.session, len(sessions)),
            request.reported_hit_tokens,
            request.model,
        )
        for request in workload.requests()
    ]


@pytest.mark.parametrize("make", [chat, documents], ids=["chat", "documents"])
@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_outline_is_kept(make: Callable[..., Workload], name: str, tmp_path: Path) -> None:
    workload = make(2, requests=300)
    written = convert(workload, tmp_path / name, KEY)
    back = read_trace(tmp_path / name)
    assert outline(back) == outline(workload)
    assert (back.block_size, back.request_count, written.requests) == (16, 300, 300)
    assert written.blocks == len({block for request in workload.requests() for block in request.context.array.tolist()})
    assert measure(back).floor == measure(workload).floor
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_same_key_same_bytes_and_joinable_another_key_nothing_in_common(tmp_path: Path) -> None:
    for name, key in (("a", KEY), ("b", KEY), ("c", OTHER_KEY)):
        convert(chat(1, requests=50), tmp_path / f"{name}.jsonl.gz", key)
    data = {name: (tmp_path / f"{name}.jsonl.gz").read_bytes() for name in "abc"}
    assert data["a"] == data["b"]
    blocks = {name: set(hashes_of(tmp_path / f"{name}.jsonl.gz")) for name in "ac"}
    assert not blocks["a"] & blocks["c"]


def hashes_of(path: Path) -> list[int]:
    return [block for request in read_trace(path).requests() for block in request.context.array.tolist()]


def test_nothing_of_the_source_is_in_the_file(tmp_path: Path) -> None:
    said = "the merger closes on friday"
    messages = [{"role": "user", "content": said * 9}]
    row = {"time": 1, "session": "alice@example.org", "user": "alice", "messages": messages}
    workload = read_trace(write(tmp_path / "log.jsonl", [row]))
    convert(workload, tmp_path / "p.jsonl", KEY)
    text = (tmp_path / "p.jsonl").read_text()
    assert "alice" not in text
    assert "merger" not in text
    (request,) = workload.requests()
    raw = b64decode(json.loads(text.splitlines()[1])["blocks"])
    assert not set(np.frombuffer(raw, "<u8").tolist()) & set(request.prompt.array.tolist())


@pytest.mark.parametrize("session", [{}, {"session": "alice"}])
def test_a_private_trace_says_whether_sessions_were_inferred(tmp_path: Path, session: dict[str, str]) -> None:
    row = {"time": 1, "token_ids": [1] * 40, **session}
    workload = read_trace(write(tmp_path / "log.jsonl", [row]))
    convert(workload, tmp_path / "p.jsonl", KEY)
    assert read_trace(tmp_path / "p.jsonl").inferred_sessions == workload.inferred_sessions == (not session)


def leaves(value: Any) -> set[str]:
    """Every text in a JSON value, names of fields left out."""
    if isinstance(value, dict):
        return set().union(*map(leaves, value.values()))
    if isinstance(value, list):
        return set().union(*map(leaves, value))
    return {value} if isinstance(value, str) else set()


PLANT = "SECRET planted"
PLANTED: dict[str, Any] = {
    "time": 1,
    "session": f"{PLANT} session",
    "tenant": f"{PLANT} tenant",
    "user": f"{PLANT}@example.org",
    "model": f"{PLANT} model",
    "system": f"{PLANT} system",
    "tools": [{"name": f"{PLANT} tool"}],
    "messages": [{"role": f"{PLANT} role", "content": f"2026-11-29 {PLANT} content " * 9}],
    "response": {"content": f"{PLANT} answer", "usage": {"prompt_tokens": 90, "cached_tokens": 3}},
    f"{PLANT} field": f"{PLANT} value",
}
BAD: list[Any] = [
    PLANT,
    [PLANT],
    {**PLANTED, "messages": {"text": PLANT}, "prompt": None},
    {**PLANTED, "messages": [PLANT]},
    {**PLANTED, "messages": None},
    {**PLANTED, "session": {"email": PLANT}},
    {**PLANTED, "tenant": [PLANT]},
    {**PLANTED, "model": {"name": PLANT}},
    {**PLANTED, "time": PLANT},
    {**PLANTED, "response": {"usage": {"prompt_tokens": PLANT}}},
    {**PLANTED, "token_ids": PLANT},
    {**PLANTED, "token_ids": [1, PLANT]},
    {**PLANTED, "messages": None, "prompt": {"text": PLANT}},
]


@pytest.mark.parametrize("bad", BAD, ids=[f"bad{at}" for at in range(len(BAD))])
def test_no_text_of_the_log_is_in_the_file_not_even_of_its_bad_lines(tmp_path: Path, bad: Any) -> None:
    lines = [json.dumps({**PLANTED, "time": at, "session": f"{PLANT} {at}"}) for at in range(1, 30)]
    path = tmp_path / f"{PLANT}.jsonl"
    path.write_text("\n".join([*lines[:9], json.dumps(bad), f'{{"broken": {PLANT}', *lines[9:]]))
    workload = read_trace(path, Options(skip_bad=9))
    convert(workload, tmp_path / "p.jsonl", KEY)
    written = (tmp_path / "p.jsonl").read_text()
    assert "SECRET" not in written
    header, *rows = map(json.loads, written.splitlines())
    assert [2, 31, 10, 11] in figures(header["notes"])
    assert PLANT in str(workload.skipped)
    assert not any("SECRET" in str(item) for item in (*workload.notes, *workload.assumptions))
    # What is left of text is base64 of keyed hashes, and keyed hashes in hexadecimal.
    assert all(re.fullmatch(r"[A-Za-z0-9+/]+=*", text) for row in rows for text in leaves(row))


def test_names_of_models_are_kept_and_other_texts_in_their_place_are_not(tmp_path: Path) -> None:
    kept = ["ft:gpt-4.1-mini:acme::Bx7", "meta-llama/Llama-3.3-70B-Instruct"]
    addresses = ["ann@example.org", "https://secret.example.org/v1", "/home/ann/models/secret"]
    names = [*kept, *addresses, "Please help me", "x" * 999, "sk-proj-4f00"]
    sent = zip(chat(1, requests=len(names)).requests(), names, strict=True)
    requests = [request._replace(model=name) for request, name in sent]
    convert(Workload("w", 16, lambda: iter(requests)), tmp_path / "p.jsonl", KEY)
    models = [request.model for request in read_trace(tmp_path / "p.jsonl").requests()]
    assert models[:2] == kept
    assert all(re.fullmatch("[0-9a-f]{16}", model or "") for model in models[2:])
    assert len(set(models)) == 8


def test_a_workload_that_fails_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"time": 1, "token_ids": [1]}\n{"time": 0')
    with pytest.raises(TraceError, match=r"bad\.jsonl:2: "):
        convert(read_trace(tmp_path / "bad.jsonl", check=False), tmp_path / "p.jsonl.gz", KEY)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.jsonl"]


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path, name: str) -> None:
    pipe, file = tmp_path / name, tmp_path / "file" / name
    file.parent.mkdir()
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_bytes)
        convert(chat(1, requests=30), pipe, KEY)
        data = read.result(timeout=20)
    convert(chat(1, requests=30), file, KEY)
    assert data == file.read_bytes()
    assert pipe.is_fifo()
    assert {path.name for path in tmp_path.iterdir()} == {name, "file"}


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path, *, there: bool) -> None:
    target, link = tmp_path / "kept" / "day.jsonl", tmp_path / "link.jsonl"
    target.parent.mkdir()
    if there:
        target.write_text("before")
    link.symlink_to(target)
    convert(chat(1, requests=3), link, KEY)
    assert link.is_symlink()
    assert read_trace(target).request_count == 3
    assert list(target.parent.iterdir()) == [target]


words = st.lists(st.integers(0, 1), max_size=12).map(tuple)


@given(history=st.lists(st.tuples(words, words, st.integers(0, 3)), min_size=1, max_size=30), window=st.integers(1, 6))
def test_any_history_through_any_window(
    *,
    history: list[tuple[tuple[int, ...], tuple[int, ...], int]],
    window: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("convert") / "p.jsonl"
    requests = []
    for number, (prompt, answer, rest) in enumerate(history):
        chained = np.array(
            [hash((prompt + answer)[: end + 1]) & (2**64 - 1) for end in range(len(prompt + answer))], np.uint64
        )
        tokens = 4 * len(prompt) + max(rest, not prompt)
        context = BlockHashes(chained, token_count=max(tokens + 4 * len(answer), 4 * len(chained)), block_size=4)
        whole = context.head(len(prompt), tokens)
        requests.append(Request(float(number), whole, context, tokens, 4 * len(answer)))
    workload = Workload("random", 4, lambda: iter(requests))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prefixroute.workload.conversion.WINDOW", window)
        convert(workload, path, KEY)
    assert outline(read_trace(path)) == outline(workload)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"back": 3}, "back 3 .*1 "),
        ({"keep": 900}, r"keeps 900 .*\d+"),
        ({"back": 0}, "back .* 1 .*0"),
        ({"blocks": "%%"}, "blocks .*base64"),
        ({"blocks": b64encode(b"123").decode()}, "blocks .*64.*3 bytes"),
        ({"in": 0}, "in .* 1 .*0"),
        ({"full": 10**6}, "1000000 full"),
        ({"cached": -1}, r"cached .* 0 to \d+.*-1"),
        ({"cached": 10**7}, r"cached .* 0 to \d+.*10000000"),
        ({"t": -5}, r"time .*-5\.000 s"),
    ],
)
def test_damaged_rows_name_their_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    convert(chat(1, requests=2), tmp_path / "p.jsonl", KEY)
    header, first, second = (tmp_path / "p.jsonl").read_text().splitlines()
    (tmp_path / "p.jsonl").write_text("\n".join([header, first, json.dumps({**json.loads(second), **change})]))
    refused(tmp_path / "p.jsonl", match=rf"p\.jsonl:3: .*{message}")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"prefixroute_trace": 2}, "version .* 1.*2"),
        ({"prefixroute_trace": 1, "block_size": 0}, "block_size .*1 to 65536.*0"),
        ({"prefixroute_trace": 1, "block_size": 65537}, "block_size .*1 to 65536.*65537"),
        ({"prefixroute_trace": 1, "block_size": 16}, "'window'"),
    ],
)
def test_damaged_headers_are_refused(tmp_path: Path, header: dict[str, Any], message: str) -> None:
    (tmp_path / "p.jsonl").write_text(json.dumps(header))
    refused(tmp_path / "p.jsonl", match=rf"p\.jsonl:1: .*{message}")


mutations = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4)


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
@given(mutations=mutations, cut=st.none() | st.integers(0, 10**6))
def test_damaged_bytes_raise_trace_errors_or_read_as_a_trace(
    *, zipped: bool, mutations: list[tuple[int, int]], cut: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    convert(chat(1, requests=6), folder / "p.jsonl", KEY)
    data = bytearray((folder / "p.jsonl").read_bytes())
    if zipped:
        data = bytearray(gzip.compress(bytes(data), mtime=0))
    for at, value in mutations:
        data[at % len(data)] = value
    (folder / "p.jsonl").write_bytes(data if cut is None else data[: cut % len(data)])
    message = ""
    try:
        workload = read_trace(folder / "p.jsonl")
    except TraceError as error:
        message = str(error)
    assert f"{folder / 'p.jsonl'}:" in message or all(request.prompt_tokens >= 1 for request in workload.requests())
