"""Where an answer goes: to the terminal or as JSON, and to a page and a picture beside it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from prefixroute.cli import console, options
from prefixroute.cli.groups import OUTPUT, option
from prefixroute.cli.table import show_sheet
from prefixroute.document import json_text
from prefixroute.errors import ConfigError
from prefixroute.report.sheet import Sheet

if TYPE_CHECKING:
    from prefixroute.report.drawing import Picture

_option = partial(option, None, panel=OUTPUT)


@dataclass(frozen=True, slots=True)
class Outputs:
    """What is made of an answer.

    Making one fails early: with a missing extra or folder, before the runs and not after them.

    Raises:
        ConfigError: a path that no file can be written to, or of another kind.
        ModuleNotFoundError: the extra ``report`` is not installed.
    """

    as_json: bool = options.as_json(False)
    report: Path | None = _option("Write a self-contained page.", metavar="FILE.html")
    png: Path | None = _option("Write a picture.", metavar="FILE.png")
    quiet: bool = options.quiet(False)

    def __post_init__(self) -> None:
        """Check both paths, and that there is something to draw with."""
        for what, path, suffixes in (("--report", self.report, (".html", ".htm")), ("--png", self.png, (".png",))):
            if path is not None and path.suffix.lower() not in suffixes:
                raise ConfigError(f"{what} must be a file that ends in {suffixes[0]}, got {str(path)!r}")
            if path is not None:
                check_writable(what, path)
        if self.draws:
            importlib.import_module("prefixroute.report.drawing")

    @property
    def draws(self) -> bool:
        """Whether a page or a picture was asked for."""
        return self.report is not None or self.png is not None

    def give(self, sheet: Sheet, document: Callable[[], Mapping[str, Any]]) -> None:
        """Print a result, or the JSON object that ``document`` makes of it, and draw what was asked for."""
        self.answer(document, partial(show_sheet, sheet))
        if self.draws:
            from prefixroute.report.page import page, picture

            self.draw(partial(page, sheet), partial(picture, sheet))

    def answer(self, document: Callable[[], Mapping[str, Any]], show: Callable[[Console], None]) -> None:
        """Print the answer: ``document`` makes the JSON object, ``show`` prints tables and sentences."""
        if self.as_json:
            print_json(document())
        else:
            show(console.stdout())

    def draw(self, page: Callable[[], str], picture: Callable[[], Picture]) -> None:
        """Make the page and the picture that were asked for, write them, and say where they lie."""
        if self.report is not None:
            self.report.write_text(page(), encoding="utf-8")
            console.note(f"report: {self.report}")
        if self.png is not None:
            from prefixroute.report.drawing import png

            self.png.write_bytes(png(picture()))
            console.note(f"picture: {self.png}")


def check_writable(what: str, path: Path) -> None:
    """Refuse a file that cannot be written, before the runs and not after them. A new one is made and removed again.

    Args:
        what: the option that names it.
        path: the file. What exists and is no file, such as a pipe, is not tried.

    Raises:
        ConfigError: it is a folder or in none, or the system refuses it.
    """
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise ConfigError(f"{what} must be a file in an existing folder, got {str(path)!r}")
    try:
        if path.is_file():
            path.open("ab").close()
        elif not os.path.lexists(path):
            path.open("xb").close()
            path.unlink()
    except OSError as error:
        raise ConfigError(f"{what} must be a file that can be written, got {str(path)!r}: {error.strerror}") from None


def print_json(document: Mapping[str, Any]) -> None:
    """Print a JSON object. The same object is the same bytes."""
    sys.stdout.write(json_text(document))
