"""What every test shares: hypothesis profiles, the folder of traces, the number of golden seeds, an event loop."""

from __future__ import annotations

import asyncio
import inspect
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# No deadline: a shared machine may stall any example, and tests never judge time.
settings.register_profile("dev", deadline=None)
settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-seeds", type=int, default=5, help="seeds averaged by the tests marked `golden` (default 5)"
    )


@pytest.fixture(scope="session")
def golden_seeds(request: pytest.FixtureRequest) -> int:
    """Return how many seeds a `golden` test averages: 5, or what `--golden-seeds` says."""
    return int(request.config.getoption("--golden-seeds"))


@pytest.fixture(scope="session")
def traces_dir() -> Path:
    """Return the folder of public traces, or skip: they are data of others and not part of the repository."""
    folder = Path(os.environ.get("PREFIXROUTE_TRACES", ROOT.parent / "shared" / "traces"))
    if not folder.is_dir():
        pytest.skip(f"no traces in {folder}: set PREFIXROUTE_TRACES to the folder that holds mooncake_*.jsonl.gz")
    return folder


@pytest.fixture(scope="session")
def logs_dir() -> Path:
    """Return the folder of made-up logs in the shapes of real exports, or skip: they are not part of the repository."""
    folder = Path(os.environ.get("PREFIXROUTE_LOGS", ROOT.parent / "shared" / "logs"))
    if not folder.is_dir():
        pytest.skip(f"no logs in {folder}: set PREFIXROUTE_LOGS to the folder that holds litellm_spend.jsonl")
    return folder
