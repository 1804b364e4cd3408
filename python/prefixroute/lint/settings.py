"""Settings of engines, router and API, from a TOML or YAML file: an engine's own, or several in sections."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from prefixroute.errors import ConfigError
from prefixroute.extras import extra_module
from prefixroute.validation import check_float, check_int, check_names, shown

_SECTIONS = ("engine", "engines", "router", "api")
_SIZES = ("capacity_tokens", "max_total_tokens", "kv_cache_tokens")
_BLOCKS = ("block_size", "page_size")


@dataclass(frozen=True, slots=True)
class ServingSettings:
    """What is checked of one engine; None is not said.

    Attributes:
        name: what it is called.
        prefix_caching: whether it reuses prefixes.
        block_size: tokens a block.
        capacity_tokens: tokens that its cache holds.
        hash_seed: ``PYTHONHASHSEED`` of its environment.
        hash_algorithm: of its block hashes.
    """

    name: str
    prefix_caching: bool | None = None
    block_size: int | None = None
    capacity_tokens: int | None = None
    hash_seed: str | None = None
    hash_algorithm: str | None = None


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """What is checked of the router.

    Attributes:
        processes: routers that share nothing.
        sticky: whether the front before them sends a session always to one.
        capacity_tokens: tokens that it believes a replica holds.
        block_size: tokens of its blocks.
        binding_s: seconds of idleness after which a session is bound anew.
    """

    processes: int = 1
    sticky: bool = False
    capacity_tokens: int | None = None
    block_size: int | None = None
    binding_s: float | None = None


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """What is checked of calls to an API.

    Attributes:
        model: the model's name.
        lifetime: lifetime that calls ask for.
        binding_s: seconds for which a gateway binds a session to a workspace, key or deployment.
        targets: how many of them there are.
        key_requests_per_minute: limit of a routing key; the provider's unless given.
    """

    model: str | None = None
    lifetime: str | None = None
    binding_s: float | None = None
    targets: int = 2
    key_requests_per_minute: float | None = None


@dataclass(frozen=True, slots=True)
class LintSettings:
    """Everything that a file says."""

    engines: tuple[ServingSettings, ...] = ()
    router: RouterSettings | None = None
    api: ApiSettings | None = None

    @classmethod
    def read(cls, path: str | Path) -> LintSettings:
        """Read a file: ``.toml``, ``.yaml`` or ``.yml``; the latter need the extra ``cli``.

        Args:
            path: of the file.

        Returns:
            The settings.

        Raises:
            ConfigError: it cannot be read, or says what cannot be; the key is named.
        """
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"cannot read settings from {path}: {getattr(error, 'strerror', None) or error}"
            ) from error
        suffix = path.suffix.lower()
        if suffix == ".toml":
            try:
                table: Any = tomllib.loads(text)
            except tomllib.TOMLDecodeError as error:
                raise ConfigError(f"{path} is no TOML: {error}") from error
        elif suffix in (".yaml", ".yml"):
            yaml = extra_module("yaml", "cli")
            try:
                table = yaml.safe_load(text)
            except (yaml.YAMLError, RecursionError) as error:
                raise ConfigError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
        else:
            raise ConfigError(f"settings are a .toml, .yaml or .yml file, got {str(path)!r}")
        try:
            return cls.of(table)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    @classmethod
    def of(cls, table: Any) -> LintSettings:
        """Return the settings of a parsed file: sections engine, engines, router and api, or an engine's own keys.

        Keys of engines are those of vLLM and SGLang, with ``-`` or ``_``; the many that say nothing of caching are
        passed over. In the other sections a key that is not known is an error.

        Args:
            table: the parsed file.

        Raises:
            ConfigError: a section or a value is not allowed.
        """
        if not isinstance(table, Mapping) or not all(isinstance(key, str) for key in table):
            raise ConfigError(f"settings must be a table, got {table!r:.80}")
        if not any(name in table for name in _SECTIONS):
            return cls((_engine("engine", table),) if table else ())
        engines = []
        if "engine" in table:
            engines.append(_engine("engine", table["engine"]))
        listed = table.get("engines", [])
        items = (
            listed.items()
            if isinstance(listed, Mapping)
            else enumerate(listed if isinstance(listed, list) else [listed])
        )
        engines += [_engine(f"engine {name}" if isinstance(name, int) else str(name), one) for name, one in items]
        router = _section(RouterSettings, "router", table) if "router" in table else None
        api = _section(ApiSettings, "api", table) if "api" in table else None
        return cls(tuple(engines), router, api)


def _engine(name: str, table: Any) -> ServingSettings:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{name} must be a table, got {table!r:.80}")
    given = {str(key).lstrip("-").replace("-", "_"): value for key, value in table.items()}
    caching = _flag(name, given, "enable_prefix_caching")
    for off in ("no_enable_prefix_caching", "disable_radix_cache"):
        if _flag(name, given, off):
            caching = False
    size = _count(name, given, *_BLOCKS)
    capacity = _count(name, given, *_SIZES)
    blocks = _count(name, given, "num_gpu_blocks", "num_gpu_blocks_override")
    if capacity is None and blocks is not None and size is not None:
        capacity = blocks * size
    environment = given.get("env") or given.get("environment") or {}
    seed = environment.get("PYTHONHASHSEED") if isinstance(environment, Mapping) else None
    algorithm = given.get("prefix_caching_hash_algo")
    return ServingSettings(
        str(given.get("name", name)),
        caching,
        size,
        capacity,
        None if seed is None else str(seed),
        None if algorithm is None else str(algorithm),
    )


def _flag(name: str, given: Mapping[str, Any], key: str) -> bool | None:
    value = given.get(key)
    if value is not None and not isinstance(value, bool):
        raise ConfigError(f"{key} of {name} must be true or false, got {shown(value)}")
    return value


def _count(name: str, given: Mapping[str, Any], *keys: str) -> int | None:
    for key in keys:
        if given.get(key) is not None:
            check_int(f"{key} of {name}", given[key], 1)
            return int(given[key])
    return None


def _section(kind: type[Any], name: str, table: Mapping[str, Any]) -> Any:
    section = table[name]
    if not isinstance(section, Mapping):
        raise ConfigError(f"{name} must be a table, got {section!r:.80}")
    known = {one.name: str(one.type) for one in fields(kind)}
    given = {str(key).replace("-", "_"): value for key, value in section.items()}
    check_names(name, "key", given, known)
    for key, value in given.items():
        if known[key].startswith("int"):
            check_int(f"{key} of {name}", value, 1)
        elif known[key].startswith("float"):
            check_float(f"{key} of {name}", value, 0)
        elif known[key] == "bool" and not isinstance(value, bool):
            raise ConfigError(f"{key} of {name} must be true or false, got {shown(value)}")
        elif known[key].startswith("str") and not isinstance(value, str):
            raise ConfigError(f"{key} of {name} must be text, got {shown(value)}")
    return kind(**given)
