"""Run it: every proxy in turn in front of the same engines, and one table."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from loadtest.client import Measured, all_at_once, beside_large_bodies, one_after_another
from loadtest.relays import NGINX

HERE = Path(__file__).parent
START_S = 30.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def running(command: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    end = time.monotonic() + START_S
    while not listens(port):
        assert process.poll() is None, f"{command} has exited"
        assert time.monotonic() < end, f"{command} does not listen"
        time.sleep(0.05)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def engine(port: int, **options: float) -> list[str]:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    return [sys.executable, "-m", "loadtest.engine", f"--port={port}", *flags]


def proxies(urls: list[str], folder: str) -> dict[str, list[str]]:
    """Return the commands, but for the port, which stands as PORT."""
    serve = [sys.executable, "-m", "prefixroute", "serve", *urls, "--port", "PORT", "--set", "log.access=false"]
    found = {
        "starlette + httpx": [sys.executable, "-m", "loadtest.relays", "httpx", "PORT", *urls],
        "starlette + aiohttp": [sys.executable, "-m", "loadtest.relays", "aiohttp", "PORT", *urls],
        "prefixroute serve": serve,
    }
    if shutil.which("nginx"):
        found = {"nginx": ["nginx", "-p", folder, "-c", f"{folder}/nginx.conf"], **found}
    return found


def prepared(command: list[str], urls: list[str], folder: str) -> tuple[list[str], int]:
    port = free_port()
    servers = " ".join(f"server {url.removeprefix('http://')};" for url in urls)
    Path(folder, "nginx.conf").write_text(NGINX.format(folder=folder, servers=servers, port=port))
    return [str(port) if word == "PORT" else word for word in command], port


def cpu_s(process: subprocess.Popen[bytes]) -> float:
    """Return the processor seconds of a process and its children.

    Nginx works in one, and large bodies are read in one.
    """
    ticks = 0
    threads = Path(f"/proc/{process.pid}/task").glob("*/children")
    pids = [process.pid, *(int(child) for thread in threads for child in thread.read_text().split())]
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def row(name: str, part: str, measured: Measured, used_s: float, requests: int) -> dict[str, object]:
    return {
        "proxy": name,
        "part": part,
        "first_p50_ms": round(1e3 * measured.quantile(0.5), 2),
        "first_p99_ms": round(1e3 * measured.quantile(0.99), 2),
        "total_p50_ms": round(1e3 * measured.quantile(0.5, "total_s"), 1),
        "cpu_ms_per_request": round(1e3 * used_s / requests, 3),
        "first_max_ms": round(1e3 * measured.quantile(1.0), 1),
        "broken": measured.broken,
    }


def measure(name: str, urls: list[str], options: argparse.Namespace) -> Iterator[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        command, port = prepared(proxies(urls, folder)[name], urls, folder)
        with running(command, port) as process:
            asyncio.run(one_after_another(port, 200, options.clients, options.words))
            before = cpu_s(process)
            measured = asyncio.run(one_after_another(port, options.requests, options.clients, options.words))
            yield row(name, "whole answers", measured, cpu_s(process) - before, options.requests)
            before = cpu_s(process)
            measured = asyncio.run(all_at_once(port, options.streams, options.words, options.over_s))
            yield row(name, "streams", measured, cpu_s(process) - before, options.streams)
            if options.large_bytes:
                before = cpu_s(process)
                measured, large, failed = beside_large_bodies(
                    port, options.requests, options.clients, options.words, options.large_bytes
                )
                found = row(name, "beside large bodies", measured, cpu_s(process) - before, options.requests)
                yield {**found, "large_bodies": large, "large_broken": failed}


def kills(options: argparse.Namespace) -> dict[str, object]:
    """Kill and restart engines under load; whatever had not begun to be answered must be answered elsewhere."""
    commands = {port: engine(port, delay_s=options.delay_s) for port in (free_port() for _ in range(options.engines))}
    ports, urls = list(commands), [f"http://127.0.0.1:{port}" for port in commands]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as pool:
        command, port = prepared(proxies(urls, folder)["prefixroute serve"], urls, folder)
        victims = {at: subprocess.Popen(commands[at], stdout=subprocess.DEVNULL) for at in ports}
        while not all(map(listens, ports)):
            time.sleep(0.05)
        with running(command, port) as process:
            load = one_after_another(port, options.kill_requests, 4 * options.clients, options.words)
            before, under = cpu_s(process), pool.submit(asyncio.run, load)
            for turn in range(options.kills):
                at = ports[turn % len(ports)]
                time.sleep(options.kill_every_s - options.away_s)
                victims[at].kill()
                victims[at].wait()
                time.sleep(options.away_s)
                victims[at] = subprocess.Popen(commands[at], stdout=subprocess.DEVNULL)
            measured = under.result()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
                counted = [line for line in page.read().decode().splitlines() if "serve_retries_total{" in line]
            retries = sum(float(line.rpartition(" ")[2]) for line in counted)
            used_s = cpu_s(process) - before
        for victim in victims.values():
            victim.kill()
            victim.wait()
    found = row("prefixroute serve", f"{options.kills} kills", measured, used_s, options.kill_requests)
    return {**found, "hidden_by_retries": int(retries)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m loadtest", description=__doc__)
    add = parser.add_argument
    add("--requests", type=int, default=3_000, help="whole answers")
    add("--clients", type=int, default=8, help="at once")
    add("--streams", type=int, default=2_000, help="at once")
    add("--over-s", type=float, default=4.0, help="time over which streams are opened")
    add("--tokens", type=int, default=20, help="events of a stream")
    add("--gap-s", type=float, default=0.5, help="between two events")
    add("--words", type=int, default=200, help="of a prompt")
    add("--large-bytes", type=int, default=31_000_000, help="of a body that is slow to parse; 0 = none is sent")
    add("--engines", type=int, default=4)
    add("--kills", type=int, default=8)
    add("--kill-requests", type=int, default=10_000, help="whole answers while engines are killed")
    add("--kill-every-s", type=float, default=2.5)
    add("--away-s", type=float, default=0.5, help="until a killed engine is started again")
    add("--delay-s", type=float, default=0.05, help="until an engine answers whole, while engines are killed")
    add("--only", help="part of a proxy's name")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    ports = [free_port() for _ in range(options.engines)]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    with ExitStack() as stack:
        for port in ports:
            command = engine(port, tokens=options.tokens, gap_s=options.gap_s)
            stack.enter_context(running(command, port))
        for name in proxies(urls, "."):
            if options.only is None or options.only in name:
                for one in measure(name, urls, options):
                    print(json.dumps(one), flush=True)
    if options.kills and (options.only is None or options.only in "prefixroute serve"):
        print(json.dumps(kills(options)), flush=True)


if __name__ == "__main__":
    main()
