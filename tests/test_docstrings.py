"""Every public call says what it takes, returns and raises; the stub file says of the index what the binary says."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import prefixroute as pr
from prefixroute import _core

STUB = Path(pr.__file__).parent / "_core.pyi"


def public_calls() -> Iterator[tuple[str, Any]]:
    """Yield the functions and methods of public names, as ``Router.route``."""
    for name in pr.__all__:
        found = getattr(pr, name)
        if not inspect.isclass(found):
            if callable(found):
                yield name, found
            continue
        for attribute, value in vars(found).items():
            call = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            if not attribute.startswith("_") and callable(call):
                yield f"{name}.{attribute}", call


CALLS = dict(public_calls())


def section(doc: str, title: str) -> str:
    """Return the text of a section of a docstring, or nothing."""
    found = re.search(rf"^{title}:\n((?: .*\n|\n)+)", doc + "\n", re.MULTILINE)
    return found.group(1) if found else ""


@pytest.mark.parametrize("name", sorted(CALLS))
def test_arguments_and_results_are_described(name: str) -> None:
    call = CALLS[name]
    try:
        signature = inspect.signature(call)
    except ValueError:  # a builtin type without one
        return
    doc = inspect.getdoc(call) or ""
    assert doc, f"{name} has no docstring"
    parameters = [one for one in signature.parameters if one not in {"self", "cls"} and not one.startswith("_")]
    described = set(re.findall(r"^ +\*{0,2}([\w, *]+):", section(doc, "Args"), re.MULTILINE))
    described = {word.strip(" *") for entry in described for word in entry.split(",")}
    missing = [one for one in parameters if one not in described]
    assert not missing, f"{name} does not describe {missing}"
    if parameters and signature.return_annotation not in {None, "None", inspect.Signature.empty}:
        assert section(doc, "Returns") or re.search(r"\b(Returns?|Yields?)\b", doc), (
            f"{name} does not say what it returns"
        )


def stubs(kind: str) -> dict[str, str]:
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    [found] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind]
    return {
        node.name: ast.get_docstring(node) or ""
        for node in found.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("__")
    }


@pytest.mark.parametrize("kind", ["PrefixIndex", "BlockHashes"])
def test_the_stub_says_what_the_binary_says(kind: str) -> None:
    told = stubs(kind)
    assert told
    for name, doc in told.items():
        binary = getattr(getattr(_core, kind), name).__doc__ or ""
        assert doc.split() == inspect.cleandoc(binary).split(), f"{kind}.{name}"


PACKAGES = (
    "prefixroute.advise", "prefixroute.bodies", "prefixroute.costmodel", "prefixroute.lint", "prefixroute.policies",
    "prefixroute.router", "prefixroute.serve", "prefixroute.workload",
)  # fmt: skip


@pytest.mark.parametrize("package", PACKAGES)
def test_public_constants_stand_in_the_reference(package: str) -> None:
    """Sphinx lists classes and functions of a package by itself, and leaves out constants that it takes from a module."""
    reference = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    public = importlib.import_module(package)
    constants = [name for name in public.__all__ if not callable(getattr(public, name))]
    assert [name for name in constants if f"`{package}.{name}`" not in reference] == []
