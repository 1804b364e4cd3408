from __future__ import annotations

import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefixroute.costmodel import CostModel, find_model, gpus, models
from prefixroute.costmodel.assumption import LEFT_BY_WEIGHTS, Assumption, defaults, on_defaults, shown
from prefixroute.errors import ConfigError

ARTICLE = CostModel(preset="article")


@pytest.mark.parametrize(
    ("new", "cached", "milliseconds"), [(8_800, 0, 338.03), (6_800, 2_000, 269.32), (200, 8_600, 8.71)]
)
def test_time_to_first_token_of_turn_12(new: int, cached: int, milliseconds: float) -> None:
    assert ARTICLE.prefill_seconds(new, cached) * 1_000 == pytest.approx(milliseconds, abs=0.005)


@pytest.mark.parametrize(("block_size", "ratio", "dollars"), [(1, 0.03636, 9.44), (16, 0.03709, 9.63)])
def test_floor_of_the_chat_workload(block_size: int, ratio: float, dollars: float) -> None:
    prompts = [2_200 + 600 * turn for turn in range(12)]
    cached = [2_000, *((prompt - 200) // block_size * block_size for prompt in prompts[1:])]
    new = [prompt - hit for prompt, hit in zip(prompts, cached, strict=True)]
    seconds = ARTICLE.prefill_seconds(np.array(new), np.array(cached)).sum()
    assert sum(new) / sum(prompts) == pytest.approx(ratio, abs=1e-5)
    assert ARTICLE.usd(float(seconds)) / 12 * 1e6 == pytest.approx(dollars, abs=0.005)


def test_a_cached_token_costs_attention_and_nothing_else() -> None:
    whole = ARTICLE.prefill_flops(8_800)
    parts = ARTICLE.prefill_flops(5_000) + ARTICLE.prefill_flops(3_800, 5_000)
    assert parts == pytest.approx(whole, rel=1e-12)
    assert ARTICLE.prefill_seconds(0, 5_000) == 0


@pytest.mark.parametrize("kind", [np.int64, np.uint32, np.uint64, np.int16])
def test_arrays_agree_with_scalars(kind: type[np.integer]) -> None:
    new, cached = np.array([200, 6_800, 1], kind), np.array([8_600, 2_000, 0], kind)
    expected = [ARTICLE.prefill_seconds(int(n), int(c)) for n, c in zip(new, cached, strict=True)]
    seconds = ARTICLE.prefill_seconds(new, cached)
    assert seconds.dtype == np.float64
    np.testing.assert_allclose(seconds, expected, rtol=1e-14)


def test_kv_cache_of_the_article() -> None:
    assert find_model("qwen3-8b").kv_bytes_per_token == 147_456
    assert find_model("Qwen3-8B").kv_bytes_per_token * 300_000 == pytest.approx(44.2e9, abs=0.05e9)
    assert CostModel().capacity_tokens == pytest.approx((80e9 * 0.9 - 16.4e9) / 147_456, abs=1)


def test_tensor_parallel_adds_memory_speed_and_price() -> None:
    one, two = (CostModel("H100", "Llama-3.1-8B", preset="article", tensor_parallel=gpus) for gpus in (1, 2))
    assert two.prefill_seconds(1_000) == pytest.approx(one.prefill_seconds(1_000) / 2)
    assert two.usd(1.0) == pytest.approx(2 * one.usd(1.0))
    assert two.capacity_tokens > 2 * one.capacity_tokens
    with pytest.raises(ConfigError, match=r"Llama-3\.1-70B .*141\.2 GB.*tensor_parallel"):
        _ = CostModel("H100", "Llama-3.1-70B").capacity_tokens


def test_cache_is_not_split_over_more_gpus_than_kv_heads() -> None:
    at_8, at_16 = (CostModel(model="Qwen3-8B", tensor_parallel=gpus) for gpus in (8, 16))
    assert at_16.capacity_tokens < 1.1 * at_8.capacity_tokens


def test_decoding_is_bound_by_memory_and_long_prefill_by_compute() -> None:
    weights = 16.4e9 / (0.8 * 3.35e12)
    assert ARTICLE.decode_seconds(1, 0) == pytest.approx(weights, rel=1e-9)
    assert ARTICLE.decode_seconds(1, 100_000) == pytest.approx(weights + 14.7456e9 / (0.8 * 3.35e12), rel=1e-9)
    assert ARTICLE.step_seconds([(8_800, 0)]) == pytest.approx(ARTICLE.prefill_seconds(8_800))
    assert ARTICLE.step_seconds([(8_800, 0)], decodes=16, decode_context_tokens=16_000) > ARTICLE.prefill_seconds(8_800)
    assert ARTICLE.step_seconds() == 0


def test_chunks_of_a_prompt_take_as_long_as_the_whole_where_compute_binds() -> None:
    chunks = sum(ARTICLE.step_seconds([(2_048, start)]) for start in range(0, 8_192, 2_048))
    assert chunks == pytest.approx(ARTICLE.step_seconds([(8_192, 0)]))


def test_every_default_is_marked_and_every_given_figure_is_not() -> None:
    names = {"gpu", "model", "utilization", "usd_per_gpu_hour", "tensor_parallel"}
    assumed = {item.name for item in CostModel().assumptions if item.assumed}
    given = {item.name for item in CostModel("H100", "Qwen3-8B", utilization=0.5).assumptions if item.assumed}
    assert names <= assumed
    assert not {"gpu", "model", "utilization"} & given
    assert "usd_per_gpu_hour" in given
    assert "ASSUMED" in str(next(item for item in CostModel().assumptions if item.name == "usd_per_gpu_hour"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gpu": "H1000"}, "gpu.*one.*H100, H200, .*,.*'H1000'"),
        ({"model": "gpt-9"}, "model.*one.*Qwen3-8B,.*path.*config.json,.*'gpt-9'"),
        ({"utilization": 0}, "utilization.*1e-06.*1,.*0"),
        ({"utilization": float("nan")}, "utilization must be"),
        ({"usd_per_gpu_hour": -1}, "usd_per_gpu_hour.*0.*1e.06,.*-1"),
        ({"usd_per_gpu_hour": float("inf")}, "usd_per_gpu_hour.*finite number,.*inf"),
        ({"overhead_s": "1"}, "overhead_s.*finite number,.*'1'"),
        ({"tensor_parallel": 0}, "tensor_parallel.*1.*4096,.*0"),
        ({"gpu": 5}, "gpu.*one.*H100, H200, .*,.*5"),
        ({"model": 5}, "model.*name,.*path.*config.json.*ModelShape,.*5"),
        ({"model": Path("nowhere")}, "model.*one.*Qwen3-8B,.*path.*config.json,.*'nowhere'"),
        ({"usd_per_gpu_hour": 1e308}, r"usd_per_gpu_hour.*0.*1e\+06,.*1e\+308"),
        ({"overhead_s": 1e308}, r"overhead_s.*0.*86400,.*1e\+308"),
        ({"utilization": 1e-320}, "utilization.*1e-06"),
        ({"bandwidth_utilization": 1e-320}, "bandwidth_utilization.*1e-06"),
        ({"memory_share": 1.1}, "memory_share.*1e-06.*1,.*1.1"),
        ({"weight_bytes": 0}, "weight_bytes.*above 0.*8,.*0"),
        ({"kv_bytes": float("nan")}, "kv_bytes.*above 0.*8,.*nan"),
        ({"tensor_parallel": 10**400}, "tensor_parallel.*1.*4096,.*1000"),
        ({"tensor_parallel": 1.5}, "tensor_parallel.*int,.*1.5"),
    ],
)
def test_wrong_figures_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CostModel(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "figure", "message"),
    [
        (gpus()["H100"], {"flops": 0}, "flops.*1.*1e.24,.*0"),
        (gpus()["H100"], {"bandwidth": float("nan")}, "bandwidth must be"),
        (gpus()["H100"], {"memory_bytes": "80 GB"}, "memory_bytes.*finite number,.*'80 GB'"),
        (gpus()["H100"], {"usd_per_hour": -1}, "usd_per_hour.*0.*1e.06,.*-1"),
        (models()["Qwen3-8B"], {"layers": 0}, "layers.*1"),
        (models()["Qwen3-8B"].attention[0], {"kv_values": 1.5}, "kv_values.*int,.*1.5"),
        (models()["Qwen3-8B"].attention[0], {"window": 0}, "window.*1"),
        (models()["Qwen3-8B"], {"attention": ()}, "layer.*attention"),
        (models()["Qwen3-8B"], {"weight_format": "fp5"}, "weight_format.*one.*bf16, .*,.*'fp5'"),
        (models()["gpt-oss-120b"].experts, {"picked": 129}, "picked.*1.*128,.*129"),
        (gpus()["H100"].shares, {"attention": 0}, "attention.*1e-06"),
        (models()["Qwen3-8B"], {"active_parameters": -1}, "active_parameters.*1"),
        (models()["Qwen3-8B"], {"weight_bytes": 0}, "weight_bytes.*above 0.*8,.*0"),
    ],
)
def test_gpus_and_models_of_ones_own_are_checked(kind: Any, figure: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(kind, **figure)


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), -float("inf")])
def test_tokens_that_cannot_be_are_refused(value: float) -> None:
    for call in (
        lambda: ARTICLE.prefill_flops(value),
        lambda: ARTICLE.prefill_flops(1, value),
        lambda: ARTICLE.prefill_seconds(np.array([1.0, value])),
        lambda: ARTICLE.prefill_seconds(np.array([1.0, 1.0]), np.array([0.0, value])),
        lambda: ARTICLE.usd_per_month(value),
    ):
        with pytest.raises(ConfigError, match="must be"):
            call()
    assert ARTICLE.prefill_seconds(np.empty(0)).size == 0


