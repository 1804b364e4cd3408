"""Presets: other routers' rules as dated data, so that one can ask what they would have done on one's own traffic."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from prefixroute.errors import ConfigError
from prefixroute.policies.base import Policy
from prefixroute.shipped import shipped_texts
from prefixroute.validation import check_names, did_you_mean, shown


@dataclass(frozen=True, slots=True)
class BeliefSettings:
    """What a preset says about the belief; ``None`` = the router's own argument stands.

    Originals that match text count here with 4 characters to a token, whatever kind of prompt the router takes.
    """

    block_size: int | None = None
    capacity_tokens: int | None = None
    ttl_s: float | None = None


@dataclass(frozen=True, slots=True)
class Preset:
    """Another router's policy and belief settings.

    Attributes:
        name: name by which ``Router(policy=...)`` knows it.
        date: state of the original that is imitated.
        source: where the values were read; each value's own source stands beside it in the data file.
        differs: how this differs from the original.
        checked: what was compared with the original itself; empty = the preset follows its text only.
        policy: the policy with the original's parameters.
        belief: settings that replace the router's arguments.
    """

    name: str
    date: str
    source: str
    differs: str
    checked: str
    policy: Policy
    belief: BeliefSettings


def read_preset(text: str, kinds: Mapping[str, type[Policy]]) -> Preset:
    """Return a preset from its TOML text; raise :class:`ConfigError` if it names what does not exist."""
    data = tomllib.loads(text)
    check_names(f"preset {data.get('name')!r}", "key", data, [field.name for field in fields(Preset)])
    belief = BeliefSettings(**data.get("belief", {}))
    return Preset(**{"checked": "", **data, "policy": build(data["policy"], kinds), "belief": belief})


def build(spec: Mapping[str, Any], kinds: Mapping[str, type[Policy]]) -> Policy:
    """Return a policy from a table: its ``name``, and its parameters; a table within is a policy again."""
    name = spec.get("name", "")
    if name not in kinds:
        raise ConfigError(f"no policy {shown(name)}; known: {', '.join(kinds)}{did_you_mean(name, kinds)}")
    allowed = [field.name for field in fields(kinds[name])]  # type: ignore[arg-type]  # every policy is a dataclass
    check_names(name, "parameter", [key for key in spec if key != "name"], allowed)
    values = {key: _value(value, kinds) for key, value in spec.items() if key != "name"}
    return kinds[name](**values)


def _value(value: Any, kinds: Mapping[str, type[Policy]]) -> Any:
    if isinstance(value, Mapping):
        return build(value, kinds)
    if isinstance(value, list):
        return tuple(_value(item, kinds) for item in value)
    return value


@cache
def preset_texts() -> dict[str, str]:
    """Return the data files of the presets that come with the package, by name."""
    found = shipped_texts("prefixroute.policies", "presets")
    return {name.removesuffix(".toml"): text for name, text in found.items()}
