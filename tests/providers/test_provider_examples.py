"""The examples for both SDKs run as their first lines say, against their own local server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(name: str) -> list[str]:
    keys = {"ANTHROPIC_API_KEY", "OPENAI_API_KEY"}
    env = {name: value for name, value in os.environ.items() if name not in keys} | {"PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-m", f"examples.providers.{name}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=env)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_claude_fan_out() -> None:
    dollars = {line[:14].strip(): float(line.rpartition("$")[2]) for line in run("claude_fan_out")}
    assert list(dollars) == ["all at once", "one, then nine", "pre-warmed"]
    assert 0.45 < dollars["all at once"] < 0.55
    assert dollars["one, then nine"] < dollars["pre-warmed"] < 0.08


def test_openai_keys() -> None:
    one, eight = run("openai_keys")
    assert one.startswith("1 keys")
    assert eight.startswith("8 keys")
    assert float(one.rpartition("$")[2]) > float(eight.rpartition("$")[2])
