"""Run fake engines: ``python -m prefixroute.testing --port 8001 --prefill-s-per-1k 0.2 --decode-s 0.02``."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

from prefixroute.extras import extra_module
from prefixroute.testing.app import FakeApp
from prefixroute.testing.settings import Behaviour, EngineSettings

_OPTIONS = {
    "format": "whose metrics, KV events and server information: vllm or sglang",
    "block_size": "tokens in a block",
    "capacity_tokens": "tokens that the KV cache holds",
    "chunk_tokens": "tokens of one step",
    "max_running": "requests in the batch at once",
    "speed": "seconds of the engine that pass in one second",
    "model": "name of the base model",
    "events": "where to publish KV events, e.g. tcp://127.0.0.1:5557",
    "replay": "where to answer replays of KV events",
    "load": "where to publish load, as SGLang does",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m prefixroute.testing", description="An engine without a GPU.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8001)
    for name, about in _OPTIONS.items():
        default: Any = EngineSettings.__dataclass_fields__[name].default
        kind = str if default is None else type(default)
        parser.add_argument(_flag(name), type=kind, default=default, help=f"{about} (default: %(default)s)")
    for field in fields(Behaviour):
        kind = type(field.default)
        parser.add_argument(
            _flag(field.name), type=kind, default=field.default, help="see Behaviour; changed by /control"
        )
    return parser


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def main() -> None:
    """Run an engine, as the command line says."""
    options = vars(_parser().parse_args())
    host, port = options.pop("host"), options.pop("port")
    settings = EngineSettings(**{name: options.pop(name) for name in _OPTIONS})
    app = FakeApp(settings, Behaviour(**options))
    try:
        extra_module("uvicorn", "testing").run(app.asgi, host=host, port=port, log_level="warning")
    finally:
        app.close()


if __name__ == "__main__":
    main()
