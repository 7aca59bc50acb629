"""Which model answers, and why: every combination of what may be named and of the keys that may be there."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.config import FoundKey, Login, ModelChoice, choose_model, find_key
from treadle.llm import KNOWN, default_model

NO_KEY = FoundKey()
OPENAI_KEY = FoundKey("openai", "OPENAI_API_KEY is set")
ANTHROPIC_KEY = FoundKey("anthropic", "ANTHROPIC_API_KEY is set")


def chosen(choice: ModelChoice) -> tuple[str, str]:
    return choice.model, choice.provider


@pytest.mark.parametrize("found", [NO_KEY, OPENAI_KEY, ANTHROPIC_KEY])
@pytest.mark.parametrize(
    ("model", "provider", "expected"),
    [
        ("gpt", None, ("gpt", "openai")),
        ("gpt", "mine", ("gpt", "mine")),
        (None, "mine", ("gpt-6.1-sol", "mine")),
        (None, "openai", ("gpt-6.1-sol", "openai")),
        (None, "anthropic", ("claude-opus-5-5", "anthropic")),
        (None, "azure", ("", "azure")),  # a deployment has the name that its owner gave it
        ("claude-opus-5-5", None, ("claude-opus-5-5", "anthropic")),
        ("claude-opus-5-5", "mine", ("claude-opus-5-5", "mine")),
        ("offline", None, ("offline", "offline")),
        (None, "offline", ("offline", "offline")),
        ("gpt", "offline", ("offline", "offline")),  # it has been asked for by name
        ("offline", "mine", ("offline", "mine")),  # any provider may have a model of that name
    ],
)
def test_what_is_named_is_used(
    model: str | None, provider: str | None, expected: tuple[str, str], found: FoundKey
) -> None:
    choice = choose_model(model, provider, found)
    assert chosen(choice) == expected
    assert choice.because


def test_a_gateway_in_the_place_of_openai_may_have_any_model() -> None:
    choice = choose_model("claude-opus-5-5", None, ANTHROPIC_KEY, gateway=True)
    assert chosen(choice) == ("claude-opus-5-5", "openai")


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}, "gpt-6.1-sol (openai, because OPENAI_API_KEY is set)"),
        (
            {"OPENAI_API_KEY": " ", "ANTHROPIC_API_KEY": "k"},
            "claude-opus-5-5 (anthropic, because ANTHROPIC_API_KEY is set)",
        ),
        (
            {},
            "offline (offline, because neither OPENAI_API_KEY nor ANTHROPIC_API_KEY is set, and nobody is logged in)",
        ),
    ],
)
def test_with_nothing_named_a_key_decides(tmp_path: Path, environ: dict[str, str], said: str) -> None:
    assert str(choose_model(None, None, find_key(tmp_path, environ))) == said


def test_a_login_is_used_when_no_key_is_set(tmp_path: Path) -> None:
    Login(tmp_path).set_api_key("sk-1")
    assert find_key(tmp_path, {}) == FoundKey("openai", "you are logged in")
    assert find_key(tmp_path, {"ANTHROPIC_API_KEY": "k"}) == ANTHROPIC_KEY


def test_every_provider_but_that_of_deployments_begins_with_a_model() -> None:
    assert [name for name in KNOWN if default_model(name) is None] == ["azure"]
