"""A kept workload is the workload, whoever reads it."""

from __future__ import annotations

import gc
import pickle
from pathlib import Path

import pytest

from prefixroute.workload import Workload, chat, documents, keep, kept, read_trace, tenants


@pytest.mark.parametrize("held_bytes", [0, kept.HELD_BYTES])
@pytest.mark.parametrize("workload", [chat(1, requests=300), documents(2, requests=200), tenants(3, requests=200)])
def test_requests_are_the_same_in_this_process_and_behind_a_pickle(
    workload: Workload, held_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "HELD_BYTES", held_bytes)
    expected = list(workload.requests())
    once = keep(workload)
    assert once.request_count == len(expected)
    assert list(once.requests()) == list(once.requests()) == expected
    assert [one.prompt is one.context for one in once.requests()] == [one.prompt is one.context for one in expected]
    sent = pickle.loads(pickle.dumps(once))  # noqa: S301 - our own bytes
    assert list(sent.requests()) == expected
    assert (sent.name, sent.assumptions) == (workload.name, workload.assumptions)
    assert keep(once) is once


def test_an_empty_workload_is_kept_too() -> None:
    assert list(keep(chat(1, requests=0)).requests()) == []


def test_the_folder_goes_with_the_last_user_of_the_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept.tempfile, "tempdir", str(tmp_path))
    once = keep(chat(1, requests=20))
    changed = once.head(5)
    assert len(list(tmp_path.iterdir())) == 1
    del once
    gc.collect()
    assert len(list(changed.requests())) == 5
    del changed
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_checked_trace_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "day.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}\n')
    assert not read_trace(path).is_parsed
    assert read_trace(path, check=False).is_parsed
    assert read_trace(path, check=False).head(1).is_parsed
