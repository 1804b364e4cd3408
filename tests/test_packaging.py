from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys

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
