"""What an app-server says, as a fault."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.client import RequestTimeout, TransportClosedError, rpc_error
from treadle.host import FaultContext, error_fault, turn_fault
from treadle.protocol.app import RateLimitSnapshot, TurnError, convert


def failed(info: Any, message: str = "no") -> TurnError:
    return convert({"message": message, "codexErrorInfo": info}, TurnError)


@pytest.mark.parametrize(
    ("info", "kind", "retire", "retryable"),
    [
        ("unauthorized", "auth", True, False),
        ({"httpConnectionFailed": {"httpStatusCode": 401}}, "auth", True, False),
        ("usageLimitExceeded", "usage_limit", False, False),
        ("rateLimitExceeded", "rate_limited", False, True),
        ({"responseTooManyFailedAttempts": {"httpStatusCode": 429}}, "rate_limited", False, True),
        ("serverOverloaded", "overloaded", False, True),
        ("internalServerError", "overloaded", False, True),
        ({"responseStreamConnectionFailed": {"httpStatusCode": 503}}, "overloaded", False, True),
        ({"responseStreamDisconnected": {"httpStatusCode": None}}, "network", False, True),
        ({"httpConnectionFailed": {"httpStatusCode": 404}}, "model_not_found", False, False),
        ({"httpConnectionFailed": {"httpStatusCode": 418}}, "refused", False, False),
        ("contextWindowExceeded", "context_window", False, False),
        ("modelNotFound", "model_not_found", False, False),
        ("cyberPolicy", "policy", False, False),
        ("sandboxError", "sandbox", False, False),
        ("somethingNew", "other", False, False),
        ({"somethingNew": {}}, "other", False, False),
        (None, "other", False, False),
    ],
)
def test_a_turn_by_its_structure(info: Any, kind: str, retire: bool, retryable: bool) -> None:
    fault = turn_fault(failed(info))
    assert (fault.kind, fault.retire, fault.retryable) == (kind, retire, retryable)


def test_a_stream_that_broke_off_is_known_by_its_words_alone() -> None:
    fault = turn_fault(failed("other", "stream disconnected before completion: error sending request"))
    assert (fault.kind, fault.retryable) == ("network", True)
    assert turn_fault(failed("other", "the stream disconnected before completion")).kind == "other"


def test_how_long_a_provider_wants_to_be_left_alone() -> None:
    failure = {"kind": "rate_limited", "advice": "the same again in a minute", "status": 429, "retryAfterS": 7200}
    error = convert({"message": "exceeded retry limit", "failure": failure}, TurnError)
    fault = turn_fault(error, FaultContext(now=1000.0))
    assert (fault.kind, fault.retry_after_s, fault.advice) == ("rate_limited", 7200.0, "Try again in 2 h.")
    assert (fault.resets_at, fault.retryable) == (8200.0, True)


def test_the_fields_of_our_server_come_before_everything_else() -> None:
    def fault(kind: str, status: int | None = None) -> Any:
        failure = {"kind": kind, "advice": "", "status": status}
        told = {"message": "unauthorized", "codexErrorInfo": "contextWindowExceeded", "failure": failure}
        return turn_fault(convert(told, TurnError), FaultContext(login="Ask Ada."))

    assert [fault(kind).kind for kind in ("not_found", "quota", "cut")] == ["model_not_found", "usage_limit", "network"]
    assert (fault("cut").retryable, fault("untrusted").retryable) == (True, False)
    # Without a status nothing was sent: the message names the key that is missing.
    assert (fault("unauthorized", 401).advice, fault("unauthorized").advice) == ("Ask Ada.", "")
    assert fault("something new").kind == "other"


def test_words_are_the_last_resort() -> None:
    assert turn_fault(failed("other", "Your refresh token was already used.")).kind == "auth"
    assert turn_fault(failed(None, "unexpected status 401 Unauthorized")).kind == "auth"
    # The structure knows better.
    assert turn_fault(failed("contextWindowExceeded", "unauthorized")).kind == "context_window"
    assert turn_fault(None).kind == "other"


def test_an_answer_that_is_passed_on_is_read() -> None:
    answer = '{"error": {"message": "There is no `x`.", "type": "invalid_request_error", "code": "model_not_found"}}'
    fault = turn_fault(failed("other", answer))
    assert (fault.kind, fault.message) == ("model_not_found", "There is no `x`.")
    assert turn_fault(failed("other", '{"error": 3}')).message == '{"error": 3}'


def test_who_is_not_let_in_is_told_what_to_do() -> None:
    assert turn_fault(failed("unauthorized"), FaultContext(login="Ask Ada.")).advice == "Ask Ada."


def test_when_a_limit_ends() -> None:
    primary = {"usedPercent": 100, "resetsAt": 1_800_000_000}
    secondary = {"usedPercent": 40, "resetsAt": 1_900_000_000}
    limits = convert({"primary": primary, "secondary": secondary}, RateLimitSnapshot)
    fault = turn_fault(failed("usageLimitExceeded"), FaultContext(limits=limits))
    assert fault.resets_at == 1_800_000_000
    assert "2027-01-15 08:00 UTC" in fault.advice
    assert turn_fault(failed("usageLimitExceeded")).resets_at is None


def test_errors_of_requests() -> None:
    relogin = rpc_error(-32603, "x", {"action": "relogin", "detail": "the login is over"})
    assert (error_fault(relogin).kind, error_fault(relogin).message) == ("auth", "the login is over")
    busy = error_fault(rpc_error(-32001, "busy"))
    assert (busy.kind, busy.retryable, busy.retire) == ("overloaded", True, False)
    by_data = rpc_error(-32600, "no", {"codexErrorInfo": {"httpConnectionFailed": {"httpStatusCode": 401}}})
    assert error_fault(by_data).kind == "auth"
    refused = error_fault(rpc_error(-32600, "no rollout found for thread id x"))
    assert (refused.kind, refused.retire) == ("refused", False)
    assert error_fault(rpc_error(-32600, "bad"), starting=True).kind == "startup"
    assert error_fault(RequestTimeout("slow")).kind == "stuck"
    assert error_fault(FileNotFoundError("there is no program x")).kind == "missing"


def test_a_process_that_has_ended() -> None:
    # What a plug-in complains about in the log is no reason to log in again; a login that is over is.
    tail = "\x1b[33mWARN\x1b[0m plugin: 401 Unauthorized\nkey hunter2-hunter2 \x1b]0;title\x07end"
    told = FaultContext(secrets=("hunter2-hunter2",))
    error = TransportClosedError("the server x was killed; its last words:\n" + tail, exit_code=-9, stderr_tail=tail)
    fault = error_fault(error, told)
    assert (fault.kind, fault.exit_code, fault.retire) == ("dead", -9, True)
    assert fault.message == "the server x was killed"
    assert fault.stderr_tail == "WARN plugin: 401 Unauthorized\nkey [redacted] end"
    assert str(fault).count("WARN") == 1
    expired = TransportClosedError("gone", exit_code=1, stderr_tail="ERROR token_expired")
    assert error_fault(expired).kind == "auth"
    assert error_fault(TransportClosedError("gone", exit_code=2), starting=True).kind == "startup"
