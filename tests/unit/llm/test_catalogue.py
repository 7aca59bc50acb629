"""What is known of models, and what a response costs."""

from __future__ import annotations

import pytest
from msgspec import structs

from treadle.llm import CATALOGUE, KNOWN, UNKNOWN, KnownModel, LongPrompt, Price, TokenUsage, known_model

USAGE = TokenUsage(
    input_tokens=1_000_000, cached_input_tokens=600_000, cache_write_input_tokens=300_000, output_tokens=100_000
)


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("claude-opus-5-5", "claude-opus-5-5"),
        ("anthropic/claude-opus-5.5", "claude-opus-5-5"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("gpt-5.5-2026-04-23", "gpt-5.5"),
        ("openai/gpt-6.1-sol", "gpt-6.1-sol"),
        ("gpt-oss:20b", "gpt-oss-20b"),
        ("openai/gpt-oss-120b:free", "gpt-oss-120b"),
    ],
)
def test_a_model_is_found_by_the_names_that_providers_give_it(name: str, entry: str) -> None:
    assert known_model(name) is CATALOGUE[entry]


@pytest.mark.parametrize("name", ["", "mine", "gpt-5.5-pro", "claude", "/", "gpt-5.4-mini-mini"])
def test_another_model_is_not_taken_for_one_of_them(name: str) -> None:
    assert known_model(name) is UNKNOWN


def test_the_models_that_providers_begin_with_are_known() -> None:
    assert [known.model for known in KNOWN.values() if known.model and known_model(known.model) is UNKNOWN] == []


def test_the_table_makes_sense() -> None:
    for name, model in CATALOGUE.items():
        price = model.price
        assert (model.output_limit or 0) + (model.input_limit or 0) <= (model.context_window or 0), name
        if price is not None and name != "offline":
            assert 0 < (price.cached_input or 0) < price.input < price.output, name
            assert price.cache_write in (None, price.input * 1.25), name


def test_own_words_are_laid_over_the_table() -> None:
    own = {"gpt-5.5": KnownModel(context_window=5), "mine": KnownModel(price=Price(input=1, output=2))}
    assert known_model("gpt-5.5", own) == structs.replace(CATALOGUE["gpt-5.5"], context_window=5)
    assert known_model("mine", own) == own["mine"]
    assert known_model("openai/gpt-5.5", own) is CATALOGUE["gpt-5.5"]  # that is another name


def test_cached_and_written_tokens_have_prices_of_their_own() -> None:
    price = Price(input=10.0, cached_input=1.0, cache_write=12.5, output=50.0)
    assert price.cost(USAGE) == pytest.approx(0.1 * 10 + 0.6 * 1 + 0.3 * 12.5 + 0.1 * 50)
    assert Price(input=10.0, output=50.0).cost(USAGE) == pytest.approx(10 + 5)
    assert price.cost(TokenUsage()) == 0


def test_a_long_prompt_costs_more_as_a_whole() -> None:
    price = Price(input=2.0, output=10.0, long=LongPrompt(272_000, 2.0, 1.5))
    at_the_limit = TokenUsage(input_tokens=272_000, output_tokens=1_000_000)
    behind_it = TokenUsage(input_tokens=272_001, output_tokens=1_000_000)
    assert price.cost(at_the_limit) == pytest.approx(0.272 * 2 + 10)
    assert price.cost(behind_it) == pytest.approx(0.272001 * 4 + 15)


def test_counts_that_do_not_add_up_never_give_money_back() -> None:
    odd = TokenUsage(input_tokens=1, cached_input_tokens=10)
    assert Price(input=10.0, cached_input=1.0, output=1.0).cost(odd) == pytest.approx(10 / 1e6)
