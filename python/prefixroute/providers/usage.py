"""Usage objects of all providers in one form, and their own word on why a request missed the cache.

Objects may be dicts or those of an SDK, the usage itself or the whole response around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from types import MappingProxyType
from typing import Any

from prefixroute.errors import ConfigError
from prefixroute.providers.catalog import STANDARD, Model
from prefixroute.shipped import shipped_table
from prefixroute.validation import MOST_SHOWN, shown

_AROUND = ("usage", "usageMetadata", "usage_metadata", "message", "response", "body")
"""Where responses keep their usage; Anthropic's first streaming event in its message, batches in a body."""
_DEPTH = 4
FORMS: dict[str, dict[str, Any]] = shipped_table("prefixroute.providers", "usage.toml")
"""Forms of usage objects by name, the most telling first: where each has what."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, each counted once.

    Attributes:
        input_tokens: prompt tokens that were neither read from a cache nor written to one.
        read_tokens: prompt tokens read from a cache.
        write_tokens: prompt tokens written to a cache, by the name of the lifetime; ``""`` where none is named.
        output_tokens: tokens of the answer, thinking included.
        tier: service tier as reported, ``standard`` or ``batch`` for the two that all price lists know.
    """

    input_tokens: int
    read_tokens: int = 0
    write_tokens: Mapping[str, int] = field(default_factory=dict)
    output_tokens: int = 0
    tier: str = STANDARD

    def __post_init__(self) -> None:
        """Refuse what cannot be counted."""
        counts = {"input": self.input_tokens, "read": self.read_tokens, "output": self.output_tokens}
        counts |= {f"write {name}".strip(): count for name, count in self.write_tokens.items()}
        for name, count in counts.items():
            if type(count) is not int or count < 0:
                raise ConfigError(f"{name} tokens of a usage must be an int of 0 or more, got {shown(count)}")
        object.__setattr__(self, "write_tokens", MappingProxyType(dict(self.write_tokens)))

    @property
    def written(self) -> int:
        """Tokens written, for any lifetime."""
        return sum(self.write_tokens.values())

    @property
    def prompt_tokens(self) -> int:
        """All tokens of the prompt."""
        return self.input_tokens + self.read_tokens + self.written

    @property
    def hit_ratio(self) -> float:
        """Share of the prompt read from a cache; 0 for an empty prompt."""
        return self.read_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @classmethod
    def of(cls, found: Any) -> Usage:
        """Read a usage object or a response of any known provider.

        Known are the Messages API (Claude, also on Vertex), chat completions and Responses (OpenAI, Azure, Mistral,
        xAI), DeepSeek's hit and miss tokens, Gemini's ``usageMetadata`` and Bedrock's Converse.

        Args:
            found: an object, a mapping, or a response that has one.

        Returns:
            The counts; ``None`` for each that it does not say.

        Raises:
            ConfigError: it is of no known form, a count is impossible, or the object raises when it is read.
        """
        return _reported(found)[1]

    def usd(self, model: Model, lifetime: str | None = None) -> float:
        """Return the dollars of the request by the prices of a model.

        Args:
            model: whose prices.
            lifetime: of the tokens whose lifetime is not reported; the model's default unless given.
        """
        price = model.price(self.prompt_tokens, self.tier if self.tier in _tiers(model) else STANDARD)
        name = model.mode().lifetime(lifetime).name
        written = sum(price.usd(count, "write", key or name) for key, count in self.write_tokens.items())
        others = (("input", self.input_tokens), ("read", self.read_tokens), ("output", self.output_tokens))
        return written + sum(price.usd(count, kind) for kind, count in others)


def reported_tokens(found: Any) -> tuple[int | None, int]:
    """Return the cached prompt tokens and all prompt tokens that a usage object or a response reports.

    ``None`` = it says nothing of cached tokens, which is not zero: vLLM leaves them out unless told to count them
    (``--enable-prompt-tokens-details``).

    Args:
        found: as for :meth:`Usage.of`.

    Raises:
        ConfigError: it is of no known form, a count is impossible, or the object raises when it is read.
    """
    said, usage = _reported(found)
    return usage.read_tokens if said else None, usage.prompt_tokens


