"""Who may touch the compiled core. (import-linter, which cannot see compiled modules, holds all other layers.)"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "python" / "prefixroute"
ALLOWED = {
    "__init__", "hashing", "index", "limits", "peers.wire", "sim.replica", "sim.engine", "routing.ledger", "columns", "draws",
    "costmodel.cost", "costmodel.links", "costmodel.speeds", "costmodel.steptimes",
}  # fmt: skip


def imported_names(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def test_only_the_facade_touches_the_core() -> None:
    users = {
        module_name(path) for path in PACKAGE.rglob("*.py") if "prefixroute._core" in imported_names(path.read_text())
    }
    assert "__init__" in users
    assert users <= ALLOWED


def test_nothing_inside_imports_the_package_root() -> None:
    users = {
        module_name(path)
        for path in PACKAGE.rglob("*.py")
        if "prefixroute" in imported_names(path.read_text()) and module_name(path).split(".")[0] != "cli"
    }
    assert users == set()


@pytest.mark.parametrize(
    "source", ["import prefixroute._core", "from prefixroute._core import X", "from prefixroute import _core"]
)
def test_the_scan_sees_every_way_of_importing(source: str) -> None:
    assert "prefixroute._core" in imported_names(source)


def test_the_layers_name_the_packages_that_there_are() -> None:
    contracts = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    named = re.findall(r"prefixroute\.(\w+)", " ".join(contracts[0]["layers"]))
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert sorted(named) == sorted(there - {"__init__", "__main__"})
