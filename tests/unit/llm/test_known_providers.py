"""The providers that need no table."""

from __future__ import annotations

import pytest

from treadle.llm import KNOWN, ModelError, endpoint, key_variables, known_provider, laid_over, read_provider

MINE = "https://mine.example/v1"


@pytest.mark.parametrize("name", [name for name in KNOWN if name != "azure"])
def test_each_is_what_its_table_would_be(name: str) -> None:
    assert known_provider(name) == read_provider(name, laid_over(name, {}))


def test_azure_has_to_be_told_where_it_is() -> None:
    assert known_provider("azure") is None
    assert KNOWN["azure"].missing is not None


@pytest.mark.parametrize("name", ["anthropic", "openrouter"])
def test_a_missing_key_is_told_with_where_to_get_one(name: str) -> None:
    provider = known_provider(name)
    assert provider is not None
    with pytest.raises(ModelError, match=f"`{provider.env_key}`, which is not set, .* Make a key at") as caught:
        endpoint(provider, "/models", {}, environ={})
    assert (caught.value.kind, caught.value.retryable) == ("unauthorized", False)


@pytest.mark.parametrize("name", ["ollama", "lmstudio", "vllm"])
def test_a_server_on_this_machine_wants_no_key(name: str) -> None:
    provider = known_provider(name)
    assert provider is not None
    assert "authorization" not in endpoint(provider, "/models", {}, environ={}).headers


@pytest.mark.parametrize(
    "own",
    [
        {"experimental_bearer_token": "t"},
        {"env_key": "MINE"},
        {"requires_openai_auth": True},
        {"http_headers": {"Authorization": "Bearer t"}},
        {"env_http_headers": {"X-Api-Key": "MINE"}},
    ],
)
def test_credentials_of_a_table_replace_ours(own: dict[str, object]) -> None:
    table = laid_over("anthropic", {"base_url": MINE, **own})
    assert table["base_url"] == MINE
    assert table.get("env_key") == own.get("env_key")
    assert "env_key_instructions" not in table


def test_other_headers_leave_the_key_as_it_is() -> None:
    assert laid_over("anthropic", {"http_headers": {"X-Team": "a"}})["env_key"] == "ANTHROPIC_API_KEY"


def test_the_variables_that_hold_keys() -> None:
    assert key_variables() == (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "OPENROUTER_API_KEY",
        "AZURE_OPENAI_API_KEY",
    )
