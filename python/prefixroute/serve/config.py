"""Configuration files: TOML, YAML or JSON. A mistake is named with its line, its key and what is allowed."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefixroute.errors import ConfigError
from prefixroute.extras import extra_module
from prefixroute.serve.settings import SECTIONS, Settings, option_named
from prefixroute.validation import check_names

Lines = dict[str, int]
"""The line of each key, by its full name."""
SUFFIXES = (".toml", ".yaml", ".yml", ".json")
_HEADER = re.compile(r"\s*\[\s*([A-Za-z0-9_.\"'-]+)\s*\]")
_KEY = re.compile(r"\s*([A-Za-z0-9_.\"'-]+)\s*=")


def read_settings(path: Path, changed: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings of a file.

    Args:
        path: ends in ``.toml``, ``.yaml``, ``.yml`` or ``.json``.
        changed: options that override the file's, by their full names.

    Raises:
        ConfigError: names file, line and key, and what is allowed.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: {error}") from error
    values, lines = parse(text, str(path), path.suffix)
    given = {name: value for name, value in _flat(values, str(path), lines).items() if name not in (changed or {})}
    for name, value in given.items():
        try:
            option_named(name).kind.check(name, value)
        except ConfigError as error:
            raise ConfigError(f"{_at(str(path), lines, name)}: {error}") from None
    return Settings.of({**given, **(changed or {})})


def _flat(values: Mapping[str, Any], path: str, lines: Lines) -> dict[str, Any]:
    """Return options by their full names."""
    flat: dict[str, Any] = {}
    for section, options in values.items():
        where = _at(path, lines, section)
        check_names(f"{where}: the server", "section", [section], SECTIONS)
        if options is None:
            continue
        if not isinstance(options, Mapping):
            raise ConfigError(f"{where}: {section} must be a section with options, got {options!r}")
        flat |= {f"{section}.{key}": value for key, value in options.items()}
    return flat


def _at(path: str, lines: Lines, name: str) -> str:
    line = lines.get(name) or lines.get(name.partition(".")[0])
    return path if line is None else f"{path}:{line}"


def parse(text: str, path: str, suffix: str) -> tuple[dict[str, Any], Lines]:
    """Return what a file says, and the line of each key of its first two levels.

    Args:
        text: of the file.
        path: what errors call it.
        suffix: one of :data:`SUFFIXES`, which says its format.

    Raises:
        ConfigError: names the line that cannot be read.
    """
    if suffix == ".toml":
        values, lines = _toml(text, path), _toml_lines(text)
    elif suffix in {".yaml", ".yml"}:
        values, lines = _yaml(text, path)
    elif suffix == ".json":
        values, lines = _json(text, path), {}
    else:
        raise ConfigError(f"{path}: must end in {', '.join(SUFFIXES)}, got {suffix!r}")
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must hold sections with options, got {type(values).__name__}")
    return values, lines


def _toml(text: str, path: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deep") from None


def _toml_lines(text: str) -> Lines:
    """Return the lines of keys; keys inside of values that span lines are taken for keys too, and do no harm."""
    lines: Lines = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            section = _bare(header[1])
            lines.setdefault(section, number)
        elif key := _KEY.match(line):
            name = f"{section}.{_bare(key[1])}" if section else _bare(key[1])
            lines.setdefault(name, number)
            lines.setdefault(name.partition(".")[0], number)
    return lines


def _bare(name: str) -> str:
    return ".".join(part.strip("\"' ") for part in name.split("."))


def _json(text: str, path: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _unique(pairs, path))
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None


def _unique(pairs: list[tuple[str, Any]], path: str) -> dict[str, Any]:
    """Return an object of JSON; of two values of a key one would be lost without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ConfigError(f"{path}: the key {twice!r} stands twice")
    return found


def _check_unique(yaml: Any, root: Any, path: str) -> None:
    """Raise :class:`ConfigError` for a key of YAML that stands twice in its mapping."""
    waiting, looked_at = [root], set[int]()  # nodes may hold each other, by aliases
    while waiting:
        node = waiting.pop()
        if id(node) in looked_at:
            continue
        looked_at.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            waiting.extend(value for _, value in node.value)
            _check_keys([key for key, _ in node.value if isinstance(key, yaml.ScalarNode)], path)


def _check_keys(keys: list[Any], path: str) -> None:
    lines: dict[str, int] = {}
    for key in keys:
        name, line = str(key.value), key.start_mark.line + 1
        if name in lines:
            raise ConfigError(f"{path}:{line}: the key {name!r} stands twice, in line {lines[name]} too")
        lines[name] = line


def _yaml(text: str, path: str) -> tuple[Any, Lines]:
    yaml = extra_module("yaml", "serve")
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text)
        _check_unique(yaml, node, path)
    except ConfigError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = path if mark is None else f"{path}:{mark.line + 1}"
        raise ConfigError(f"{where}: not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not YAML: {error}") from None
    lines: Lines = {}
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            lines[str(key.value)] = key.start_mark.line + 1
            if isinstance(value, yaml.MappingNode):
                for inner, _ in value.value:
                    lines[f"{key.value}.{inner.value}"] = inner.start_mark.line + 1
    return values if values is not None else {}, lines


def assignment(text: str) -> tuple[str, Any]:
    """Return the option and the value of ``SECTION.KEY=VALUE``; a value that is no TOML is a text.

    Raises:
        ConfigError: it is no assignment, or there is no such option.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"an option is set as SECTION.KEY=VALUE, got {text!r}")
    name = name.strip()
    option_named(name)
    try:
        return name, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name, value.strip()
