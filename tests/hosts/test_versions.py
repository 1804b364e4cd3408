"""The windows of versions: one for the adapter's check, its extra and what it is tested with."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from prefixroute.errors import HostError
from prefixroute.hosts import versions
from prefixroute.hosts.versions import WINDOWS, require

ROOT = Path(__file__).resolve().parents[2]
ADAPTERS = ROOT / "python" / "prefixroute" / "hosts"


def test_every_adapter_of_a_window_checks_it() -> None:
    calls = re.findall(
        r'^require\("(\S+)"\)', "\n".join(path.read_text() for path in ADAPTERS.glob("*.py")), re.MULTILINE
    )
    assert sorted(calls) == sorted(WINDOWS)


@pytest.mark.parametrize("package", WINDOWS)
def test_the_extra_has_the_window_that_the_adapter_checks(package: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    low, below = WINDOWS[package]
    [extra] = project["project"]["optional-dependencies"][package]
    assert re.sub(r"\[.*\]", "", extra) == f"{package}>={low},<{below}"
    assert extra in project["dependency-groups"]["hosts"] + project["dependency-groups"]["hosts-bare"]


@pytest.mark.parametrize("package", WINDOWS)
def test_what_is_tested_beside_is_in_its_window(package: str) -> None:
    try:
        version(package)
    except PackageNotFoundError:
        pytest.skip(f"needs {package}, see `make hosts`")
    require(package)


@pytest.mark.parametrize(
    ("found", "known"), [("2.60.0", True), ("2.60", True), ("2.60.3rc1", True), ("2.59.9", False), ("2.61.0", False)]
)
def test_a_host_outside_of_the_window_is_refused(monkeypatch: pytest.MonkeyPatch, found: str, *, known: bool) -> None:
    monkeypatch.setattr(versions, "version", lambda _: found)
    if known:
        require("ray")
        return
    with pytest.raises(HostError, match=f"ray>=2.60,<2.61, found {found}"):
        require("ray")


def test_a_host_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WINDOWS, "no-such-host", ("1", "2"))
    with pytest.raises(ImportError, match=r"no-such-host>=1,<2"):
        require("no-such-host")
