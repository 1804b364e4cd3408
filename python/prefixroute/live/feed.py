"""Where an engine publishes its KV events and its load, and how to find that out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import urlsplit

from prefixroute.errors import ConfigError
from prefixroute.extras import extra_module
from prefixroute.validation import check_float, check_instance, check_int, shown

DEFAULT_PORT = 5557
"""vLLM's default port for KV events."""
SERVER_INFO_TIMEOUT_S = 5.0
"""Seconds to wait for an engine's ``/server_info``."""
_WILDCARDS = frozenset({"*", "0.0.0.0", "::", "[::]", ""})  # noqa: S104  # what an engine says that it binds to
_TCP = re.compile(r"tcp://(?P<host>\[[^\]]+\]|[^:/]+):(?P<port>\d+)")


@dataclass(frozen=True, slots=True)
class KvFeed:
    """The event feed of one engine process, or of one data-parallel rank of it.

    A rank is a replica of its own. Endpoints are those of rank 0; rank r is found at port + r, as engines publish.

    Attributes:
        endpoint: ZeroMQ address where KV events are published, e.g. ``tcp://10.0.0.1:5557``.
        replay: address where missed batches are asked for; ``None`` = the engine has none, and any gap clears the
            replica.
        topic: only batches whose topic begins so; ``""`` = all.
        rank: data-parallel rank.
        bind: listen at ``endpoint`` and let the engine connect. vLLM connects unless its endpoint has ``*`` or ``::``.
        load: address where the engine publishes its load (SGLang); ``None`` = not published.
        load_topic: topic of load reports.
        block_size: tokens in a block, as the engine says; ``None`` = not known.
        capacity_tokens: tokens that the KV cache holds, as the engine says; ``None`` = not known.
        ranks: data-parallel ranks of the engine.
    """

    endpoint: str
    replay: str | None = None
    topic: str = ""
    rank: int = 0
    bind: bool = False
    load: str | None = None
    load_topic: str = "load"
    block_size: int | None = None
    capacity_tokens: int | None = None
    ranks: int = 1

    def __post_init__(self) -> None:
        """Refuse what no engine publishes, and addresses that cannot be shifted to the rank."""
        check_int("rank", self.rank, 0)
        check_int("ranks", self.ranks, 1)
        check_instance("topic", self.topic, str)
        check_instance("load_topic", self.load_topic, str)
        check_instance("bind", self.bind, bool)
        if self.block_size is not None:
            check_int("block_size", self.block_size, 1)
        if self.capacity_tokens is not None:
            check_int("capacity_tokens", self.capacity_tokens, 1)
        for address in (self.endpoint, self.replay, self.load):
            if address is not None:
                shifted(address, self.rank)

    @property
    def addresses(self) -> tuple[str, str | None, str | None]:
        """Addresses of this rank's events, replay and load."""
        replay = None if self.replay is None else shifted(self.replay, self.rank)
        load = None if self.load is None else shifted(self.load, self.rank)
        return shifted(self.endpoint, self.rank), replay, load

    def of_rank(self, rank: int) -> Self:
        """Return the feed of another rank of the same engine.

        Args:
            rank: data-parallel rank, from 0.
        """
        return replace(self, rank=rank)

    @classmethod
    def from_server_info(cls, url: str, *, rank: int = 0, timeout_s: float = SERVER_INFO_TIMEOUT_S) -> Self:
        """Ask an SGLang server where it publishes. The other ranks are ``feed.of_rank(r)`` for r below ``feed.ranks``.

        Args:
            url: the server, e.g. ``http://10.0.0.1:30000``.
            rank: data-parallel rank.
            timeout_s: seconds to wait for the answer.

        Returns:
            The feed.

        Raises:
            ConfigError: no answer, or the server publishes no KV events.
        """
        check_float("timeout_s", timeout_s, 0, above=True)
        httpx = extra_module("httpx", "events")
        try:
            answer = httpx.get(f"{url.rstrip('/')}/server_info", timeout=timeout_s).raise_for_status().json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise ConfigError(f"no server_info from {url}: {error}") from error
        return cls.of_server_info(answer, host=urlsplit(url).hostname or "", rank=rank)

    @classmethod
    def of_server_info(cls, answer: Mapping[str, Any], *, host: str, rank: int = 0) -> Self:
        """Return the feed that a server's answer describes.

        Args:
            answer: the JSON object of ``/server_info``.
            host: where the server is, used if it publishes on all interfaces.
            rank: data-parallel rank.

        Raises:
            ConfigError: the answer has no usable ``kv_events`` block.
        """
        block = answer.get("kv_events") if isinstance(answer, Mapping) else None
        if not isinstance(block, Mapping) or block.get("endpoint_port_base") is None:
            raise ConfigError(f"{host} publishes no KV events: its server_info has kv_events={shown(block)}")
        told = str(block.get("endpoint_host") or "")
        place = host if told in _WILDCARDS else told
        place = f"[{place}]" if ":" in place and not place.startswith("[") else place

        def address(field: str) -> str | None:
            port = block.get(field)
            return None if port is None else f"tcp://{place}:{port}"

        capacity = answer.get("max_total_num_tokens")
        return cls(
            endpoint=f"tcp://{place}:{block['endpoint_port_base']}",
            replay=address("replay_endpoint_port_base"),
            topic=str(block.get("topic") or ""),
            rank=rank,
            load=address("load_endpoint_port_base"),
            load_topic=str(block.get("load_topic") or "load"),
            block_size=block.get("block_size"),
            capacity_tokens=capacity if isinstance(capacity, int) and capacity > 0 else None,
            ranks=block.get("dp_size") or 1,
        )


def shifted(address: str, rank: int) -> str:
    """Return an address with its port shifted by the rank, as vLLM and SGLang shift theirs."""
    if not isinstance(address, str) or "://" not in address:
        raise ConfigError(f"a feed's address must be like tcp://host:{DEFAULT_PORT}, got {shown(address)}")
    if rank == 0:
        return address
    if address.startswith("inproc://"):
        return f"{address}_dp{rank}"
    match = _TCP.fullmatch(address)
    if match is None:
        raise ConfigError(f"only tcp and inproc addresses can be shifted to rank {rank}, got {shown(address)}")
    return f"tcp://{match['host']}:{int(match['port']) + rank}"
