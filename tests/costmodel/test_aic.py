"""Step times of aiconfigurator-core as a grid. The package is an extra; without it there is nothing to test."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("aiconfigurator_core")

from accuracy.step_times import DECODE, STEPS, recorded
from prefixroute.costmodel import CostModel, StepTimes, fit
from prefixroute.costmodel.aic import compile_engine
from prefixroute.errors import ConfigError
from prefixroute.sim import EngineModel, Scenario, simulate
from prefixroute.workload import Poisson, chat

CONFIGURATION = next(row for row in recorded() if str(row) == "Qwen3-8B, H100")


@pytest.fixture(scope="module")
def times() -> StepTimes:
    return StepTimes.from_aiconfigurator("H100", "Qwen3-8B")


@pytest.fixture(scope="module")
def cost(times: StepTimes) -> CostModel:
    return CostModel("H100", "Qwen3-8B", step_times=times)


def test_the_grid_gives_the_times_of_the_tables(cost: CostModel) -> None:
    ours = [
        1e3 * (cost.decode_seconds(one, one * two) if kind == DECODE else cost.prefill_seconds(one, two))
        for kind, one, two in STEPS
    ]
    np.testing.assert_allclose(ours, CONFIGURATION.milliseconds, rtol=0.04)


def test_between_its_points_the_grid_is_near_the_tables(cost: CostModel) -> None:
    engine, rng = compile_engine("H100", "Qwen3-8B"), np.random.default_rng(1)
    new, cached = np.exp(rng.uniform(0, 10, 200)).astype(int), np.exp(rng.uniform(0, 11, 200)).astype(int)
    theirs = [engine.predict_prefill_latency(1, int(n + c), int(c)) for n, c in zip(new, cached, strict=True)]
    found = np.abs(1e3 * cost.prefill_seconds(new, cached) / theirs - 1)
    assert np.median(found) < 0.02
    assert found.max() < 0.1


def test_steps_that_do_both_are_near_the_tables(cost: CostModel) -> None:
    engine = compile_engine("H100", "Qwen3-8B")
    for tokens, decodes in ((512, 16), (2_048, 16), (2_048, 200), (8_192, 64)):
        theirs = engine.mixed_step_latency(tokens, decodes, tokens, 2, 0)
        ours = 1e3 * cost.step_seconds([(tokens, 0)], decodes=decodes, decode_context_tokens=decodes * tokens)
        assert ours == pytest.approx(theirs, rel=0.05)


def test_it_prices_simulations_and_pickles(cost: CostModel, times: StepTimes) -> None:
    assert pickle.loads(pickle.dumps(cost)) == cost  # noqa: S301 - our own bytes
    workload = chat(1, requests=300, arrivals=Poisson(10.0))
    run = simulate(workload, Scenario(policy="session", replicas=2, engine=EngineModel(cost)), cost=cost)
    assert 0.005 < run.outcome.ttft.p50 < 1
    names = {item.name for item in cost.assumptions}
    assert "utilization" not in names
    assert times.source.startswith("aiconfigurator-core 0.1")
    with pytest.raises(ConfigError, match=r"utilization.* aic:vllm "):
        fit([(100, 0, 1.0)] * 3, cost)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gpu": "MI300X"}, "tables.*H100, H200, B200, A100, L40S,.*gpu 'MI300X'"),
        ({"backend": "tgi"}, "vllm, sglang, trtllm, .*'tgi'"),
        ({"model": "nobody/nothing"}, "tables.*Qwen3-8B,.*;.*'nobody/nothing'"),
        (
            {"tensor_parallel": 3},
            "step times.*Qwen3-8B on 3 H100.*vllm .*divisible.*;.*engine.*format.*weights",
        ),
        (
            {"gpu": "A100", "weight_format": "fp8"},
            r"step times.*Qwen3-8B on 1 A100.*vllm \(.*fp8.*\);.*weights.*bf16",
        ),
        (
            {"weight_format": "int4", "backend": "sglang"},
            r"step times.*Qwen3-8B on 1 H100.*sglang \(.*\);.*with weights.*bf16, fp8",
        ),
        ({"weight_format": "fp5"}, "weight_format.*one.*bf16,.*'fp5'"),
    ],
)
def test_what_there_is_no_table_for_is_said(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        StepTimes.from_aiconfigurator(**{"gpu": "H100", "model": "Qwen3-8B", **arguments})  # type: ignore[arg-type]


def test_a_folder_with_a_config_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16,'
        ' "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256,'
        ' "max_position_embeddings": 131072, "head_dim": 64, "torch_dtype": "bfloat16"}'
    )
    small = StepTimes.from_aiconfigurator("H100", tmp_path / "config.json", backend="sglang")
    assert small.name == "aic:sglang"
    large = StepTimes.from_aiconfigurator("H100", "Qwen3-8B", backend="sglang")
    assert small.prices.prefill_seconds(8_192) < large.prices.prefill_seconds(8_192) / 3
