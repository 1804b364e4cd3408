"""What the belief is made of: the router's own arguments, or a preset's in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from prefixroute.errors import ConfigError
from prefixroute.index import PrefixIndex
from prefixroute.policies import presets
from prefixroute.router.fleet import MEDIA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from prefixroute.router.belief import Belief

MAX_BLOCK = 1_024


class Settings(NamedTuple):
    """Block size in tokens, capacity of a replica in tokens, lifetime of unused blocks in seconds."""

    block_size: int
    capacity_tokens: int | Mapping[str, int]
    ttl_s: float | None


def apply_preset(
    policy: Any, block_size: int, capacity_tokens: int | Mapping[str, int], ttl_s: float | None, *, given: bool
) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings, and in words what a preset changed. ``given``: the caller brings an index of their own."""
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


def new_index(settings: Settings, max_bytes: int | None) -> Belief:
    """Return a new index; raise :class:`ConfigError` for a block size that none can have."""
    if not 1 <= settings.block_size <= MAX_BLOCK:
        raise ConfigError(f"block size must be 1..={MAX_BLOCK}, got {settings.block_size}")
    return PrefixIndex(block_size=settings.block_size, max_bytes=max_bytes, ttl_s=settings.ttl_s)


def credited(index: Any, tier_credits: Sequence[float]) -> Callable[[Any], NDArray[np.float64]] | None:
    """Return a function from blocks to credited tokens by slot, or ``None`` if every tier counts in full."""
    if len(tier_credits) != len(MEDIA) or not all(0.0 <= credit <= 1.0 for credit in tier_credits):
        raise ConfigError(f"tier_credits must be three numbers from 0 to 1 for GPU, CPU and disk, got {tier_credits!r}")
    if all(credit == 1.0 for credit in tier_credits):
        return None
    if not hasattr(index, "match_media"):
        raise ConfigError("tier_credits need an index that knows tiers: one with match_media()")
    weights = np.asarray(tier_credits, np.float64)
    return lambda blocks: index.match_media(blocks) @ weights
