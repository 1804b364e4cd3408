"""Agents at work on tasks: one system layer, a layer for each group, one for each task, and steps that fork.

A task's contexts form a tree: a step may spawn a sub-agent, which goes on from the whole context so far. One session
key for the task therefore does not describe what its requests share.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from prefixroute.errors import ConfigError
from prefixroute.workload.arrivals import Arrivals
from prefixroute.workload.generator import generator
from prefixroute.workload.request import CacheEntry, Request
from prefixroute.workload.shape import Popularity, Shape, zipf_shares
from prefixroute.workload.streams import chain_key, stream
from prefixroute.workload.text import Text


@dataclass(frozen=True, slots=True)
class AgentsShape(Shape):
    """Sizes of the agents workload. Planning figures: measure your own with a trace.

    Attributes:
        system_tokens: instructions and tools that all agents share.
        groups: kinds of agents; a task belongs to one, by Zipf's law.
        group_tokens: what the agents of one kind share.
        own_tokens: the task itself.
        step_tokens: what comes back from a tool before each request.
        answer_tokens: what the model says to it.
        steps: requests of a task's main agent.
        sub_steps: requests of a sub-agent.
        spawn: chance that a request of a main agent spawns a sub-agent.
        tasks: tasks open at a time.
        zipf: exponent of the popularity of the groups.
    """

    KIND: ClassVar[str] = "agents"
    MAY_BE_ZERO: ClassVar[frozenset[str]] = frozenset({"system_tokens", "group_tokens", "own_tokens", "answer_tokens"})

    system_tokens: int = 4_000
    groups: int = 8
    group_tokens: int = 6_000
    own_tokens: int = 1_500
    step_tokens: int = 800
    answer_tokens: int = 300
    steps: int = 20
    sub_steps: int = 5
    spawn: float = 0.15
    tasks: int = 100
    zipf: float = 1.0

    def __post_init__(self) -> None:
        """Check that every size can be used."""
        Shape.__post_init__(self)
        if self.spawn > 1:
            raise ConfigError(f"agents spawn must be a chance, 0 to 1, got {self.spawn}")

    @property
    def longest_tokens(self) -> int:
        """Tokens of a main agent's last context with a sub-agent that goes on from it."""
        steps = self.steps + self.sub_steps
        layers = self.system_tokens + self.group_tokens + self.own_tokens
        return layers + steps * (self.step_tokens + self.answer_tokens)

    def kept_tokens(self, requests: int) -> float:  # noqa: ARG002 - all tasks are opened at once
        """Return the tokens of the layers, and of the contexts of the agents of all open tasks."""
        agents_of_task = 1 + self.spawn * self.steps
        return (
            self.groups * (self.system_tokens + self.group_tokens) + self.tasks * agents_of_task * self.longest_tokens
        )


@dataclass(slots=True)
class _Agent:
    number: int
    text: Text
    steps_left: int


@dataclass(slots=True)
class _Task:
    name: str
    number: int
    agents: list[_Agent] = field(default_factory=list)
    spawned: int = 0

    @property
    def done(self) -> bool:
        """Whether the main agent, which is the first, has taken its last step."""
        return not self.agents or self.agents[0].number != 0


class _Agents:
    """The tasks under way."""

    def __init__(self, seed: int, block_size: int, shape: AgentsShape) -> None:
        self._seed = seed
        self._shape = shape
        self._rng = stream(seed, "agents.picks")
        self._groups = Popularity(stream(seed, "agents.groups"), zipf_shares(shape.groups, shape.zipf))
        self._opened = 0
        system = Text.of(chain_key(seed, "agents.system"), shape.system_tokens, block_size)
        keys = [chain_key(seed, "agents.group", group) for group in range(shape.groups)]
        self._layers = [system.then(key, shape.group_tokens) for key in keys]

    def requests(self, times: Iterator[float]) -> Iterator[Request]:
        shape = self._shape
        tasks = [self._open() for _ in range(shape.tasks)]
        for time in times:
            at, which, chance = self._rng.random(3).tolist()
            place = int(at * shape.tasks)
            if tasks[place].done:
                tasks[place] = self._open()
            task = tasks[place]
            yield self._step(task, task.agents[int(which * len(task.agents))], time, spawns=chance < shape.spawn)

    def _open(self) -> _Task:
        number, group = self._opened, self._groups.draw()
        self._opened += 1
        own = self._layers[group].then(chain_key(self._seed, "agents.task", number), self._shape.own_tokens)
        task = _Task(f"task-{self._seed}-{number}", number)
        task.agents.append(_Agent(0, own, self._shape.steps))
        return task

    def _step(self, task: _Task, agent: _Agent, time: float, *, spawns: bool) -> Request:
        shape = self._shape
        key = chain_key(self._seed, "agents.step", task.number, agent.number, agent.steps_left)
        prompt_tokens = agent.text.tokens + shape.step_tokens
        agent.text = text = agent.text.then(key, shape.step_tokens + shape.answer_tokens)
        agent.steps_left -= 1
        if not agent.steps_left:
            task.agents.remove(agent)
        if spawns and agent.number == 0:
            task.spawned += 1
            task.agents.append(_Agent(task.spawned, text, shape.sub_steps))
        return text.request(
            time,
            prompt_tokens,
            session=task.name,
            entry=CacheEntry(f"{task.name}.{agent.number}", text.tokens, shape.system_tokens),
            attrs={"agent": str(agent.number)},
        )


@generator(AgentsShape)
def agents(seed: int, count: int, block_size: int, arrivals: Arrivals, shape: AgentsShape) -> Iterator[Request]:
    """Return the agents workload: each request picks an open task and one of its agents, which takes a step.

    A task ends with its main agent's last step; its place gets a new task at its next pick. ``session`` is the task,
    ``attrs["agent"]`` the agent.
    """
    times = arrivals.times(stream(seed, "agents.arrivals"))
    return itertools.islice(_Agents(seed, block_size, shape).requests(times), count)
