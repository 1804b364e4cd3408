"""Studies on a local Ray cluster of two nodes: the same bytes as here, and a trace stored once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray", reason="needs ray, see `make hosts`")

from ray.cluster_utils import Cluster  # noqa: E402

from prefixroute.advise import Question, Slo, advise, compare, size  # noqa: E402
from prefixroute.errors import ConfigError  # noqa: E402
from prefixroute.sim import Scenario, sweep  # noqa: E402
from prefixroute.workload import Workload, chat, read_trace  # noqa: E402

POLICIES = ["round-robin", "session", "cache-aware"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()
    nodes.shutdown()


@pytest.fixture
def trace(tmp_path: Path) -> Workload:
    path = tmp_path / "log.jsonl"
    with path.open("w") as file:
        for number in range(240):
            session, turn = number % 20, number // 20
            turns = [{"role": "user", "content": f"s{session} t{at} " * 40} for at in range(turn + 1)]
            line = {"timestamp": 1.7e9 + number, "session_id": f"s{session}", "messages": turns, "output_tokens": 20}
            file.write(json.dumps(line) + "\n")
    return read_trace(path)


STUDIES: dict[str, Callable[[Any, Any], str]] = {
    "simulate": lambda source, jobs: sweep(
        source, policies=POLICIES, replicas=(2, 4), seeds=2, infinite=True, jobs=jobs
    ).to_json(),
    "compare": lambda source, jobs: compare(
        source, POLICIES, scenario=Scenario(replicas=4), seeds=2, jobs=jobs
    ).to_json(),
    "advise": lambda source, jobs: advise(
        source, Question(scenario=Scenario(replicas=4), seeds=2), jobs=jobs
    ).to_json(),
    "size": lambda source, jobs: size(
        source, Slo.parse("ttft_p99=2s"), policies=POLICIES[1:], most=4, seeds=2, jobs=jobs
    ).to_json(),
}


@pytest.mark.parametrize("study", STUDIES)
def test_a_cluster_gives_the_same_bytes(cluster: None, study: str, trace: Workload) -> None:
    run = STUDIES[study]
    assert run(trace, "ray") == run(trace, 1)


def test_a_generator_needs_no_trace(cluster: None) -> None:
    run = STUDIES["simulate"]
    small = partial(chat, requests=200)
    assert run(small, "ray") == run(small, 1)


def test_a_trace_is_stored_once_for_all_tasks(cluster: None, trace: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    puts: list[Any] = []
    put = ray.put
    monkeypatch.setattr(ray, "put", lambda value: puts.append(value) or put(value))
    STUDIES["advise"](trace, "ray")
    assert sum(isinstance(value, tuple) for value in puts) == 1


def test_what_a_task_raises_is_raised_here(cluster: None) -> None:
    for jobs in (1, "ray"):
        with pytest.raises(ConfigError, match="nonsense"):
            sweep(chat, policies=["session", "nonsense"], replicas=(1,), seeds=2, jobs=jobs)  # type: ignore[arg-type]
