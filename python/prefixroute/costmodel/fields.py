"""The fields of a Hugging Face ``config.json``, each read as what it must be or refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from reprlib import repr as brief
from typing import Any, TypeVar

from prefixroute.errors import ConfigError

T = TypeVar("T")

LARGEST = 1 << 24
"""More than any size of a model; arithmetic stays quick and finite."""
_TEXT = ("thinker_config", "text_config", "language_config", "llm_config")
"""Where multimodal models keep their decoder, the outermost first."""
_PARTS = ("ffn_config", "attn_config")
"""Where some decoders keep half of their own fields."""


class Fields:
    """Fields under their many names; those of the decoder come before those around it.

    ``null`` is as good as left out.
    """

    def __init__(self, raw: dict[str, Any], path: str) -> None:
        """Take the parsed file; ``path`` names it in errors."""
        self.path = path
        nested = [raw]
        for name in _TEXT:
            inner = nested[-1].get(name)
            if isinstance(inner, dict):
                nested.append(inner)
        parts = [part for one in nested for name in _PARTS if isinstance(part := one.get(name), dict)]
        self._values = {name: value for one in (*parts, *nested) for name, value in one.items() if value is not None}

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._values)

    def get(self, name: str) -> Any:
        """Return a field as it is; None where it is left out."""
        return self._values.get(name)

    def says(self, name: str) -> bool:
        """Return whether a field is there and neither false, 0 nor empty."""
        return bool(self._values.get(name))

    def size(self, *names: str, default: int | None = None, layer: int | None = None) -> int:
        """Return the first field of these names, a size.

        Of a list with one for each layer the one of ``layer``, if that is given.

        Raises:
            ConfigError: none is there and there is no default; or it is no whole number, or 0 where 0 means nothing.
        """
        for name in names:
            value = self.get(name)
            if layer is not None and isinstance(value, list) and len(value) > layer:
                value = value[layer]
            if value is None:
                continue
            least = 0 if default == 0 else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise self.error(name, "a positive whole number" if least else "a whole number of 0 or more")
            if value > LARGEST:
                raise self.error(name, f"at most {LARGEST:,}")
            return value
        if default is None:
            raise ConfigError(f"{self.path} lacks {' or '.join(names)}")
        return default

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a field that is true or false."""
        value = self._values.get(name, default)
        if not isinstance(value, bool):
            raise self.error(name, "true or false")
        return value

    def word(self, name: str) -> str:
        """Return a field that is a word; empty where it is left out."""
        value = self._values.get(name, "")
        if not isinstance(value, str):
            raise self.error(name, "a string")
        return value

    def words(self, name: str) -> list[str]:
        """Return a field that is a list of words; empty where it is left out."""
        return self._listed(name, str, "strings")

    def numbers(self, name: str) -> list[int]:
        """Return a field that is a list of whole numbers; empty where it is left out."""
        return self._listed(name, int, "whole numbers")

    def _listed(self, name: str, kind: type[T], what: str) -> list[T]:
        value = self._values.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
            raise self.error(name, f"a list of {what}")
        return value

    def sizes(self, name: str, count: int) -> list[int]:
        """Return a field that is a list of ``count`` sizes."""
        value = self.get(name)
        if not isinstance(value, list) or len(value) != count or not all(type(item) is int for item in value):
            raise self.error(name, f"a list of {count} whole numbers")
        if not 1 <= min(value) <= max(value) <= LARGEST:
            raise self.error(name, f"a list of numbers from 1 to {LARGEST:,}")
        return value

    def error(self, name: str, allowed: str) -> ConfigError:
        """Return the error of a field that is not what it must be."""
        return ConfigError(f"{name} in {self.path} must be {allowed}, got {brief(self.get(name))}")
