from __future__ import annotations

import json
from pathlib import Path

import pytest
from logs import refused

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


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "JSON"),
        ('{"timestamp": "ab', "JSON.* column 18"),
        ("[1, 2]", r"JSON.*\[1, 2\]"),
        ({"timestamp": 9999, "output_length": 1, "hash_ids": [3]}, "'input_length'"),
        ({**GOOD[2], "input_length": -5}, "input_length .* 1 .*-5"),
        ({**GOOD[2], "output_length": -1}, "output_length .* 0 .*-1"),
        ({**GOOD[2], "timestamp": -1}, r"2\.501 to -0\.001 s"),
        ({**GOOD[2], "timestamp": 100}, r"2\.501 to 0\.100 s"),
        ({**GOOD[2], "timestamp": "soon"}, r"timestamp .*-2\*\*63 to 2\*\*63.*'soon'"),
        ('{"timestamp": NaN, "input_length": 5, "output_length": 1, "hash_ids": [1]}', "timestamp .*nan"),
        ({**GOOD[2], "timestamp": True}, r"timestamp .*-2\*\*63 to 2\*\*63.*True"),
        ({**GOOD[2], "hash_ids": 9}, "hash_ids .*9"),
        ({**GOOD[2], "hash_ids": [-9]}, r"hash_ids\[0\] .*0 to 2\*\*64 - 1.*-9"),
        ({**GOOD[2], "hash_ids": [2**64]}, rf"hash_ids\[0\] .*{2**64}"),
        ({**GOOD[2], "hash_ids": [1.5]}, r"hash_ids\[0\] .*1\.5"),
        ({**GOOD[2], "hash_ids": [[1]]}, r"hash_ids\[0\] .*\[1\]"),
        ({**GOOD[0], "timestamp": 9999, "hash_ids": [3]}, "1300 .*512 .*3 hash_ids.* 1"),
        ({**GOOD[2], "hash_ids": [3, 4]}, "100 .*512 .*1 hash_ids.* 2"),
    ],
)
def test_a_bad_row_names_file_and_line(tmp_path: Path, row: object, message: str) -> None:
    path = write(tmp_path / "t.jsonl", [*GOOD, row, *GOOD])
    refused(path, match=rf"t\.jsonl:4: .*{message}")


def test_an_unchecked_trace_fails_at_the_bad_line_and_not_before(tmp_path: Path) -> None:
    requests = read_trace(write(tmp_path / "t.jsonl", [*GOOD, "{"]), check=False).requests()
    assert [next(requests).prompt_tokens for _ in range(3)] == [1_300, 1_024, 100]
    with pytest.raises(TraceError, match=r"t\.jsonl:4: "):
        next(requests)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (None, ": .*No such file"),
        (b"\n\n", ":1: "),
        (b'{"name": "\xe9"}\n', ":1: .*UTF-8"),
        (b'{"colour": "red"}\n', ":1: .*colour"),
        (b"{}\n", ":1: .*without fields"),
        (b"[\n7\n]\n", ":1: .*JSON.*7"),
    ],
)
def test_files_that_are_no_trace(tmp_path: Path, data: bytes | None, named: str) -> None:
    if data is not None:
        (tmp_path / "no").write_bytes(data)
    refused(tmp_path / "no", match=rf"/no{named}")
