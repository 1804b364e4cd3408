"""Whatever a file holds, a reader yields well-formed requests or raises ``TraceError`` with file and line."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixroute.errors import TraceError
from prefixroute.workload import Options, read_trace

ROWS: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "rows.json").read_text())
"""A row of each shape."""
HEADER = {"prefixroute_trace": 1, "block_size": 16, "window": 4}
VOLATILE = {"kind": "id", "tokens": 3, "length": 2, "gain": 9, "share": 0.5}
FORMATS = {"delta": "mooncake", "wildchat": "conversations", "masked": "private"}
"""Formats of rows that are not named by their format; the others are those of a gateway."""
NAMED = {"mooncake", "bailian", "recorded-sessions", "conversations", "vllm-bench", "private"}

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-1, 9), max_size=3),
    st.dictionaries(st.sampled_from(["a", "content", "text", "type", "usage"]), st.integers(-1, 9), max_size=2),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


def changed(row: dict[str, Any], place: tuple[Any, ...], value: Any, *, drop: bool) -> Any:
    row = copy.deepcopy(row)
    if not place:
        return value
    holder: Any = row
    for key in place[:-1]:
        holder = holder[key]
    if drop:
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    return row


@pytest.mark.parametrize("name", ROWS)
@given(data=st.data())
def test_any_change_of_a_row(name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    good = ROWS[name]
    row: Any = copy.deepcopy(good)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(places(row)))
        row = changed(row, place, data.draw(values), drop=data.draw(st.booleans()) if place else False)
        if not isinstance(row, dict):
            break
    header = {"private": [HEADER], "masked": [HEADER | {"volatile": VOLATILE}]}.get(name, [])
    lines = [*header, good, row]
    path = tmp_path_factory.mktemp("fuzz") / "t.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    read_or_refused(path, Options(format=FORMATS.get(name, name if name in NAMED else "gateway")))


@given(text=st.text(max_size=60), header=st.sampled_from(["", "TIMESTAMP,ContextTokens,GeneratedTokens\n"]))
def test_any_text(text: str, header: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "t.csv"
    path.write_text(header + text, encoding="utf-8", errors="surrogatepass")
    read_or_refused(path)


@given(data=st.binary(max_size=200), gzipped=st.booleans())
def test_any_bytes(*, data: bytes, gzipped: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "t.jsonl"
    path.write_bytes(b"\x1f\x8b\x08" + data if gzipped else data)
    read_or_refused(path)


def read_or_refused(path: Path, options: Options | None = None) -> None:
    try:
        workload = read_trace(path, options)
    except TraceError as error:
        assert str(path) in str(error)  # noqa: PT017 - both outcomes are right
        return
    last = 0.0
    for request in workload.requests():
        assert request.arrival_s >= last
        last = request.arrival_s
        assert request.prompt_tokens >= 1
        assert request.output_tokens >= 0
        assert len(request.prompt) * workload.block_size <= request.prompt.token_count
        for prompt, context in ((request.prompt, request.context), request.masked or (request.prompt, request.context)):
            assert (context.array[: len(prompt)] == prompt.array).all()
