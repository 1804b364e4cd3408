"""Hosts that run several workers: ``peers=`` is one line in each, and they route as one."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_engine import chat

pytest.importorskip("uvicorn", reason="needs uvicorn, see `make hosts`")

GATEWAY = """
import os
import prefixroute as pr
from prefixroute.hosts.asgi import PrefixRouteMiddleware

async def application(scope, receive, send):
    ticket = scope["state"]["ticket"]
    said = f"{os.getpid()} {ticket.replica}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]})
    await send({"type": "http.response.body", "body": said})

replicas = ["a", "b", "c", "d"]
router = pr.Router(replicas, policy="cache-aware", prompt_kind="messages", peers=os.environ["FLEET"])
app = PrefixRouteMiddleware(application, router)
"""
DEADLINE_S = 60.0


def ask(port: int, session: int, turn: int) -> tuple[str, str]:
    """Return the process and the replica of a turn. Each is a connection of its own, which any worker may accept."""
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(chat(session, turn)).encode(), {"connection": "close"})
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:  # noqa: S310  # of http
        pid, replica = response.read().decode().split()
    return pid, replica


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    (tmp_path / "gateway.py").write_text(GATEWAY)
    monkeypatch.setenv("FLEET", f"test-{secrets.token_hex(6)}")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--workers", "2", "--port", str(port), "--app-dir", str(tmp_path), "--log-level", "error"]
    process = subprocess.Popen([sys.executable, "-m", "uvicorn", "gateway:app", *options])
    try:
        yield port
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def test_the_workers_of_uvicorn_route_as_one(gateway: int) -> None:
    until, pids = time.monotonic() + DEADLINE_S, set[str]()
    while len(pids) < 2 and time.monotonic() < until:
        try:
            pids.add(ask(gateway, 99, 0)[0])
        except OSError:
            time.sleep(0.1)
    time.sleep(0.5)  # until each has found the other
    answered: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for turn in range(5):
        for session in range(20):
            answered[session].append(ask(gateway, session, turn))
        time.sleep(0.1)  # ten times as long as peers need to hear of it
    assert {pid for turns in answered.values() for pid, _ in turns} == pids
    homes = [{replica for _, replica in turns} for turns in answered.values()]
    assert sum(len(home) == 1 for home in homes) >= 18
    assert set[Any]().union(*homes) == {"a", "b", "c", "d"}
