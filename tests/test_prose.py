"""Tests assert on data, not on sentences: rewording a message breaks no test, and a wrong figure does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
COVERED = (  # patterns of files below tests/ that the law holds for
    "belief/*.py",
    "bodies/*.py",
    "cli/*.py",
    "hosts/*.py",
    "index/*.py",
    "live/*.py",
    "peers/*.py",
    "policies/*.py",
    "router/*.py",
    "serve/*.py",
    "sim/*.py",
    "workload/*.py",
)
ALLOWED: dict[str, str] = {}  # file: why a sentence is the data there
PIECES, WORDS = 4, 3  # a phrase has this many pieces between blanks, and this many of them are English words
WORD = re.compile(r"[a-zA-Z]+(?:['-][a-z]+)*")


def is_phrase(text: str) -> bool:
    pieces = [piece.strip(".,;:!?()[]\"'^$*") for piece in text.split()]
    return len(pieces) >= PIECES and sum(bool(WORD.fullmatch(piece)) for piece in pieces) >= WORDS


def texts(node: ast.AST) -> Iterator[str]:
    """Yield the strings of an expression; what an f-string fills in is ``{}``."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        parts = [part for part in node.values if not isinstance(part, ast.Constant)]
    else:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        parts = list(ast.iter_child_nodes(node))
    for part in parts:
        yield from texts(part)


def phrases(source: str) -> list[str]:
    """Return the phrases that a test demands: in conditions of ``assert`` (not its message) and in ``match=``."""
    nodes = list(ast.walk(ast.parse(source)))
    demanded: list[ast.AST] = [node.test for node in nodes if isinstance(node, ast.Assert)]
    demanded += [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "match"]
    return [text for node in demanded for text in texts(node) if is_phrase(text)]


def test_no_test_demands_a_sentence() -> None:
    found = {
        str(path.relative_to(TESTS)): told
        for pattern in COVERED
        for path in sorted(TESTS.glob(pattern))
        if (told := phrases(path.read_text(encoding="utf-8")))
    }
    assert {name: told for name, told in found.items() if name not in ALLOWED} == {}
    assert found.keys() >= ALLOWED.keys(), "an exception that nothing needs"


@pytest.mark.parametrize(
    ("source", "demanded"),
    [
        ('assert "no policy is best here" in out', True),
        ('assert f"{share} of {count} requests report hits" in out', True),
        ('with pytest.raises(ValueError, match=r"has tried \\w, \\w already"): pass', True),
        ('assert rows == ["fits"], "no policy is best here"', False),
        ('assert run("--replicas 2 --seeds 1 --policies session").code == 0', False),
        ('assert route("user: where is my parcel", key) == 3', True),
        ('with pytest.raises(ValueError, match=r"block_size.*-3.*65,536"): pass', False),
    ],
)
def test_phrases_are_found(source: str, demanded: bool) -> None:
    assert bool(phrases(source)) == demanded
