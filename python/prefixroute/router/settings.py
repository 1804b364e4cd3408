"""What the belief is made of: the router's own arguments, or a preset's in their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from numbers import Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from prefixroute.errors import ConfigError
from prefixroute.index import PrefixIndex
from prefixroute.limits import MAX_BLOCK_SIZE
from prefixroute.policies import presets
from prefixroute.router.fleet import MEDIA
from prefixroute.types import Caps, Timing
from prefixroute.validation import check_callable, check_float, check_instance, check_int

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from prefixroute.belief import Belief


class Settings(NamedTuple):
    """Block size in tokens, capacity of a replica in tokens, lifetime of unused blocks in seconds."""

    block_size: int
    capacity_tokens: int | Mapping[str, int]
    ttl_s: float | None


def check_options(  # noqa: PLR0917  # one caller
    seed: Any, hash_seed: Any, clock: Any, timer: Any, record: Any, caps: Any, timing: Any, cost: Any
) -> None:
    """Raise :class:`ConfigError` for an option of the router that nobody looks at before its first request."""
    check_int("seed", seed)
    check_int("hash_seed", hash_seed)
    check_callable("clock", clock)
    if timer is not None:
        check_callable("timer", timer)
    if record is not None and not callable(record) and not hasattr(record, "write"):
        raise ConfigError(f"record must be a function or a text file, got {record!r}")
    check_instance("caps", caps, Caps)
    check_instance("timing", timing, Timing)
    if not hasattr(cost, "prefill_seconds"):
        raise ConfigError(f"cost must be a CostModel, got {cost!r}")


def check_request(slo_ttft_s: Any, attrs: Any) -> None:
    """Raise :class:`ConfigError` for what a caller says about a request and policies would stumble over."""
    if slo_ttft_s is not None:
        check_float("slo_ttft_s", slo_ttft_s, 0, endless=True)
    if type(attrs) is not dict and type(attrs) is not MappingProxyType:  # asking an abstract class takes its time
        check_instance("attrs", attrs, Mapping)


def _is_share(credit: Any) -> bool:
    real = isinstance(credit, Real)
    return real and 0.0 <= credit <= 1.0


def apply_preset(
    policy: Any, block_size: int, capacity_tokens: int | Mapping[str, int], ttl_s: float | None, *, given: bool
) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings, and in words what a preset changed. ``given``: the caller brings an index of their own."""
    check_int("block size", block_size, 1, MAX_BLOCK_SIZE)
    own = Settings(block_size, capacity_tokens, ttl_s)
    preset = presets().get(policy) if isinstance(policy, str) else None
    if preset is None:
        return own, ()
    if given:
        return own, (f"preset {policy!r}: the index was given, so the preset's belief settings are not applied",)
    belief, notes = preset.belief, []
    size = belief.block_size
    if size is not None and size % block_size:
        notes.append(
            f"preset {policy!r}: block_size {size} does not fit prompts in blocks of {block_size}; kept {block_size}"
        )
        size = None
    values: dict[str, Any] = {"block_size": size, "capacity_tokens": belief.capacity_tokens, "ttl_s": belief.ttl_s}
    changed = {name: value for name, value in values.items() if value is not None and value != getattr(own, name)}
    notes += [f"preset {policy!r}: {name} {getattr(own, name)} replaced by {value}" for name, value in changed.items()]
    return own._replace(**changed), tuple(notes)


def new_index(settings: Settings, max_bytes: int | None, provisional_s: float) -> Belief:
    """Return a new index; raise :class:`ConfigError` for a block size that none can have."""
    return PrefixIndex(
        block_size=settings.block_size,
        max_bytes=max_bytes,
        ttl_s=settings.ttl_s,
        provisional_s=provisional_s if isfinite(provisional_s) else None,
    )


def credited(index: Belief, tier_credits: Sequence[float]) -> Callable[[Any], NDArray[np.float64]] | None:
    """Return a function from blocks to credited tokens by slot, or ``None`` if every tier counts in full."""
    if (
        not isinstance(tier_credits, Sequence)
        or len(tier_credits) != len(MEDIA)
        or not all(map(_is_share, tier_credits))
    ):
        raise ConfigError(f"tier_credits must be three numbers from 0 to 1 for GPU, CPU and disk, got {tier_credits!r}")
    if all(credit == 1.0 for credit in tier_credits):
        return None
    weights = np.asarray(tier_credits, np.float64)
    return lambda blocks: index.match_media(blocks) @ weights
