"""Tables of providers: the package's own hold together, a user's file is read or refused by name."""

from __future__ import annotations

import pickle
from datetime import date
from pathlib import Path

import pytest

from prefixroute import ConfigError
from prefixroute.providers import Price, Provider, find_model, find_provider, providers, read_provider
from prefixroute.providers.catalog import BATCH, KINDS, STANDARD

OWN = """
name = "own"
title = "A gateway of our own"
date = 2026-11-30
source = "contract of 2026-11"
default_model = "house-model"
usage = "openai"

[[modes]]
name = "auto"
kind = "automatic"
match = "prefix"
source = "contract"
lifetimes = [{ name = "10m", seconds = 600 }]

[[models]]
id = "house-model"
minimum_tokens = 256
modes = ["auto"]
prices = [{ input = 1.0, output = 4.0, read = 0.5 }]
"""


@pytest.mark.parametrize("provider", providers(), ids=lambda provider: provider.name)
def test_every_table_holds_together(provider: Provider) -> None:
    assert provider.source
    assert provider.model().id == provider.default_model
    for model in provider.models:
        assert all(mode.kind in KINDS for mode in model.modes)
        for price in model.prices:
            assert 0 <= price.read <= price.input < price.output or price.output == 0
            for mode in model.modes:
                assert set(price.write) <= {lifetime.name for lifetime in mode.lifetimes}
                assert all(price.writing(lifetime.name) >= price.input for lifetime in mode.lifetimes)
        assert pickle.loads(pickle.dumps(model)) == model  # noqa: S301


def test_all_providers_and_all_kinds_of_rules_are_there() -> None:
    assert {one.name for one in providers()} == {
        "anthropic", "azure", "bedrock", "deepseek", "gemini", "mistral", "openai", "vertex", "xai",
    }  # fmt: skip
    assert {mode.kind for one in providers() for model in one.models for mode in model.modes} == set(KINDS)


def test_the_prices_of_the_seed_article() -> None:
    price = find_model("claude-sonnet-5-5").price()
    assert (price.input, price.writing("5m"), price.writing("1h"), price.read) == (2.0, 2.5, 4.0, 0.1)


@pytest.mark.parametrize(
    ("model", "share"),
    [("claude-opus-5-5", 0.05), ("claude-fable-5-1", 0.025), ("claude-opus-5", 0.1), ("deepseek-v4-flash", 0.02)],
)
def test_reading_costs_another_share_of_input_by_model(model: str, share: float) -> None:
    price = find_model(model).price()
    assert price.read == pytest.approx(share * price.input)


@pytest.mark.parametrize(
    ("model", "least"),
    [("claude-sonnet-5-5", 512), ("claude-sonnet-5", 1024), ("claude-opus-4-7", 2048), ("claude-opus-4-6", 4096)],
)
def test_the_minimum_is_each_models_own(model: str, least: int) -> None:
    found = find_model(model)
    assert not found.is_cacheable(least - 1)
    assert found.is_cacheable(least)


def test_a_step_begins_above_its_length_and_tiers_have_prices_of_their_own() -> None:
    haiku = find_model("claude-haiku-5-5")
    assert [haiku.price(tokens).input for tokens in (0, 100_000, 100_001)] == [0.1, 0.1, 0.5]
    assert haiku.price(tier=BATCH).input == 0.05
    twelve = find_model("gpt-5.6").price()
    assert twelve.writing("12h") == pytest.approx(2.5 * twelve.input)
    with pytest.raises(ConfigError, match="tiers standard, batch"):
        haiku.price(tier="warp")


def test_a_lifetime_without_a_fee_is_written_at_the_input_price() -> None:
    price = Price(input=3.0, output=9.0, read=0.3)
    assert price.writing("any") == 3.0


def test_an_unknown_model_names_its_nearest() -> None:
    with pytest.raises(ConfigError, match="claude-sonnet-5-5"):
        find_model("claude-sonet-5.5")
    with pytest.raises(ConfigError, match="anthropic"):
        find_provider("antropic")


def test_old_prices_warn() -> None:
    anthropic = find_provider("anthropic")
    assert anthropic.stale_note(date(2026, 12, 1)) is None
    assert "107 days old" in (anthropic.stale_note(date(2027, 3, 2)) or "")


def test_a_users_own_file_is_read_and_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    own = read_provider(path)
    assert own.model().price().read == 0.5
    path.write_text(OWN.replace("house-model", "claude-sonnet-5-5"))
    assert find_model("claude-sonnet-5-5", [read_provider(path)]).provider == "own"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("read = 0.5", "read = -0.5", "read price.*0"),
        ("read = 0.5", "read = nan", "read price"),
        ("read = 0.5", "read = 0.5, wrote = 1", "'wrote'"),
        ('kind = "automatic"', 'kind = "magic"', "kind.*mode 'auto' .*marks.*'magic'"),
        ("seconds = 600", "seconds = 0", "lifetime '10m'.*above 0"),
        ("date = 2026-11-30", 'date = "soon"', "date.*date"),
        ('modes = ["auto"]', 'modes = ["manual"]', "modes.*model 'house-model'"),
        ('usage = "openai"', 'usage = "openia"', "usage .*'openia'.*'openai'"),
        ("minimum_tokens = 256", "minimum_tokens = 1.5", "minimum_tokens.*int"),
        ('default_model = "house-model"', 'default_model = "x"', "prices.*model 'x'"),
        ('title = "A gateway of our own"', "title = 3", "title.*file.*text"),
        ('source = "contract of 2026-11"', "", "lacks source"),
        ("[[models]]", "[models]", "models.*list"),
        ("name = ", "name ", "no TOML"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, old: str, new: str, told: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(OWN.replace(old, new, 1))
    with pytest.raises(ConfigError, match=told) as raised:
        read_provider(path)
    assert str(path) in str(raised.value)


def test_figures_of_ones_own_replace_all_steps_and_tiers() -> None:
    model = find_model("claude-haiku-5-5").with_figures(input=1.0, write=2.0, read=0.1, minimum_tokens=10)
    assert [price.tier for price in model.prices] == [STANDARD]
    assert model.price(500_000).writing("1h") == 2.0
    assert model.is_cacheable(10)
    with pytest.raises(ConfigError, match=r"read .* 0 .* -1"):
        model.with_figures(read=-1.0)
