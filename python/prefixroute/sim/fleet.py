"""The fleet of a run: who is there, what each holds in truth, and what happens to them."""

from __future__ import annotations

from collections.abc import Callable

from prefixroute.errors import ConfigError
from prefixroute.sim.observe import Events
from prefixroute.sim.scenario import FleetChange, Scenario
from prefixroute.sim.stores import BlockStore, EntryStore, Store
from prefixroute.validation import shown

Act = Callable[[str], None]


class SimulatedFleet:
    """Stores by name of the replicas that live, and a number for every replica that ever lived.

    ``names[number]`` is stable: a replica that returns has its number again, a new one gets the next.
    """

    def __init__(self, scenario: Scenario, block_size: int) -> None:
        """Start with ``scenario.replicas`` empty replicas."""
        self._scenario, self._block_size = scenario, block_size
        self.names = scenario.names
        self.numbers = {name: number for number, name in enumerate(self.names)}
        self.stores: dict[str, Store] = {name: self._empty() for name in self.names}
        self.changes = sorted(scenario.changes, key=lambda change: change.at)[::-1]
        """What is planned to happen: the next change is the last."""

    def _empty(self) -> Store:
        scenario = self._scenario
        if scenario.cache == "entries":
            return EntryStore(scenario.capacity_tokens)
        events = isinstance(scenario.observation, Events)
        return BlockStore(scenario.capacity_tokens, self._block_size, scenario.tiers, record_events=events)

    def remove(self, name: str) -> None:
        """Let a replica die with all that it holds."""
        del self.stores[name]

    def add(self, name: str) -> None:
        """Let an empty replica begin."""
        self.stores[name] = self._empty()
        if name not in self.numbers:
            self.numbers[name] = len(self.names)
            self.names.append(name)

    def change(self, change: FleetChange, *, drain: Act, die: Act, begin: Act) -> None:
        """Let a planned change happen.

        One of the functions is told the replica's name, ``begin`` once it is there, empty.

        Raises:
            ConfigError: the change makes no sense at this moment.
        """
        name = change.replica
        here = name in self.stores
        if here != (change.action in ("die", "drain")):
            state = "is there already" if here else "is not there"
            raise ConfigError(f"replica {shown(name)} {state}: cannot {change.action} at {change.at:g}")
        if not here:
            self.add(name)
        {"drain": drain, "die": die}.get(change.action, begin)(name)


Progress = Callable[[int], None]
"""Told how many requests of a run have been routed."""
