"""Every public call says what it takes, returns and raises; the stub file says of the index what the binary says."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import prefixroute as pr
from prefixroute import _core

REFERENCE = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
STUB = Path(pr.__file__).parent / "_core.pyi"


PACKAGES = (
    "prefixroute", "prefixroute.advise", "prefixroute.belief", "prefixroute.bodies", "prefixroute.costmodel",
    "prefixroute.hash_exact", "prefixroute.hashing", "prefixroute.index", "prefixroute.lint", "prefixroute.live",
    "prefixroute.peers.transports", "prefixroute.plan", "prefixroute.policies", "prefixroute.providers",
    "prefixroute.replay", "prefixroute.report", "prefixroute.router", "prefixroute.routing", "prefixroute.serve",
    "prefixroute.sim", "prefixroute.telemetry", "prefixroute.testing", "prefixroute.workload",
)  # fmt: skip


def methods_of(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods that a class has of its own: one that overrides another says only what differs."""
    for name, value in vars(kind).items():
        call = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        inherited = any(name in vars(base) for base in kind.__mro__[1:])
        if not name.startswith("_") and inspect.isroutine(call) and not inherited:
            yield f"{kind.__name__}.{name}", call


def public_calls() -> Iterator[tuple[str, Any]]:
    """Yield the functions and methods of public names, as ``prefixroute Router.route``."""
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            found = getattr(module, name)
            for path, call in methods_of(found) if inspect.isclass(found) else [(name, found)]:
                if inspect.isroutine(call) and callable(call):
                    yield f"{package} {path}", call


CALLS = dict(sorted({id(call): (name, call) for name, call in public_calls()}.values()))


def section(doc: str, title: str) -> str:
    """Return the text of a section of a docstring, or nothing."""
    found = re.search(rf"^{title}:\n((?: .*\n|\n)+)", doc + "\n", re.MULTILINE)
    return found.group(1) if found else ""


@pytest.mark.parametrize("name", CALLS)
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
    if inspect.isfunction(call):
        tree = ast.parse(textwrap.dedent(inspect.getsource(call)))
        raises = any(isinstance(node, ast.Raise) and node.exc is not None for node in ast.walk(tree))
        assert not raises or re.search(r"\b[Rr]aises?\b", doc), f"{name} does not say what it raises"


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


@pytest.mark.parametrize("package", [name for name in PACKAGES[1:] if f"`{name}." in REFERENCE])
def test_public_constants_stand_in_the_reference(package: str) -> None:
    """Sphinx lists classes and functions of a package by itself, and leaves out constants that it takes from a module."""
    public = importlib.import_module(package)
    constants = [name for name in public.__all__ if not callable(getattr(public, name))]
    assert [name for name in constants if f"`{package}.{name}`" not in REFERENCE] == []
