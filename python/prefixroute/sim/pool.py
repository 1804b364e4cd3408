"""Where the tasks of a grid run: in processes of this machine, or on a Ray cluster.

Results are the same, byte for byte.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Literal, Protocol, TypeAlias
from weakref import WeakKeyDictionary

from prefixroute.errors import ConfigError
from prefixroute.extras import extra_module
from prefixroute.validation import check_int, shown
from prefixroute.workload import KeptParts, KeptRequests

Jobs: TypeAlias = int | Literal["ray"]
"""Processes to run in, or ``ray``: all CPUs of the Ray cluster that is found, see :func:`on_ray`."""
Result: TypeAlias = Callable[[], Any]
"""Returns what a task gave, once it is done; raises what it raised."""


class Pool(Protocol):
    """Runs tasks elsewhere.

    Attributes:
        width: how many run at once.
    """

    width: int

    def submit(self, task: Any) -> Result:
        """Begin a task: an object with a method ``run``, that pickles."""


def check_jobs(jobs: Any) -> None:
    """Raise :class:`ConfigError` unless ``jobs`` is a number of processes or ``ray``."""
    if isinstance(jobs, str):
        if jobs != "ray":
            raise ConfigError(f"jobs must be a number of processes or 'ray', got {shown(jobs)}")
        return
    check_int("jobs", jobs, 1)


@contextmanager
def open_pool(jobs: Jobs, tasks: int) -> Iterator[Pool]:
    """Run tasks elsewhere as long as the block lasts. Leaving it early, at an interrupt too, ends them.

    Args:
        jobs: where.
        tasks: how many there are.
    """
    if jobs == "ray":
        with on_ray() as cluster:
            yield cluster
        return
    with _interrupts_ignored():
        pool = multiprocessing.get_context("spawn").Pool(min(jobs, tasks))
    with pool:
        yield _Processes(pool, jobs)


class _Processes:
    """Processes of this machine."""

    def __init__(self, pool: Any, width: int) -> None:
        self.width, self._pool = width, pool

    def submit(self, task: Any) -> Result:
        """Begin a task."""
        result: Result = self._pool.apply_async(_run, (task,)).get
        return result


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ignore Ctrl-C for a moment.

    Processes started meanwhile ignore it for good, and it is the parent's to end them.
    """
    if threading.current_thread() is not threading.main_thread():  # where nobody may, and nobody is interrupted
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run(task: Any) -> Any:
    return task.run()


_STORED: WeakKeyDictionary[KeptRequests, tuple[str, Any]] = WeakKeyDictionary()
"""Traces in the cluster's object store, which has each once a node: by requests, the connection and the reference to
their parts."""


@contextmanager
def on_ray() -> Iterator[Pool]:
    """Run tasks on a Ray cluster, whose nodes need prefixroute of the same version.

    It is the one this process is connected to, that of ``RAY_ADDRESS``, one that runs on this machine, or else a new one
    of this machine alone.

    A trace that was read is put into the object store once, and mapped there by all tasks of a node.

    Raises:
        ConfigError: Ray is not installed.
    """
    ray = extra_module("ray", "ray")
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level="ERROR")
    from ray.util import deregister_serializer, register_serializer  # noqa: PLC0415  # is there by now

    connection = ray.get_runtime_context().get_job_id()

    def stored(requests: KeptRequests) -> Any:
        known = _STORED.get(requests)
        if known is None or known[0] != connection:
            known = _STORED[requests] = connection, ray.put(tuple(requests.parts()))
        return known[1]

    register_serializer(KeptRequests, serializer=stored, deserializer=_opened)
    cluster = _Cluster(ray)
    try:
        yield cluster
    finally:
        deregister_serializer(KeptRequests)
        cluster.cancel()


class _Cluster:
    """A Ray cluster."""

    def __init__(self, ray: Any) -> None:
        self.width = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._ray, self._run = ray, ray.remote(_run)
        self._open: set[Any] = set()

    def submit(self, task: Any) -> Result:
        """Begin a task."""
        begun = self._run.remote(task)
        self._open.add(begun)

        def result() -> Any:
            try:
                return self._ray.get(begun)
            except self._ray.exceptions.RayTaskError as error:
                raise error.cause from error
            finally:
                self._open.discard(begun)

        return result

    def cancel(self) -> None:
        """End the tasks that nobody waits for."""
        for begun in self._open:
            self._ray.cancel(begun, force=True)


@lru_cache(maxsize=4)
def _opened(stored: Any) -> KeptRequests:
    """Return the requests that a reference leads to, once for all tasks of this process."""
    ray = extra_module("ray", "ray")
    return KeptRequests(lambda: KeptParts(*ray.get(stored)))
