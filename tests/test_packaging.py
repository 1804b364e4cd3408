from __future__ import annotations

import importlib
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import prefixroute
from prefixroute import _core


def test_version_is_that_of_the_crate_and_of_the_distribution() -> None:
    assert prefixroute.__version__ == _core.__version__ == importlib.metadata.version("prefixroute")


def test_a_debug_build_warns_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "DEBUG_BUILD", True)
    with pytest.warns(RuntimeWarning, match="without optimisation"):
        importlib.reload(prefixroute)


def test_a_release_build_is_silent() -> None:
    assert _core.DEBUG_BUILD is False
    importlib.reload(prefixroute)


def test_importing_the_library_loads_no_extra() -> None:
    extras = {
        "typer",
        "rich",
        "altair",
        "vl_convert",
        "zmq",
        "tokenizers",
        "msgpack",
        "xxhash",
        "cbor2",
        "prometheus_client",
        "aiohttp",
    }
    code = f"import sys, prefixroute; print(sorted({extras!r} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_every_public_name_exists() -> None:
    assert [name for name in prefixroute.__all__ if not hasattr(prefixroute, name)] == []


MODULES = {"pyyaml": "yaml", "pyzmq": "zmq", "skypilot": "sky", "vl-convert-python": "vl_convert"}
"""What is imported of a distribution that has another name."""
NOT_IMPORTED = {"tokenizers", "verl", "httptools", "backports.zstd"}
"""A tokenizer is an argument, verl loads the package, uvicorn imports httptools, and zstd is asked for by its name."""


def test_every_extra_installs_what_the_package_imports() -> None:
    root = Path(__file__).resolve().parents[1]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {re.split(r"[\[<>=;]", one)[0] for listed in extras.values() for one in listed}
    modules = {MODULES.get(name, name.replace("-", "_")) for name in named - NOT_IMPORTED - {"prefixroute"}}
    code = "\n".join(path.read_text() for path in (root / "python").rglob("*.py"))
    imported = set(re.findall(r"""(?:^ *(?:import|from) |_module\(")([\w.]+)""", code, re.MULTILINE))
    assert {one for one in modules if not any(name.startswith(one) for name in imported)} == set()
