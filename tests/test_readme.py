"""The Python of README and docs runs as printed, against a stand-in for the network."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    "README.md",
    "docs/quickstart.md",
    "docs/embedding.md",
    "docs/routing.md",
    "docs/providers.md",
    "docs/hash-exact.md",
]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = list(range(4_000))


async def open_stream(replica: str, _tokens: list[int]) -> AsyncIterator[str]:
    for chunk in (replica, "!", "\n"):
        await asyncio.sleep(0)
        yield chunk


def run_blocks(page: str) -> dict[str, Any]:
    """Execute every Python block of a page, in order, in one namespace, as a reader would paste them."""
    text = (ROOT / page).read_text()
    blocks = BLOCK.findall(text)
    assert blocks, f"{page} has no Python"
    namespace: dict[str, Any] = {"open_stream": open_stream, "post": lambda replica, _tokens: replica}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{page}, Python block {number}", "exec"), namespace)  # noqa: S102
    return namespace


@pytest.mark.parametrize("page", PAGES)
def test_every_block_runs(page: str) -> None:
    run_blocks(page)


def test_the_relay_of_the_readme_streams_and_keeps_a_conversation_together() -> None:
    namespace = run_blocks("README.md")

    async def relay() -> list[str]:
        return [chunk async for chunk in namespace["relay"](PROMPT, "chat-17")]

    first, second = asyncio.run(relay()), asyncio.run(relay())
    assert first == second
    assert first[1:] == ["!", "\n"]
    decision = namespace["router"].choose(PROMPT, session="chat-17")
    assert decision.replica == first[0]
    assert decision.hit_tokens == 3_984


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text())
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_first_screen_installs_and_runs() -> None:
    head = "".join((ROOT / "README.md").read_text().splitlines(keepends=True)[:25])
    for needed in ("make demo", "make test", "pip install prefixroute", "```python"):
        assert needed in head
