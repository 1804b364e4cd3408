"""A workload as people write it: a generator or a file, and settings after commas.

``agents,spawn=0.3,requests=1M,arrivals=poisson:20`` or ``day.jsonl.gz,speed=2,sample=0.1``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields, replace
from pathlib import Path
from typing import Any

from prefixroute.costmodel.assumption import GIVEN
from prefixroute.errors import ConfigError
from prefixroute.validation import check_names, shown
from prefixroute.workload.agents import AgentsShape, agents
from prefixroute.workload.arrivals import Arrivals, Bursty, Even, Poisson
from prefixroute.workload.chat import ChatShape, chat
from prefixroute.workload.documents import DocumentsShape, documents
from prefixroute.workload.fan_out import FanOutShape, fan_out
from prefixroute.workload.few_shot import FewShotShape, few_shot
from prefixroute.workload.readers.record import Options
from prefixroute.workload.shape import Shape
from prefixroute.workload.tenants import TenantsShape, tenants
from prefixroute.workload.trace import read_arrivals
from prefixroute.workload.workload import Workload

_MADE: dict[str, tuple[type[Shape], Callable[..., Workload]]] = {
    shape.name(): (shape, made)
    for shape, made in (
        (ChatShape, chat),
        (DocumentsShape, documents),
        (AgentsShape, agents),
        (FewShotShape, few_shot),
        (TenantsShape, tenants),
        (FanOutShape, fan_out),
    )
}
GENERATORS = {name: made for name, (_, made) in _MADE.items()}
"""Generators by name. Each takes a seed and ``requests=``, ``block_size=``, ``arrivals=``, ``shape=``."""
_SETTING = re.compile(r"[a-z_]+=")
_SCALES = {"k": 1_000, "m": 1_000_000}
_CHANGES = ("speed", "sample", "head")
_READING = ("sessions_per_hour", "reorder_s", "share_system", "infer_sessions")
_MAKING = ("requests", "block_size", "arrivals")


@dataclass(frozen=True, slots=True)
class Spec:
    """A workload's name and settings, as text. Hashable, picklable; calling it with a seed makes the workload.

    Settings of every workload: ``speed`` (arrivals so many times as fast), ``sample`` (a share of the sessions, each
    whole), ``head`` (the first requests). Of a generator: ``requests``, ``block_size``, ``arrivals`` (``even:RATE``,
    ``poisson:RATE``, ``bursty:RATE:CV`` in requests a second, or a file whose times are used) and every size of its
    shape. Of a file: ``sessions_per_hour``, ``reorder_s``, ``share_system`` and ``infer_sessions``, see
    :class:`Options`.
    """

    name: str
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Return what the text says. Commas in a file's name are part of it unless a setting follows.

        Args:
            text: e.g. ``chat,requests=600`` or ``log.jsonl,head=1000``.

        Raises:
            ConfigError: at a setting that the workload has not; the message lists those it has.
        """
        parts = text.split(",")
        while len(parts) > 1 and _SETTING.match(parts[-1]):
            parts.pop()
        name = ",".join(parts)
        settings = text[len(name) + 1 :].split(",") if len(text) > len(name) else []
        spec = cls(name, tuple((key, value) for key, _, value in (setting.partition("=") for setting in settings)))
        check_names(name, "setting", [key for key, _ in spec.settings], spec.known)
        return spec

    @property
    def is_made(self) -> bool:
        """Whether a generator makes it; otherwise the name is a file's."""
        return self.name in GENERATORS

    @property
    def known(self) -> tuple[str, ...]:
        """The settings that this workload has."""
        return (*_MAKING, *self._sizes, *_CHANGES) if self.is_made else (*_READING, *_CHANGES)

    @property
    def _sizes(self) -> Mapping[str, Field[Any]]:
        # `shares` of tenants are a list: too long for a setting.
        return {size.name: size for size in fields(_MADE[self.name][0]) if size.name != "shares"}

    def __call__(self, seed: int) -> Workload:
        """Make the workload of a generator, with its changes.

        Raises:
            ConfigError: at a value that is impossible.
        """
        shape, made = _MADE[self.name]
        settings = dict(self.settings)
        sizes = {
            key: number(key, settings[key], whole=isinstance(size.default, int))
            for key, size in self._sizes.items()
            if key in settings
        }
        more: dict[str, Any] = {
            key: number(key, settings[key], whole=True) for key in ("requests", "block_size") if key in settings
        }
        if "arrivals" in settings:
            more["arrivals"] = arrivals(settings["arrivals"])
        workload = made(seed, shape=shape(**sizes), **more)
        given = {f"{shape.KIND}_{size}" for size in sizes}  # though they may be what they are by default
        assumptions = tuple(
            replace(item, source=GIVEN, assumed=False) if item.name in given else item for item in workload.assumptions
        )
        return self.change(replace(workload, assumptions=assumptions))

    def options(self, options: Options) -> Options:
        """Return how to read the file: what ``options`` say, and the settings.

        Args:
            options: that were given beside the text.

        Raises:
            ConfigError: at a value that is impossible.
        """
        read: dict[str, Any] = {}
        for key, value in self.settings:
            if key in {"sessions_per_hour", "reorder_s"}:
                read[key] = number(key, value)
            elif key in _READING:
                if value not in {"yes", "no"}:
                    raise ConfigError(f"{key} must be yes or no, got {shown(value)}")
                read[key] = value == "yes"
        return replace(options, **read)

    def change(self, workload: Workload) -> Workload:
        """Return the workload with ``sample``, ``head`` and ``speed``, in this order, and the settings in its name.

        Args:
            workload: as it was read or generated.

        Raises:
            ConfigError: at a value that is impossible, or if no request is left.
            TraceError: at a bad line before the first request of a sample.
        """
        settings = dict(self.settings)
        changed = workload
        if "sample" in settings:
            changed = changed.sampled(number("sample", settings["sample"]))
            if next(changed.requests(), None) is None:
                raise ConfigError(f"no session of {workload.name} is in a sample of {settings['sample']}: take more")
        if "head" in settings:
            changed = changed.head(int(number("head", settings["head"], whole=True)))
        if "speed" in settings:
            changed = changed.scaled(number("speed", settings["speed"]))
        name = ",".join([workload.name, *(f"{key}={value}" for key, value in self.settings)])
        if changed.request_count == 0:
            raise ConfigError(f"{name}: the workload holds no request")
        return replace(changed, name=name)


