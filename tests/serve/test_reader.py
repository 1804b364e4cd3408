"""The process that reads large bodies, when it hangs, dies, cannot be started, or is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prefixroute import Namespace
from prefixroute.bodies import Api, SessionKeys
from prefixroute.serve import reader as reader_module
from prefixroute.serve.calls import ParsedBody
from prefixroute.serve.reader import LARGE_BYTES, Hashing, Reader, ReaderDied
from waiting import until

BODY = json.dumps({"messages": [{"role": "user", "content": "word " * LARGE_BYTES}]}).encode()
KEYS = SessionKeys.of(None, None)


def hang(_: Any) -> str:
    """Render a conversation for ever, once a file says so."""
    while Path(os.environ["TEST_HANGS"]).exists():
        time.sleep(0.01)
    return "rendered"


def stuck(_: Any) -> str:
    """Render a conversation while nobody waits for it: say who does, and go on for a second."""
    Path(os.environ["TEST_HANGS"]).write_text(str(os.getpid()))
    time.sleep(1.0)
    return "rendered"


def ords(text: str) -> list[int]:
    """Tokenize a text."""
    return [ord(letter) for letter in text]


@pytest.fixture
def make_reader() -> Iterator[Callable[..., Reader]]:
    readers: list[Reader] = []

    def make(render: Any = None) -> Reader:
        readers.append(Reader(Hashing(16, 7, KEYS, render, ords if render else None)))
        return readers[-1]

    yield make
    for reader in readers:
        reader.close()


def read(reader: Reader, *bodies: bytes) -> list[Any]:
    """Return what becomes of bodies that come at once."""

    async def all_of_them() -> list[Any]:
        return await asyncio.gather(*[reader.read(Api.CHAT, body) for body in bodies], return_exceptions=True)

    return asyncio.run(all_of_them())


def lives(pid: int) -> bool:
    """Return whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_reader_that_hangs_costs_one_request(
    make_reader: Callable[..., Reader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = tmp_path / "hangs"
    flag.touch()
    monkeypatch.setenv("TEST_HANGS", str(flag))
    reader = make_reader(hang)
    with monkeypatch.context() as patch:
        patch.setattr(reader_module, "READ_S", 1.0)
        assert isinstance(read(reader, BODY)[0], ReaderDied)
    flag.unlink()
    assert read(reader, BODY)[0].prompt.token_count == len("rendered")


@pytest.mark.parametrize("stop", [True, False])
def test_a_reader_that_is_killed_while_it_is_sent_a_body_costs_one_request(
    make_reader: Callable[..., Reader], stop: bool
) -> None:
    reader = make_reader()
    assert read(reader, BODY)[0].prompt.token_count
    pid = reader.pid
    assert pid is not None
    if stop:
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(0.1, os.kill, (pid, signal.SIGKILL)).start()
    else:
        os.kill(pid, signal.SIGKILL)
    after = read(reader, 20 * BODY, BODY)
    assert isinstance(after[0], (ReaderDied, ValueError))  # whether it was started again before the body, or died of it
    assert after[1].prompt.token_count


def test_a_process_that_cannot_be_started_costs_one_request(
    make_reader: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = make_reader()

    def fails(*_: Any, **__: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(reader_module.subprocess, "Popen", fails)
        assert isinstance(read(reader, BODY)[0], ReaderDied)
    assert read(reader, BODY)[0].prompt.token_count


def test_closing_gives_up_what_is_read_and_what_waits(make_reader: Callable[..., Reader]) -> None:
    reader = make_reader()
    read(reader, BODY)
    pid = reader.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)

    async def ending() -> list[Any]:
        waiting = [asyncio.create_task(reader.read(Api.CHAT, BODY)) for _ in range(3)]
        await asyncio.sleep(0.05)
        reader.close()
        return await asyncio.gather(*waiting, return_exceptions=True)

    assert all(isinstance(one, (ReaderDied, asyncio.CancelledError)) for one in asyncio.run(ending()))
    assert reader.pid is None
    assert not lives(pid)


PARENT = """
import asyncio, sys
from prefixroute.bodies import Api, SessionKeys
from prefixroute.serve.reader import Hashing, Reader
import test_reader
reader = Reader(Hashing(16, 7, SessionKeys.of(None, None), test_reader.stuck, test_reader.ords))
asyncio.run(reader.read(Api.CHAT, test_reader.BODY))
"""


def test_a_killed_server_leaves_no_reader_behind(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": paths, "TEST_HANGS": str(told)}
    with subprocess.Popen([sys.executable, "-c", PARENT], env=environment, stderr=subprocess.PIPE) as parent:
        until(lambda: told.exists() and told.read_text())
        pid = int(told.read_text())
        parent.kill()
        assert lives(pid)  # it is in the middle of a body
        until(lambda: not lives(pid))
        assert parent.stderr is not None
        assert parent.stderr.read() == b""  # it ends without a word


@pytest.mark.parametrize(
    ("fields", "namespace"),
    [
        ("", Namespace()),
        ('"model": null, "cache_salt": null, "lora_path": null,', Namespace()),
        ('"model": 5, "cache_salt": ["s"], "lora_path": {},', Namespace()),
        ('"model": "None", "cache_salt": "s", "lora_path": "x",', Namespace(model="None", salt="s", lora="x")),
    ],
)
def test_what_is_no_text_is_no_namespace(fields: str, namespace: Namespace) -> None:
    for api, prompt in (
        (Api.CHAT, '"messages": []'),
        (Api.COMPLETIONS, '"prompt": "a"'),
        (Api.RESPONSES, '"input": "a"'),
    ):
        reading = ParsedBody.of(api, f"{{{fields}{prompt}}}".encode(), KEYS)
        assert reading.namespace == namespace
        assert reading.session is None
