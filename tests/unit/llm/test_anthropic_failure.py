"""What the failures of the Messages API mean."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from treadle.llm import HttpFailure, ModelError, endpoint, key_header, read_provider, seconds_to_reset
from treadle.llm.anthropic.failure import http_failure

DATE = "Sun, 15 Nov 2026 12:00:00 GMT"


def failed(
    status: int,
    kind: str,
    message: str,
    headers: Mapping[str, str] | None = None,
    retry_after_s: float | None = None,
) -> ModelError:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return http_failure(HttpFailure(status, headers or {}, json.dumps(body).encode(), "http://h/v1", retry_after_s))


@pytest.mark.parametrize(
    ("status", "kind", "message", "expected", "retryable"),
    [
        (400, "invalid_request_error", "messages: roles must alternate", "refused", False),
        (400, "invalid_request_error", "prompt is too long: 2 tokens > 1 maximum", "context_too_long", False),
        (400, "invalid_request_error", "`max_tokens` exceed context limit: 9", "context_too_long", False),
        (400, "invalid_request_error", "Your credit balance is too low to access", "quota", False),
        (401, "authentication_error", "invalid x-api-key", "unauthorized", False),
        (402, "billing_error", "pay", "quota", False),
        (403, "permission_error", "not for you", "forbidden", False),
        (404, "not_found_error", "model: claude-nope", "not_found", False),
        (404, "not_found_error", "Not Found", "not_found", False),
        (413, "request_too_large", "Request exceeds the maximum size", "context_too_long", False),
        (429, "rate_limit_error", "too many", "rate_limited", True),
        (500, "api_error", "oops", "server_failed", True),
        (503, "", "gateway", "server_failed", True),
        (504, "timeout_error", "slow", "server_failed", True),
        (529, "overloaded_error", "Overloaded", "overloaded", True),
    ],
)  # fmt: skip
def test_statuses(status: int, kind: str, message: str, expected: str, retryable: bool) -> None:
    error = failed(status, kind, message)
    assert (error.kind, error.http_status, error.retryable) == (expected, status, retryable)
    assert message in error.message
    assert f"HTTP {status}, request req_1" in error.message


def test_a_body_that_is_not_from_the_api() -> None:
    error = http_failure(HttpFailure(502, {"request-id": "req_2"}, b"<html>Bad Gateway", "http://h/v1"))
    assert (error.kind, error.retryable) == ("server_failed", True)
    assert "<html>Bad Gateway" in error.message
    assert "req_2" in error.message
    assert http_failure(HttpFailure(400, {}, b'{"error": "plain"}', "http://h")).message.endswith(
        "plain, url: http://h"
    )
    assert "no text" in http_failure(HttpFailure(401, {}, b"", "http://h")).message


def test_how_long_to_wait() -> None:
    headers = {
        "date": DATE,
        "anthropic-ratelimit-requests-remaining": "3",
        "anthropic-ratelimit-requests-reset": "2026-11-15T12:09:00Z",
        "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": "2026-11-15T12:00:20Z",
        "anthropic-ratelimit-output-tokens-remaining": "0",
        "anthropic-ratelimit-output-tokens-reset": "2026-11-15T12:00:30Z",
    }
    assert failed(429, "rate_limit_error", "x", headers).retry_after_s == 30
    assert failed(429, "rate_limit_error", "x", headers, retry_after_s=4).retry_after_s == 4
    late = {**headers, "anthropic-ratelimit-output-tokens-reset": "2026-11-15T13:00:00Z"}
    assert not failed(429, "rate_limit_error", "x", late).retryable  # longer than anyone should wait unasked
    assert seconds_to_reset({**headers, "date": "today"}) is None
    assert seconds_to_reset({"date": DATE}) is None
    assert seconds_to_reset({**headers, "anthropic-ratelimit-output-tokens-reset": "soon"}) == 20


def test_where_the_key_goes() -> None:
    assert key_header("sk-ant-api03-x") == ("x-api-key", "sk-ant-api03-x")
    assert key_header("sk-ant-oat01-x") == ("authorization", "Bearer sk-ant-oat01-x")
    table = {"base_url": "http://h/v1", "wire_api": "anthropic"}
    by_variable = read_provider("a", {**table, "env_key": "KEY"})
    assert endpoint(by_variable, "/messages", {}, key_header, environ={"KEY": "secret"}).headers == {
        "x-api-key": "secret"
    }
    as_bearer = read_provider("a", {**table, "experimental_bearer_token": "secret"})
    assert endpoint(as_bearer, "/messages", {}, key_header, environ={}).headers == {"authorization": "Bearer secret"}
