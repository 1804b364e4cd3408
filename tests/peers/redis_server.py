"""A real redis-server that a test starts, kills, pauses and flushes."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import redis

BINARY = shutil.which("redis-server") or shutil.which("valkey-server")


class RedisServer:
    """A server on a socket file, without persistence."""

    def __init__(self, folder: Path) -> None:
        if BINARY is None:
            pytest.skip("no redis-server or valkey-server on the path (Debian: apt install redis-server)")
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self.client = redis.Redis(unix_socket_path=str(self.socket), socket_timeout=5)
        self.start()

    def start(self) -> None:
        options = {"port": 0, "unixsocket": self.socket, "save": "", "dir": self.socket.parent, "daemonize": "no"}
        command = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
        self.process = subprocess.Popen([BINARY, *command], stdout=subprocess.DEVNULL)
        for _ in range(500):
            try:
                if self.client.ping():
                    return
            except redis.RedisError:
                time.sleep(0.02)
        raise AssertionError("redis-server does not answer")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.go_on()
        self.client.close()
        self.kill()