def test_value_semantics() -> None:
    same = CostModel("H100", "Qwen3-8B", preset="article", utilization=0.5, usd_per_gpu_hour=4.29)
    assert same == ARTICLE == pickle.loads(pickle.dumps(ARTICLE))  # noqa: S301 - our own bytes
    assert hash(same) == hash(ARTICLE)
    assert ARTICLE not in {CostModel(), CostModel("H200", preset="article")}
    assert eval(repr(ARTICLE)) == ARTICLE  # noqa: S307 - our own text


def test_tables_name_their_sources() -> None:
    assert {"H100", "H200", "B200", "A100", "L40S", "MI300X"} <= gpus().keys()
    assert {"Qwen3-8B", "Qwen3-32B", "Llama-3.1-8B", "Llama-3.1-70B"} <= models().keys()
    assert all(gpu.source and "202" in gpu.price_source for gpu in gpus().values())
    assert not any("planning figure" in gpu.price_source for gpu in gpus().values())
    assert all("202" in model.source for model in models().values())
    assert all("2026-11" in gpu.source for gpu in gpus().values())


def test_a_month_of_an_h100_is_what_the_article_says() -> None:
    assert ARTICLE.usd_per_month(1) == pytest.approx(3_132, abs=0.5)
    assert CostModel(tensor_parallel=4).usd_per_month(2) == pytest.approx(8 * 3_131.7)


