from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import prefixroute as package
from prefixroute.extras import installing

Prefixroute = Callable[..., Any]
COMMANDS = ("simulate", "compare", "advise", "backtest", "size", "convert", "trace", "policies", "bench")
COMMAND = [sys.executable, "-m", "prefixroute"]


def test_version(prefixroute: Prefixroute) -> None:
    assert prefixroute("--version") == (0, f"{package.__version__}\n", "")


def test_help_names_every_command_and_each_command_shows_an_example(prefixroute: Prefixroute) -> None:
    listing = prefixroute("--help")
    assert listing.code == 0
    assert "<bool>" not in listing.out + prefixroute("plan", "--help").out
    for command in COMMANDS:
        assert command in listing.out
        shown = prefixroute(command, "-h")
        assert shown == prefixroute(command, "--help")
        assert shown.code == 0
        assert "<bool>" not in shown.out
        assert f"Example: prefixroute {command}" in shown.out


def test_a_shell_gets_its_completion(prefixroute: Prefixroute) -> None:
    assert "--install-completion" in prefixroute("--help").out
    environment = {
        **os.environ,
        "_PREFIXROUTE_COMPLETE": "complete_bash",
        "COMP_WORDS": "prefixroute si",
        "COMP_CWORD": "1",
    }
    code = "from prefixroute.cli import main; main([])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert ended.stdout.split() == ["simulate", "size"]


def test_without_a_command_the_help_is_printed_and_what_is_missing(prefixroute: Prefixroute) -> None:
    code, out, err = prefixroute()
    assert code == 2
    assert all(command in out for command in COMMANDS)
    assert err.startswith("error: ")
    assert all(command in err for command in COMMANDS)
    code, out, err = prefixroute("plan")
    assert code == 2
    assert "anthropic" in out
    assert err.startswith("error: prefixroute plan ")
    assert re.findall(r"\w+", err)[-4:] == ["anthropic", "openai", "gemini", "compare"]


@pytest.mark.parametrize(
    ("package_name", "arguments", "extra"),
    [
        ("typer", ["policies"], "cli"),
        ("rich", ["policies"], "cli"),
        ("altair", ["simulate", "chat", "--report", "x.html"], "report"),
        ("vl_convert", ["simulate", "chat", "--png", "x.png"], "report"),
    ],
)
def test_a_missing_extra_is_named(package_name: str, arguments: list[str], extra: str, tmp_path: Path) -> None:
    code = f"import sys; sys.modules[{package_name!r}] = None; from prefixroute.cli import main; main({arguments!r})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: ")
    assert ended.stderr.endswith(f" {package_name}: {installing(extra)}\n")
    assert ended.stderr.count("\n") == 1


def busy_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def started(pid: int) -> bool:
    """Whether both worker processes are at work: the tracker of resources, which idles, is a child as well."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(busy_seconds(int(child)) > 0.2 for child in children) == 2


@pytest.mark.parametrize(
    ("jobs", "at_work"),
    [("1", lambda pid: busy_seconds(pid) > 3), ("2", started)],
    ids=["one process, in a run", "two processes, starting"],
)
def test_interrupt_ends_cleanly(jobs: str, at_work: Callable[[int], bool]) -> None:
    """Ctrl-C reaches every process of the terminal's group; none of them may print a traceback."""
    assert ended(jobs, at_work, lambda pid: os.killpg(pid, signal.SIGINT)) == (130, "", "interrupted\n")


def ended(jobs: str, at_work: Callable[[int], bool], end: Callable[[int], None]) -> tuple[int, str, str]:
    """Start a long simulation, end it when it is at work, and return what it left: exit code, stdout, stderr."""
    # Processes inherit it where SIGINT is ignored (in a job in the background of a shell): here it is not, wherever this runs.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from prefixroute.cli import "
        "main; main()"
    )
    simulate = [sys.executable, "-c", code, "simulate", "chat", "--seeds", "500", "--jobs", jobs, "--quiet"]
    with subprocess.Popen(
        simulate, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        while running.poll() is None and not at_work(running.pid):
            time.sleep(0.05)
        end(running.pid)
        out, err = running.communicate(timeout=120)
    return running.returncode, out, err


@pytest.mark.parametrize(
    ("piped", "code"),
    [
        ("policies | {gone}", 141),
        ("simulate --help | {gone}", 141),
        ("policies --json | {gone}", 141),
        ("policies --json | cat", 0),
        ("policies nobody 2>&1 >/dev/null | {gone}", 2),
        ("trace chat,requests=20 2>&1 >/dev/null | {gone}", 0),
    ],
)
def test_a_reader_that_leaves_ends_it_quietly(piped: str, code: int) -> None:
    """A result without a reader ends as SIGPIPE ends a program; notes without one do not end it."""
    typed = f"{' '.join(COMMAND)} {piped.format(gone='(exec <&-; sleep 2)')} >/dev/null; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", typed], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == (f"{code}\n", "")


@pytest.mark.parametrize("module", ["prefixroute", "numpy", "prefixroute.router", "prefixroute.cli", "typer", "rich"])
def test_an_interrupt_while_it_is_imported_ends_cleanly(module: str) -> None:
    code = f"""
import sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
import prefixroute_command
prefixroute_command.main()
"""
    ended = subprocess.run([sys.executable, "-c", code, "policies"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize(
    ("typed", "code", "err"),
    [
        ("policies >&-", 0, ""),
        ("policies --json >&-", 0, ""),
        ("trace chat,requests=20 --quiet >&- 2>&-", 0, ""),
        ("policies nobody 2>&-", 2, ""),
        ("trace - <&-", 2, "error: stdin: "),
    ],
)
def test_a_closed_stream_gives_no_traceback(typed: str, code: int, err: str) -> None:
    ended = subprocess.run(["bash", "-c", f"{' '.join(COMMAND)} {typed}"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (code, bool(err))
    assert ended.stderr.startswith(err)


def test_a_request_to_end_ends_its_processes_without_a_word() -> None:
    assert ended("2", started, lambda pid: os.kill(pid, signal.SIGTERM)) == (128 + signal.SIGTERM, "", "")
