"""Tables that the package ships beside its code."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any


def shipped_table(package: str, name: str) -> dict[str, Any]:
    """Return the TOML table ``name`` of a package."""
    return tomllib.loads(files(package).joinpath(name).read_text(encoding="utf-8"))


def shipped_texts(package: str, folder: str) -> dict[str, str]:
    """Return the texts of the TOML files in a package's folder, by their names and sorted by them."""
    entries = sorted(files(package).joinpath(folder).iterdir(), key=lambda entry: entry.name)
    return {entry.name: entry.read_text("utf-8") for entry in entries if entry.name.endswith(".toml")}
