"""`[models."NAME"]`: what a user says of a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.config import ConfigError, LoadedConfig, load_config, model_facts
from treadle.llm import KnownModel, Price


def load(tmp_path: Path, text: str) -> LoadedConfig:
    (tmp_path / "config.toml").write_text(text)
    return load_config(tmp_path, environ={})


def test_a_table_says_sizes_and_prices(tmp_path: Path) -> None:
    text = """[models."mine:7b"]
context_window = 32768
output_limit = 4096
price_input = 1
price_cached_input = 0.1
price_cache_write = 1.25
price_output = 5.5
"""
    loaded = load(tmp_path, text)
    price = Price(input=1.0, cached_input=0.1, cache_write=1.25, output=5.5)
    assert loaded.config.models == {"mine:7b": KnownModel(context_window=32768, output_limit=4096, price=price)}
    assert loaded.warnings == ()
    facts = model_facts("mine:7b", loaded.config)
    assert (facts.context_window, facts.output_limit, facts.price) == (32768, 4096, price)


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        ("models = 1", "models", "allowed is a table of tables"),
        ("[models]\nx = 1", "models.x", "allowed is a table"),
        ("[models.x]\ncontext_window = 0", "models.x.context_window", "allowed is a whole number from 1"),
        ('[models.x]\nprice_input = "1"', "models.x.price_input", "found a text, allowed is a number of dollars"),
        ("[models.x]\nprice_input = -1\nprice_output = 1", "models.x.price_input", "allowed is a number of dollars"),
        ("[models.x]\nprice_input = 1", "models.x", "no price_output"),
        ("[models.x]\nprice_output = 1", "models.x", "no price_input"),
    ],
)
def test_what_is_wrong_is_told_by_its_key(tmp_path: Path, text: str, key: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert caught.value.key == key
    assert problem in caught.value.problem


def test_an_unknown_key_is_a_warning(tmp_path: Path) -> None:
    (warning,) = load(tmp_path, "[models.x]\ncontext = 5\n").warnings
    assert (warning.key, warning.line) == ("models.x.context", 2)
    assert "context_window" in warning.message
