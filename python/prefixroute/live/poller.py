"""Poll engines' Prometheus metrics into a router's load reports: for engines that publish no load of their own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from prefixroute.errors import ConfigError, EventError, UnknownReplicaError
from prefixroute.extras import extra_module
from prefixroute.live.connection import Sink
from prefixroute.live.metrics import MAX_TEXT_BYTES, EngineReading, engine_named, metric_names, read_metrics
from prefixroute.validation import check_float, check_int

_LOG = logging.getLogger("prefixroute")
Fetch = Callable[[str], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """Where an engine serves its metrics.

    Attributes:
        url: the server, e.g. ``http://10.0.0.1:8000``, or the whole address of its metrics.
        engine: ``vllm``, ``sglang`` or ``tensorrt-llm``; ``None`` = told by the names that it serves.
        rank: only this data-parallel rank.
    """

    url: str
    engine: str | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        """Refuse an engine that is not known."""
        if self.engine is not None:
            engine_named(self.engine)
        if self.rank is not None:
            check_int("rank", self.rank, 0)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the metrics may be: the engine's path, or that of each known engine, vLLM's first."""
        if self.url.endswith("/metrics"):
            return (self.url,)
        engines = metric_names().values() if self.engine is None else [engine_named(self.engine)]
        return tuple(self.url.rstrip("/") + path for path in dict.fromkeys(names.path for names in engines))


@dataclass(frozen=True, slots=True)
class PollOptions:
    """How often engines are asked, in seconds.

    Attributes:
        interval_s: between two readings of a replica. Below the router's ``report_fresh_s``, else reports lapse in
            between.
        timeout_s: for an answer.
        max_interval_s: between two attempts at a replica that does not answer: the interval doubles up to this.
    """

    interval_s: float = 1.0
    timeout_s: float = 2.0
    max_interval_s: float = 30.0

    def __post_init__(self) -> None:
        """Refuse what is no time."""
        for name in ("interval_s", "timeout_s", "max_interval_s"):
            check_float(name, getattr(self, name), 0, above=True)


class _Replica:
    """What is known of one polled replica."""

    def __init__(self, source: MetricsSource) -> None:
        self.source = source
        self.addresses = list(source.addresses)
        self.reading: EngineReading | None = None
        self.read_at: float | None = None
        self.polls = self.failures = self.failed_in_a_row = 0
        self.note = ""
        self.gone = False


