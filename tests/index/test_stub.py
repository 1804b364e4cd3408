"""The stubs of the compiled core show editors what the core itself says."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prefixroute import _core

STUB = Path(__file__).resolve().parents[2] / "python" / "prefixroute" / "_core.pyi"


def documented(node: ast.Module | ast.ClassDef, owner: Any) -> Iterator[tuple[str, str | None, str | None]]:
    """Every public name with its docstring in the stub and in the core, white space apart."""
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.ClassDef) and not child.name.startswith("_"):
            found = getattr(owner, child.name)
            words = [(text or "").split() for text in (ast.get_docstring(child), inspect.getdoc(found))]
            yield child.name, *(" ".join(text) or None for text in words)
            if isinstance(child, ast.ClassDef):
                yield from documented(child, found)


def test_the_stubs_carry_the_docstrings_of_the_core() -> None:
    names = list(documented(ast.parse(STUB.read_text()), _core))
    assert len(names) > 150
    assert [name for name, stub, core in names if core and not (stub or "").startswith(core)] == []
