"""The Python of README and docs runs as printed, against a stand-in for the network."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

import prefixroute as pr

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    "README.md",
    "docs/quickstart.md",
    "docs/embedding.md",
    "docs/routing.md",
    "docs/providers.md",
    "docs/hash-exact.md",
    "docs/live.md",
]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = list(range(4_000))


@dataclass(frozen=True)
class Usage:
    output: list[int]
    cached_tokens: int


@dataclass(frozen=True)
class Chunk:
    text: str
    usage: Usage | None = None


DEAD: set[str] = set()
"""Replicas that refuse connections."""


async def open_stream(replica: str, _tokens: list[int]) -> AsyncIterator[Chunk]:
    if replica in DEAD:
        raise ConnectionRefusedError(replica)
    for chunk in (Chunk(replica), Chunk("!"), Chunk("", Usage([7] * 100, 0))):
        await asyncio.sleep(0)
        yield chunk


def run_blocks(page: str, replace: tuple[str, str] = ("", "")) -> dict[str, Any]:
    """Execute every Python block of a page, in order, in one namespace, as a reader would paste them."""
    text = (ROOT / page).read_text().replace(*replace)
    blocks = BLOCK.findall(text)
    assert blocks, f"{page} has no Python"
    namespace: dict[str, Any] = {"open_stream": open_stream, "post": lambda replica, _tokens: replica}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{page}, Python block {number}", "exec"), namespace)  # noqa: S102
    return namespace


@pytest.mark.parametrize("page", PAGES)
def test_every_block_runs(page: str) -> None:
    run_blocks(page)


@pytest.mark.parametrize("page", ["README.md", "docs/embedding.md"])
def test_the_relay_streams_retries_before_the_first_chunk_and_reports(page: str) -> None:
    namespace = run_blocks(page)
    router = namespace["router"] = pr.Router(["x", "y"])

    def ask(session: str) -> list[str]:
        async def relay() -> list[str]:
            return [chunk.text async for chunk in namespace["relay"](PROMPT, session)]

        return asyncio.run(relay())

    first, second = ask("chat-17"), ask("chat-17")
    assert first == second == [first[0], "!", ""]
    decision = router.choose([*PROMPT, *[7] * 100], session="chat-17")
    assert decision.replica == first[0]
    assert decision.hit_tokens == 4_096  # prompt and output, in whole blocks
    DEAD.add(first[0])
    try:
        assert ask("chat-17")[0] != first[0]
    finally:
        DEAD.clear()
    counts = router.stats()["counts"]
    assert counts["finished"] == 3
    assert counts["aborted"] == 1
    assert router.stats()["unreported_requests"] == 0


def test_a_gateway_reads_prompt_session_and_usage() -> None:
    namespace = run_blocks("docs/embedding.md")
    usage = {"prompt_tokens": 600, "prompt_tokens_details": {"cached_tokens": 0}}
    namespace["post"] = lambda replica, _body, headers: {"replica": replica, "usage": usage, "sent": headers}
    body = {"messages": [{"role": "user", "content": "hello " * 400}], "prompt_cache_key": "chat-17"}
    first, second = (namespace["forward"]("/v1/chat/completions", {}, body) for _ in range(2))
    assert first["replica"] == second["replica"]
    assert namespace["gateway"].stats()["unreported_requests"] == 0


def test_the_page_of_peers_runs_and_the_feed_carries_load(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("redis")
    namespace = run_blocks("docs/peers.md", ("my-fleet", f"docs-{os.getpid()}"))
    try:
        assert capsys.readouterr().out == "1\n"
    finally:
        for name in ("router", "far"):
            namespace[name].close()


QUESTION = {"role": "user", "content": "hello " * 400}


def ask_fastapi(
    namespace: dict[str, Any], engine: Callable[[httpx.Request], httpx.Response], body: object
) -> httpx.Response:
    """Send a body to the service of the how-to, in front of engines that answer as ``engine`` does."""

    async def ask() -> httpx.Response:
        app = namespace["app"]
        app.state.client = httpx.AsyncClient(transport=httpx.MockTransport(engine))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
            return await client.post("/v1/chat/completions", json=body, headers={"x-session-id": "chat-17"})

    return asyncio.run(ask())


class Dying(httpx.AsyncByteStream):
    """The body of an engine that dies after the head of its answer."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        raise httpx.ReadError("reset")
        yield b""


