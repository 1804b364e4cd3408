"""Policies and presets by name, and what ``prefixroute policies`` says of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from inspect import cleandoc
from typing import Any

from prefixroute.errors import ConfigError
from prefixroute.policies.base import Answer, FunctionPolicy, Policy
from prefixroute.policies.keyed import Bounded, Document, PrefixHash, Rendezvous, Session, TwoChoices
from prefixroute.policies.match import CacheAware
from prefixroute.policies.preset import Preset, build, preset_texts, read_preset
from prefixroute.policies.scored import LinearCost, LMetric, MinTtft, PrebleE2, Weighted
from prefixroute.policies.spread import LeastLoaded, PowerOfTwo, Random, RoundRobin
from prefixroute.policies.transfer import TransferCost
from prefixroute.policies.view import View
from prefixroute.validation import check_names, did_you_mean, shown

_ALL: tuple[type[Policy], ...] = (
    RoundRobin,
    Random,
    LeastLoaded,
    PowerOfTwo,
    TwoChoices,
    Session,
    Rendezvous,
    Bounded,
    PrefixHash,
    Document,
    CacheAware,
    LinearCost,
    LMetric,
    PrebleE2,
    MinTtft,
    Weighted,
    TransferCost,
)


def policies_by_name(policies: Iterable[type[Policy]]) -> dict[str, type[Policy]]:
    """Return classes of policies by their names.

    Args:
        policies: dataclasses that inherit from :class:`Policy`.

    Raises:
        ConfigError: a class lacks something that a policy has; the message says what.
    """
    found: dict[str, type[Policy]] = {}
    for policy in policies:
        has = {
            "the base class Policy": isinstance(policy, type) and issubclass(policy, Policy),
            "the decorator dataclass": is_dataclass(policy),
            "a name of its own": getattr(policy, "name", Policy.name) not in {Policy.name, *found},
            "a method decide": getattr(policy, "decide", Policy.decide) is not Policy.decide,
        }
        if not all(has.values()):
            lacking = ", ".join(what for what, there in has.items() if not there)
            raise ConfigError(f"policy {getattr(policy, '__name__', shown(policy))} lacks {lacking}")
        found[policy.name] = policy
    return found


POLICIES = policies_by_name(_ALL)
"""Every policy by its name. Calling one makes it with its default parameters."""


@cache
def presets() -> dict[str, Preset]:
    """Return every preset by its name."""
    return {name: read_preset(text, POLICIES) for name, text in preset_texts().items()}


def as_policy(policy: str | Policy | Callable[[View], Answer]) -> Policy:
    """Return a policy from its name, a preset's name, itself, or a function of a view.

    Parameters may follow a name: ``cache-aware:min_match_tokens=512:spill=mean``, ``ray:gate_gap=5``.

    Args:
        policy: e.g. ``"cache-aware:spill=mean"``.

    Raises:
        ConfigError: for an unknown name or parameter, or anything else.
    """
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str):
        preset = preset_of(policy)
        if preset is not None:
            return preset.policy
        name, *settings = policy.split(":")
        if name not in POLICIES:
            raise _unknown(name)
        return _with(name, POLICIES[name](), settings)
    if callable(policy) and not isinstance(policy, type):
        return FunctionPolicy(policy, getattr(policy, "__name__", "custom"))
    raise ConfigError(
        f"a policy is a name, an object of a class that inherits from Policy, or a function of a view, got {shown(policy)}"
    )


def preset_of(policy: object) -> Preset | None:
    """Return the preset that a policy's name names, with the parameters that follow it; ``None`` = it names none.

    Args:
        policy: what was given as one.
    """
    name, *settings = policy.split(":") if isinstance(policy, str) else ("",)
    preset = presets().get(name)
    return None if preset is None else replace(preset, policy=_with(name, preset.policy, settings))


def _with(name: str, policy: Policy, settings: list[str]) -> Policy:
    """Return a policy with some of its parameters changed, each as ``name=value``."""
    values = dict(_setting(name, policy, text) for text in settings)
    return replace(policy, **values) if values else policy  # type: ignore[type-var]  # every policy is a dataclass


def _setting(name: str, policy: Policy, text: str) -> tuple[str, Any]:
    """Return a parameter of a policy and its value, of the kind that the present one has, from ``name=value``."""
    parameter, equals, value = text.partition("=")
    known = _values(policy)
    check_names(name, "parameter", [parameter], known)
    if not equals:
        raise ConfigError(f"{name} takes {parameter}=VALUE, got {shown(text)}")
    kind = type(known[parameter])
    if issubclass(kind, Policy):
        return parameter, build({"name": value}, POLICIES)
    if kind is bool and value in {"true", "false"}:
        return parameter, value == "true"
    what = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}.get(kind)
    if what is None:
        raise ConfigError(f"{name} takes {parameter} only from Python, not from a name, got {shown(text)}")
    try:
        if kind is not bool:
            return parameter, kind(value)
    except ValueError:
        pass
    raise ConfigError(f"{name} {parameter} must be {what}, got {shown(value)}")


def _unknown(name: str) -> ConfigError:
    known = f"policies: {', '.join(POLICIES)}; presets: {', '.join(presets())}"
    return ConfigError(f"no policy {shown(name)}; {known}{did_you_mean(name, (*POLICIES, *presets()))}")


NOT_CHECKED = "Not checked: it follows the original's text and code, and was not run beside it."


@dataclass(frozen=True, slots=True)
class Description:
    """A policy or preset in words.

    Attributes:
        name: its name.
        line: what it does, in a line.
        parameters: parameter -> value, as text.
        about: each parameter in words, for a policy; where the values come from, for a preset.
        differs: how a preset differs from its original; empty for a policy.
        checked: what of a preset was compared with the original itself, or that nothing was; empty for a policy.
    """

    name: str
    line: str
    parameters: dict[str, str]
    about: str
    differs: str = ""
    checked: str = ""


def describe(name: str) -> Description:
    """Return what a policy or preset does, its parameters with their values, and how a preset differs.

    Parameters may follow the name, as in :func:`as_policy`: they are then those shown.

    Args:
        name: of a policy or preset, with or without parameters.

    Raises:
        ConfigError: for an unknown name or parameter.
    """
    policy, preset = as_policy(name), preset_of(name)
    if preset is None:
        line, _, about = _plain(cleandoc(type(policy).__doc__ or "")).partition("\n")
        return Description(name, line, _parameters(policy), about.strip())
    belief = preset.belief
    parameters = _parameters(policy) | {
        f.name: repr(v) for f in fields(belief) if (v := getattr(belief, f.name)) is not None
    }
    line = f"{policy.name} with the settings of {preset.source} ({preset.date})"
    checked = f"Checked against the original: {preset.checked}" if preset.checked else NOT_CHECKED
    return Description(name, line, parameters, preset.source, preset.differs, checked)


def _parameters(policy: Policy) -> dict[str, str]:
    return {name: value.name if isinstance(value, Policy) else repr(value) for name, value in _values(policy).items()}


def _values(policy: Policy) -> dict[str, Any]:
    return {field.name: getattr(policy, field.name) for field in fields(policy) if field.init}  # type: ignore[arg-type]


def _plain(text: str) -> str:
    """Return a docstring as a terminal shows it: literals and names in single backticks, without roles."""
    return re.sub(r":[a-z:]+:`(?:~[\w.]*\.)?([^`]+)`", r"`\1`", text).replace("``", "`")
