"""Providers: their tables, their credentials, and that nothing secret is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.llm import ModelError, ProviderConfigError, endpoint, read_provider, shown_url

URL = "https://models.example/v1"
SECRET = "s3cret-value"


def test_defaults() -> None:
    config = read_provider("x", {"base_url": URL})
    assert (config.request_max_retries, config.stream_max_retries, config.stream_idle_timeout_ms) == (4, 5, 300_000)
    assert (config.wire_api, config.requires_openai_auth) == ("responses", False)


def test_a_table_does_not_name_its_provider() -> None:
    assert read_provider("x", {"base_url": URL, "zeta": 1, "id": "y"}).id == "x"


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({}, "base_url"),
        ({"base_url": 1}, "base_url"),
        ({"base_url": "models.example"}, "base_url: it is no http or https URL"),
        ({"base_url": "ftp://models.example"}, "base_url: it is no http or https URL"),
        ({"base_url": "http://h:99999"}, "base_url: it is no http or https URL"),
        ({"base_url": URL, "request_max_retries": -1}, "request_max_retries"),
        ({"base_url": URL, "stream_max_retries": 101}, "stream_max_retries"),
        ({"base_url": URL, "stream_idle_timeout_ms": 0}, "stream_idle_timeout_ms"),
        ({"base_url": URL, "http_headers": {"a b": "1"}}, "'a b' is no name of an HTTP header"),
    ],
)
def test_a_wrong_table_is_refused_by_key(table: dict[str, object], problem: str) -> None:
    with pytest.raises(ProviderConfigError, match=problem) as caught:
        read_provider("mine", table)
    assert str(caught.value).startswith("model_providers.mine: ")


def test_the_key_comes_from_the_environment() -> None:
    config = read_provider("x", {"base_url": URL, "env_key": "KEY", "requires_openai_auth": True})
    made = endpoint(config, "/responses", {}, login_key=lambda: "login", environ={"KEY": f" {SECRET}\n"})
    assert made.headers == {"authorization": f"Bearer {SECRET}"}
    assert made.url == f"{URL}/responses"


def test_a_missing_key_says_which() -> None:
    config = read_provider("x", {"base_url": URL, "env_key": "KEY"})
    with pytest.raises(ModelError, match="provider `x` needs the environment variable `KEY`") as caught:
        endpoint(config, "/responses", {}, environ={"KEY": " "})
    assert caught.value.kind == "unauthorized"
    assert not caught.value.retryable


@pytest.mark.parametrize("table", [{}, {"env_key": "NOT_SET"}, {"requires_openai_auth": True}])
def test_a_key_that_is_kept_for_the_provider_is_sent_when_no_variable_has_one(table: dict[str, object]) -> None:
    """Whose key may go where is decided by `config.stored_keys`."""
    config = read_provider("x", {"base_url": URL, **table})
    assert endpoint(config, "/r", {}, login_key=lambda: "kept", environ={}).headers == {"authorization": "Bearer kept"}


def test_headers_of_the_provider_win_over_the_callers() -> None:
    table = {"base_url": URL, "http_headers": {"X-A": "1"}, "env_http_headers": {"X-B": "B", "X-C": "C"}}
    made = endpoint(read_provider("x", table), "/r", {"x-a": "0", "x-b": "0", "x-c": "0"}, environ={"B": "2"})
    assert made.headers == {"x-a": "1", "x-b": "2", "x-c": "0"}


def test_query_params() -> None:
    config = read_provider("x", {"base_url": URL + "/?a=1", "query_params": {"api-version": "2 3"}})
    assert endpoint(config, "/responses", {}, environ={}).url == f"{URL}/responses?a=1&api-version=2+3"


def test_a_header_that_could_split_the_request_is_refused_without_its_value() -> None:
    config = read_provider("x", {"base_url": URL, "env_http_headers": {"X-Key": "K"}})
    with pytest.raises(ModelError, match="'x-key'") as caught:
        endpoint(config, "/r", {}, environ={"K": f"{SECRET}\r\nx: y"})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "table",
    [
        {"base_url": URL, "http_headers": {"X-Key": SECRET}},
        {"base_url": URL, "http_headers": {"Authorization": f"Bearer {SECRET}"}},
        {"base_url": URL, "query_params": {"key": SECRET}},
        {"base_url": URL, "experimental_bearer_token": SECRET},
        {"base_url": URL, "env_key": "KEY"},
        {"base_url": URL, "env_http_headers": {"X-Key": "KEY"}},
        {"base_url": URL, "requires_openai_auth": True},
    ],
)
def test_nothing_secret_is_shown(table: dict[str, object]) -> None:
    config = read_provider("x", table)
    made = endpoint(config, "/r", {}, login_key=lambda: SECRET, environ={"KEY": SECRET})
    assert SECRET in str(made.headers) + made.url
    shown = [repr(config), str(config), repr(config.__rich_repr__()), repr(made), made.shown]
    assert not [text for text in shown if SECRET in text]
    assert made.redact(f"bad key {SECRET}!") == "bad key [redacted]!"


def test_credentials_in_a_url_are_not_shown() -> None:
    assert shown_url(f"https://me:{SECRET}@h:1/p?k={SECRET}#{SECRET}") == "https://h:1/p"
    assert SECRET not in repr(read_provider("x", {"base_url": f"https://me:{SECRET}@h/p?k={SECRET}"}))


@given(st.text(max_size=40))
def test_any_url_can_be_shown(url: str) -> None:
    assert "?" not in shown_url(url)
