"""Sources of engines: a fixed list, a file, a name in DNS, a service of Kubernetes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from prefixroute.errors import ConfigError
from prefixroute.serve.config import parse
from prefixroute.serve.discovery.kubernetes import KubernetesSource
from prefixroute.serve.settings import Discovery, base_url
from prefixroute.types import Replica
from prefixroute.validation import check_instance, check_names

Found = dict[str, Replica]
"""Engines by their base URLs."""


class EngineSource(Protocol):
    """Something that lists engines.

    Attributes:
        name: what it is called in logs and metrics.
    """

    name: str

    async def find(self) -> Found:
        """Return the engines that there are now.

        Raises:
            Exception: it cannot tell; the fleet then stays as it was.
        """
        ...


class StaticSource:
    """A fixed list."""

    name = "static"

    def __init__(self, urls: tuple[str, ...]) -> None:
        """List these."""
        self._found = {url: Replica() for url in urls}

    async def find(self) -> Found:
        """Return them."""
        return self._found


class FileSource:
    """A file, read again when it has changed: a URL a line, or JSON, YAML or TOML by its ending.

    A change counts at the look after the one that saw it first: until then the file may be half written.

    The structured forms have a list under ``replicas``: of URLs, or of objects with ``url`` and fields of
    :class:`~prefixroute.types.Replica`: ``weight``, ``capacity_tokens``, ``incarnation``, ``rank``.
    """

    name = "file"
    _FIELDS = ("weight", "capacity_tokens", "incarnation", "rank")

    def __init__(self, path: str) -> None:
        """Read nothing yet."""
        self._path = Path(path)
        self._stamp: tuple[int, int, int] | None = None
        self._seen: tuple[int, int, int] | None = None
        self._found: Found = {}

    async def find(self) -> Found:
        """Return what the file lists; raise ConfigError for a file that cannot be read or understood."""
        return await asyncio.to_thread(self.read)

    def read(self) -> Found:
        """Return what the file lists, as :meth:`find` does."""
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            settled, self._seen = self._stamp is None or stamp == self._seen, stamp
            if stamp != self._stamp and settled:
                self._found = self._parsed(self._path.read_text(encoding="utf-8-sig"))
                self._stamp = stamp
        except OSError as error:
            raise ConfigError(f"discovery.file: {self._path}: cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"discovery.file: {self._path}: {error}") from error
        return self._found

    def _parsed(self, text: str) -> Found:
        if self._path.suffix in {".json", ".yaml", ".yml", ".toml"}:
            values, _ = parse(text, str(self._path), self._path.suffix)
            listed: list[Any] = values.get("replicas", [])
            check_instance(f"{self._path}: replicas", listed, list)
        else:
            lines = (line.partition("#")[0].strip() for line in text.splitlines())
            listed = [line for line in lines if line]
        found: dict[str, Replica] = {}
        for at, one in enumerate(listed):
            url, replica = self._replica(at, one)
            if url in found:
                raise ConfigError(f"{self._path}: replicas[{at}] is {url}, which is listed above already")
            found[url] = replica
        return found

    def _replica(self, at: int, one: Any) -> tuple[str, Replica]:
        where = f"{self._path}: replicas[{at}]"
        if not isinstance(one, Mapping):
            return base_url(where, one), Replica()
        check_names(where, "key", one, ("url", *self._FIELDS))
        try:
            return base_url(where, one.get("url")), Replica(**{key: one[key] for key in one if key != "url"})
        except ConfigError as error:
            raise error if str(error).startswith(where) else ConfigError(f"{where}: {error}") from None


class DnsSource:
    """A name in DNS: each of its addresses is an engine."""

    name = "dns"

    def __init__(self, target: str) -> None:
        """Take ``HOST:PORT`` or a URL; raise ConfigError for anything else."""
        url = base_url("discovery.dns", target if "://" in target else f"http://{target}")
        parts = urlsplit(url)
        if parts.port is None:
            raise ConfigError(f"discovery.dns must be HOST:PORT, got {target!r}")
        self._scheme, self._host, self._port, self._path = parts.scheme, parts.hostname, parts.port, parts.path

    async def find(self) -> Found:
        """Return an engine for each address; raise OSError where the name has none."""
        loop = asyncio.get_running_loop()
        answers = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        hosts = sorted({str(address[0]) for *_, address in answers})
        return {self._url(host): Replica() for host in hosts}

    def _url(self, host: str) -> str:
        return f"{self._scheme}://{f'[{host}]' if ':' in host else host}:{self._port}{self._path}"


def sources_of(settings: Discovery, *, engines: int = 0) -> list[EngineSource]:
    """Return the sources that the settings name.

    Args:
        settings: of discovery.
        engines: others that will be added.

    Raises:
        ConfigError: there is none, one cannot be used, or its extra is not installed.
    """
    sources: list[EngineSource] = []
    if settings.replicas:
        sources.append(StaticSource(settings.replicas))
    if settings.file is not None:
        sources.append(FileSource(settings.file))
    if settings.dns is not None:
        sources.append(DnsSource(settings.dns))
    if settings.kubernetes is not None:
        sources.append(KubernetesSource(settings.kubernetes))
    if not sources and not engines:
        raise ConfigError(
            "no engines are named: give their URLs (prefixroute serve http://HOST:PORT ...), --fake N to try it without a GPU, or "
            "at least one of replicas, file, dns and kubernetes under [discovery]"
        )
    return sources


def check(settings: Discovery, *, engines: int = 0) -> None:
    """Check the sources of engines before they are used, and the file that lists them.

    A server starts without its file, since that may come later: nothing is served until then.

    Args:
        settings: of discovery.
        engines: others that will be added.

    Raises:
        ConfigError: as :func:`sources_of`, or the file cannot be read or lists no engine.
    """
    for source in sources_of(settings, engines=engines):
        if isinstance(source, FileSource) and not source.read():
            raise ConfigError(f"discovery.file: {settings.file} lists no engine")
