"""A ``config.json`` read for its weights and its cache, against the counts that model cards state."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixroute.costmodel import CostModel, find_model, read_config
from prefixroute.costmodel.models import shape as model_shape
from prefixroute.costmodel.transformer import TransformerConfig
from prefixroute.errors import ConfigError

CONFIGS: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parent / "configs.toml").read_text())
QWEN3_8B, LLAMA_8B, MIXTRAL = CONFIGS["Qwen3-8B"], CONFIGS["Llama-3.1-8B"], CONFIGS["Mixtral-8x7B"]
QWEN3_30B_A3B, DEEPSEEK_V3, BERT = CONFIGS["Qwen3-30B-A3B"], CONFIGS["DeepSeek-V3"], CONFIGS["BERT"]
LLAMA_4, GEMMA_2, GPT_OSS = CONFIGS["Llama-4"], CONFIGS["Gemma-2-27B"], CONFIGS["gpt-oss"]
SCOUT = {"text_config": {**LLAMA_4, "num_local_experts": 16, "interleave_moe_layer_step": 1}}
MAVERICK = {"text_config": {**LLAMA_4, "num_local_experts": 128, "interleave_moe_layer_step": 2}}
SPARSE = {**DEEPSEEK_V3, "index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048}
PUBLISHED: dict[str, tuple[dict[str, Any], float, float, int]] = {
    "ERNIE-4.5-21B-A3B": (CONFIGS["ERNIE-4.5-21B-A3B"], 21.8, 3.3, 2 * 28 * 4 * 128),
    "Hunyuan-A13B": (CONFIGS["Hunyuan-A13B"], 80.4, 13.0, 2 * 32 * 8 * 128),
    "DBRX": (CONFIGS["DBRX"], 132, 36, 2 * 40 * 8 * 128),
    "Llama-4-Scout": (SCOUT, 109, 17, 2 * 48 * 8 * 128),
    "Llama-4-Maverick": (MAVERICK, 400, 17, 2 * 48 * 8 * 128),
    "StarCoder": (CONFIGS["StarCoder"], 15.5, 15.5, 2 * 40 * 128),
    "Falcon-7B": (CONFIGS["Falcon-7B"], 6.92, 6.92, 2 * 32 * 64),
    "Falcon-40B": (CONFIGS["Falcon-40B"], 41.8, 41.8, 2 * 60 * 8 * 64),
    "Gemma-2-27B": (GEMMA_2, 27.2, 27.2, 2 * 46 * 16 * 128),
    "Qwen2-57B-A14B": (CONFIGS["Qwen2-57B-A14B"], 57.4, 14.2, 2 * 28 * 4 * 128),
    "Qwen-7B": (CONFIGS["Qwen-7B"], 7.72, 7.72, 2 * 32 * 32 * 128),
    "BLOOM": (CONFIGS["BLOOM"], 176, 176, 2 * 70 * 112 * 128),
    "ChatGLM3-6B": (CONFIGS["ChatGLM3-6B"], 6.24, 6.24, 2 * 28 * 2 * 128),
    "Apertus-8B": (CONFIGS["Apertus-8B"], 8.05, 8.05, 2 * 32 * 8 * 128),
    "BitNet-2B4T": (CONFIGS["BitNet-2B4T"], 2.41, 2.41, 2 * 30 * 5 * 128),
    "DeciLM-7B": (CONFIGS["DeciLM-7B"], 7.04, 7.04, 2 * 73 * 128),
    "DeepSeek-V3.2": (SPARSE, 672, 38.3, 61 * (576 + 132 // 2)),
}
"""Configs of other families, with the billions of weights that their cards state, all and active, and numbers cached a
token."""


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


@pytest.mark.parametrize("name", PUBLISHED)
def test_other_families_are_within_a_twentieth_of_their_cards(tmp_path: Path, name: str) -> None:
    config, billions, active, cached = PUBLISHED[name]
    model = read_config(write(tmp_path, config))
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.05)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=0.05)
    assert model.kv_bytes_per_token_at_most == cached * model.kv_bytes


def test_layers_with_experts_are_those_that_the_config_says(tmp_path: Path) -> None:
    def count(**which: object) -> float:
        return read_config(write(tmp_path, {**QWEN3_30B_A3B, **which})).parameters

    every, expert = count(), 128 * 3 * 2048 * 768 + 2048 * 128
    dense = 3 * 2048 * 6144
    for without, which in (
        (1, {"first_k_dense_replace": 1}),
        (2, {"mlp_only_layers": [0, 47]}),
        (24, {"decoder_sparse_step": 2}),
        (24, {"moe_layer_freq": 2}),
        (3, {"moe_layer_freq": [0, 0, 0] + [1] * 45}),
        (40, {"moe_layer_start_index": 8, "moe_layer_end_index": 15}),
        (0, {"moe_layer_end_index": -1}),
        (46, {"moe_layers": [3, 7]}),
    ):
        assert count(**which) == every - without * (expert - dense), which


def test_a_config_agrees_with_the_table(tmp_path: Path) -> None:
    for config, name in ((QWEN3_8B, "Qwen3-8B"), (LLAMA_8B, "Llama-3.1-8B")):
        read, known = read_config(write(tmp_path, config)), find_model(name)
        assert (read.layers, read.attention) == (known.layers, known.attention)
        assert read.parameters == pytest.approx(known.parameters, rel=0.002)


def test_latent_attention_and_stored_width(tmp_path: Path) -> None:
    model = read_config(write(tmp_path, DEEPSEEK_V3))
    assert [layers.width for layers in model.attention] == [128 * (192 + 128) / 2]
    assert model.weight_bytes == pytest.approx(1, rel=0.003)  # the embeddings are bf16
    one_node = CostModel("H200", model, tensor_parallel=8)
    assert one_node.capacity_tokens == pytest.approx((141e9 * 0.9 - 671e9 / 8) / (61 * 576 * 2), rel=0.02)


def _groups(*bits: int) -> dict[str, Any]:
    return {f"group_{at}": {"weights": {"num_bits": width, "type": "int"}} for at, width in enumerate(bits)}


@pytest.mark.parametrize(
    ("quantised", "weight_bytes"),
    [
        ({"bits": 4, "quant_method": "awq"}, 0.5),
        ({"bits": 4, "quant_method": "gptq", "group_size": 128}, (4 + 20 / 128) / 8),
        ({"bits": 8, "quant_method": "gptq", "group_size": -1}, 1),
        ({"bits": 3.5, "quant_method": "exl2"}, 0.4375),
        ({"quant_method": "mxfp4"}, 4.25 / 8),
        ({"quant_method": "fp8", "fmt": "e4m3"}, 1),
        ({"quant_method": "fbgemm_fp8"}, 1),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5 / 8),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 1),
        ({"quant_method": "compressed-tensors", "config_groups": _groups(4)}, 0.5),
        ({"quant_method": "compressed-tensors", "config_groups": _groups(4, 8)}, 1),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": {}}, 4.5 / 8),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False}, 0.5),
        ({"quant_method": "bitsandbytes", "load_in_4bit": False, "load_in_8bit": True}, 1),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}}}, 0.5),
    ],
)
def test_quantised_weights(tmp_path: Path, quantised: dict[str, Any], weight_bytes: float) -> None:
    model = read_config(write(tmp_path, {**LLAMA_8B, "torch_dtype": "bfloat16", "quantization_config": quantised}))
    embeddings = 2 * 128_256 * 4_096
    stored = 2 * embeddings + weight_bytes * (model.parameters - embeddings)
    assert model.weight_bytes * model.parameters == pytest.approx(stored)
    assert model.notes == ()
    width = next(item for item in CostModel(model=model).assumptions if item.name == "weight_bytes")
    assert (width.value, width.assumed) == (model.weight_bytes, False)
    assert "quantization_config" in width.source


LLAMA_70B = {
    **LLAMA_8B,
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "intermediate_size": 28672,
}


@pytest.mark.parametrize(
    ("config", "gigabytes"),
    [
        (DEEPSEEK_V3, 673),  # 688.6 with the layer for the token after next, which is not counted
        ({**GPT_OSS, "num_hidden_layers": 24, "num_local_experts": 32}, 13.8),
        ({**GPT_OSS, "num_hidden_layers": 36, "num_local_experts": 128}, 65.2),
        ({**LLAMA_8B, "quantization_config": {"bits": 4, "group_size": 128, "quant_method": "awq"}}, 5.73),
        (
            {**LLAMA_70B, "quantization_config": {"quant_method": "compressed-tensors", "config_groups": _groups(8)}},
            72.7,
        ),
    ],
    ids=["DeepSeek-V3 fp8", "gpt-oss-20b mxfp4", "gpt-oss-120b mxfp4", "Llama-3.1-8B awq", "Llama-3.3-70B fp8"],
)
def test_files_are_as_large_as_the_hub_says(tmp_path: Path, config: dict[str, Any], gigabytes: float) -> None:
    model = read_config(write(tmp_path, config))
    assert model.parameters * model.weight_bytes / 1e9 == pytest.approx(gigabytes, rel=0.01)


@pytest.mark.parametrize(
    ("said", "weight_bytes", "assumed"),
    [
        ({}, 2, True),
        ({"torch_dtype": "auto"}, 2, True),
        ({"torch_dtype": "float32"}, 2, False),
        ({"dtype": "bfloat16"}, 2, False),
        ({"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "new"}}, 2, True),
    ],
)
def test_bytes_of_a_weight_are_assumed_where_nothing_says_them(
    tmp_path: Path, said: dict[str, Any], weight_bytes: float, assumed: bool
) -> None:
    cost = CostModel(model=read_config(write(tmp_path, {**LLAMA_8B, **said})))
    figures = {item.name: item for item in cost.assumptions}
    assert (figures["weight_bytes"].value, figures["weight_bytes"].assumed) == (weight_bytes, assumed)
    assert (figures["kv_bytes"].value, figures["kv_bytes"].assumed) == (2, True)
    assert ("model_note" in figures) == ("quantization_config" in said or said.get("torch_dtype") == "float32")
    given = {item.name: item for item in CostModel(model=cost.model, weight_bytes=1, kv_bytes=1).assumptions}
    assert [(given[name].value, given[name].assumed) for name in ("weight_bytes", "kv_bytes")] == [(1, False)] * 2
    assert given["model_kv_bytes_per_token"].value == 65_536


def test_the_text_part_of_a_multimodal_config_counts(tmp_path: Path) -> None:
    model = read_config(write(tmp_path, {"model_type": "vision", "text_config": QWEN3_8B}))
    assert model.kv_bytes_per_token == 147_456


def test_layers_with_a_window_keep_that_of_a_request_and_say_so(tmp_path: Path) -> None:
    kinds = ["sliding_attention"] * 24 + ["full_attention"] * 8
    model = read_config(write(tmp_path, {**LLAMA_8B, "layer_types": kinds, "sliding_window": 512}))
    each = 2 * 8 * 128 * 2
    assert (model.kv_bytes_per_token, model.kv_bytes_per_request) == (8 * each, 24 * each * 512)
    assert model.kv_bytes_per_token_at_most == 32 * each
    cost = CostModel(model=model)
    least, most = cost.capacity_bounds
    assert least < cost.capacity_tokens < most
    assert least == pytest.approx((72e9 - 2 * model.parameters) / (32 * each), abs=1)
    assert any(item.name == "model_note" and item.assumed for item in cost.assumptions)
    with pytest.raises(ConfigError, match=r"sliding_window .*attention_chunk_size"):
        read_config(write(tmp_path, {**LLAMA_8B, "layer_types": kinds}))


@pytest.mark.parametrize(
    ("config", "windowed"),
    [
        (GEMMA_2, 23),
        ({**GEMMA_2, "model_type": "gemma3_text", "num_hidden_layers": 62, "sliding_window_pattern": 6}, 52),
        ({**GEMMA_2, "model_type": "cohere2", "num_hidden_layers": 32}, 24),
        ({**LLAMA_8B, "sliding_window": 4096, "model_type": "mistral"}, 32),
        ({**LLAMA_8B, "sliding_window": 4096, "max_position_embeddings": 4096}, 0),
        ({**LLAMA_8B, "sliding_window": 4096, "use_sliding_window": False}, 0),
        ({**LLAMA_8B, "sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 28}, 4),
        ({**LLAMA_8B, "sliding_window": None}, 0),
        ({**LLAMA_8B, "model_type": "llama4_text", "attention_chunk_size": 8192}, 24),
    ],
)
def test_windows_that_no_list_of_layers_names_are_said_too(
    tmp_path: Path, config: dict[str, Any], windowed: int
) -> None:
    model = read_config(write(tmp_path, config))
    assert sum(layers.layers for layers in model.attention if layers.window) == windowed
    assert len(model.notes) == (windowed > 0)


def test_every_note_is_listed(tmp_path: Path) -> None:
    config = {**LLAMA_8B, "sliding_window": 4096, "quantization_config": {"quant_method": "new"}}
    (note,) = (
        item.value
        for item in CostModel(model=read_config(write(tmp_path, config))).assumptions
        if item.name == "model_note"
    )
    assert re.search(r"\b32\b.*\b32\b.*window.*quantization_config \(new\).* 2 bytes", str(note))


def test_a_path_stands_for_a_model(tmp_path: Path) -> None:
    path = write(tmp_path, LLAMA_8B)
    assert find_model(str(path)) == find_model(str(path.parent)) == read_config(path)


@pytest.mark.parametrize(
    "said",
    [
        {**BERT, "is_decoder": True},
        {**BERT, "model_type": "modernbert-decoder", "architectures": ["ModernBertDecoderForCausalLM"]},
        {**LLAMA_8B, "is_decoder": False, "architectures": ["LlamaForCausalLM"]},
        {"architectures": ["InternVLChatModel"], "llm_config": {**LLAMA_8B, "is_decoder": False}},
        {"architectures": ["LlavaForConditionalGeneration"], "text_config": {**LLAMA_8B, "is_decoder": False}},
        {**LLAMA_8B, "architectures": ["LlamaForSequenceClassification"]},
    ],
)
def test_decoders_are_read_whatever_is_said_of_encoders(tmp_path: Path, said: dict[str, Any]) -> None:
    assert read_config(write(tmp_path, said)).kv_bytes_per_token > 0


def test_layers_with_unlike_kv_heads_are_counted_one_by_one(tmp_path: Path) -> None:
    same, unlike = (
        read_config(write(tmp_path, {**LLAMA_8B, "num_key_value_heads": None, "num_key_value_heads_per_layer": heads}))
        for heads in ([8] * 32, [8] * 16 + [2] * 16)
    )
    plain = read_config(write(tmp_path, LLAMA_8B))
    assert (same.parameters, same.attention) == (plain.parameters, plain.attention)
    assert unlike.kv_bytes_per_token == plain.kv_bytes_per_token * 5 / 8
    assert [(layers.layers, layers.kv_shards) for layers in unlike.attention] == [(16, 8), (16, 2)]
    assert plain.parameters - unlike.parameters == 2 * 16 * 6 * 128 * 4096


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "hidden_size.*n_embd.*d_model.*n_embed"),
        ({**LLAMA_8B, "num_hidden_layers": "32"}, "num_hidden_layers.*positive whole number,.*'32'"),
        ({**LLAMA_8B, "num_attention_heads": 0}, "num_attention_heads.*positive whole number,.*0"),
        ({**LLAMA_8B, "layer_types": ["linear_attention"] * 32}, "layer.*attention,.*cache.*prefixes"),
        (
            {**LLAMA_8B, "mamba_new_size": 16},
            "fields.*cache.*weights.*known: mamba_new_size",
        ),
        ({**LLAMA_8B, "kv_ratio": 4, "swa_period": [1]}, "cache.*weights .*: kv_ratio, swa_period"),
        ({**LLAMA_8B, "block_types": ["recurrent", "attention"]}, "layers.*known .block_types: recurrent."),
        ({**LLAMA_8B, "layers_block_type": ["mamba", "attention"]}, "list.*32 layers,.*2"),
        ({**LLAMA_8B, "hybrid_override_pattern": "M*X"}, "layers.*known .hybrid_override_pattern: X."),
        ({**LLAMA_8B, "attn_layer_period": 8}, "layers.*Mamba-1 .attn_layer_period."),
        ({**LLAMA_8B, "attn_type_list": [0, 1]}, "list.*kinds.*attention .attn_type_list."),
        ({**LLAMA_8B, "lru_width": 2560}, "recurrent layers .lru_width."),
        ({**LLAMA_8B, "sparse_attention_config": {"use": True}}, "sparse attention.*blocks"),
        (
            {**DEEPSEEK_V3, "expert_dtype": "fp3"},
            "expert_dtype.*one.*fp4, fp8, bf16, bfloat16,.*'fp3'",
        ),
        ({**LLAMA_8B, "is_encoder_decoder": True}, "encoder .is_encoder_decoder.:.*supported"),
        ({**LLAMA_8B, "block_configs": [{}]}, "layers.*unlike shapes .block_configs.:.*supported"),
        (BERT, "encoder .architectures BertForMaskedLM.,.*KV cache:.*supported"),
        ({**BERT, "architectures": ["BertModel"]}, "encoder .model_type bert."),
        ({**BERT, "model_type": "xlm-roberta", "architectures": None}, "encoder .model_type xlm-roberta."),
        ({**LLAMA_8B, "is_decoder": False}, "encoder .is_decoder false."),
        ({**LLAMA_8B, "architectures": ["NewForMaskedLM"]}, "encoder .architectures NewForMaskedLM."),
        ({**LLAMA_8B, "architectures": "x"}, "architectures.*list.*strings,.*'x'"),
        (
            {**LLAMA_8B, "num_key_value_heads_per_layer": [8] * 31},
            "num_key_value_heads_per_layer.*list.*32 whole",
        ),
        ({**LLAMA_8B, "num_key_value_heads_per_layer": [0] * 32}, "num_key_value_heads_per_layer in .* from 1 to"),
        ({**LLAMA_8B, "num_key_value_heads_per_layer": 8}, "num_key_value_heads_per_layer.*list.*32 whole"),
        (
            {**LLAMA_8B, "ffn_size_per_layer": [8] * 32},
            "layers.*unlike shapes .ffn_size_per_layer.:.*supported",
        ),
        ({**LLAMA_8B, "use_cla": True}, "layers.*share.*cache .use_cla.:.*supported"),
        ({**DEEPSEEK_V3, "zero_expert_num": 256}, "experts.*compute nothing .zero_expert_num.:.*supported"),
        ({**DEEPSEEK_V3, "model_type": "longcat_flash"}, "two blocks.*attention.*layer .model_type longcat_flash."),
        (
            {**LLAMA_8B, "intermediate_size": None},
            "intermediate_size_mlp.*dense_intermediate_size.*intermediate_size.*",
        ),
        ({**MIXTRAL, "num_experts_per_tok": None}, "lacks num_experts_per_tok or "),
        ({**LLAMA_8B, "num_key_value_heads": 0}, "num_key_value_heads.*positive whole number,.*0"),
        ({**LLAMA_8B, "hidden_size": 10**400}, r"hidden_size.*16,777,216,.*1000.*\.\.\."),
        ({**LLAMA_8B, "num_key_value_heads": [8, 4]}, "num_key_value_heads.*positive whole number"),
        ({**LLAMA_8B, "num_hidden_layers": 20_000}, "10,000 layers,.*20000"),
        ({**LLAMA_8B, "layer_types": 5}, "layer_types.*list.*strings,.*5"),
        ({**LLAMA_8B, "layer_types": [5]}, "layer_types.*list.*strings"),
        ({**MIXTRAL, "mlp_only_layers": "x"}, "mlp_only_layers.*list.*whole numbers,.*'x'"),
        ({**LLAMA_8B, "tie_word_embeddings": "no"}, "tie_word_embeddings.*true.*false,.*'no'"),
        ({**LLAMA_8B, "model_type": 5}, "model_type.*string,.*5"),
        ({**LLAMA_8B, "quantization_config": {"bits": 0}}, "quantization_config.*1.*32,.*.'bits': 0."),
        ({**LLAMA_8B, "quantization_config": {"bits": "4"}}, "quantization_config in .* from 1 to 32"),
        ({**LLAMA_8B, "quantization_config": "int4"}, "quantization_config.*object,.*'int4'"),
    ],
)
def test_configs_that_cannot_be_counted_are_refused(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config(write(tmp_path, config))


JUNK = st.sampled_from(
    [0, -1, 1.5, 10**30, "x", True, False, [], ["x"], [-3], [None], {}, {"bits": []}, {"weights": 3}]
)
KEYS = sorted(
    {*QWEN3_30B_A3B, *DEEPSEEK_V3, *LLAMA_4, *GEMMA_2, *(key for config, *_ in PUBLISHED.values() for key in config)}
    | {"layer_types", "text_config", "attn_type_list", "moe_layers", "dtype", "use_sliding_window", "index_topk"}
    | {"num_key_value_heads_per_layer", "is_decoder", "architectures", "hidden_act", "layers_per_layer"}
)


@given(
    st.sampled_from([QWEN3_30B_A3B, DEEPSEEK_V3, LLAMA_4 | {"num_local_experts": 16}]),
    st.dictionaries(st.sampled_from(KEYS), JUNK, max_size=3),
)
def test_junk_is_read_or_refused_and_never_breaks(config: dict[str, Any], junk: dict[str, Any]) -> None:
    try:
        shape = TransformerConfig({**config, **junk}, "config.json")
        sizes = (shape.parameters(active=True), shape.parameters(active=False), shape.weight_bytes)
        found = model_shape({**config, **junk}, "config.json", name="junk", source="a test")
    except ConfigError:
        return
    assert min(sizes) > 0
    assert shape.weight_bytes <= 2
    assert found.kv_bytes_per_token_at_most > 0


def test_files_that_are_no_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json\b.*No such"):
        read_config(tmp_path / "config.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"list\.json .* list "):
        read_config(tmp_path / "list.json")
