"""``prefixroute serve``: a proxy for OpenAI- and Anthropic-compatible engines that routes with a Router."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prefixroute.cli.console import note
from prefixroute.cli.groups import grouped, option

if TYPE_CHECKING:
    from prefixroute.serve import Settings

EXAMPLE = (
    "Example: prefixroute serve --fake 4   then: curl localhost:8000/v1/chat/completions -d "
    '\'{"model": "fake", "messages": [{"role": "user", "content": "Hello"}]}\''
)
PREFILL_S_PER_1K, DECODE_S = 0.1, 0.02
"""How fast the engines of ``--fake`` are."""


@grouped
def command(
    replicas: Annotated[
        list[str] | None, typer.Argument(metavar="URL", help="Base URLs of engines, without /v1.")
    ] = None,
    *,
    config: Path | None = option(
        None, "Settings as TOML, YAML or JSON; flags override it.", "--config", "-c", metavar="FILE"
    ),
    check_only: bool = option(False, "Check the settings, print them as JSON, and serve nothing.", "--check"),
    fake: int = option(0, "Run N engines without a GPU here, and follow their KV events.", min=0, metavar="N"),
    host: str | None = option(None, "Address for clients.", show_default="127.0.0.1"),
    port: int | None = option(None, "Port for clients.", show_default="8000"),
    admin_port: int | None = option(None, "Port for operators.", show_default="metrics and health at --port"),
    policy: str | None = option(None, "A policy or preset.", show_default="cache-aware", metavar="NAME"),
    workers: int | None = option(None, "Processes that serve side by side.", show_default="1"),
    log_format: str | None = option(None, "text or json.", show_default="text"),
    assignments: list[str] | None = option(
        None, "Any setting, as in a file. Once for each: see docs/serve.md.", "--set", metavar="SECTION.KEY=VALUE"
    ),
) -> None:
    """Serve chat, completions, responses and messages in front of engines, and route each request to the best one.

    SIGTERM ends it when the requests in flight have been served.
    """
    from prefixroute.errors import ConfigError
    from prefixroute.serve import Settings, check, read_settings, serve
    from prefixroute.serve.config import assignment
    from prefixroute.validation import shown

    flags = {
        "discovery.replicas": tuple(replicas) if replicas else None,
        "listen.host": host,
        "listen.port": port,
        "listen.admin_port": admin_port,
        "listen.workers": workers,
        "routing.policy": policy,
        "log.format": log_format,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    for name, value in map(assignment, assignments or ()):
        if given.setdefault(name, value) != value:
            raise ConfigError(f"{name} is given twice: {shown(given[name])} and {shown(value)}")
    settings = Settings.of(given) if config is None else read_settings(config, given)
    if check_only:
        check(settings.discovery, engines=fake)
        print(json.dumps(settings.to_dict(), indent=2))
        return
    with _fakes(settings, fake) as (fed, options):
        serve(fed, **options)


@contextmanager
def _fakes(settings: Settings, count: int) -> Iterator[tuple[Settings, dict[str, Any]]]:
    """Run engines without a GPU beside those that the settings name."""
    if not count:
        yield settings, {}
        return
    from prefixroute.testing import Behaviour, EngineSettings, FakeEngine, render, tokenize

    routing = settings.routing
    size = EngineSettings(block_size=routing.block_size, capacity_tokens=routing.capacity_tokens)
    engines = [FakeEngine(size, Behaviour(PREFILL_S_PER_1K, DECODE_S)) for _ in range(count)]
    note(f"{count} fake engines: their answers are made up")
    urls = (*settings.discovery.replicas, *(engine.url for engine in engines))
    feeds = {engine.url: engine.feed for engine in engines}
    try:
        yield (
            settings.having({"discovery.replicas": urls}),
            {"feeds": feeds, "render": render, "tokenizer": tokenize},
        )
    finally:
        with ThreadPoolExecutor(count) as pool:  # each takes a moment
            list(pool.map(FakeEngine.kill, engines))
