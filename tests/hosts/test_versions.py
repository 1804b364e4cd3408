"""The windows of versions: one for the adapter's check, its extra and what it is tested with."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from prefixroute.errors import HostError
from prefixroute.hosts import versions

ROOT = Path(__file__).resolve().parents[2]
ADAPTERS = ROOT / "python" / "prefixroute" / "hosts"
WINDOWS = {
    found[1]: (found[2], found[3])
    for path in ADAPTERS.glob("*.py")
    if (found := re.search(r'^require\("([\w-]+)", "([\d.]+)", "([\d.]+)"\)', path.read_text(), re.MULTILINE))
}


@pytest.mark.parametrize("package", sorted(WINDOWS))
def test_the_extra_has_the_window_that_the_adapter_checks(package: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    low, below = WINDOWS[package]
    [extra] = project["project"]["optional-dependencies"][package]
    assert re.sub(r"\[.*\]", "", extra) == f"{package}>={low},<{below}"
    assert extra in project["dependency-groups"]["hosts"] + project["dependency-groups"]["hosts-bare"]


@pytest.mark.parametrize(
    ("found", "known"), [("2.60.0", True), ("2.60", True), ("2.60.3rc1", True), ("2.59.9", False), ("2.61.0", False)]
)
def test_a_host_outside_of_the_window_is_refused(monkeypatch: pytest.MonkeyPatch, found: str, *, known: bool) -> None:
    monkeypatch.setattr(versions, "version", lambda _: found)
    if known:
        versions.require("ray", "2.60", "2.61")
        return
    with pytest.raises(HostError, match=f"ray>=2.60,<2.61, found {found}"):
        versions.require("ray", "2.60", "2.61")


def test_a_host_that_is_not_installed_is_named() -> None:
    with pytest.raises(ImportError, match="no-such-host is not installed"):
        versions.require("no-such-host", "1", "2")
