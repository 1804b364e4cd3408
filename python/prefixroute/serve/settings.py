"""Every setting of the server, in sections. A configuration file has the same names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

from prefixroute.costmodel import DEFAULT_GPU, DEFAULT_MODEL, CostModel
from prefixroute.errors import ConfigError
from prefixroute.limits import MAX_BLOCK_SIZE
from prefixroute.policies import as_policy
from prefixroute.routing import RouterConfig
from prefixroute.serve.options import (
    Kind,
    Option,
    Section,
    count,
    dollars,
    flag,
    fraction,
    many,
    maybe,
    option,
    options_of,
    seconds,
    text,
    word,
)
from prefixroute.validation import check_names

MAX_PORT = 65_535


def base_url(name: str, value: Any) -> str:
    """Return the base URL of an engine without a slash at its end; raise ConfigError for what is none."""
    allowed = "http://HOST:PORT or https://HOST:PORT, without /v1"
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be {allowed}, got {value!r}")
    try:
        parts = urlsplit(value)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or parts.username is not None or not value.isascii():
        raise ConfigError(f"{name} must be {allowed}, got {value!r}")
    if parts.path.rstrip("/").endswith("/v1"):
        raise ConfigError(f"{name} must be given without /v1, got {value!r}")
    return value.rstrip("/")


URL = Kind("http://HOST:PORT, without /v1", base_url)


def _policy(name: str, value: Any) -> Any:
    try:
        as_policy(value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
    return value


POLICY = Kind("the name of a policy or preset, see `prefixroute policies`", _policy)


@dataclass(frozen=True, slots=True)
class Listen(Section):
    """Where clients and operators come in."""

    NAME: ClassVar[str] = "listen"
    host: str = option("127.0.0.1", "Address for clients.", text("an address"))
    port: int = option(8000, "Port for clients; 0 = any free one.", count(0, MAX_PORT))
    admin_host: str = option("127.0.0.1", "Address for operators.", text("an address"))
    admin_port: int | None = option(
        None,
        "Port for operators: metrics, health, the fleet and its changes, over all workers. Not given: `/metrics` is served "
        "to clients (if there is one worker), and the fleet cannot be changed.",
        maybe(count(0, MAX_PORT), "no port of its own"),
    )
    workers: int = option(1, "Processes that serve side by side.", count(1, 256))
    lame_duck_s: float = option(
        0.0,
        "After SIGTERM, go on accepting for so long while `/healthz` says 503, so that load balancers look elsewhere.",
        seconds(above=False),
    )
    drain_s: float = option(
        30.0, "After that, wait so long for requests in flight; then break them off.", seconds(above=False)
    )


@dataclass(frozen=True, slots=True)
class Routing(Section):
    """How replicas are picked."""

    NAME: ClassVar[str] = "routing"
    policy: str = option("cache-aware", "The policy.", POLICY)
    block_size: int = option(16, "Tokens in a block of the engines' caches.", count(1, MAX_BLOCK_SIZE))
    capacity_tokens: int = option(300_000, "KV cache of an engine, in tokens.", count(1))
    max_in_flight: int | None = option(
        None,
        "Requests in flight at an engine, of all workers. Above it at all engines: 429.",
        maybe(count(1), "no limit"),
    )
    peers: str | None = option(
        None,
        "A Redis or Valkey server by which servers on several hosts tell each other what they route (extra `redis`). "
        "Needs `hash_key`.",
        maybe(text("redis://HOST:PORT/DATABASE"), "workers of this server alone tell each other"),
    )
    hash_key: int | None = option(
        None,
        "Key of the hashes of prompts: a secret number, the same in all servers that are peers.",
        maybe(count(0, 2**64 - 1), "the Router chooses"),
    )
    peer_secret: str | None = option(
        None,
        "What servers that are peers seal their messages with, the same in all of them: without it whoever can write to the "
        "server of `peers` can mislead them.",
        maybe(text("16 to 64 bytes"), "messages are sealed by `hash_key` alone"),
    )
    volatile_sample: float = option(
        0.0,
        "Share of conversations whose prompts are compared with earlier ones, so that `/metrics` tells prompts that nobody "
        "could have had from prompts with a text in their head that changes; 0 = none.",
        fraction(),
    )


@dataclass(frozen=True, slots=True)
class Prices(Section):
    """What an engine costs. With any of these, `/metrics` counts lost hits in dollars too."""

    NAME: ClassVar[str] = "prices"
    gpu: str | None = option(None, "GPU of an engine.", maybe(text("a GPU"), DEFAULT_GPU))
    model: str | None = option(
        None, "Model: a known name, or the path of a `config.json`.", maybe(text("a model"), DEFAULT_MODEL)
    )
    tensor_parallel: int | None = option(None, "GPUs of an engine.", maybe(count(1), "1"))
    usd_per_gpu_hour: float | None = option(None, "Dollars per GPU and hour.", maybe(dollars(), "the GPU's"))

    @property
    def cost(self) -> CostModel:
        """The cost model of an engine; raises :class:`ConfigError` for an unknown GPU or model.

        Where nothing was given it is the Router's own default, which counts no dollars.
        """
        given = {one.key: value for one in OPTIONS[self.NAME] if (value := getattr(self, one.key)) is not None}
        return CostModel(**given) if given else RouterConfig().cost


@dataclass(frozen=True, slots=True)
class Upstream(Section):
    """How engines are asked."""

    NAME: ClassVar[str] = "upstream"
    retries: int = option(2, "Further engines that are asked before the first byte of an answer.", count(0, 100))
    hedge_after_s: float | None = option(
        None,
        "Ask a second engine when the first has not begun to answer after so long; the first to answer wins.",
        maybe(seconds(), "never"),
    )
    connect_timeout_s: float = option(5.0, "Longest wait for a connection.", seconds())
    first_byte_timeout_s: float = option(
        600.0, "Longest wait for the first byte of an answer; without streaming, for the whole of it.", seconds()
    )
    idle_timeout_s: float = option(600.0, "Longest silence in the middle of an answer.", seconds())
    request_timeout_s: float | None = option(
        None, "Longest time for a request, from its head to the last byte of its answer.", maybe(seconds(), "no limit")
    )
    replica_header: str = option(
        "x-replica", "Header that names the engine to the client; empty = not told.", text("a header name", empty=True)
    )


@dataclass(frozen=True, slots=True)
class Health(Section):
    """Who may be asked."""

    NAME: ClassVar[str] = "health"
    path: str = option("/health", "Path of the check; empty = not checked.", text("a path", empty=True))
    interval_s: float = option(2.0, "Time between two checks of an engine.", seconds())
    timeout_s: float = option(5.0, "Longest wait for the answer to a check.", seconds())
    failures: int = option(3, "Failures in a row that open an engine's breaker.", count(1))
    reset_s: float = option(
        10.0, "Time for which a breaker stays open; doubles each time it opens again at once.", seconds()
    )
    max_reset_s: float = option(120.0, "Longest time for which a breaker stays open, if that is more.", seconds())
    max_retry_after_s: float = option(
        10.0,
        "An engine that answers 503 with Retry-After is left alone for so long at most; 0 = the header is ignored.",
        seconds(above=False),
    )
    models_interval_s: float = option(
        30.0, "Time between two readings of an engine's `/v1/models`: which models it serves.", seconds()
    )


@dataclass(frozen=True, slots=True)
class Limits(Section):
    """What a client may ask for."""

    NAME: ClassVar[str] = "limits"
    max_requests: int | None = option(
        None, "Requests of a worker at once; above it: 429.", maybe(count(1), "no limit but that of the engines")
    )
    max_body_bytes: int = option(32 * 1024 * 1024, "Size of a body; above it: 413.", count(1))
    max_held_bytes: int = option(
        1024**3, "Size of the bodies that a worker holds at once, until their answers end; above it: 429.", count(1)
    )
    max_header_bytes: int = option(32 * 1024, "Size of a request's head; above it: 431.", count(1))
    header_timeout_s: float = option(10.0, "For a request's head to arrive.", seconds())
    body_timeout_s: float = option(30.0, "For a request's body to arrive; longer: 408.", seconds())
    write_timeout_s: float = option(60.0, "For a client to take a part of an answer; longer: broken off.", seconds())
    keep_alive_s: float = option(
        75.0, "An idle connection of a client is closed after this. Longer than the load balancer's.", seconds()
    )


@dataclass(frozen=True, slots=True)
class Discovery(Section):
    """Where the engines are: at least one source; together they are the fleet."""

    NAME: ClassVar[str] = "discovery"
    replicas: tuple[str, ...] = option((), "Base URLs of engines.", many(URL))
    file: str | None = option(
        None,
        "A file that lists engines, read again when it changes: a URL a line, or JSON, YAML or TOML.",
        maybe(text("a path"), "no file"),
    )
    dns: str | None = option(
        None, "`HOST:PORT`, or a URL: every address of the host is an engine.", maybe(text("HOST:PORT"), "no name")
    )
    kubernetes: str | None = option(
        None,
        "`NAMESPACE/SERVICE`, or `NAMESPACE/SERVICE:PORT` by number or name: the service's ready endpoints (extra "
        "`kubernetes`).",
        maybe(text("NAMESPACE/SERVICE"), "no service"),
    )
    interval_s: float = option(2.0, "Time between two looks at a source.", seconds())
    timeout_s: float = option(10.0, "Longest wait for a source.", seconds())
    leave_after_s: float = option(
        30.0,
        "An engine that a source no longer lists gets nothing new, and is forgotten after so long, or later when its "
        "requests have ended. Back before that, it keeps its cache.",
        seconds(above=False),
    )


@dataclass(frozen=True, slots=True)
class Sessions(Section):
    """What names a conversation. The first that a request has counts."""

    NAME: ClassVar[str] = "sessions"
    headers: tuple[str, ...] | None = option(
        None, "Header names.", maybe(many(text("a header name")), "the table of known clients")
    )
    fields: tuple[str, ...] | None = option(
        None,
        "Body fields, with dots into objects, e.g. `metadata.user_id`.",
        maybe(many(text("a field")), "the table of known clients"),
    )


@dataclass(frozen=True, slots=True)
class Log(Section):
    """What is written to stderr."""

    NAME: ClassVar[str] = "log"
    level: str = option("info", "Least level.", word("debug", "info", "warning", "error"))
    format: str = option("text", "`json` = an object a line.", word("text", "json"))
    access: bool = option(default=True, about="A line for each request.", kind=flag())


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set, checked."""

    listen: Listen = Listen()
    routing: Routing = Routing()
    prices: Prices = Prices()
    upstream: Upstream = Upstream()
    health: Health = Health()
    limits: Limits = Limits()
    discovery: Discovery = Discovery()
    sessions: Sessions = Sessions()
    log: Log = Log()

    def __post_init__(self) -> None:
        """Check what takes two options to be wrong."""
        if self.routing.peers is not None and self.routing.hash_key is None:
            raise ConfigError("routing.peers needs routing.hash_key, the same in all servers that are peers; got none")
        _ = self.prices.cost  # raises where there is no such GPU or model
        listen = self.listen
        urls = self.discovery.replicas
        twice = next((url for url in urls if urls.count(url) > 1), None)
        if twice is not None:
            raise ConfigError(f"discovery.replicas must name each engine once, got {twice} twice")
        if listen.admin_port and listen.admin_port == listen.port and listen.admin_host == listen.host:
            raise ConfigError(f"listen.admin_port must be another than listen.port, got {listen.admin_port} for both")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the settings with some options given by their full names, e.g. ``{"upstream.retries": 0}``.

        Args:
            values: options by full names.
        """
        return cls().having(values)

    def having(self, values: Mapping[str, Any]) -> Self:
        """Return the settings with some options changed, by their full names.

        Args:
            values: options by full names.

        Raises:
            ConfigError: an option does not exist, or has a value that is not allowed.
        """
        changed: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            key = option_named(name).key
            changed.setdefault(name.partition(".")[0], {})[key] = value
        return replace(self, **{name: replace(getattr(self, name), **new) for name, new in changed.items()})

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return every option by section and key."""
        return {
            section: {one.key: getattr(getattr(self, section), one.key) for one in listed}
            for section, listed in OPTIONS.items()
        }


SECTIONS: dict[str, type[Section]] = {
    cls.NAME: cls for cls in (Listen, Routing, Prices, Upstream, Health, Limits, Discovery, Sessions, Log)
}
OPTIONS: dict[str, list[Option]] = {name: options_of(name, cls) for name, cls in SECTIONS.items()}
"""Every option, by section."""


def option_named(name: str) -> Option:
    """Return the option of a full name, e.g. ``upstream.retries``.

    Raises:
        ConfigError: there is no such option; the message says which there are.
    """
    section, _, key = name.partition(".")
    check_names("the server", "section", [section], OPTIONS)
    options = {one.key: one for one in OPTIONS[section]}
    check_names(section, "option", [key], options)
    return options[key]
