"""The catalogue: paging, the default, and what is known of a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.config import CATALOG, Config, InvalidCursor, list_models, load_config, model_facts, models
from treadle.llm import Price
from treadle.protocol.app import ModelListParams

NOWHERE = Path("/nonexistent")
ALL_EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh"]


def config(*overrides: str) -> Config:
    return load_config(NOWHERE, overrides=overrides, environ={}).config


def ids(overrides: Sequence[str] = (), **params: object) -> list[str]:
    listed = list_models(config(*overrides), ModelListParams.model_validate(params))
    return [model.id for model in listed.data]


def test_offline_comes_first_and_is_the_default() -> None:
    listed = list_models(config(), ModelListParams()).data
    assert listed[0].id == "offline"
    assert [model.id for model in listed if model.is_default] == ["offline"]
    assert "offline" not in ids(["model_provider=openai"])


@pytest.mark.parametrize(
    ("overrides", "default"),
    [
        (["model_provider=openai"], "gpt-6.1-sol"),
        (["model_provider=openai", "model=mine"], "mine"),
        (["model_provider=openai", "model=gpt-5.4"], "gpt-5.4"),
    ],
)
def test_exactly_the_configured_model_is_the_default(overrides: list[str], default: str) -> None:
    listed = list_models(config(*overrides), ModelListParams()).data
    assert [model.id for model in listed if model.is_default] == [default]
    assert len({model.id for model in listed}) == len(listed)


def test_hidden_models_are_listed_on_request() -> None:
    hidden = {model.id for model in CATALOG if model.hidden}
    assert hidden
    assert not hidden & set(ids())
    assert set(ids(includeHidden=True)) - set(ids()) == hidden


def test_every_model_offers_every_effort() -> None:
    for model in models(config()):
        assert [option.reasoning_effort for option in model.supported_reasoning_efforts] == ALL_EFFORTS
        assert model.default_reasoning_effort in ALL_EFFORTS
        assert model.model == model.id


@given(st.integers(0, 12), st.booleans())
def test_pages_join_to_the_whole(limit: int, include_hidden: bool) -> None:
    settings = config()
    whole = list_models(settings, ModelListParams(include_hidden=include_hidden))
    assert whole.next_cursor is None
    joined: list[object] = []
    cursor: str | None = None
    while True:
        page = list_models(settings, ModelListParams(cursor=cursor, limit=limit, include_hidden=include_hidden))
        assert len(page.data) <= max(1, limit)
        joined += page.data
        cursor = page.next_cursor
        if cursor is None:
            break
    assert tuple(joined) == whole.data


@pytest.mark.parametrize("cursor", ["bogus", "", "-1", "1.0", " 1", "²", "9" * 30])
def test_a_bad_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidCursor) as caught:
        ids(cursor=cursor)
    assert str(caught.value) == f"invalid cursor: {cursor}"


def test_a_cursor_behind_the_end_is_refused() -> None:
    total = len(ids())
    assert ids(cursor=str(total)) == []
    with pytest.raises(InvalidCursor, match=f"cursor 999 exceeds total models {total}"):
        ids(cursor="999")


def test_facts_of_any_model() -> None:
    facts = model_facts("mock-model", config())
    assert (facts.context_window, facts.usable_window, facts.auto_compact_limit) == (272_000, 258_400, 244_800)
    assert (facts.freeform_patch, facts.supports_images) == (False, True)
    facts = model_facts("m", config("model_context_window=1000", "model_auto_compact_token_limit=77"))
    assert (facts.context_window, facts.usable_window, facts.auto_compact_limit) == (1000, 950, 77)


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("gpt-6.1-sol", 272_000),  # it could read more, at twice the price
        ("gpt-5.4-mini", 272_000),  # the rest of its 400,000 is for the answer
        ("claude-opus-5-5", 1_000_000),
        ("anthropic/claude-haiku-4.5", 200_000),
        ("claude-haiku-5-5", 100_000),
        ("gpt-oss:20b", 131_072),
    ],
)
def test_the_window_is_that_of_the_catalogue_up_to_where_it_costs_more(model: str, window: int) -> None:
    assert model_facts(model, config()).context_window == window
    assert model_facts(model, config("model_context_window=5")).context_window == 5
    own = config(f'models."{model}".context_window=777000', f'models."{model}".output_limit=99')
    assert (model_facts(model, own).context_window, model_facts(model, own).output_limit) == (777_000, 99)


def test_a_price_of_the_users_leaves_the_window_as_it_is() -> None:
    own = config('models."gpt-6.1-sol"={price_input=1.0, price_output=2.0}')
    facts = model_facts("gpt-6.1-sol", own)
    assert (facts.context_window, facts.price) == (272_000, Price(input=1.0, output=2.0))


@pytest.mark.parametrize(
    ("model", "freeform", "images"),
    [
        ("gpt-5.5", True, True),
        ("openai/gpt-5.3-codex", True, True),
        ("gpt-6.1-sol", True, True),
        ("gpt-4.1", False, True),
        ("offline", False, False),
    ],
)
def test_facts_by_name(model: str, freeform: bool, images: bool) -> None:
    facts = model_facts(model, config())
    assert (facts.freeform_patch, facts.supports_images) == (freeform, images)
