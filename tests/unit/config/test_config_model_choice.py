"""Which model answers: every combination of what may be named."""

from __future__ import annotations

import pytest

from treadle.config.model_choice import DEFAULT_MODEL, ModelChoice, choose_model

OFFLINE = ModelChoice("offline", "offline")


@pytest.mark.parametrize("has_openai_key", [False, True])
@pytest.mark.parametrize(
    ("model", "provider", "choice"),
    [
        ("gpt", None, ModelChoice("gpt", "openai")),
        ("gpt", "mine", ModelChoice("gpt", "mine")),
        (None, "mine", ModelChoice(DEFAULT_MODEL, "mine")),
        (None, "openai", ModelChoice(DEFAULT_MODEL, "openai")),
        ("offline", None, OFFLINE),
        (None, "offline", OFFLINE),
        ("gpt", "offline", OFFLINE),  # it has been asked for by name
        ("offline", "mine", ModelChoice("offline", "mine")),  # any provider may have a model of that name
    ],
)
def test_what_is_named_is_used(
    model: str | None, provider: str | None, choice: ModelChoice, has_openai_key: bool
) -> None:
    assert choose_model(model, provider, has_openai_key=has_openai_key) == choice


def test_with_nothing_named_a_key_decides() -> None:
    assert choose_model(None, None, has_openai_key=False) == OFFLINE
    assert choose_model(None, None, has_openai_key=True) == ModelChoice(DEFAULT_MODEL, "openai")