def test_a_capacity_that_was_worked_out_of_given_figures_is_not_assumed() -> None:
    given: dict[str, Any] = {
        "gpu": "H100", "model": "Qwen3-8B", "tensor_parallel": 1, "memory_share": 0.9, "weight_bytes": 2, "kv_bytes": 2,
    }  # fmt: skip
    capacity = Assumption("capacity_tokens", 1000, "tokens per replica", LEFT_BY_WEIGHTS, assumed=True)
    names = frozenset({"capacity_tokens"})
    listed = (*CostModel(**given).assumptions, capacity)
    assert not on_defaults(names, listed)
    assert capacity not in shown(listed)
    for name in given:
        rest = CostModel(**{key: value for key, value in given.items() if key != name})
        if name == "weight_bytes":  # the model's own card says it
            continue
        assert capacity in defaults(names, (*rest.assumptions, capacity)), name
        assert capacity in shown((*rest.assumptions, capacity))
    noted = CostModel(**{**given, "model": replace(find_model("Qwen3-8B"), notes=("upper bound",))})
    assert on_defaults(names, (*noted.assumptions, capacity))
    assert on_defaults(names, (capacity,))
    assert on_defaults(names, (*listed[:-1], replace(capacity, source="reference article, 2026-11")))


def test_a_token_costs_its_part_of_a_prompt() -> None:
    cost = CostModel("H100", "Qwen3-8B", usd_per_gpu_hour=3.6, tensor_parallel=2)
    for length in (1, 100, 8_192, 100_000):
        assert cost.usd_per_token(length) * length == pytest.approx(0.002 * cost.prefill_seconds(length))
    assert cost.usd_per_token() == cost.usd_per_token(8_192)
    for wrong in (0, -1, math.nan, math.inf):
        with pytest.raises(ConfigError, match="prompt_tokens"):
            cost.usd_per_token(wrong)
