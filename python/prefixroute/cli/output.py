"""The files a command writes beside its answer."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prefixroute.cli import console
from prefixroute.errors import ConfigError

if TYPE_CHECKING:
    from prefixroute.report.drawing import Chart


@dataclass(frozen=True, slots=True)
class Output:
    """A page and a picture, where they were asked for.

    Making one fails early: with a missing extra or folder, before the runs and not after them.

    Raises:
        ConfigError: a path that no file can be written to, or of another kind.
        ModuleNotFoundError: the extra ``report`` is not installed.
    """

    report: Path | None
    png: Path | None

    def __post_init__(self) -> None:
        """Check both paths, and that there is something to draw with."""
        for what, path, suffixes in (("--report", self.report, (".html", ".htm")), ("--png", self.png, (".png",))):
            if path is not None and path.suffix.lower() not in suffixes:
                raise ConfigError(f"{what} must be a file that ends in {suffixes[0]}, got {str(path)!r}")
            if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
                raise ConfigError(f"{what} must be a file in an existing folder, got {str(path)!r}")
        if self.report or self.png:
            importlib.import_module("prefixroute.report.drawing")

    def __bool__(self) -> bool:
        """Return whether anything was asked for."""
        return self.report is not None or self.png is not None

    def write(
        self,
        page: Callable[[], str],
        title: str = "",
        charts: Mapping[str, Chart] | None = None,
        remarks: Sequence[str] = (),
        rests_on: Sequence[str] = (),
    ) -> None:
        """Make what was asked for, write it, and say where it lies.

        Args:
            page: makes the page.
            title: of the picture.
            charts: of the picture, by their titles.
            remarks: what the picture says above its charts.
            rests_on: what it says below them.
        """
        if self.report is not None:
            self.report.write_text(page(), encoding="utf-8")
            console.note(f"report: {self.report}")
        if self.png is not None:
            from prefixroute.report.drawing import png

            self.png.write_bytes(png(title, charts or {}, remarks=remarks, rests_on=rests_on))
            console.note(f"picture: {self.png}")
