"""The page on planning from Python runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "planning.md"


def test_the_page_runs_from_top_to_bottom() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 6
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102 - our own page
    assert getattr(names["advice"], "policy") == "session"  # noqa: B009 - the namespace is of objects
