"""The table of failures, with the bodies and results that were recorded from the real server."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.http import SseEvent
from treadle.llm import (
    MAX_ASKED_S,
    MAX_PAUSE_S,
    MAX_TEXT,
    ErrorKind,
    HttpFailure,
    ModelError,
    ResponsesTranslator,
    pause,
    retry_after,
)
from treadle.llm.failure import http_failure

NOW = 1_792_567_660.0  # Wed, 21 Oct 2026 07:27:40 GMT
URL = "http://127.0.0.1:1/v1/responses"
BAD = '{"error": {"message": "Bad thing", "type": "invalid_request_error", "code": "invalid_request"}}'


def _http_failure(status: int, text: bytes, url: str, retry_after_s: float | None = None) -> ModelError:
    return http_failure(HttpFailure(status, {}, text, url, retry_after_s))


def body(**error: object) -> str:
    return json.dumps({"error": error})


@pytest.mark.parametrize(
    ("status", "text", "message", "kind", "retryable"),
    [
        (400, BAD, BAD, "refused", False),
        (
            401,
            body(message="no auth"),
            f"unexpected status 401 Unauthorized: no auth, url: {URL}",
            "unauthorized",
            False,
        ),
        (
            429,
            body(message="slow"),
            "exceeded retry limit, last status: 429 Too Many Requests: slow",
            "rate_limited",
            True,
        ),
        (
            429,
            "",
            "exceeded retry limit, last status: 429 Too Many Requests",
            "rate_limited",
            True,
        ),
        (429, body(type="usage_limit_reached"), None, "quota", False),
        (429, body(code="insufficient_quota"), None, "quota", False),
        (400, body(code="context_length_exceeded"), None, "context_too_long", False),
        (500, body(message="boom"), None, "server_failed", True),
        (
            503,
            body(message="overloaded"),
            f"unexpected status 503 Service Unavailable: overloaded, url: {URL}",
            "server_failed",
            True,
        ),
        (503, body(code="server_is_overloaded"), None, "overloaded", False),
        (529, body(message="x"), f"unexpected status 529: x, url: {URL}", "overloaded", True),
        (402, body(message="pay"), f"unexpected status 402 Payment Required: pay, url: {URL}", "quota", False),
        (413, body(message="big"), None, "context_too_long", False),
        (422, body(message="what?"), None, "refused", False),
        (
            599,
            "plain text",
            f"unexpected status 599: plain text, url: {URL}",
            "server_failed",
            True,
        ),
        (
            404,
            "",
            f"unexpected status 404 Not Found: no text, url: {URL}",
            "not_found",
            False,
        ),
        (
            403,
            '{"detail": "no"}',
            f"unexpected status 403 Forbidden: no, url: {URL}",
            "forbidden",
            False,
        ),
    ],
)
def test_statuses(status: int, text: str, message: str | None, kind: ErrorKind, retryable: bool) -> None:
    error = _http_failure(status, text.encode(), URL)
    assert (error.kind, error.retryable, error.http_status) == (kind, retryable, status)
    assert message is None or error.message == message
    assert str(error) == error.message


@pytest.mark.parametrize(
    ("event", "message", "kind", "retryable"),
    [
        (
            {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "boom"}}},
            "stream disconnected before completion: boom",
            "server_failed",
            True,
        ),
        (
            {"type": "response.failed", "response": {"error": {"code": "context_length_exceeded", "message": "x"}}},
            None,
            "context_too_long",
            False,
        ),
        (
            {"type": "response.failed", "response": {"error": {"code": "insufficient_quota", "message": "x"}}},
            None,
            "quota",
            False,
        ),
        (
            {"type": "response.failed", "response": {"error": {"code": "invalid_prompt", "message": "no"}}},
            "no",
            "refused",
            False,
        ),
        (
            {"type": "response.failed", "response": {"error": None}},
            "stream disconnected before completion: the server gave no reason",
            "server_failed",
            True,
        ),
        ({"type": "error", "code": "slow_down", "message": "x"}, None, "overloaded", False),
        (
            {"type": "error", "error": {"message": "x"}},
            "stream disconnected before completion: x",
            "server_failed",
            True,
        ),
        (
            {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}},
            "Incomplete response returned, reason: max_output_tokens",
            "incomplete",
            False,
        ),
        (
            {"type": "response.incomplete", "response": {}},
            "Incomplete response returned, reason: unknown",
            "incomplete",
            False,
        ),
    ],
)
def test_failures_in_a_stream(event: dict[str, object], message: str | None, kind: ErrorKind, retryable: bool) -> None:
    with pytest.raises(ModelError) as caught:
        ResponsesTranslator().receive(SseEvent("", json.dumps(event)))
    error = caught.value
    assert (error.kind, error.retryable, error.http_status) == (kind, retryable, None)
    assert message is None or error.message == message


@pytest.mark.parametrize(
    ("said", "seconds"), [("try again in 1.5s.", 1.5), ("Try again in 20 ms", 0.02), ("later", None)]
)
def test_a_rate_limit_says_how_long_to_wait(said: str, seconds: float | None) -> None:
    event = {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": said}}}
    with pytest.raises(ModelError) as caught:
        ResponsesTranslator().receive(SseEvent("", json.dumps(event)))
    assert caught.value.retry_after_s == seconds
    assert caught.value.retryable


@pytest.mark.parametrize(("at", "said"), [(4_102_444_800, "2100-01-01 00:00 UTC"), (1e300, "is reached")])
def test_the_end_of_a_usage_limit_is_told(at: float, said: str) -> None:
    text = body(type="usage_limit_reached", resets_at=at)
    assert said in _http_failure(429, text.encode(), URL, None).message


def test_the_time_of_a_usage_limit_is_kept() -> None:
    text = body(type="usage_limit_reached", resets_in_seconds=90)
    assert _http_failure(429, text.encode(), URL, 1.0).retry_after_s == 90


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "3", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "3", "retry-after-ms": "x"}, 3.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, 20.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:27:00 GMT"}, 0.0),
        # A server whose clock is an hour ahead means its own time.
        ({"retry-after": "Wed, 21 Oct 2026 08:28:00 GMT", "date": "Wed, 21 Oct 2026 08:27:55 GMT"}, 5.0),
        ({"retry-after": "Wed, 99 Oct 99999 07:28:00 GMT"}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_wait_that_is_too_long_is_told_and_not_made(status: int) -> None:
    assert _http_failure(status, b"", URL, MAX_ASKED_S).retryable
    error = _http_failure(status, b"", URL, 3600.0)
    assert not error.retryable
    assert "the server asks to wait 3600 s" in error.message


@given(st.integers(201, 599), st.binary(max_size=60) | st.just(b"x" * 100_000))
def test_any_body_makes_a_short_error(status: int, text: bytes) -> None:
    error = _http_failure(status, text, URL)
    assert error.message
    assert len(error.message) < MAX_TEXT + 200
    assert error.http_status == status
    assert not (error.retryable and status < 500 and status != 429)


@given(st.integers(0, 100))
def test_pauses_grow_to_a_limit(attempt: int) -> None:
    seconds = pause(attempt, None)
    assert seconds is not None
    assert min(0.18 * 2**attempt, MAX_PAUSE_S * 0.9) <= seconds <= min(0.22 * 2**attempt, MAX_PAUSE_S * 1.1)
    assert pause(attempt, None, 0.1) == 0.1


@given(st.floats(0.0, 200.0), st.integers(0, 100))
def test_a_server_is_given_the_time_that_it_asks_for_but_not_too_much(asked_s: float, attempt: int) -> None:
    seconds = pause(attempt, asked_s, 60.0)
    if asked_s > 60.0:
        assert seconds is None
    else:
        assert seconds is not None
        assert asked_s <= seconds <= asked_s * 1.1 + 1e-9


def test_those_that_failed_together_do_not_come_back_together() -> None:
    assert len({pause(3, None) for _ in range(20)}) > 10
    assert len({pause(0, 7.0) for _ in range(20)}) > 10
