"""From failures of models to the words of the app-server's wire, as they were recorded from the real server."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from treadle.agent import error_info, retry_info
from treadle.llm import ErrorKind, HttpFailure, ModelError
from treadle.llm.failure import http_failure
from treadle.protocol.app import TurnError, encode


def told(error: ModelError) -> Any:
    return _json(TurnError(message="m", codex_error_info=error_info(error)))


def _json(error: TurnError) -> Any:
    return json.loads(encode(error))["codexErrorInfo"]


def _with(kind: str, status: int | None) -> dict[str, Any]:
    return {kind: {"httpStatusCode": status}}


@pytest.mark.parametrize(
    ("status", "error", "info"),
    [
        (400, {"message": "Bad thing", "code": "invalid_request"}, "other"),
        (400, {"code": "context_length_exceeded"}, "contextWindowExceeded"),
        (401, {"message": "no auth"}, _with("httpConnectionFailed", 401)),
        (403, {}, _with("httpConnectionFailed", 403)),
        (404, {}, _with("httpConnectionFailed", 404)),
        (429, {"message": "slow"}, _with("responseTooManyFailedAttempts", 429)),
        (429, {"type": "usage_limit_reached"}, "usageLimitExceeded"),
        (429, {"code": "insufficient_quota"}, "usageLimitExceeded"),
        (500, {"message": "boom"}, "internalServerError"),
        (503, {"message": "overloaded"}, _with("httpConnectionFailed", 503)),
        (503, {"code": "server_is_overloaded"}, "serverOverloaded"),
        (599, {}, _with("httpConnectionFailed", 599)),
    ],
)
def test_statuses(status: int, error: dict[str, Any], info: Any) -> None:
    body = json.dumps({"error": error}).encode()
    assert told(http_failure(HttpFailure(status, {}, body, "http://h/"))) == info


@pytest.mark.parametrize(
    ("kind", "info"),
    [
        ("absent", _with("httpConnectionFailed", None)),
        ("unreachable", _with("httpConnectionFailed", None)),
        ("untrusted", _with("httpConnectionFailed", None)),
        ("cut", "other"),
        ("incomplete", "other"),
        ("unreadable", "other"),
        ("server_failed", "other"),
        ("rate_limited", "other"),
        ("refused", "other"),
        ("other", "other"),
        ("unauthorized", "unauthorized"),
        ("policy", "cyberPolicy"),
    ],
)
def test_failures_without_a_status(kind: ErrorKind, info: Any) -> None:
    assert told(ModelError("m", kind=kind)) == info


@pytest.mark.parametrize("kind", get_args(ErrorKind))
@pytest.mark.parametrize("status", [None, 200, 307, 400, 401, 429, 500, 529])
def test_every_failure_has_a_word_that_the_wire_knows(kind: ErrorKind, status: int | None) -> None:
    info = told(ModelError("m", kind=kind, http_status=status))
    assert TurnError.model_validate({"message": "m", "codexErrorInfo": info}).codex_error_info == error_info(
        ModelError("m", kind=kind, http_status=status)
    )


def test_a_retry_is_a_stream_that_was_cut() -> None:
    error = ModelError("m", kind="server_failed", http_status=503)
    assert _json(TurnError(message="m", codex_error_info=retry_info(error))) == _with("responseStreamDisconnected", 503)
