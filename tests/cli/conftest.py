from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("typer", reason="the extra `cli` is not installed")

from prefixroute.cli import main


class Said(NamedTuple):
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The object on stdout; a command that failed has none."""
        assert self.code == 0, self.err
        return json.loads(self.out, parse_constant=pytest.fail)

    def lines(self, *named: object) -> list[str]:
        """The lines of stdout and stderr that name all of these: values, policies, options, figures."""
        return [line for line in f"{self.out}{self.err}".splitlines() if all(str(one) in line for one in named)]


Prefixroute = Callable[..., Said]


@pytest.fixture
def prefixroute(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Prefixroute:
    """Run the command line in this process, as in a pipe that says nothing of its width.

    Several words of one text are several arguments.
    """
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*arguments: object) -> Said:
        with pytest.raises(SystemExit) as stop:
            main([word for argument in arguments for word in str(argument).split() or [""]])
        captured = capsys.readouterr()
        return Said(int(stop.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Mooncake trace of our own: 30 conversations of 6 turns, two blocks of 512 tokens more each turn."""
    path = tmp_path_factory.mktemp("trace") / "day.jsonl"
    lines = []
    for number in range(180):
        turn, conversation = divmod(number, 30)
        blocks = [0, 1] + [1_000 * (conversation + 1) + i for i in range(2 * turn + 2)]
        row = {"timestamp": 10 * number, "input_length": 512 * len(blocks), "output_length": 5, "hash_ids": blocks}
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gateway log of messages: 12 conversations of 5 turns that took turns over 2 replicas, with reported hits."""
    path = tmp_path_factory.mktemp("log") / "gateway.jsonl"
    system = {"role": "system", "content": "You answer questions about railways. " * 80}
    rows = []
    for number in range(60):
        turn, chat = divmod(number, 12)
        asked = [{"role": "user", "content": f"Conversation {chat}, question {k}. " * 30} for k in range(turn + 1)]
        characters = sum(len(str(message["content"])) for message in (system, *asked))
        row = {
            "timestamp": 1_790_000_000 + 7 * number,
            "session_id": f"chat-{chat}",
            "request": {"model": "m", "messages": [system, *asked]},
            "response": {
                "usage": {
                    "prompt_tokens": characters // 4,
                    "completion_tokens": 40,
                    "prompt_tokens_details": {"cached_tokens": 0 if number < 2 else 720},
                }
            },
        }
        rows.append(json.dumps(row))
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of sessions that says nothing about when they start: 20 of 4 requests, each 64 tokens longer."""
    path = tmp_path_factory.mktemp("sessions") / "sessions.jsonl"
    rows = []
    for number in range(20):
        requests = [
            {"t": 9_000 * turn, "in": 640 + 64 * turn, "out": 5, "keep": 9 + turn if turn else 0,
             "add": [[9 + turn if turn else 0, 1 if turn else 10]]}
            for turn in range(4)
        ]  # fmt: skip
        rows.append(
            json.dumps({"session": f"s{number}", "tool_tokens": 100, "system_tokens": 60, "requests": requests})
        )
    path.write_text("\n".join(rows) + "\n")
    return path
