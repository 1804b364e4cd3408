"""What users type, turned into values. A mistake raises ConfigError with what was given and what is allowed."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from prefixroute.costmodel import CALIBRATED, DEFAULT_GPU, DEFAULT_MODEL, PRESETS, CostModel, StepTimes
from prefixroute.costmodel.aic import BACKENDS
from prefixroute.errors import ConfigError
from prefixroute.policies import as_policy
from prefixroute.routing import BOOKED
from prefixroute.sim import Events, FleetChange, History, Perfect, Promise, Tier
from prefixroute.sim.observe import Observation
from prefixroute.validation import check_choice

TIMES = {"ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "h": 3_600.0}
AIC = "aic"
UNITS = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def names(text: str, *, what: str) -> list[str]:
    """Return the comma-separated names of ``text``, in order, each once."""
    found = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise ConfigError(f"{what} must be names separated by commas, got {text!r}")
    return found


def counts(text: str, *, what: str) -> list[int]:
    """Return the comma-separated positive whole numbers of ``text``, in order, each once."""
    return list(dict.fromkeys(count(part, what=what) for part in names(text, what=what)))


def fleet(text: str | int) -> int:
    """Return the number of replicas of one fleet."""
    if "," in str(text):
        raise ConfigError(
            f"a fleet must be one number of replicas here, got {str(text)!r}: `prefixroute simulate` takes several, "
            "N,N,..."
        )
    return count(str(text), what="a fleet's number of replicas")


def count(text: str, *, what: str) -> int:
    """Return a positive whole number; ``300k``, ``1.5M`` and ``2G`` are understood (decimal)."""
    digits, scale = text.strip().replace("_", ""), 1
    if digits and digits[-1].lower() in UNITS:
        scale = UNITS[digits[-1].lower()]
        digits = digits[:-1]
    try:
        value = float(digits) * scale
    except ValueError:
        value = float("nan")
    if not 1 <= value < float("inf") or value != int(value):
        raise ConfigError(f"{what} must be a whole number of at least 1 (300000, 300k, 1.5M), got {text!r}")
    return int(value)


def seconds(text: str, *, what: str) -> float:
    """Return a time in seconds; ``90``, ``90s``, ``5m``, ``1h`` and ``500ms`` are understood."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", text.strip())
    value = float(match[1]) * TIMES[match[2]] if match else 0.0
    if not 0 < value < float("inf"):
        raise ConfigError(f"{what} must be a time above 0 (90, 90s, 5m, 1h), got {text!r}")
    return value


def load_signal(text: str, *, timed: bool) -> str:
    """Return the name of a load signal that simulated routers have: simulated replicas report none."""
    check_choice("--load", text, BOOKED)
    if not timed and text != "recent":
        raise ConfigError(f"--load {text} speaks of a timed simulation: give --timed too, or recent")
    return text


def times(text: str, *, what: str) -> tuple[float, ...]:
    """Return the comma-separated times of ``text`` in seconds, each once."""
    return tuple(dict.fromkeys(seconds(part, what=what) for part in names(text, what=what)))


def priced(speeds: str | None, given: dict[str, Any]) -> CostModel:
    """Return the cost model of some given figures, with steps priced as ``speeds`` says: by a preset, or by tables."""
    source, _, backend = (speeds or CALIBRATED).partition(":")
    if source != AIC:
        if speeds is not None and speeds not in PRESETS:
            check_choice("--speeds", speeds, (*PRESETS, AIC, *(f"{AIC}:{name}" for name in BACKENDS)))
        return CostModel(**given, preset=speeds)
    if unused := [name for name in ("utilization", "bandwidth_utilization") if given.get(name) is not None]:
        raise ConfigError(f"--speeds {speeds} has step times of its own: leave out {' and '.join(unused)}")
    times = StepTimes.from_aiconfigurator(
        given["gpu"] or DEFAULT_GPU,
        given["model"] or DEFAULT_MODEL,
        backend=backend or BACKENDS[0],
        tensor_parallel=given["tensor_parallel"] or 1,
        expert_parallel=bool(given["expert_parallel"]),
        weight_format=given["weight_format"],
    )
    return CostModel(**given, step_times=times)


