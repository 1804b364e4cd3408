from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from prefixroute.errors import TraceError
from prefixroute.workload import read_trace

GOOD = [
    {"timestamp": 0, "input_length": 1_300, "output_length": 5, "hash_ids": [0, 1, 2]},
    {"timestamp": 0, "input_length": 1_024, "output_length": 0, "hash_ids": [0, 7]},
    {"timestamp": 2500.5, "input_length": 100, "output_length": 9, "hash_ids": [9]},
]


def write(path: Path, rows: list[object]) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def test_partial_last_id_is_dropped_and_equal_ids_are_equal_prefixes(tmp_path: Path) -> None:
    workload = read_trace(write(tmp_path / "t.jsonl", [*GOOD]))
    first, second, third = workload.requests()
    assert (workload.block_size, workload.request_count) == (512, 3)
    assert [len(request.prompt) for request in (first, second, third)] == [2, 2, 0]
    assert first.prompt.array[0] == second.prompt.array[0]
    assert first.prompt.array[1] != second.prompt.array[1]
    assert [request.prompt_tokens for request in (first, second, third)] == [1_300, 1_024, 100]
    assert [request.arrival_s for request in (first, second, third)] == [0, 0, 2.5005]


def test_gzip_is_seen_by_its_content(tmp_path: Path) -> None:
    plain = write(tmp_path / "t.jsonl", [*GOOD])
    (tmp_path / "zipped.log").write_bytes(gzip.compress(plain.read_bytes()))
    assert read_trace(tmp_path / "zipped.log").request_count == 3


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "not JSON"),
        ('{"timestamp": "ab', "not JSON: Invalid control character at column 18"),
        ("[1, 2]", r"must be a JSON object, got \[1, 2\]"),
        ({"timestamp": 9999, "output_length": 1, "hash_ids": [3]}, "field 'input_length' is missing"),
        ({**GOOD[2], "input_length": -5}, "input_length must be a whole number, 1 or more, got -5"),
        ({**GOOD[2], "output_length": -1}, "output_length must be a whole number, 0 or more, got -1"),
        ({**GOOD[2], "timestamp": -1}, "time goes back from 2.501 to -0.001 s"),
        ({**GOOD[2], "timestamp": 100}, "time goes back from 2.501 to 0.100 s"),
        ({**GOOD[2], "timestamp": "soon"}, "timestamp must be a number, -2\\*\\*63 to 2\\*\\*63, got 'soon'"),
        ('{"timestamp": NaN, "input_length": 5, "output_length": 1, "hash_ids": [1]}', "timestamp must be a number"),
        ({**GOOD[2], "timestamp": True}, "timestamp must be a number, -2\\*\\*63 to 2\\*\\*63, got True"),
        ({**GOOD[2], "hash_ids": 9}, "hash_ids must be a list, got 9"),
        ({**GOOD[2], "hash_ids": [-9]}, r"hash_ids\[0\] must be a whole number, 0 to 2\*\*64 - 1, got -9"),
        ({**GOOD[2], "hash_ids": [2**64]}, r"hash_ids\[0\] must be a whole number"),
        ({**GOOD[2], "hash_ids": [1.5]}, r"hash_ids\[0\] must be a whole number.*got 1.5"),
        ({**GOOD[2], "hash_ids": [[1]]}, r"hash_ids\[0\] must be"),
        ({**GOOD[0], "timestamp": 9999, "hash_ids": [3]}, "1300 tokens in blocks of 512 need 3 hash_ids, got 1"),
        ({**GOOD[2], "hash_ids": [3, 4]}, "100 tokens in blocks of 512 need 1 hash_ids, got 2"),
    ],
)
def test_a_bad_row_names_file_and_line(tmp_path: Path, row: object, message: str) -> None:
    path = write(tmp_path / "t.jsonl", [*GOOD, row, *GOOD])
    with pytest.raises(TraceError, match=rf"t\.jsonl:4: .*{message}"):
        read_trace(path)


def test_an_unchecked_trace_fails_at_the_bad_line_and_not_before(tmp_path: Path) -> None:
    requests = read_trace(write(tmp_path / "t.jsonl", [*GOOD, "{"]), check=False).requests()
    assert [next(requests).prompt_tokens for _ in range(3)] == [1_300, 1_024, 100]
    with pytest.raises(TraceError, match=":4: not JSON"):
        next(requests)


def test_truncated_or_damaged_gzip_names_file_and_line(tmp_path: Path) -> None:
    rows = [{**GOOD[0], "timestamp": time, "output_length": time * 7919 % 1000} for time in range(5_000)]
    zipped = gzip.compress(write(tmp_path / "t.jsonl", [*rows]).read_bytes())
    (tmp_path / "cut.jsonl.gz").write_bytes(zipped[: len(zipped) // 2])
    with pytest.raises(TraceError, match=r"cut\.jsonl\.gz:\d\d+: the gzip data ends early"):
        read_trace(tmp_path / "cut.jsonl.gz")
    middle = len(zipped) // 2
    (tmp_path / "bad.jsonl.gz").write_bytes(zipped[:middle] + bytes(64) + zipped[middle + 64 :])
    with pytest.raises(TraceError, match=r"bad\.jsonl\.gz:\d+: "):
        read_trace(tmp_path / "bad.jsonl.gz")


def test_files_that_are_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.jsonl: cannot be read: No such file"):
        read_trace(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(TraceError, match=r"empty\.jsonl:1: the file holds no request"):
        read_trace(tmp_path / "empty.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b'{"name": "\xe9"}\n')
    with pytest.raises(TraceError, match=r"latin\.jsonl:1: not UTF-8"):
        read_trace(tmp_path / "latin.jsonl")
    (tmp_path / "other.jsonl").write_text('{"colour": "red"}\n')
    with pytest.raises(TraceError, match=r"other\.jsonl:1: no known trace format has the fields colour"):
        read_trace(tmp_path / "other.jsonl")
    (tmp_path / "bare.jsonl").write_text("{}\n")
    with pytest.raises(TraceError, match=r"bare\.jsonl:1: no known trace format has an object without fields"):
        read_trace(tmp_path / "bare.jsonl")
    (tmp_path / "array.json").write_text("[\n7\n]\n")
    with pytest.raises(TraceError, match=r"array\.json:1: must be a JSON object, got 7"):
        read_trace(tmp_path / "array.json")
