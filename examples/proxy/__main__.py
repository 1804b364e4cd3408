"""Run the proxy: ``python -m examples.proxy http://10.0.0.1:8000 http://10.0.0.2:8000 --policy cache-aware``."""

from __future__ import annotations

import argparse
import logging
from contextlib import ExitStack
from typing import Any

import uvicorn

from examples.proxy.app import Settings, create_app
from prefixroute.testing import Behaviour, EngineSettings, FakeEngine, render, tokenize


def main() -> None:
    """Read the command line and serve until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m examples.proxy", description="Route to OpenAI-compatible engines.")
    add = parser.add_argument
    add(
        "replicas",
        nargs="*",
        metavar="URL",
        type=lambda url: url.rstrip("/"),
        help="base URL of an engine, without /v1",
    )
    add("--fake", type=int, default=0, metavar="N", help="run N engines without a GPU here, and follow their KV events")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8000)
    add("--policy", default=Settings.policy, help="name of a policy (default: %(default)s)")
    add("--block-size", type=int, default=Settings.block_size, help="the engines' tokens in a block")
    add("--capacity-tokens", type=int, default=Settings.capacity_tokens, help="KV cache of an engine, in tokens")
    add("--max-in-flight", type=int, help="requests at an engine at most; above it on all of them: 429")
    add("--retries", type=int, default=Settings.retries, help="further engines asked before the first byte")
    add("--connect-timeout-s", type=float, default=Settings.connect_timeout_s)
    add("--read-timeout-s", type=float, default=Settings.read_timeout_s, help="longest silence of an engine")
    add(
        "--breaker-failures",
        type=int,
        default=Settings.breaker_failures,
        help="failures in a row that suspend an engine",
    )
    add("--breaker-reset-s", type=float, default=Settings.breaker_reset_s, help="shortest suspension")
    add(
        "--health-interval-s", type=float, default=Settings.health_interval_s, help="time between checks of GET /health"
    )
    add("--health-timeout-s", type=float, default=Settings.health_timeout_s, help="longest wait for its answer")
    add("--replica-header", default=Settings.replica_header, help="names the engine to the client; '' = do not tell")
    add("--max-body-bytes", type=int, default=Settings.max_body_bytes)
    add("--max-header-bytes", type=int, default=Settings.max_header_bytes)
    add("--body-timeout-s", type=float, default=Settings.body_timeout_s, help="for the whole body to arrive")
    options = vars(parser.parse_args())
    host, port, fake = options.pop("host"), options.pop("port"), options.pop("fake")
    if bool(fake) == bool(options["replicas"]):
        parser.error("give the URLs of engines, or --fake N")
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s")
    with ExitStack() as stack:
        behaviour = Behaviour(prefill_s_per_1k=0.1, decode_s=0.02)
        size: dict[str, Any] = {"block_size": options["block_size"], "capacity_tokens": options["capacity_tokens"]}
        engines = [stack.enter_context(FakeEngine(EngineSettings(**size), behaviour)) for _ in range(fake)]
        urls = tuple(options["replicas"]) or tuple(engine.url for engine in engines)
        settings = Settings(**{**options, "replicas": urls})
        own: dict[str, Any] = {
            "feeds": {engine.url: engine.feed for engine in engines},
            "render": render,
            "tokenizer": tokenize,
        }
        app = create_app(settings, **(own if fake else {}))
        print(f"listening on http://{host}:{port}, engines: {', '.join(urls)}", flush=True)
        uvicorn.run(app, host=host, port=port, log_level="warning")


if __name__ == "__main__":
    main()