def _reported(found: Any) -> tuple[bool, Usage]:
    """Return whether a usage object says something of cached tokens, and what it says."""
    try:
        fields = _usage_fields(found)
        usage = _read(found, fields)
        return any(_first(fields, form["read"])[1] is not None for form in FORMS.values()), usage
    except ConfigError:
        raise
    except Exception as error:  # an object of the user's may raise anything
        raise ConfigError(f"a usage object of class {type(found).__name__} cannot be read: {shown(error)}") from error


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A provider's own word on a miss.

    Attributes:
        reason: in the provider's words: ``system_changed``, ``prompt_cache_key_changed``, ...
        missed_tokens: about how many tokens it concerns, None where that is not reported.
    """

    reason: str
    missed_tokens: int | None = None


def diagnosis_of(response: Any) -> Diagnosis | None:
    """Return what a response says about its own miss: Claude's ``diagnostics.cache_miss_reason``, OpenAI's
    ``prompt_cache_diagnostics``. None where it says nothing, says that it hit, or cannot tell.

    Args:
        response: as the client library or JSON has it.
    """  # noqa: D205 - one sentence
    fields = _mapping(response)
    miss = _mapping(_mapping(fields.get("diagnostics")).get("cache_miss_reason"))
    if miss.get("type"):
        return Diagnosis(str(miss["type"]), _count(miss.get("cache_missed_input_tokens")))
    told = _mapping(fields.get("prompt_cache_diagnostics"))
    if told.get("type") == "cache_miss" and told.get("reason"):
        return Diagnosis(str(told["reason"]), _count(told.get("cache_missed_tokens")))
    return None


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return the fields of a dict or of an SDK's object; none of anything else."""
    if isinstance(value, Mapping):
        return value
    for name in ("model_dump", "to_dict"):
        dump = getattr(value, name, None)
        if callable(dump) and not isinstance(value, type):
            dumped = dump()
            return dumped if isinstance(dumped, Mapping) else {}
    return vars(value) if hasattr(value, "__dict__") and not isinstance(value, type) else {}


def _usage_fields(found: Any) -> Mapping[str, Any]:
    fields = _mapping(found)
    for _ in range(_DEPTH):
        inner = next((fields[name] for name in _AROUND if fields.get(name) is not None), None)
        if inner is None or not _mapping(inner):
            break
        fields = _mapping(inner)
    return fields


def _read(found: Any, fields: Mapping[str, Any]) -> Usage:
    for form in FORMS.values():
        if any(fields.get(name) not in (None, {}) for name in form["told_by"]):
            return _usage(fields, form)
    known = ", ".join(name for form in FORMS.values() for name in form["told_by"])
    raise ConfigError(f"a usage object has one of {known}; got {_seen(found, fields)}")


def _usage(fields: Mapping[str, Any], form: Mapping[str, Any]) -> Usage:
    """Return the tokens of a usage object of a form."""
    counts = ((lifetime, _tokens(fields, names)) for lifetime, names in form.get("written_for", {}).items())
    write = {lifetime: count for lifetime, count in counts if count}
    unnamed = _tokens(fields, form.get("written", ())) - sum(write.values())
    if unnamed > 0:
        write[""] = unnamed
    prompt, read, written = _tokens(fields, form["prompt"]), _tokens(fields, form["read"]), sum(write.values())
    rest = prompt if form.get("apart") else prompt - read - written
    if rest < 0:
        raise ConfigError(f"a usage names {read} tokens read and {written} written of a prompt of {prompt}")
    return Usage(rest, read, write, sum(_tokens(fields, names) for names in form["output"]), _tier(fields))


def _seen(found: Any, fields: Mapping[str, Any]) -> str:
    """Return what was given in place of a usage object: the fields that it has, or its value where it has none."""
    return f"one with {', '.join(map(str, fields))[:MOST_SHOWN]}" if fields else shown(found)


def _tiers(model: Model) -> set[str]:
    return {price.tier for price in model.prices}


def _count(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None


def _first(fields: Mapping[str, Any], paths: Iterable[str]) -> tuple[str, Any]:
    """Return the last name and the value of the first path that leads to one; None where none does."""
    for path in paths:
        *around, name = path.split(".")
        value = reduce(lambda outer, inner: _mapping(outer.get(inner)), around, fields).get(name)
        if value is not None:
            return name, value
    return "", None


def _tokens(fields: Mapping[str, Any], paths: Iterable[str]) -> int:
    """Return the count that is the first of some paths; 0 where none is there."""
    name, value = _first(fields, paths)
    count = 0 if value is None else _count(value)
    if count is None:
        raise ConfigError(f"{name} of a usage must be a whole number of 0 or more, got {shown(value)}")
    return count


def _tier(fields: Mapping[str, Any]) -> str:
    named = fields.get("service_tier")
    return named if isinstance(named, str) and named not in ("default", "auto") else STANDARD


def ideal_usd(usage: Usage, reusable_tokens: int, model: Model, lifetime: str | None = None) -> float:
    """Return what the request would have cost had ``reusable_tokens`` of its prompt been read from the cache.

    The rest costs what the rest did cost: what was written stays written, as far as it is not read.
    """
    more = min(max(0, reusable_tokens - usage.read_tokens), usage.input_tokens + usage.written)
    write, left = dict(usage.write_tokens), more
    for name, count in usage.write_tokens.items():
        taken = min(left, count)
        write[name] = count - taken
        left -= taken
    better = Usage(usage.input_tokens - left, usage.read_tokens + more, write, usage.output_tokens, usage.tier)
    return better.usd(model, lifetime)
