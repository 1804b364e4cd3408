"""The fleet that is simulated: what stands before it, what happens to it, and the scenario that all of it makes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from prefixroute.cli import arguments, options
from prefixroute.cli.groups import option
from prefixroute.cli.hardware import Hardware
from prefixroute.costmodel import DEFAULT_LINK, CostModel
from prefixroute.errors import ConfigError
from prefixroute.routing import BOOKED, DEFAULT_LOAD
from prefixroute.sim import EngineModel, Scenario, Split

_observe = partial(
    option, None, "What tells the router of the caches: history, perfect, events, events:LOSS.", metavar="HOW"
)
_load = partial(
    option,
    None,
    f"Load signal that every policy balances: {', '.join(BOOKED)}. Without a clock nothing is in flight: recent.",
    metavar="SIGNAL",
    show_default=f"{DEFAULT_LOAD} with a clock, recent without one",
)


@dataclass(frozen=True, slots=True)
class ObserveOptions:
    """What routers know of replicas: what caches hold, and how loaded they are."""

    observe: str | None = _observe()
    load: str | None = _load()


@dataclass(frozen=True, slots=True)
class Simulated:
    """What is simulated of a fleet."""

    observe: str | None = _observe()
    load: str | None = _load()
    timed: bool = option(False, "Simulate with a clock: arrivals, queues, batches and decode.", "--timed")


@dataclass(frozen=True, slots=True)
class Apart:
    """Fleets that prefill and decode apart."""

    prefill_replicas: str | None = option(
        None,
        "Fleets of which so many replicas only prefill, beside mixed ones of the same size. With --timed.",
        metavar="N,...",
    )
    decode_replicas: str | None = option(
        None, "How many only decode, for each number of --prefill-replicas.", metavar="N,..."
    )
    link: str | None = options.link()

    @property
    def splits(self) -> list[Split]:
        """The fleets, one for each pair of numbers.

        Raises:
            ConfigError: one of the two is missing, or they are not as many.
        """
        if self.prefill_replicas is None and self.decode_replicas is None:
            if self.link is not None:
                raise ConfigError(
                    "--link joins replicas that prefill and decode apart: give --prefill-replicas and --decode-replicas"
                )
            return []
        given = {"--prefill-replicas": self.prefill_replicas, "--decode-replicas": self.decode_replicas}
        for what, text in given.items():
            if text is None or not text.strip(", "):
                raise ConfigError(
                    f"{what} is missing: --prefill-replicas and --decode-replicas are given together, as numbers of "
                    "replicas (2 or 2,4)"
                )
        prefill, decode = (
            [arguments.count(part, what=what) for part in arguments.names(text or "", what=what)]
            for what, text in given.items()
        )
        if len(prefill) != len(decode):
            raise ConfigError(
                f"--prefill-replicas and --decode-replicas must name as many fleets, got {len(prefill)} and "
                f"{len(decode)}"
            )
        return [Split(*pair, self.link or DEFAULT_LINK) for pair in zip(prefill, decode, strict=True)]


@dataclass(frozen=True, slots=True)
class Course:
    """What happens to a fleet during a run, and what is measured of it."""

    change: list[str] | None = option(
        None,
        "A change of the fleet: die, return, add or drain, at a second if timed, else after so many requests. May be "
        "repeated.",
        metavar="AT:ACTION:REPLICA",
    )
    tier: list[str] | None = options.tiers()
    warmup: int = option(0, "Requests served before counting begins: they warm the caches.", min=0)
    goodput: str | None = option(
        None,
        "Count requests a second that keep these times: ttft, tpot, itl (every gap between two tokens), itl_p95 (95 % "
        "of them), e2e. With --timed.",
        metavar="ttft=TIME,...",
    )

    def settings(self, cost: CostModel) -> dict[str, Any]:
        """Settings of a scenario, as far as they were given."""
        given = {
            "changes": arguments.changes(self.change),
            "tiers": arguments.tiers(self.tier, cost),
            "warmup": self.warmup,
            "promise": arguments.promise(self.goodput),
        }
        return {name: value for name, value in given.items() if value}


@dataclass(frozen=True, slots=True)
class FrontOptions:
    """What stands before a fleet."""

    routers: int = option(1, "Routers that share nothing, unless there is a --peer-delay.", min=1)
    sticky: bool = option(False, "What stands before several routers keeps a session on one of them.", "--sticky-front")
    peer_delay: str | None = option(
        None,
        "Routers (--routers above 1) tell each other what they book, so much later: 0, or 100ms with --timed.",
        metavar="TIME",
    )

    def __post_init__(self) -> None:
        """Refuse what one router has no use for."""
        if self.routers == 1 and self.peer_delay is not None:
            raise ConfigError("--peer-delay is between several routers: give --routers above 1 too")
        if self.routers == 1 and self.sticky:
            raise ConfigError("--sticky-front is for several routers: give --routers above 1 too")

    def peer_delay_s(self, *, timed: bool) -> float | None:
        """Return the delay between routers in seconds; ``None`` = they share nothing.

        Args:
            timed: whether the simulation has a clock, without which only a delay of 0 is possible.

        Raises:
            ConfigError: a delay without a clock, or one that is no time.
        """
        if self.peer_delay is None:
            return None
        if self.peer_delay.strip() == "0":
            return 0.0
        delay_s = arguments.seconds(self.peer_delay, what="--peer-delay")
        if not timed:
            raise ConfigError(
                f"--peer-delay above 0 speaks of a timed simulation: give --timed too, or 0, got {self.peer_delay!r}"
            )
        return delay_s


def link_of(link: str | None, *, apart: bool) -> str | None:
    """Return what joins replicas that prefill and decode apart; None where ``--apart`` does not ask for them.

    Raises:
        ConfigError: a link alone.
    """
    if link is not None and not apart:
        raise ConfigError("--link joins replicas that prefill and decode apart: give --apart too")
    return (link or DEFAULT_LINK) if apart else None


NO_FRONT = FrontOptions()


def scenario_of(
    hardware: Hardware,
    simulated: Simulated,
    front: FrontOptions = NO_FRONT,
    *,
    timed: bool | None = False,
    **given: Any,
) -> Scenario:
    """Return what is simulated. Of ``given``, settings that are None were not given, and are the default.

    ``timed``: with an engine though the options do not ask for one; None = it may get one later, and then has these
    settings.
    """
    clocked = simulated.timed or timed is not False
    chosen = {name: value for name, value in given.items() if value is not None}
    if simulated.observe is not None:
        chosen["observe"] = arguments.observation(simulated.observe)
    if simulated.load is not None:
        chosen["load"] = arguments.load_signal(simulated.load, timed=clocked)
    if hardware.capacity is not None:
        chosen |= hardware.settings
    batching = hardware.batching
    if batching and not clocked:
        raise ConfigError("--chunk-tokens and --max-running speak of a timed simulation: give --timed too")
    return Scenario(
        engine=EngineModel(hardware.cost, **batching) if clocked else None,
        routers=front.routers,
        front="sticky" if front.sticky else "round-robin",
        peer_delay_s=front.peer_delay_s(timed=clocked),
        given=frozenset({*chosen, *batching}),
        **{**hardware.settings, **chosen},
    )
