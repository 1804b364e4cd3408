"""What moving keys and values takes: bytes over a link's speed, and its latency."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from prefixroute.costmodel import Attention, CostModel, Link, find_link, find_model, links
from prefixroute.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "bytes_per_s", "latency_s", "per_gpu"),
    [
        ("rdma", 43.5e9, 0.002, True),
        ("RDMA", 43.5e9, 0.002, True),
        ("ethernet:2ms", 4.5e9, 0.002, False),
        ("25", 25e9, 0.0, False),
        ("12.5:500us", 12.5e9, 500e-6, False),
        ("nvlink:0s", 0.0, 0.0, True),
    ],
)
def test_a_link_is_a_name_or_gigabytes(text: str, bytes_per_s: float, latency_s: float, per_gpu: bool) -> None:
    link = find_link(text)
    assert (link.bytes_per_s, link.latency_s, link.per_gpu) == (bytes_per_s, latency_s, per_gpu)
    assert find_link(link) is link


@pytest.mark.parametrize("text", ["", "token ring", "0", "-1", "nan", "inf", "rdma:", "rdma:2", "rdma:-2ms", None, 25])
def test_what_is_no_link_is_refused(text: object) -> None:
    with pytest.raises(ConfigError):
        find_link(text)  # type: ignore[arg-type]


def test_every_link_has_a_speed_a_source_and_a_date() -> None:
    assert set(links()) == {"nvlink", "pcie", "rdma", "ethernet"}
    assert all("2026-11" in link.source and link.description for link in links().values())
    seconds = [CostModel("H100").transfer_seconds(8_192, name) for name in ("nvlink", "pcie", "rdma", "ethernet")]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("model", ["Qwen3-8B", "Llama-3.1-70B", "DeepSeek-V3"])
@pytest.mark.parametrize("gpus", [1, 2, 8])
@pytest.mark.parametrize("tokens", [0, 1, 1_000, 100_000])
def test_seconds_are_bytes_over_speed_and_latency(model: str, gpus: int, tokens: int) -> None:
    cost, shape = CostModel("H200", model, tensor_parallel=gpus), find_model(model)
    each = shape.kv_bytes_of(tokens, shards=gpus)
    for link in (Link("a", 10e9, 0.25), Link("b", 10e9, 0.25, per_gpu=True)):
        expected = 0.25 + each / 10e9 * (1 if link.per_gpu else gpus) if tokens else 0.0
        assert cost.transfer_seconds(tokens, link) == pytest.approx(expected, rel=1e-12)


def test_a_layer_with_a_window_moves_no_more_than_that() -> None:
    shape = find_model("Qwen3-8B")
    layers = shape.attention[0]
    half = layers.layers // 2
    windowed = (replace(layers, layers=half), replace(layers, layers=half, window=1_024))
    cost = CostModel(model=replace(shape, attention=windowed))
    link = Link("a", 1e9)
    assert isinstance(layers, Attention)
    for tokens in (512, 1_024, 50_000):
        assert cost.transfer_seconds(tokens, link) == pytest.approx(cost.model.kv_bytes_of(tokens, shards=1) / 1e9)


def test_nvlink_is_the_gpus_own() -> None:
    h100, b200 = (CostModel(gpu).transfer_seconds(100_000, "nvlink:0s") for gpu in ("H100", "B200"))
    assert h100 == pytest.approx(2 * b200, rel=0.01)


def test_a_copy_has_the_same_prices() -> None:
    prices = CostModel().transfer_prices("ethernet")
    assert copy.copy(prices).seconds(777) == prices.seconds(777)


@pytest.mark.parametrize("tokens", [-1, float("nan"), float("inf"), "many"])
def test_tokens_are_checked(tokens: object) -> None:
    with pytest.raises(ConfigError):
        CostModel().transfer_seconds(tokens)  # type: ignore[arg-type]
