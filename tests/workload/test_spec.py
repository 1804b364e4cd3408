from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from prefixroute.costmodel.assumption import GIVEN
from prefixroute.errors import ConfigError, TraceError
from prefixroute.workload import (
    GENERATORS,
    AgentsShape,
    Bursty,
    Even,
    Options,
    Poisson,
    Request,
    Spec,
    Workload,
    agents,
    chat,
)


def requests(workload: Workload) -> list[Request]:
    return list(workload.requests())


@pytest.mark.parametrize("name", GENERATORS)
def test_a_bare_name_is_the_generator(name: str) -> None:
    spec = Spec.parse(name)
    assert spec.is_made
    assert requests(spec(2).head(50)) == requests(GENERATORS[name](2).head(50))
    assert spec(2).name == GENERATORS[name](2).name


def test_sizes_requests_and_arrivals() -> None:
    made = Spec.parse("agents,spawn=0.5,tasks=3,requests=0.2k,block_size=32,arrivals=poisson:50")(4)
    shape = AgentsShape(spawn=0.5, tasks=3)
    assert requests(made) == requests(agents(4, requests=200, block_size=32, arrivals=Poisson(50), shape=shape))
    assert made.name == "agents,spawn=0.5,tasks=3,requests=0.2k,block_size=32,arrivals=poisson:50"


def test_changes_apply_to_every_workload() -> None:
    made = Spec.parse("chat,requests=400,sample=0.5,head=100,speed=4")(1)
    by_hand = chat(1, requests=400).sampled(0.5).head(100).scaled(4)
    assert requests(made) == requests(by_hand)
    assert made.notes == by_hand.notes


@pytest.mark.parametrize("text", ["even:2", "bursty:2:3"])
def test_arrival_processes(text: str) -> None:
    process = {"even:2": Even(2), "bursty:2:3": Bursty(2, 3)}[text]
    assert requests(Spec.parse(f"chat,requests=50,arrivals={text}")(1)) == requests(
        chat(1, requests=50, arrivals=process)
    )


def test_arrivals_of_a_file(tmp_path: Path) -> None:
    rows = [{"time": time, "token_ids": [1]} for time in (10, 11, 15)]
    (tmp_path / "log.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    made = Spec.parse(f"chat,requests=3,arrivals={tmp_path / 'log.jsonl'}")(1)
    assert [request.arrival_s for request in made.requests()] == [0, 1, 5]
    (tmp_path / "log.jsonl").write_text('{"time": 1')
    with pytest.raises(TraceError, match=r"log\.jsonl:1: "):
        Spec.parse(f"chat,arrivals={tmp_path / 'log.jsonl'}")(1)


def test_settings_of_a_file_and_commas_in_its_name() -> None:
    spec = Spec.parse("my,day.jsonl,reorder_s=5,infer_sessions=no,speed=2")
    assert (spec.name, spec.is_made) == ("my,day.jsonl", False)
    assert spec.options(Options(block_size=8)) == Options(block_size=8, reorder_s=5, infer_sessions=False)
    assert Spec.parse("a,b.jsonl") == Spec("a,b.jsonl")
    one = [Request(8.0, *[chat(1).requests().__next__().prompt] * 2, 1, 0)]
    changed = spec.change(Workload("day.jsonl", 16, lambda: iter(one)))
    assert [request.arrival_s for request in changed.requests()] == [4.0]


def test_value_semantics() -> None:
    spec = Spec.parse("chat,turns=3")
    assert pickle.loads(pickle.dumps(spec)) == spec  # noqa: S301 - our own bytes
    assert hash(spec) == hash(Spec.parse("chat,turns=3"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chat,tunrs=3", "chat .*'tunrs'.*requests, block_size, arrivals, system_tokens, "),
        ("day.jsonl,requests=3", r"day\.jsonl .*'requests'.*sessions_per_hour, "),
        ("chat,turns=1.5", r"turns .*'1\.5'"),
        ("chat,turns=many", "turns .*'many'"),
        ("chat,turns=", "turns .*''"),
        ("chat,turns=0", "chat turns .* 1 .*0"),
        ("chat,requests=0", "^chat,requests=0: "),
        ("chat,head=0", "^chat,head=0: "),
        ("chat,speed=nan", "speed .*'nan'"),
        ("chat,sample=2", "share .* 0 .*1.* 2"),
        ("chat,arrivals=poisson", "arrivals .*even:RATE, poisson:RATE, bursty:RATE:CV .*'poisson'"),
        ("chat,arrivals=poisson:0", r"rate_per_s .*1e-09 .*1e\+09.* 0"),
    ],
)
def test_wrong_settings_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Spec.parse(text)(1)


def test_yes_or_no() -> None:
    with pytest.raises(ConfigError, match=r"share_system .*yes .*no.*'perhaps'"):
        Spec.parse("day.jsonl,share_system=perhaps").options(Options())


def test_a_size_that_is_given_is_not_assumed_though_it_is_the_default() -> None:
    given = {item.name: item for item in Spec.parse("chat,turns=12,slots=100")(1).assumptions}
    assert (given["chat_turns"].value, given["chat_turns"].assumed) == (12, False)
    assert (given["chat_slots"].value, given["chat_slots"].source) == (100, GIVEN)
    assert given["chat_user_tokens"].assumed
