"""Settings files: an engine's own configuration, several in sections, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefixroute import ConfigError
from prefixroute.lint import ApiSettings, LintSettings, RouterSettings, ServingSettings

SECTIONS = LintSettings(
    (ServingSettings("a", False, 16, 16_000, "0", "sha256"), ServingSettings("engine 1", None, 32, None, None, None)),
    RouterSettings(4, sticky=True, capacity_tokens=300_000, binding_s=600.0),
    ApiSettings("claude-sonnet-5-5", "1h", 300.0, 3),
)
TOML = """
[[engines]]
name = "a"
enable-prefix-caching = false
block-size = 16
num-gpu-blocks = 1000
prefix-caching-hash-algo = "sha256"
env = { PYTHONHASHSEED = 0 }

[[engines]]
page_size = 32

[router]
processes = 4
sticky = true
capacity_tokens = 300000
binding_s = 600.0

[api]
model = "claude-sonnet-5-5"
lifetime = "1h"
binding_s = 300.0
targets = 3
"""
YAML = """
engines:
  - {name: a, enable-prefix-caching: false, block-size: 16, num-gpu-blocks: 1000,
     prefix-caching-hash-algo: sha256, env: {PYTHONHASHSEED: 0}}
  - page_size: 32
router: {processes: 4, sticky: true, capacity_tokens: 300000, binding_s: 600.0}
api: {model: claude-sonnet-5-5, lifetime: 1h, binding_s: 300.0, targets: 3}
"""


@pytest.mark.parametrize(("name", "text"), [("s.toml", TOML), ("s.yaml", YAML), ("s.yml", YAML)])
def test_both_forms_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert LintSettings.read(path) == SECTIONS


def test_an_engines_own_file(tmp_path: Path) -> None:
    path = tmp_path / "vllm.yaml"
    path.write_text("model: Qwen/Qwen3-8B\nno-enable-prefix-caching: true\nblock-size: 16\nmax-num-seqs: 256\n")
    assert LintSettings.read(path).engines == (ServingSettings("engine", False, 16),)
    path.write_text("disable-radix-cache: true\nmax-total-tokens: 300000\n")
    assert LintSettings.read(path).engines == (ServingSettings("engine", False, None, 300_000),)
    path.write_text("{}")
    assert LintSettings.read(path) == LintSettings()


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("s.ini", "", ".toml, .yaml.*.yml"),
        ("s.toml", "x = ", "no TOML"),
        ("s.yaml", "a: [", "no YAML"),
        ("s.yaml", "- 1", "table"),
        ("s.yaml", "1: 2", "table"),
        ("s.yaml", "block-size: many", "block_size.*engine.*int"),
        ("s.yaml", "enable-prefix-caching: 'no'", "true.*false"),
        ("s.yaml", "router: {sticki: true}", "router .*'sticki'; .*sticky.*'sticky'"),
        ("s.yaml", "router: {processes: 0}", "processes.*router.*1"),
        ("s.yaml", "router: {sticky: 1}", "sticky.*router.*true.*false"),
        ("s.yaml", "router: 3", "router.*table"),
        ("s.yaml", "engines: [3]", "engine 0.*table"),
        ("s.yaml", "api: {binding_s: .nan}", "binding_s of api"),
        ("s.yaml", "api: {model: 3}", "model.*api.*text"),
    ],
)
def test_what_is_refused(tmp_path: Path, name: str, text: str, told: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=told) as raised:
        LintSettings.read(path)
    assert str(path) in str(raised.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml"):
        LintSettings.read(tmp_path / "none.toml")
