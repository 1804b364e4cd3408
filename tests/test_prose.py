"""Tests assert on data, not on sentences: rewording a message breaks no test, and a wrong figure does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PIECES, WORDS = 4, 3  # a phrase has this many pieces between blanks, and this many of them are English words
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
WORD = re.compile(r"[a-zA-Z]+(?:['-][a-z]+)*")
GAP = re.compile(r"\.[*+]\??")


def is_phrase(text: str) -> bool:
    """Whether a part of a text is a phrase; parts end where a pattern has a gap, and items of a list are no words."""
    for part in GAP.split(text):
        pieces = [piece.strip(".;:!?()[]\"'^$*") for piece in part.split()]
        if len(pieces) >= PIECES and sum(bool(WORD.fullmatch(piece)) for piece in pieces) >= WORDS:
            return True
    return False


def texts(node: ast.AST) -> Iterator[str]:
    """Yield the strings of an expression; what an f-string fills in is ``{}``."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        parts: list[ast.AST] = [part for part in node.values if not isinstance(part, ast.Constant)]
    else:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        parts = list(ast.iter_child_nodes(node))
    for part in parts:
        yield from texts(part)


def phrases(source: str) -> list[str]:
    """Return the phrases that a test demands.

    In conditions of ``assert`` (not its message), in ``match=``, and in the cases that give ``match=`` its text.
    """
    nodes = list(ast.walk(ast.parse(source)))
    demanded: list[ast.AST] = [node.test for node in nodes if isinstance(node, ast.Assert)]
    demanded += [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "match"]
    demanded += [case for node in nodes if isinstance(node, FUNCTION) for case in matched(node)]
    return [text for node in demanded for text in texts(node) if is_phrase(text)]


def matched(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Yield the expressions that ``parametrize`` gives to parameters which a test hands to ``match=``."""
    given = [node.value for node in ast.walk(test) if isinstance(node, ast.keyword) and node.arg == "match"]
    wanted = {node.id for value in given for node in ast.walk(value) if isinstance(node, ast.Name)}
    for call in test.decorator_list:
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.parametrize":
            names, cases = call.args[:2]
            at = [at for at, name in enumerate(texts(names)) if name in wanted]
            for case in getattr(cases, "elts", ()):
                values = case.elts if isinstance(names, ast.Tuple) and isinstance(case, ast.Tuple) else [case]
                yield from (values[one] for one in at if one < len(values))


def test_no_test_demands_a_sentence() -> None:
    found = {
        str(path.relative_to(TESTS)): told
        for path in sorted(TESTS.rglob("*.py"))
        if (told := phrases(path.read_text(encoding="utf-8")))
    }
    assert found == {}


CASES = '@pytest.mark.parametrize(("n", "said"), [(1, "no policy is best here")])'


@pytest.mark.parametrize(
    ("source", "demanded"),
    [
        (f"{CASES}\ndef test_it(n, said):\n    with pytest.raises(ValueError, match=said): pass", True),
        (f"{CASES}\ndef test_it(n, said):\n    with pytest.raises(ValueError, match=str(n)): read(said)", False),
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