class LoadPoller:
    """Reports what engines' metrics say to a router.

    As a context manager (``with``) it runs in a daemon thread with an event loop of its own, with ``async with`` as a
    task of the running loop. A replica that does not answer is asked less and less often; its last report grows old,
    and the router ignores what is too old.

    Args:
        sink: the router.
        sources: where each replica's engine serves its metrics, by the replica's name; a plain text is the URL.
        options: times.
        clock: returns seconds, only ever compared with each other.
        fetch: returns the text of an address; by default over HTTP.
    """

    def __init__(
        self,
        sink: Sink,
        sources: Mapping[str, MetricsSource | str],
        *,
        options: PollOptions = PollOptions(),  # frozen
        clock: Callable[[], float] = time.monotonic,
        fetch: Fetch | None = None,
    ) -> None:
        self._sink, self._options, self._clock, self._fetch = sink, options, clock, fetch
        self._replicas = {
            name: _Replica(MetricsSource(source) if isinstance(source, str) else source)
            for name, source in sources.items()
        }
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._closing = False
        self._error: BaseException | None = None

    def remove(self, name: str) -> None:
        """Stop polling a replica.

        Args:
            name: of the replica.
        """
        replica = self._replicas.get(name)
        if replica is not None:
            replica.gone = True

    def stats(self) -> dict[str, dict[str, Any]]:
        """Return what was read of each replica, by its name.

        ``engine``, ``age_s`` of the last reading, ``polls``, ``failures``, ``note`` = what failed last, and the reading's
        ``running``, ``waiting``, ``kv_use``, ``hit_tokens``, ``prompt_tokens`` (``None`` = not told).
        """
        return {name: self._told(replica) for name, replica in self._replicas.items()}

    def _told(self, replica: _Replica) -> dict[str, Any]:
        reading = replica.reading
        fields = ("running", "waiting", "kv_use", "hit_tokens", "prompt_tokens")
        return {
            "engine": None if reading is None else reading.engine,
            "age_s": None if replica.read_at is None else self._clock() - replica.read_at,
            "polls": replica.polls,
            "failures": replica.failures,
            "note": replica.note,
            **{field: getattr(reading, field, None) for field in fields},
        }

    def start(self) -> Self:
        """Run in a daemon thread. Returns itself.

        Raises:
            ConfigError: it was started before.
            OSError: there are no files left for its event loop.
        """
        if self._thread is not None or self._task is not None:
            raise ConfigError("a poller runs once: make another")
        self._thread = threading.Thread(target=self._run, name="prefixroute-load", daemon=True)
        try:
            self._thread.start()
            self._ready.wait()
        except BaseException:  # such as Ctrl-C, with the thread running or not
            self.close()
            raise
        if self._error is not None:
            self.close()
        return self

    def close(self) -> None:
        """Stop, and wait until it has. Raise what ended the thread, if anything did."""
        self._closing = True
        thread = self._thread
        if thread is None or thread.ident is None:
            return
        self._ready.wait()
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(task.cancel)
        thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001  # close() raises it in the caller's thread
            self._error = error
        finally:
            self._ready.set()

    def __enter__(self) -> Self:
        """Run in a thread, if it does not run already."""
        return self.start() if self._thread is None else self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.close()

    async def __aenter__(self) -> Self:
        """Run as a task of this event loop."""
        self._task = asyncio.create_task(self._serve(), name="prefixroute-load")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            (ended,) = await asyncio.gather(self._task, return_exceptions=True)
            if isinstance(ended, Exception):
                raise ended

    async def _serve(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            if self._fetch is not None:
                await self._poll_all(self._fetch)
                return
            httpx = extra_module("httpx", "events")
            async with httpx.AsyncClient(timeout=self._options.timeout_s) as client:
                await self._poll_all(lambda address: _get(httpx, client, address))
        except asyncio.CancelledError:
            _LOG.debug("polling ends")

    async def _poll_all(self, fetch: Fetch) -> None:
        self._ready.set()
        if self._closing:
            return
        await asyncio.gather(*(self._poll(name, replica, fetch) for name, replica in self._replicas.items()))

    async def _poll(self, name: str, replica: _Replica, fetch: Fetch) -> None:
        options = self._options
        while not replica.gone:
            replica.polls += 1
            try:
                await self._read(name, replica, fetch)
            except UnknownReplicaError:
                replica.gone = True
            except Exception as error:  # noqa: BLE001  # whatever a fetch of one's own raises costs this replica alone
                replica.failures += 1
                replica.failed_in_a_row = min(replica.failed_in_a_row + 1, 32)
                replica.note = _reason(error)
            else:
                replica.failed_in_a_row = 0
            wait = options.interval_s * 2**replica.failed_in_a_row
            await asyncio.sleep(min(wait, max(options.max_interval_s, options.interval_s)))

    async def _read(self, name: str, replica: _Replica, fetch: Fetch) -> None:
        async with asyncio.timeout(self._options.timeout_s):
            reading = await _first_reading(replica, fetch)
        self._sink.update_load(name, running=reading.running, waiting=reading.waiting, kv_use=reading.kv_use)
        replica.reading, replica.read_at, replica.note = reading, self._clock(), ""


async def _first_reading(replica: _Replica, fetch: Fetch) -> EngineReading:
    """Read the first address that has metrics of an engine. It is the first one asked from then on."""
    source, reasons = replica.source, []
    for address in replica.addresses:
        try:
            reading = read_metrics(await fetch(address), source.engine, rank=source.rank)
        except Exception as error:  # noqa: BLE001  # a fetch of one's own may raise anything
            reasons.append(_reason(error))
            continue
        replica.addresses.sort(key=lambda one: one != address)
        return reading
    raise EventError("; ".join(dict.fromkeys(reasons)))


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


async def _get(httpx: Any, client: Any, address: str) -> str:
    """Return a page, which is not longer than metrics are."""
    body = bytearray()
    try:
        async with client.stream("GET", address) as answer:
            answer.raise_for_status()
            async for part in answer.aiter_bytes():
                body += part
                if len(body) > MAX_TEXT_BYTES:
                    raise EventError(f"metrics of {address} are longer than {MAX_TEXT_BYTES:,} bytes")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise EventError(f"no metrics from {address}: {error or type(error).__name__}") from error
    return body.decode("utf-8", "replace")
