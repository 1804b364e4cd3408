"""Bytes that a token and a request take in models whose layers are not all alike, against counts by hand."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from prefixroute.costmodel import CostModel, ModelShape, read_config
from prefixroute.errors import ConfigError

CONFIGS: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parent / "configs.toml").read_text())["unlike"]
MIMO, DEEPSEEK_32, DEEPSEEK_4 = CONFIGS["MiMo-V2"], CONFIGS["DeepSeek-V3.2"], CONFIGS["DeepSeek-V4-Flash"]
GEMMA_31B, GEMMA_E4B, GPT_OSS = CONFIGS["Gemma-4-31B"], CONFIGS["Gemma-4-E4B"], CONFIGS["gpt-oss-120b"]
QWEN3_NEXT, GRANITE_4H, NEMOTRON_H = CONFIGS["Qwen3-Next"], CONFIGS["Granite-4-H"], CONFIGS["Nemotron-H"]
MIMO_WINDOWED = [layer % 6 != 5 and layer > 0 for layer in range(47)] + [False]
LINEAR_STATE = 32 * 128 * 128 * 2 + 3 * (2 * 16 * 128 + 32 * 128) * 2
MAMBA_STATE = 128 * 64 * 128 * 2 + 3 * (128 * 64 + 2 * 128) * 2
NEMOTRON_STATE = 256 * 64 * 256 * 2 + 3 * (256 * 64 + 2 * 8 * 256) * 2

SHAPES: dict[str, tuple[dict[str, Any], float, float, float]] = {
    "MiMo-V2, its own pattern": (
        {**MIMO, "hybrid_layer_pattern": [int(one) for one in MIMO_WINDOWED]},
        9 * 4 * 320 * 2, 39 * 8 * 320 * 2 * 128, 222_720,
    ),
    "MiMo-V2, layer_types": (
        {**MIMO, "layer_types": ["sliding_attention" if one else "full_attention" for one in MIMO_WINDOWED]},
        9 * 4 * 320 * 2, 39 * 8 * 320 * 2 * 128, 222_720,
    ),
    "DeepSeek-V3.2": (DEEPSEEK_32, 78_324, 0, 78_324),
    "GLM-5.2, 15 layers with an index of their own": (
        {**DEEPSEEK_32, "indexer_types": (["full", "shared", "shared", "shared"] * 16)[:61]},
        61 * 576 * 2 + 16 * 132, 0, 61 * 576 * 2 + 16 * 132,
    ),
    "DeepSeek-V4-Flash": (DEEPSEEK_4, 6_229, 43 * 512 * 2 * 128, 6_229 + 43 * 512 * 2),
    "Gemma-4-31B": (GEMMA_31B, 81_920, 819_200 * 1024, 901_120),
    "Gemma-4-E4B": (GEMMA_E4B, 16_384, 40_960 * 512, 57_344),
    "Qwen3-Next": (QWEN3_NEXT, 24_576, 36 * LINEAR_STATE, 24_576),
    "Granite-4-H": (GRANITE_4H, 16_384, 36 * MAMBA_STATE, 16_384),
    "Nemotron-H": (NEMOTRON_H, 3 * 2 * 8 * 128 * 2, 14 * NEMOTRON_STATE, 3 * 2 * 8 * 128 * 2),
    "gpt-oss-120b": (GPT_OSS, 36_864, 36_864 * 128, 73_728),
}  # fmt: skip
"""A config, the bytes that a token adds, those of a request whatever its length, and those of a token if windows were
full."""


def shape(folder: Path, config: dict[str, Any]) -> ModelShape:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return read_config(path)


@pytest.mark.parametrize("name", SHAPES)
def test_bytes_by_hand(tmp_path: Path, name: str) -> None:
    config, growing, fixed, at_most = SHAPES[name]
    model = shape(tmp_path, config)
    assert model.kv_bytes_per_token == pytest.approx(growing, rel=1e-4)
    assert model.kv_bytes_per_request == fixed
    assert model.kv_bytes_per_token_at_most == pytest.approx(at_most, rel=1e-4)
    assert {"model_kv_bytes_per_request"} <= {item.name for item in CostModel(model=model).assumptions} or not fixed


@pytest.mark.parametrize(
    ("config", "billions", "active"),
    [
        ({**DEEPSEEK_4, "intermediate_size": None}, 284, 13),
        (
            {
                **QWEN3_NEXT, "vocab_size": 151936, "moe_intermediate_size": 512, "num_experts": 512, "num_experts_per_tok": 10,
                "shared_expert_intermediate_size": 512, "attn_output_gate": True,
            },
            80, 3.7,
        ),
        (
            {
                **GRANITE_4H, "vocab_size": 100352, "tie_word_embeddings": True, "intermediate_size": 768,
                "num_local_experts": 72, "num_experts_per_tok": 10, "shared_intermediate_size": 1536,
            },
            32, 9,
        ),
        (
            {
                **NEMOTRON_H, "vocab_size": 131072, "intermediate_size": 32768,
                "hybrid_override_pattern": "M-M-M-M*-" + "M-M-M-M-M*-" * 9 + "M-M-M-M-M-",
            },
            56, 56,
        ),
    ],
    ids=["DeepSeek-V4-Flash", "Qwen3-Next-80B-A3B", "Granite-4-H-Small", "Nemotron-H-56B"],
)  # fmt: skip
def test_weights_are_near_what_the_cards_state(
    tmp_path: Path, config: dict[str, Any], billions: float, active: float
) -> None:
    model = shape(tmp_path, config)
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.05)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=0.15)


def test_fp4_experts_are_counted_apart(tmp_path: Path) -> None:
    model = shape(tmp_path, {**DEEPSEEK_4, "intermediate_size": None})
    assert model.experts is not None
    assert (model.experts.weight_format, model.experts.weight_bytes) == ("fp4", 4.25 / 8)
    assert model.parameters * model.weight_bytes / 1e9 == pytest.approx(156, rel=0.05)


@pytest.mark.parametrize(
    ("said", "kv_bytes"),
    [
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, 1),
        ({"kv_cache_scheme": None}, 2),
        ({"kv_cache_quant_algo": "FP8"}, 1),
        ({"kv_cache_quant_algo": "NVFP4"}, 0.5625),
    ],
)
def test_a_cache_of_fewer_bits(tmp_path: Path, said: dict[str, Any], kv_bytes: float) -> None:
    quantised = {"quant_method": "compressed-tensors", "bits": 8, **said}
    model = shape(tmp_path, {**GPT_OSS, "quantization_config": quantised})
    assert model.kv_bytes_per_token == 36_864 * kv_bytes / 2
    row = next(item for item in CostModel(model=model).assumptions if item.name == "kv_bytes")
    assert (row.value, row.assumed) == (kv_bytes, kv_bytes == 2)
    given = CostModel(model=model, kv_bytes=2)
    assert given.model.kv_bytes_per_token == 36_864


@pytest.mark.parametrize(
    ("said", "kind", "weight_bytes", "kv_bytes"),
    [
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}, "fp8", 1, 1),
        ({"quant_algo": "NVFP4", "kv_cache_quant_algo": None}, "fp4", 4.5 / 8, 2),
    ],
)
def test_what_modelopt_writes_apart_is_read(
    tmp_path: Path, said: dict[str, Any], kind: str, weight_bytes: float, kv_bytes: float
) -> None:
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": said}))
    model = shape(tmp_path, {**GPT_OSS, "intermediate_size": 2880})
    assert (model.weight_format, model.kv_bytes) == (kind, kv_bytes)
    assert model.weight_bytes == pytest.approx(weight_bytes, rel=0.02)
    (tmp_path / "hf_quant_config.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"hf_quant_config\.json .* list "):
        shape(tmp_path, GPT_OSS)


def test_a_list_of_blocks_is_a_pattern(tmp_path: Path) -> None:
    words = {"M": "mamba", "-": "mlp", "*": "attention"}
    listed = [words[letter] for letter in NEMOTRON_H["hybrid_override_pattern"]]
    same, written = (
        shape(tmp_path, {**NEMOTRON_H, **said})
        for said in ({"hybrid_override_pattern": None, "layers_block_type": listed}, {})
    )
    assert (same.parameters, same.attention, same.state_bytes) == (
        written.parameters,
        written.attention,
        written.state_bytes,
    )


def test_capacity_of_layers_with_a_window_lies_between_its_bounds(tmp_path: Path) -> None:
    cost = CostModel("H200", shape(tmp_path, GEMMA_31B))
    least, most = cost.capacity_bounds
    assert most / least == pytest.approx(901_120 / 81_920, rel=0.01)
    assert least < cost.capacity_tokens < most
    even = CostModel("H100", "Qwen3-8B")
    assert even.capacity_bounds == (even.capacity_tokens, even.capacity_tokens)


def test_long_contexts_cost_less_where_a_window_bounds_them(tmp_path: Path) -> None:
    windowed, full = (
        CostModel(model=shape(tmp_path, {**GPT_OSS, "layer_types": kinds}))
        for kinds in (GPT_OSS["layer_types"], ["full_attention"] * 36)
    )
    for new, cached in ((1_000, 60_000), (60_000, 0)):
        assert windowed.prefill_seconds(new, cached) < full.prefill_seconds(new, cached)
    assert windowed.decode_seconds(64, 64 * 8_000) < full.decode_seconds(64, 64 * 8_000)
    assert windowed.prefill_seconds(100) == pytest.approx(full.prefill_seconds(100))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"swa_period": 4}, "not known: swa_period"),
        ({"linear_attn_config": {"kda_layers": [1]}}, "layers of KDA"),
        ({"compress_ratios": [4]}, "compress_ratios.*list.*36 numbers"),
        (
            {"mamba_ssm_dtype": "int8", "layer_types": ["mamba", "attention"] * 18},
            "lacks mamba_num_heads or mamba_n_heads",
        ),
    ],
)
def test_what_changes_a_cache_and_is_not_known_is_refused_by_name(
    tmp_path: Path, said: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        shape(tmp_path, {**GPT_OSS, **said})
