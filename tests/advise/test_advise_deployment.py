"""The line to paste makes a router that takes the prompts of the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import prefixroute
from prefixroute.advise.deployment import Deployment
from prefixroute.sim import Scenario
from prefixroute.workload import read_trace

MESSAGES = {"messages": [{"role": "user", "content": "one two three four"}]}
TEXT = {"prompt": "one two three four"}
IDS = {"prompt": [1, 2, 3, 4]}


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([MESSAGES, MESSAGES], "messages"),
        ([{"input": "one two three four"}], "messages"),
        ([TEXT, TEXT], "text"),
        ([IDS, IDS], None),
        ([MESSAGES, TEXT], None),
        ([{"conversations": [{"from": "human", "value": "one"}, {"from": "gpt", "value": "two"}]}], "messages"),
        ([{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}], None),
    ],
)
def test_the_router_is_told_what_prompts_are(tmp_path: Path, rows: list[dict[str, Any]], kind: str | None) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"time": at, **row}) + "\n" for at, row in enumerate(rows)))
    workload = read_trace(path)
    assert workload.prompt_kind == kind
    line = Deployment.of(Scenario(policy="session", replicas=2), workload).python
    names: dict[str, Any] = {"pr": prefixroute, "replicas": ["a", "b"]}
    exec(line, names)  # noqa: S102 - the line that users paste
    prompt = {"messages": MESSAGES["messages"], "text": TEXT["prompt"], None: IDS["prompt"]}[kind]
    assert names["router"].choose(prompt).replica in ("a", "b")