@pytest.mark.parametrize("failure", [429, 502, 503, 504, "refused", "dies after its head"])
def test_the_fastapi_service_streams_and_retries_before_the_first_byte(failure: int | str) -> None:
    namespace = run_blocks("docs/howto-fastapi.md")
    router, asked = namespace["router"], list[str]()
    usage = {"prompt_tokens": 600, "completion_tokens": 200, "prompt_tokens_details": {"cached_tokens": 0}}
    events = [{"choices": [{"delta": {"content": "Good day. " * 80}}]}, {"choices": [], "usage": usage}]
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"

    def engine(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url.copy_with(path="/")).rstrip("/"))
        assert json.loads(request.content)["stream_options"] == {"include_usage": True}
        if len(asked) > 1:
            return httpx.Response(200, text=stream)
        if isinstance(failure, int):
            return httpx.Response(failure, text="not now")
        if failure == "refused":
            raise httpx.ConnectError(failure)
        return httpx.Response(200, stream=Dying())

    response = ask_fastapi(namespace, engine, {"messages": [QUESTION]})
    assert (response.status_code, response.text) == (200, stream)
    assert sorted(asked) == sorted(namespace["ENGINES"])
    stats = router.stats()
    assert (stats["counts"]["finished"], stats["in_flight"], stats["unreported_requests"]) == (1, 0, 0)
    assert "first_token_late" not in stats["counts"]
    answered = [QUESTION, {"role": "assistant", "content": "Good day. " * 80}, {"role": "user", "content": "More?"}]
    assert router.choose(answered, session="chat-17").hit_tokens > 600  # prompt and answer


@pytest.mark.parametrize("status", [400, 404, 422, 500])
def test_the_fastapi_service_gives_an_engines_refusal_to_the_client_and_asks_once(status: int) -> None:
    namespace, asked = run_blocks("docs/howto-fastapi.md"), list[str]()

    def engine(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(status, json=refusal)

    refusal = {"error": "max_tokens is too large"}
    response = ask_fastapi(namespace, engine, {"messages": [QUESTION]})
    assert (response.status_code, response.json()) == (status, refusal)
    assert len(asked) == 1
    assert (namespace["router"].stats()["in_flight"], namespace["router"].stats()["counts"]["aborted"]) == (0, 1)


def test_the_fastapi_service_answers_503_when_no_engine_is_left() -> None:
    namespace, asked = run_blocks("docs/howto-fastapi.md"), list[str]()

    def engine(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        raise httpx.ConnectError("refused")

    assert ask_fastapi(namespace, engine, {"messages": [QUESTION]}).status_code == 503
    assert len(asked) == len(set(asked)) == 2
    assert namespace["router"].stats()["in_flight"] == 0


@pytest.mark.parametrize("body", [{}, [], {"messages": 7}, {"messages": None}])
def test_the_fastapi_service_refuses_what_is_no_chat(body: object) -> None:
    response = ask_fastapi(run_blocks("docs/howto-fastapi.md"), lambda _: httpx.Response(200), body)
    assert response.status_code == 400


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text())
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def _name(words: str) -> str:
    """Return the name as its file has it: of ``Table.of`` and ``stats()`` the last part, without brackets."""
    return words.rpartition(".")[2].removesuffix("()")


def test_the_places_where_things_go_are_there() -> None:
    """Each path of the table exists, and each name is in a file of its row."""
    table = (
        (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Where things go")[2].partition("\n## ")[0]
    )
    rows = [re.findall(r"`([^`]+)`", line) for line in table.splitlines() if line.startswith("| a")]
    assert len(rows) > 10
    for words in rows:
        places = [ROOT / word for word in words if "/" in word]
        files = [file for place in places for file in (place.glob("**/*") if place.is_dir() else [place])]
        text = "".join(
            f"{file.name}\n{file.read_text()}" for file in files if file.suffix in {".py", ".rs", ".md", ".toml"}
        )
        assert [place for place in places if not place.exists()] == []
        assert [word for word in words if "/" not in word and _name(word) not in text] == [], words


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]), ids=lambda path: path.name)
def test_lines_of_prose_have_at_most_120_columns(page: Path) -> None:
    """Rows of a table and pictures cannot be wrapped, and output of a program stands as it is."""
    prose = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert [line for line in prose.splitlines() if len(line) > 120 and not line.startswith(("|", "!["))] == []


def test_the_first_screen_installs_and_runs() -> None:
    head = "".join((ROOT / "README.md").read_text().splitlines(keepends=True)[:25])
    for needed in ("make demo", "make test", "pip install prefixroute", "```python"):
        assert needed in head