def policies(text: str | None, workload: str | list[str]) -> list[str]:
    """Return the names of ``text``, each known; by default what the article compared, on a trace as for chat."""
    if text is None:
        name = workload if isinstance(workload, str) else workload[0]
        text = (
            "random,document,cache-aware"
            if name.split(",", maxsplit=1)[0] == "documents"
            else "round-robin,session,cache-aware"
        )
    chosen = names(text, what="--policies")
    for name in chosen:
        as_policy(name)
    return chosen


def moment(text: str | float) -> float:
    """Return a time as seconds: a number as it is, a date of ISO 8601 since 1970, in UTC where it names no zone.

    Raises:
        ConfigError: it is neither.
    """
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        raise ConfigError(f"a time must be a number or ISO 8601, got {text!r}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def pair(text: str, what: str) -> tuple[str, str]:
    """Return the two sides of ``KEY=VALUE``.

    Raises:
        ConfigError: there is no key, or no ``=``.
    """
    key, mark, value = text.partition("=")
    if not key or not mark:
        raise ConfigError(f"{what} must be KEY=VALUE, got {text!r}")
    return key, value


def observation(text: str | None) -> Observation | None:
    """Return how the router learns what the caches hold; None = the simulator's default for the kind of cache."""
    kind, _, loss = (text or "").partition(":")
    if text is None:
        return None
    if kind == "events":
        try:
            return Events(loss=float(loss or 0))
        except ValueError:
            raise ConfigError(f"--observe events:LOSS needs a share between 0 and 1, got {loss!r}") from None
    plain: dict[str, Observation] = {str(known): known for known in (History(), Perfect())}
    check_choice("--observe", text, (*plain, "events", "events:LOSS"))
    return plain[text]


def changes(texts: list[str] | None) -> tuple[FleetChange, ...]:
    """Return changes of a fleet, each ``AT:ACTION:REPLICA``; ``AT`` is seconds if timed, else requests served."""
    found = []
    for text in texts or ():
        parts = text.split(":")
        if len(parts) != 3:  # noqa: PLR2004
            raise ConfigError(f"--change must be AT:ACTION:REPLICA, such as 600:die:replica-1, got {text!r}")
        at, action, replica = parts
        found.append(FleetChange(seconds(at, what="the time of --change"), action, replica))  # type: ignore[arg-type]
    return tuple(found)


def tiers(texts: list[str] | None, cost: CostModel) -> tuple[Tier, ...]:
    """Return memories below the GPU's, each ``MEDIUM:TOKENS:GB_PER_S``, fastest first."""
    found = []
    for text in texts or ():
        parts = text.split(":")
        if len(parts) != 3:  # noqa: PLR2004
            raise ConfigError(f"--tier must be MEDIUM:TOKENS:GB_PER_S, such as CPU:2M:50, got {text!r}")
        medium, tokens, speed = parts
        rate = 1e9 * count(speed, what="GB a second of --tier")
        found.append(Tier(medium, count(tokens, what="tokens of --tier"), cost.model.kv_bytes_per_token / rate))
    return tuple(found)


def promise(text: str | None) -> Promise | None:
    """Return what a request must keep to count as goodput, of ``ttft=1s,tpot=50ms,itl_p95=100ms,e2e=30s``."""
    if text is None:
        return None
    kept = {}
    for part in names(text, what="--goodput"):
        match = re.fullmatch(r"(ttft|tpot|e2e|itl(?:_p(\d+(?:\.\d+)?))?)=(.+)", part)
        if match is None:
            raise ConfigError(
                "--goodput must be like ttft=1s,tpot=50ms,itl=200ms,e2e=30s, or itl_p95=100ms for 95 % of the gaps of "
                f"each answer, got {text!r}"
            )
        name, percentile, most = match.groups()
        name = name.partition("_")[0]
        if f"{name}_s" in kept:
            raise ConfigError(f"--goodput promises each of ttft, tpot, itl and e2e once, got {text!r}")
        kept[f"{name}_s"] = seconds(most, what=f"{name} of --goodput")
        if percentile is not None:
            kept["itl_percentile"] = float(percentile)
    return Promise(**kept)
