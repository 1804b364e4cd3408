"""Laws of step times, on every GPU and model: finite, above 0, and never faster with more to do."""

from __future__ import annotations

import json
import math
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefixroute.costmodel import FORMATS, CostModel, gpus, models, read_config
from prefixroute.errors import ConfigError

TOKENS = st.integers(1, 200_000)
CONTEXT = st.integers(0, 1_000_000)
REQUESTS = st.integers(1, 2_000)


@st.composite
def costs(draw: st.DrawFn) -> CostModel:
    """Draw a replica of any kind."""
    return CostModel(
        draw(st.sampled_from([*gpus()])),
        draw(st.sampled_from([*models()])),
        tensor_parallel=draw(st.sampled_from([1, 2, 3, 4, 8, 72])),
        weight_format=draw(st.sampled_from([None, *FORMATS])),
        expert_parallel=draw(st.booleans()),
    )


@given(cost=costs(), new=TOKENS, cached=CONTEXT, more=TOKENS)
def test_a_longer_prompt_is_never_faster(cost: CostModel, new: int, cached: int, more: int) -> None:
    seconds = cost.prefill_seconds(new, cached)
    assert 0.0 < seconds < math.inf
    assert seconds <= cost.prefill_seconds(new + more, cached)
    assert seconds <= cost.prefill_seconds(new, cached + more)
    assert cost.prefill_seconds(new + more, cached) <= seconds + cost.prefill_seconds(more, cached + new) * (1 + 1e-9)


@given(cost=costs(), requests=REQUESTS, each=CONTEXT, more=REQUESTS)
def test_a_larger_batch_is_never_faster(cost: CostModel, requests: int, each: int, more: int) -> None:
    seconds = cost.decode_seconds(requests, requests * each)
    assert 0.0 < seconds < math.inf
    assert seconds <= cost.decode_seconds(requests + more, requests * each)
    assert seconds <= cost.decode_seconds(requests, requests * each + more)


@given(cost=costs(), chunk=st.tuples(TOKENS, CONTEXT), requests=REQUESTS, each=CONTEXT)
def test_a_step_of_both_takes_no_less_than_each_and_no_more_than_one_after_the_other(
    cost: CostModel, chunk: tuple[int, int], requests: int, each: int
) -> None:
    prompt, decode = cost.step_seconds([chunk]), cost.decode_seconds(requests, requests * each)
    both = cost.step_seconds([chunk], decodes=requests, decode_context_tokens=requests * each)
    assert max(prompt, decode) <= both * (1 + 1e-9)
    assert both <= (prompt + decode) * (1 + 1e-9)


CONFIGS: dict[str, Any] = tomllib.loads(
    files("prefixroute.costmodel").joinpath("models.toml").read_text(encoding="utf-8")
)
WRONG = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.integers(1, 10**30), st.floats(), st.text(max_size=8),
    st.lists(st.integers(-3, 70), max_size=4), st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)  # fmt: skip


@pytest.mark.parametrize("name", models())
@settings(max_examples=30)
@given(data=st.data())
def test_a_config_with_wrong_values_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    config = dict(CONFIGS[name]["config"])
    for key in data.draw(st.lists(st.sampled_from([*config]), min_size=1, max_size=3)):
        config[key] = data.draw(WRONG)
    path: Path = tmp_path_factory.mktemp("config", numbered=True) / "config.json"
    path.write_text(json.dumps(config))
    try:
        shape = read_config(path)
    except ConfigError:
        return
    assert 0.0 < shape.kv_bytes_per_token_at_most < math.inf
    assert 0.0 < shape.active_parameters <= shape.parameters < math.inf
    cost = CostModel("H200", shape, tensor_parallel=8)
    assert 0.0 < cost.prefill_seconds(1_000) <= cost.prefill_seconds(2_000) < math.inf
