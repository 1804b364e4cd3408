"""A reader of one's own: what it needs, and what is said of one that lacks it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prefixroute.errors import ConfigError
from prefixroute.workload import read_trace, trace
from prefixroute.workload.readers import lengths
from prefixroute.workload.readers.record import OpenedLog


@pytest.mark.parametrize("missing", ["NAME", "recognises", "open_file"])
def test_a_reader_that_lacks_a_name_is_refused_when_it_is_entered(missing: str) -> None:
    names = {name: getattr(lengths, name) for name in ("NAME", "recognises", "open_file") if name != missing}
    with pytest.raises(ConfigError, match=rf"mine.*{missing}"):
        trace.formats_of(lengths, SimpleNamespace(__name__="mine", **names))  # type: ignore[arg-type]


def test_two_readers_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"lengths, lengths"):
        trace.formats_of(lengths, lengths)
    assert trace.formats_of(*trace.FORMATS) == trace.FORMATS


@pytest.mark.parametrize(
    ("opened", "named"),
    [
        (lambda: OpenedLog(16, lambda _: lambda _: iter(())), "has_sessions.*bool.*None"),
        (lambda: {"block_size": 16}, "mine.*OpenedLog.*block_size"),
        (lambda: None, "mine.*OpenedLog.*None"),
    ],
)
def test_what_a_reader_opens_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Any, named: str
) -> None:
    mine = SimpleNamespace(NAME="mine", recognises=lambda _: True, open_file=lambda *_: opened())
    monkeypatch.setattr(trace, "FORMATS", trace.formats_of(mine))  # type: ignore[arg-type]
    file = tmp_path / "a.log"
    file.write_text("x\n")
    with pytest.raises(ConfigError, match=named):
        read_trace(file)
