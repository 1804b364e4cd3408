"""Tables of providers: those of the package, and files of a user's own."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any

from prefixroute.errors import ConfigError
from prefixroute.providers.catalog import Lifetime, Mode, Model, Price, Provider, nearest_model
from prefixroute.providers.usage import FORMS
from prefixroute.shipped import shipped_texts
from prefixroute.validation import check_choice, check_names, shown


@cache
def providers() -> tuple[Provider, ...]:
    """Return the providers that come with the package, by name."""
    return tuple(parse_provider(text, name) for name, text in shipped_texts("prefixroute.providers", "data").items())


def find_provider(name: str, own: Iterable[Provider] = ()) -> Provider:
    """Return a provider by its name; those of ``own`` come before those of the package.

    Args:
        name: e.g. ``anthropic``.
        own: providers of one's own.

    Raises:
        ConfigError: there is none.
    """
    known = {one.name: one for one in (*reversed(providers()), *reversed(tuple(own)))}
    check_choice("a provider", name, sorted(known))
    return known[name]


def find_model(name: str, own: Iterable[Provider] = ()) -> Model:
    """Return a model by its id or an alias; models of ``own`` come before those of the package.

    Args:
        name: its id or an alias.
        own: providers of one's own.

    Raises:
        ConfigError: there is none of this name; the message lists the nearest.
    """
    return nearest_model(name, [*own, *providers()])


def read_provider(path: str | Path) -> Provider:
    """Read a provider's figures from a TOML file of the form of the package's own, see ``docs/providers.md``.

    Args:
        path: of the file.

    Returns:
        The provider with its models.

    Raises:
        ConfigError: the file cannot be read, or a key is unknown or wrong; it is named.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read prices from {path}: {error}") from error
    return parse_provider(text, str(path))


def parse_provider(text: str, where: str = "prices") -> Provider:
    """Return the provider that a TOML text describes; ``where`` names it in errors.

    Raises:
        ConfigError: a key is unknown, missing or wrong; it is named.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is no TOML: {error}") from error
    try:
        return _provider(table)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _provider(table: Mapping[str, Any]) -> Provider:
    given = dict(table)
    modes = {mode.name: mode for mode in (_mode(one) for one in _tables(given.pop("modes", []), "modes"))}
    day = given.get("date")
    if not isinstance(day, date) or isinstance(day, datetime):
        raise ConfigError(f"date must be a date such as 2026-11-15, got {shown(day)}")
    common = {"provider": given.get("name"), "date": day} | ({"source": given["source"]} if "source" in given else {})
    models = tuple(_model(one, modes, common) for one in _tables(given.pop("models", []), "models"))
    check_choice("usage", given.get("usage"), FORMS)
    provider: Provider = _made(Provider, {**given, "models": models}, "the file")
    provider.model()
    return provider


def _mode(table: Mapping[str, Any]) -> Mode:
    given = dict(table)
    what = f"mode {given.get('name')!r}"
    given["lifetimes"] = tuple(_made(Lifetime, one, what) for one in _tables(given.get("lifetimes", []), "lifetimes"))
    mode: Mode = _made(Mode, _with_words(given, "assumed"), what)
    return mode


def _model(table: Mapping[str, Any], modes: Mapping[str, Mode], common: Mapping[str, Any]) -> Model:
    given = {**common, **table}
    what = f"model {given.get('id')!r}"
    names = given.get("modes")
    if not isinstance(names, list) or not names or not all(name in modes for name in names):
        raise ConfigError(
            f"modes of {what} must be a list of {', '.join(modes) or 'modes of the file'}, got {shown(names)}"
        )
    given["modes"] = tuple(modes[name] for name in names)
    given["prices"] = tuple(_made(Price, one, what) for one in _tables(given.get("prices", []), "prices"))
    model: Model = _made(Model, _with_words(given, "assumed", "aliases"), what)
    return model


def _with_words(given: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        value = given.get(name, [])
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise ConfigError(f"{name} must be a list of words, got {shown(value)}")
        given[name] = tuple(value)
    return given


def _tables(value: Any, name: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ConfigError(f"{name} must be a list of tables, got {value!r:.80}")
    return value


def _made(kind: type[Any], given: Mapping[str, Any], what: str) -> Any:
    """Return an object of one of the classes from its fields; every key must be one of them, and words must be text."""
    known = {one.name: one for one in fields(kind)}
    check_names(what, "key", given, known)
    missing = [
        name
        for name, one in known.items()
        if name not in given and one.default is MISSING and one.default_factory is MISSING
    ]
    if missing:
        raise ConfigError(f"{what} lacks {', '.join(missing)}")
    for name, value in given.items():
        if known[name].type == "str" and not isinstance(value, str):
            raise ConfigError(f"{name} of {what} must be text, got {shown(value)}")
        if known[name].type == "bool" and not isinstance(value, bool):
            raise ConfigError(f"{name} of {what} must be true or false, got {shown(value)}")
        if known[name].type == "Mapping[str, float]" and not isinstance(value, Mapping):
            raise ConfigError(f"{name} of {what} must be a table, got {shown(value)}")
    return kind(**given)
