"""Runs as tasks: here, or shared out over processes. The results come in the order of the tasks, the same either way."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError
from prefixroute.sim.floor import floor_tokens
from prefixroute.sim.run import Run, simulate
from prefixroute.sim.scenario import CacheKind, Scenario
from prefixroute.validation import check_int
from prefixroute.workload import Workload, read_trace

Source: TypeAlias = Workload | Callable[[int], Workload]
"""A workload, or a check_callable from a seed to one."""
Report: TypeAlias = Callable[[float, str], None]
"""Told the share of the work that is done, 0 to 1, and what was done last."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace file as a function of a seed: the same requests whatever the seed, and picklable for other processes."""

    path: Path

    def __call__(self, seed: int) -> Workload:
        """Open the file."""
        del seed
        return read_trace(self.path)


@dataclass(frozen=True, slots=True)
class Masked:
    """A source whose prompts have a volatile head, with that head masked. Picklable if the source is."""

    source: Source

    def __call__(self, seed: int) -> Workload:
        """Open the source, and return the other reading of it; the same one where nothing in it is volatile."""
        workload = open_source(self.source, seed)
        return workload if workload.volatile is None else workload.volatile.masked


@dataclass(frozen=True, slots=True)
class RunTask:
    """One run, and what to keep of it. Picklable if its source and ``measure`` are."""

    source: Source
    scenario: Scenario
    cost: CostModel
    measure: Callable[[Run], Any]

    @property
    def workload(self) -> Workload:
        """The workload of this run's seed."""
        return open_source(self.source, self.scenario.seed)

    @property
    def label(self) -> str:
        """What the task is, for whoever watches."""
        scenario = self.scenario
        unlimited = ", unlimited caches" if scenario.capacity_tokens is None else ""
        return f"{scenario.policy_name} on {scenario.replicas}, seed {scenario.seed}{unlimited}"

    def run(self, progress: Callable[[int], None] | None = None) -> Any:
        """Run, and return what was asked for."""
        return self.measure(simulate(self.workload, self.scenario, cost=self.cost, progress=progress))


@dataclass(frozen=True, slots=True)
class FloorTask:
    """The floor of one workload, as (recomputed, prompt) tokens."""

    source: Source
    seed: int
    cache: CacheKind = "blocks"
    warmup: int = 0

    @property
    def workload(self) -> Workload:
        """The workload of this seed."""
        return open_source(self.source, self.seed)

    @property
    def label(self) -> str:
        """What the task is, for whoever watches."""
        return f"floor, seed {self.seed}"

    def run(self, progress: Callable[[int], None] | None = None) -> tuple[int, int]:
        """Run; it is too short to report progress within."""
        del progress
        return floor_tokens(self.workload, self.cache, self.warmup)


def open_source(source: Source, seed: int) -> Workload:
    """Return the workload of a seed; the last few are kept."""
    return source if isinstance(source, Workload) else _made(source, seed)


@lru_cache(maxsize=8)
def _made(source: Callable[[int], Workload], seed: int) -> Workload:
    return source(seed)


def is_fixed(source: Source) -> bool:
    """Whether every seed gives the same requests."""
    return is_fixed(source.source) if isinstance(source, Masked) else isinstance(source, Workload | Trace)


def run_tasks(tasks: Sequence[RunTask | FloorTask], jobs: int = 1, progress: Report | None = None) -> Iterator[Any]:
    """Yield the result of each task.

    Args:
        tasks: in the order of the results.
        jobs: processes; more than one needs policies and sources that can be pickled: a function of a module, or
            :class:`Trace`.
        progress: told after each task, and within runs if ``jobs`` is one.

    Raises:
        ConfigError: ``jobs`` is below one, or cannot be had with these policies and sources.
    """
    check_int("jobs", jobs, 1)
    if jobs == 1 or len(tasks) == 1:
        yield from _here(tasks, progress)
        return
    if any(isinstance(task.source, Workload) for task in tasks):
        raise ConfigError(f"{jobs} jobs need a function from a seed to a workload, which other processes can call")
    try:
        pickle.dumps(list(tasks))
    except (pickle.PicklingError, AttributeError, TypeError) as error:  # three names for the same fault
        raise ConfigError(f"{jobs} jobs need policies and a source that other processes can import: {error}") from error
    with ExitStack() as stack:  # leaving early, at an interrupt too, ends the processes
        with _interrupts_ignored():
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(min(jobs, len(tasks))))
        for number, (task, result) in enumerate(zip(tasks, pool.imap(_run, tasks), strict=True)):
            if progress is not None:
                progress((number + 1) / len(tasks), task.label)
            yield result


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ignore Ctrl-C for a moment: processes started meanwhile ignore it for good, and it is the parent's to end them."""
    if threading.current_thread() is not threading.main_thread():  # where nobody may, and nobody is interrupted
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _run(task: RunTask | FloorTask) -> Any:
    return task.run()


def _here(tasks: Sequence[RunTask | FloorTask], progress: Report | None) -> Iterator[Any]:
    total = len(tasks)
    for number, task in enumerate(tasks):
        length = task.workload.request_count
        yield task.run(None if progress is None else _within(progress, number, total, length, task.label))
        if progress is not None:
            progress((number + 1) / total, task.label)


def _within(progress: Report, number: int, total: int, length: int | None, label: str) -> Callable[[int], None]:
    if not length:
        return lambda done: progress(number / total, f"{label}, {done:,} requests")
    return lambda done: progress((number + done / length) / total, label)
