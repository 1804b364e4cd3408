"""The stubs of the compiled core show editors what each public name is."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prefixroute import _core

STUB = Path(__file__).resolve().parents[2] / "python" / "prefixroute" / "_core.pyi"


def documented(node: ast.Module | ast.ClassDef, owner: Any) -> Iterator[tuple[str, bool, bool]]:
    """Every public name, and whether the stub and the core have a docstring for it."""
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.ClassDef) and not child.name.startswith("_"):
            found = getattr(owner, child.name)
            yield child.name, bool(ast.get_docstring(child)), bool(inspect.getdoc(found))
            if isinstance(child, ast.ClassDef):
                yield from documented(child, found)


def test_whatever_the_core_documents_the_stubs_document() -> None:
    names = list(documented(ast.parse(STUB.read_text()), _core))
    assert len(names) > 150
    assert [name for name, stub, core in names if core and not stub] == []
