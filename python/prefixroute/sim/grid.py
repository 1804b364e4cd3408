"""The one experiment runner: scenarios x seeds on one source, here or in several processes, with results by key.

A source is read once, whatever the number of scenarios: what would be parsed again for each run is kept as arrays
first. Results do not depend on ``jobs``. Where the time is up, whole seeds are left out, and the caller can say which.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Generic, TypeAlias, TypeVar

from prefixroute.costmodel import CostModel
from prefixroute.errors import ConfigError
from prefixroute.sim.floor import floor_tokens
from prefixroute.sim.pool import Jobs, check_jobs, open_pool
from prefixroute.sim.progress import Progress
from prefixroute.sim.run import Run, simulate
from prefixroute.sim.scenario import CacheKind, Scenario
from prefixroute.workload import Workload, keep

Source: TypeAlias = Workload | Callable[[int], Workload]
"""A workload, or a callable from a seed to one (``chat``)."""
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Cell:
    """What is run under one key: a scenario, with each seed in turn, and what is kept of a run.

    ``measure`` must be picklable where there are several jobs. An optional cell is left out where the time is up; one
    that is run once is run with the first seed alone.
    """

    scenario: Scenario
    measure: Callable[[Run], Any]
    optional: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class Results(Generic[K]):
    """What a grid gave.

    Attributes:
        runs: by key, what was kept of the run with each seed, in the order of the seeds.
        floor: recompute ratio of one unlimited cache, over :attr:`seeds`; None where it was not asked for.
        seeds: those that every key has.
        left_out: what there was no time for, in words; empty where all was run.
    """

    runs: Mapping[K, tuple[Any, ...]]
    floor: float | None
    seeds: tuple[int, ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Grid:
    """How scenarios are run.

    Args:
        source: a workload, or a function from a seed to one; the same seed also fixes the draws of the routers.
        seeds: each once.
        cost: prices and seconds.
        jobs: processes, or ``ray``. More than one needs a source and policies that other processes can import.
        progress: told the share of the work that is done.
        time_is_up: asked between runs; once it says yes, optional cells and further seeds are left out.

    Raises:
        ConfigError: ``jobs`` is below one, or another word than ``ray``.
    """

    source: Source
    seeds: tuple[int, ...]
    cost: CostModel = field(default_factory=CostModel)
    jobs: Jobs = 1
    progress: Progress | None = None
    time_is_up: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        """Check the number of processes, and read a file that each run would parse again."""
        check_jobs(self.jobs)
        object.__setattr__(self, "source", kept(self.source, jobs=self.jobs))

    def run(self, cells: Mapping[K, Cell], *, floor: tuple[CacheKind, int] | None = None) -> Results[K]:
        """Run every cell with every seed: all cells of a seed before those of the next.

        Args:
            cells: by key; the order is that of the runs.
            floor: find the floor for caches of this kind, after so many requests; one pass where the source is fixed.

        Returns:
            The runs of each cell by its key, and the floor of each seed.

        Raises:
            ConfigError: what :func:`~prefixroute.sim.simulate` refuses; or processes cannot have these policies or this
                source.
            TraceError: a bad line of a trace that was not checked when it was opened.
        """
        passes = self.seeds[:1] if is_fixed(self.source) else self.seeds
        floors = [_FloorTask(self.source, seed, *floor) for seed in passes] if floor else []
        runs = [
            _RunTask(self.source, key, replace(cell.scenario, seed=seed), self.cost, cell.measure, cell.optional)
            for seed in self.seeds
            for key, cell in cells.items()
            if seed == self.seeds[0] or not cell.once
        ]
        done: dict[tuple[Any, int], Any] = {}
        unlimited: dict[int, tuple[int, int]] = {}
        for task, result in self._results([*floors, *runs]):
            if isinstance(task, _FloorTask):
                unlimited[task.seed] = result
            else:
                done[task.key, task.scenario.seed] = result
        return self._joined(cells, done, unlimited)

    def _results(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Any]]:
        """Yield each task with its result, in order; those that are left out are not there."""
        if self.jobs == 1 or len(tasks) == 1:
            yield from self._here(tasks)
            return
        if (error := _why_not_pickled(tasks)) is not None:
            known = "policies and a source that other processes can import"
            raise ConfigError(f"{self.jobs} jobs need {known}: {error}") from error
        with open_pool(self.jobs, len(tasks)) as pool:
            # Tasks are handed out as results come in, so that what there is no time for is never begun.
            ahead = 2 * pool.width
            waiting = [(task, pool.submit(task)) for task in tasks[:ahead]]
            later = list(tasks[ahead:])
            number = 0
            while waiting:
                task, result = waiting.pop(0)
                value = result()
                number += 1
                if self.progress is not None:
                    self.progress(number / len(tasks), task.label)
                yield task, value
                while later and len(waiting) < ahead:
                    following = later.pop(0)
                    if not self._skips(following):
                        waiting.append((following, pool.submit(following)))

    def _here(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Any]]:
        progress, total = self.progress, len(tasks)
        for number, task in enumerate(tasks):
            if self._skips(task):
                continue
            length = open_source(task.source, task.seed).request_count
            yield task, task.run(None if progress is None else _within(progress, number, total, length, task.label))
            if progress is not None:
                progress((number + 1) / total, task.label)

    def _skips(self, task: Task) -> bool:
        """Return whether a task is left out: what is optional or of a further seed, once the time is up."""
        may_wait = task.optional or (isinstance(task, _RunTask) and task.seed != self.seeds[0])
        return may_wait and self.time_is_up()

    def _joined(
        self, cells: Mapping[K, Cell], done: Mapping[tuple[Any, int], Any], unlimited: Mapping[int, tuple[int, int]]
    ) -> Results[K]:
        present = {key: cell for key, cell in cells.items() if (key, self.seeds[0]) in done}
        each = [key for key, cell in present.items() if not cell.once]
        seeds = tuple(seed for seed in self.seeds if all((key, seed) in done for key in each))
        missing = [f"{cells[key].scenario.policy_name}" for key in cells if key not in present]
        left_out = [f"{', '.join(dict.fromkeys(missing))} (some runs)"] if missing else []
        if len(seeds) < len(self.seeds):
            left_out.append(f"{len(self.seeds) - len(seeds)} of {len(self.seeds)} seeds")
        runs = {
            key: tuple(done[key, seed] for seed in (seeds[:1] if cell.once else seeds)) for key, cell in present.items()
        }
        return Results(runs, _floor(unlimited, seeds), seeds, tuple(left_out))


def _floor(unlimited: Mapping[int, tuple[int, int]], seeds: Sequence[int]) -> float | None:
    """Return the floor over the seeds that were run, of a fixed source that of its one pass; None = not asked for."""
    if not unlimited:
        return None
    passes = [unlimited[seed] for seed in seeds if seed in unlimited]
    recomputed, prompt = (sum(each) for each in zip(*passes, strict=True))
    return recomputed / prompt if prompt else 0.0


def kept(source: Source, *, jobs: Jobs = 1) -> Source:
    """Return a source that costs no parsing to read again, and that can be sent to where the jobs are."""
    if isinstance(source, Workload) and (source.is_parsed or (jobs != 1 and _why_not_pickled(source) is not None)):
        return keep(source)
    return source


def open_source(source: Source, seed: int) -> Workload:
    """Return the workload of a seed; the last few are held."""
    return source if isinstance(source, Workload) else _made(source, seed)


@lru_cache(maxsize=8)
def _made(source: Callable[[int], Workload], seed: int) -> Workload:
    return source(seed)


def is_fixed(source: Source) -> bool:
    """Whether every seed gives the same requests."""
    return isinstance(source, Workload)


def seeds_of(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """Return the seeds meant: a number counts from 1.

    Raises:
        ConfigError: none, or one twice.
    """
    chosen = tuple(range(1, seeds + 1)) if isinstance(seeds, int) else tuple(seeds)
    if not chosen:
        raise ConfigError(f"at least one of seeds is needed, got {seeds}")
    if len(set(chosen)) < len(chosen):
        raise ConfigError(f"seeds must differ, got {', '.join(map(str, chosen))}")
    return chosen


@dataclass(frozen=True, slots=True)
class _RunTask:
    """One run, and what to keep of it. Picklable if its source and ``measure`` are."""

    source: Source
    key: Hashable
    scenario: Scenario
    cost: CostModel
    measure: Callable[[Run], Any]
    optional: bool

    @property
    def seed(self) -> int:
        return self.scenario.seed

    @property
    def label(self) -> str:
        """What the task is, for whoever watches."""
        scenario = self.scenario
        unlimited = ", unlimited caches" if scenario.capacity_tokens is None else ""
        return f"{scenario.policy_name} on {scenario.replicas}, seed {scenario.seed}{unlimited}"

    def run(self, progress: Callable[[int], None] | None = None) -> Any:
        """Run, and return what was asked for."""
        workload = open_source(self.source, self.scenario.seed)
        return self.measure(simulate(workload, self.scenario, cost=self.cost, progress=progress))


@dataclass(frozen=True, slots=True)
class _FloorTask:
    """The floor of one workload, as (recomputed, prompt) tokens."""

    source: Source
    seed: int
    cache: CacheKind
    warmup: int
    optional = False

    @property
    def label(self) -> str:
        """What the task is, for whoever watches."""
        return f"floor, seed {self.seed}"

    def run(self, progress: Callable[[int], None] | None = None) -> tuple[int, int]:
        """Run; it is too short to report progress within."""
        del progress
        return floor_tokens(open_source(self.source, self.seed), self.cache, self.warmup)


Task: TypeAlias = _RunTask | _FloorTask


def _within(progress: Progress, number: int, total: int, length: int | None, label: str) -> Callable[[int], None]:
    if not length:
        return lambda done: progress(number / total, f"{label}, {done:,} requests")
    return lambda done: progress((number + done / length) / total, label)


def _why_not_pickled(value: object) -> Exception | None:
    """Return what keeps a value from another process, if anything does."""
    try:
        pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:  # three names for the same fault
        return error
    return None
