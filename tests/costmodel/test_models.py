"""A ``config.json`` read for its weights and its cache, against the counts that model cards state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefixroute.costmodel import CostModel, find_model, read_config
from prefixroute.errors import ConfigError

QWEN3_8B = {
    "hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "model_type": "qwen3",
}  # fmt: skip
LLAMA_8B = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256, "model_type": "llama",
}  # fmt: skip
MIXTRAL = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2,
    "model_type": "mixtral",
}  # fmt: skip
QWEN3_30B_A3B = {
    "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
    "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 151936,
    "model_type": "qwen3_moe",
}  # fmt: skip
DEEPSEEK_V3 = {
    "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1, "kv_lora_rank": 512,
    "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
    "quantization_config": {"quant_method": "fp8"}, "model_type": "deepseek_v3",
}  # fmt: skip


def write(folder: Path, config: dict[str, Any]) -> Path:
    path = folder / "model" / "config.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("config", "billions", "active_billions", "kv_bytes"),
    [
        (QWEN3_8B, 8.19, 8.19, 147_456),
        (LLAMA_8B, 8.03, 8.03, 131_072),
        (MIXTRAL, 46.7, 12.9, 131_072),
        (QWEN3_30B_A3B, 30.5, 3.3, 98_304),
        (DEEPSEEK_V3, 671.0, 37.5, 61 * 576 * 2),
    ],
    ids=["dense", "gqa", "moe", "fine moe", "mla"],
)
def test_counts_of_model_cards(
    tmp_path: Path, config: dict[str, Any], billions: float, active_billions: float, kv_bytes: int
) -> None:
    model = read_config(write(tmp_path, config))
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.005)
    assert model.active_parameters / 1e9 == pytest.approx(active_billions, rel=0.02)
    assert model.kv_bytes_per_token == kv_bytes
    assert model.name == "model"


def test_a_config_agrees_with_the_table(tmp_path: Path) -> None:
    for config, name in ((QWEN3_8B, "Qwen3-8B"), (LLAMA_8B, "Llama-3.1-8B")):
        read, known = read_config(write(tmp_path, config)), find_model(name)
        assert (read.layers, read.attention_width, read.kv_values) == (
            known.layers,
            known.attention_width,
            known.kv_values,
        )
        assert read.parameters == pytest.approx(known.parameters, rel=0.002)


def test_latent_attention_and_stored_width(tmp_path: Path) -> None:
    model = read_config(write(tmp_path, DEEPSEEK_V3))
    assert model.attention_width == 128 * (192 + 128) / 2
    assert model.weight_bytes == 1
    one_node = CostModel("H200", model, tensor_parallel=8)
    assert one_node.capacity_tokens == pytest.approx((141e9 * 0.9 - 671e9 / 8) / (61 * 576 * 2), rel=0.02)


@pytest.mark.parametrize(
    ("quantised", "weight_bytes"), [({"bits": 4, "quant_method": "awq"}, 0.5), ({"quant_method": "mxfp4"}, 0.5)]
)
def test_quantised_weights(tmp_path: Path, quantised: dict[str, Any], weight_bytes: float) -> None:
    assert read_config(write(tmp_path, {**LLAMA_8B, "quantization_config": quantised})).weight_bytes == weight_bytes


def test_the_text_part_of_a_multimodal_config_counts(tmp_path: Path) -> None:
    model = read_config(write(tmp_path, {"model_type": "vision", "text_config": QWEN3_8B}))
    assert model.kv_bytes_per_token == 147_456


def test_windowed_layers_are_an_upper_bound_and_say_so(tmp_path: Path) -> None:
    kinds = ["sliding_attention"] * 24 + ["full_attention"] * 8
    model = read_config(write(tmp_path, {**LLAMA_8B, "layer_types": kinds}))
    assert model.notes == ("24 of 32 layers have a window and count as full: upper bound",)
    assert any(item.name == "model_note" and item.assumed for item in CostModel(model=model).assumptions)


def test_a_path_stands_for_a_model(tmp_path: Path) -> None:
    path = write(tmp_path, LLAMA_8B)
    assert find_model(str(path)) == find_model(str(path.parent)) == read_config(path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "lacks hidden_size or n_embd or d_model"),
        ({**LLAMA_8B, "num_hidden_layers": "32"}, "num_hidden_layers in .* must be a positive whole number, got '32'"),
        ({**LLAMA_8B, "num_attention_heads": 0}, "num_attention_heads in .* must be a positive whole number, got 0"),
        ({**LLAMA_8B, "layer_types": ["linear_attention"] * 32}, "layers without attention .linear_attention."),
        ({**LLAMA_8B, "mamba_d_state": 16}, "layers without attention"),
    ],
)
def test_configs_that_cannot_be_counted_are_refused(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config(write(tmp_path, config))


def test_files_that_are_no_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read a model's config\.json"):
        read_config(tmp_path / "config.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ConfigError, match="must hold one object, got list"):
        read_config(tmp_path / "list.json")