def number(name: str, text: str, *, whole: bool = False) -> float:
    """Return a number; ``k`` and ``M`` at its end are thousands and millions.

    Raises:
        ConfigError: if it is none, or has a fraction where ``whole`` forbids it.
    """
    scale = _SCALES.get(text[-1:].lower(), 1)
    try:
        value = float(text[:-1] if scale > 1 else text) * scale
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf") or (whole and value != int(value)):
        raise ConfigError(f"{name} must be a {'whole ' if whole else ''}number, got {shown(text)}")
    return int(value) if whole else value


def arrivals(text: str) -> Arrivals:
    """Return the arrival process that a text names.

    Raises:
        ConfigError: if it names none.
        TraceError: at a bad line of the file it names.
    """
    kind, *figures = text.split(":")
    if kind in {"even", "poisson"} and len(figures) == 1:
        return (Even if kind == "even" else Poisson)(number("rate", figures[0]))
    if kind == "bursty" and len(figures) == 2:  # noqa: PLR2004 - rate and cv
        return Bursty(number("rate", figures[0]), number("cv", figures[1]))
    if Path(text).is_file():
        return read_arrivals(text)
    raise ConfigError(f"arrivals must be even:RATE, poisson:RATE, bursty:RATE:CV or a file, got {shown(text)}")
