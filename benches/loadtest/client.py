"""The load: clients of bytes, each on a connection of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection
from time import perf_counter


@dataclass(slots=True)
class Measured:
    """What the clients saw, in seconds. ``broken``: answers that ended without their end, or were errors."""

    first_s: list[float] = field(default_factory=list)
    total_s: list[float] = field(default_factory=list)
    broken: int = 0

    def quantile(self, q: float, of: str = "first_s") -> float:
        values = sorted(getattr(self, of))
        return values[min(len(values) - 1, int(q * len(values)))] if values else float("nan")


def body(number: int, words: int, *, stream: bool) -> bytes:
    text = f"conversation {number % 97} " + "word " * words
    said = {"model": "fake", "stream": stream, "messages": [{"role": "user", "content": text}]}
    content = json.dumps(said).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: l\r\ncontent-type: application/json\r\nx-session-id: s{number % 97}\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


async def read_answer(reader: asyncio.StreamReader, begun: float, measured: Measured) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    chunked = b"chunked" in head.lower()
    if chunked:
        first = True
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
            if first:
                measured.first_s.append(perf_counter() - begun)
                first = False
        await reader.readexactly(2)
    else:
        lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
        await reader.readexactly(int(lengths[0]))
        measured.first_s.append(perf_counter() - begun)
    if not head.startswith(b"HTTP/1.1 200"):
        measured.broken += 1
    measured.total_s.append(perf_counter() - begun)


async def one_after_another(port: int, requests: int, clients: int, words: int) -> Measured:
    """Send whole answers' requests over a few kept connections."""
    measured = Measured()
    numbers = iter(range(requests))

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers:
            begun = perf_counter()
            writer.write(body(number, words, stream=False))
            await read_answer(reader, begun, measured)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return measured


async def all_at_once(port: int, streams: int, words: int, over_s: float) -> Measured:
    """Open so many streams, spread over a time, and read them all to their ends."""
    measured = Measured()

    async def client(number: int) -> None:
        await asyncio.sleep(over_s * number / streams)
        begun = perf_counter()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(body(number, words, stream=True))
            await read_answer(reader, begun, measured)
            writer.close()
        except (OSError, ValueError, asyncio.IncompleteReadError):
            measured.broken += 1

    await asyncio.gather(*(client(number) for number in range(streams)))
    return measured


def brackets(size: int) -> bytes:
    """Return a body that is valid, large and slow to parse: the engine gets a conversation of one word."""
    messages = b'{"model": "fake", "messages": [{"role": "user", "content": "w"}], "x": ['
    return messages + b"[]," * ((size - len(messages)) // 3 - 1) + b"[]]}"


def keep_sending(port: int, content: bytes, ended: threading.Event) -> tuple[int, int]:
    """Send a body again and again until told to end; return the answers, and how many of them were errors."""
    answers = broken = 0
    with closing(HTTPConnection("127.0.0.1", port)) as connection:
        while not ended.is_set():
            connection.request("POST", "/v1/chat/completions", content)
            with connection.getresponse() as response:
                response.read()
            answers += 1
            broken += response.status != HTTPStatus.OK
    return answers, broken


def beside_large_bodies(port: int, requests: int, clients: int, words: int, size: int) -> tuple[Measured, int, int]:
    """Send small requests while a thread sends large bodies.

    Return what the small ones saw, and the large ones' answers.
    """
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(keep_sending, port, brackets(size), ended)
        measured = asyncio.run(one_after_another(port, requests, clients, words))
        ended.set()
        return measured, *large.result()
