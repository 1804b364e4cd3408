"""Settings from files and flags, and what is said of each mistake."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from optiontable import PAGE, page_with, table

from prefixroute import ConfigError
from prefixroute.costmodel import CostModel
from prefixroute.routing import RouterConfig
from prefixroute.serve import OPTIONS, Settings, check, read_settings
from prefixroute.serve.config import assignment

GOOD = {
    "s.toml": """
[listen]
port = 9001
[upstream]
retries = 5
hedge_after_s = 2
[discovery]
replicas = [
    "http://10.0.0.1:8000/",
]
""",
    "s.yaml": """
listen:
  port: 9001
upstream: {retries: 5, hedge_after_s: 2}
discovery:
  replicas:
    - http://10.0.0.1:8000
log:
""",
    "s.json": """{"listen": {"port": 9001}, "upstream": {"retries": 5, "hedge_after_s": 2},
"discovery": {"replicas": ["http://10.0.0.1:8000"]}}""",
}


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", GOOD)
def test_the_three_formats_say_the_same(tmp_path: Path, name: str) -> None:
    settings = read_settings(written(tmp_path, name, GOOD[name]), {"upstream.retries": 1})
    assert settings.listen.port == 9001
    assert (settings.upstream.retries, settings.upstream.hedge_after_s) == (1, 2.0)
    assert settings.discovery.replicas == ("http://10.0.0.1:8000",)
    assert settings.health == Settings().health


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("s.toml", "[listen]\nport = 'x'", r":2: listen\.port .*int.*'x'"),
        ("s.toml", "\n[listen]\n\nport = 70000", r":4: listen\.port .* 0 .* 65535,.* 70000"),
        ("s.toml", "[listen]\nport = true", r":2: listen\.port .*int.*True"),
        ("s.toml", "listen.port = -1", r":1: listen\.port .* 0 .* 65535,.* -1"),
        ("s.toml", "[listen]\nprot = 1", ":2: listen .*'prot'.*host, port,"),
        ("s.toml", "[lissen]\nport = 1", ":1: .*'lissen'.*listen, routing,"),
        ("s.toml", "retries = 3", ":1: .*'retries'.*listen, routing,"),
        ("s.toml", "upstream = 3", ":1: upstream .*section.* 3$"),
        ("s.toml", "[health]\ninterval_s = 0", r":2: health\.interval_s .* 0,.* 0"),
        ("s.toml", "[health]\ninterval_s = inf", r":2: health\.interval_s .*number.*inf"),
        ("s.toml", "[log]\nformat = 'xml'", r":2: log\.format .*text, json,.*'xml'"),
        ("s.toml", "[log]\naccess = 1", r":2: log\.access .*true.*false.* 1"),
        ("s.toml", "[routing]\npolicy = 'best'", r":2: routing\.policy: .*'best'.*round-robin,"),
        ("s.toml", "[discovery]\nreplicas = 'http://a:1'", r":2: discovery\.replicas .*list.*'http://a:1'"),
        ("s.toml", "[discovery]\nreplicas = ['a:1']", r":2: discovery\.replicas\[0\] .*http://HOST:PORT"),
        ("s.toml", "[discovery]\nreplicas = ['http://a:1/v1']", r":2: discovery\.replicas\[0\] .*/v1"),
        ("s.toml", "[discovery]\nreplicas = ['http://u:p@a:1']", r":2: discovery\.replicas\[0\] .*http://HOST:PORT"),
        ("s.toml", "[listen\nport = 1", ": .*TOML: "),
        ("s.toml", "[listen]\nport = 1\nport = 2", ": .*TOML: "),
        ("s.yaml", "listen:\n  port: [1", ":2: .*YAML: "),
        ("s.yaml", "listen:\n  port: x", r":2: listen\.port .*int.*'x'"),
        ("s.yaml", "- listen", ": .*list"),
        ("s.yaml", "a: &a [*a]", ":1: .*'a'.*listen, routing,"),
        ("s.json", '{"listen": {"port": 1,}}', ":1: .*JSON: "),
        ("s.json", '{"listen": {"port": "x"}}', r": listen\.port .*int.*'x'"),
        ("s.json", "[" * 100_000, ": .*JSON: "),
        ("s.ini", "", r": .*\.toml, \.yaml, \.yml, \.json.*'\.ini'"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_what_is_allowed(tmp_path: Path, name: str, text: str, named: str) -> None:
    path = written(tmp_path, name, text)
    with pytest.raises(ConfigError, match=f"^{re.escape(str(path))}{named}"):
        read_settings(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: "):
        read_settings(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"bytes\.toml: .*utf-8"):
        read_settings(tmp_path / "bytes.toml")


def test_one_port_is_not_two() -> None:
    with pytest.raises(ConfigError, match=r"listen\.admin_port.*listen\.port.*9000"):
        Settings.of({"listen.port": 9000, "listen.admin_port": 9000})
    assert Settings.of({"listen.port": 0, "listen.admin_port": 0}).listen.admin_port == 0


def test_prices_are_those_of_a_cost_model_and_none_by_default() -> None:
    assert RouterConfig(cost=Settings().prices.cost).usd_per_token is None
    priced = Settings.of({"prices.gpu": "H200", "prices.usd_per_gpu_hour": 2}).prices.cost
    assert priced == CostModel("H200", usd_per_gpu_hour=2.0)
    with pytest.raises(ConfigError, match=r"gpu.*H100, H200.*'abacus'"):
        Settings.of({"prices.gpu": "abacus"})
    with pytest.raises(ConfigError, match=r"prices\.usd_per_gpu_hour"):
        Settings.of({"prices.usd_per_gpu_hour": -1})


def test_assignments_are_toml_or_text() -> None:
    assert assignment("upstream.retries=3") == ("upstream.retries", 3)
    assert assignment("discovery.replicas = ['http://a:1']") == ("discovery.replicas", ["http://a:1"])
    assert assignment("routing.policy=session") == ("routing.policy", "session")
    assert assignment("health.path=") == ("health.path", "")
    for wrong in ("upstream.retries", "upstream.x=1", "x=1"):
        with pytest.raises(ConfigError):
            assignment(wrong)


def test_every_default_is_allowed() -> None:
    for options in OPTIONS.values():
        for one in options:
            assert Settings.of({one.name: one.default}) == Settings()


def test_the_table_in_the_docs_is_that_of_the_code() -> None:
    assert page_with(table()) == PAGE.read_text(encoding="utf-8"), "run tests/serve/optiontable.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "prefixroute", "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_check_prints_the_settings_and_serves_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, "s.toml", GOOD["s.toml"])
    ended = run("--config", str(path), "--check", "--port", "9002", "--set", "health.failures=9")
    assert ended.returncode == 0, ended.stderr
    shown = json.loads(ended.stdout)
    assert (shown["listen"]["port"], shown["upstream"]["retries"], shown["health"]["failures"]) == (9002, 5, 9)


@pytest.mark.parametrize(
    ("text", "named"),
    [(None, "discovery.file: {}: "), ("", "discovery.file: {} "), ("http://a:1\nftp://b", "{}: .*[1]")],
)
def test_check_reads_the_file_that_lists_engines(tmp_path: Path, text: str | None, named: str) -> None:
    path = tmp_path / "engines.txt"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=named.format(path)):
        check(Settings.of({"discovery.file": str(path)}).discovery)


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    path = written(tmp_path, "s.toml", "[health]\nfailures = 0")
    ended = run("--config", str(path), "--check", "http://a:1")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(rf"error: {path}:2: health\.failures .* 1,.* 0\n", ended.stderr)
    ended = run("--check")
    assert re.match(r"error: .*http://HOST:PORT.*--fake", ended.stderr)


@pytest.mark.parametrize(
    ("suffix", "text"),
    [("toml", "[listen]\nport = 7\n"), ("yaml", "listen:\n  port: 7\n"), ("json", '{"listen": {"port": 7}}')],
)
def test_settings_may_begin_with_a_byte_order_mark(tmp_path: Path, suffix: str, text: str) -> None:
    path = tmp_path / f"s.{suffix}"
    path.write_text(text, encoding="utf-8-sig")
    assert read_settings(path).listen.port == 7


@pytest.mark.parametrize(
    ("suffix", "text", "named"),
    [
        ("toml", "[listen]\nport = 7\nport = 8\n", r"s\.toml: .*line 3"),
        ("yaml", "listen:\n  port: 7\n  port: 8\n", r"s\.yaml:3: .*'port'.*line 2"),
        ("yaml", "listen:\n  port: 7\nlisten:\n  host: a\n", r"s\.yaml:3: .*'listen'.*line 1"),
        ("json", '{"listen": {"port": 7, "port": 8}}', r"s\.json: .*'port'"),
        ("toml", '[discovery]\nreplicas = ["http://a:1", "http://a:1/"]\n', r"discovery\.replicas .*http://a:1"),
    ],
)
def test_what_is_said_twice_is_refused(tmp_path: Path, suffix: str, text: str, named: str) -> None:
    path = tmp_path / f"s.{suffix}"
    path.write_text(text)
    with pytest.raises(ConfigError, match=named):
        read_settings(path)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--set", "listen.port=2", "--port", "3"],
        ["--set", "listen.port=2", "--set", "listen.port=3"],
        ["http://a:1", "--set", "discovery.replicas=['http://b:1']"],
    ],
)
def test_flags_that_contradict_each_other_are_refused(arguments: list[str]) -> None:
    ended = run("--check", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.search(r"listen\.port|discovery\.replicas", ended.stderr)


def test_flags_may_say_the_same_twice() -> None:
    assert run("--check", "http://a:1", "--set", "listen.port=3", "--port", "3").returncode == 0
