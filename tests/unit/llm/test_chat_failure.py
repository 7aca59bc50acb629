"""What refusals of Chat Completions servers mean, in the words of many of them, and what is then done otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from treadle.llm import HttpFailure, read_error
from treadle.llm.chat import WIRE_API
from treadle.llm.chat import failure as q
from treadle.llm.chat.failure import stream_failure


def failure(status: int, body: Any, retry_after_s: float | None = None) -> HttpFailure:
    said = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return HttpFailure(status, {}, said, "http://localhost:1/v1/chat/completions", retry_after_s)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"),
        (400, "This endpoint's maximum context length is 32768 tokens. However, you requested about 40000"),
        (400, "The decoder prompt (length 5000) is longer than the maximum model length of 4096."),
        (400, "the request exceeds the available context size (4096 tokens), try increasing it"),
        (400, "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with"),
        (400, "The number of tokens to keep from the initial prompt is greater than the context length"),
        (500, "input length exceeds maximum context length"),
        (400, "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"),
        (400, "prompt is too long: 210000 tokens > 200000 maximum"),
        (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
        (413, "Please reduce the length of the messages or completion."),
        (400, "This model's maximum prompt length is 131072 but the request contains 150000 tokens."),
        (400, "Input is too long for requested model."),
        (422, "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens"),
        (400, "The input (5000 tokens) is longer than the model's context length (4096 tokens)."),
        (400, "Invalid request: Your request exceeded model token limit: 8192"),
        (413, "Request Entity Too Large"),
        (400, "'max_tokens' is too large: 40960. This model's maximum context length is 32768 tokens"),
    ],
)
def test_a_conversation_that_is_too_long(status: int, said: str) -> None:
    refused = failure(status, {"error": {"message": said, "type": "invalid_request_error"}})
    error = WIRE_API.failure(refused)
    assert (error.kind, error.http_status, error.retryable) == ("context_too_long", status, False)
    assert WIRE_API.other_way(refused, frozenset()) is None


@pytest.mark.parametrize(
    ("status", "body", "kind", "retryable", "told"),
    [
        (400, {"error": {"message": "bad thing", "code": None, "param": None}}, "refused", False, "bad thing"),
        (400, {"error": "bad thing"}, "refused", False, "bad thing"),
        (400, {"object": "error", "message": "bad thing", "code": 400}, "refused", False, "bad thing"),
        (400, [{"error": {"code": 400, "message": "bad thing"}}], "refused", False, "bad thing"),
        (400, {"detail": "bad thing"}, "refused", False, "bad thing"),
        (400, "bad thing", "refused", False, "bad thing"),
        (400, "", "refused", False, "HTTP 400"),
        (
            422,
            {"detail": [{"loc": ["body", "x"], "msg": "bad thing", "input": "s"}]},
            "refused",
            False,
            "body.x: bad thing",
        ),
        (
            400,
            {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": "bad thing"}}},
            "refused",
            False,
            "bad thing",
        ),
        (401, {"error": {"message": "no such key"}}, "unauthorized", False, "no such key"),
        (
            404,
            {"error": {"message": "The model `x` does not exist", "code": "model_not_found"}},
            "not_found",
            False,
            "x",
        ),
        (404, {"error": {"message": 'model "x" not found, try pulling it first'}}, "not_found", False, "pulling"),
        (400, {"error": {"message": "x is not a valid model ID", "code": 400}}, "not_found", False, "valid model"),
        (404, "<html>404</html>", "not_found", False, "localhost"),
        (400, {"error": {"message": "gemma does not support tools"}}, "other", False, "Choose a model with tools"),
        (404, {"error": {"message": "No endpoints found that support tool use"}}, "other", False, "cannot call tools"),
        (400, '{"message": "\\"auto\\" tool choice requires --enable-auto-tool-choice"}', "other", False, "vLLM"),
        (402, {"error": {"message": "Insufficient credits"}}, "quota", False, "credit"),
        (429, {"error": {"code": "insufficient_quota", "message": "x"}}, "quota", False, "credit"),
        (429, {"error": {"message": "Slow down"}}, "rate_limited", True, "Slow down"),
        (
            413,
            {"error": {"message": "too large: Limit 6000 tokens per minute (TPM)"}},
            "rate_limited",
            False,
            "TPM",
        ),
        (500, {"error": "oops"}, "server_failed", True, "HTTP 500"),
        (503, {"detail": "warming up"}, "server_failed", True, "warming up"),
    ],
)
def test_failures_of_many_servers(status: int, body: Any, kind: str, retryable: bool, told: str) -> None:
    error = WIRE_API.failure(failure(status, body))
    assert (error.kind, error.http_status, error.retryable) == (kind, status, retryable)
    assert told in error.message


def test_how_long_to_wait_is_kept() -> None:
    assert WIRE_API.failure(failure(429, {"error": {"message": "x"}}, 7.0)).retry_after_s == 7.0


def asked_again(status: int, body: Any, *known: str) -> set[str]:
    quirks = WIRE_API.other_way(failure(status, body), frozenset(known))
    assert quirks is None or quirks > set(known)
    return set() if quirks is None else set(quirks - set(known))


@pytest.mark.parametrize(
    ("status", "said", "quirk"),
    [
        (400, "Unknown parameter: 'stream_options'.", q.NO_STREAM_OPTIONS),
        (400, "Unsupported parameter: 'parallel_tool_calls' is not supported with this model.", q.NO_PARALLEL),
        (400, "Unrecognized request argument supplied: reasoning_effort", q.NO_EFFORT),
        (400, '"gemma3:4b" does not support thinking', q.NO_EFFORT),
        (400, "Use 'max_completion_tokens' instead of 'max_tokens'.", q.OTHER_LIMIT),
        (400, "This response_format type is unavailable now", q.JSON_OBJECT),
        (400, "'response_format.type' must be 'json_schema' or 'text'", q.JSON_OBJECT),
        (400, "messages[0].role does not support 'system' with this model.", q.AS_DEVELOPER),
        (400, "System role not supported", q.AS_USER),
        (422, "messages[0].role: unknown variant `developer`, expected one of `system`, `user`", q.AS_USER),
        (400, "System message must be at the beginning.", q.SYSTEM_FIRST),
        (500, "Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/...", q.ALTERNATING),
        (400, "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.", q.NINE),
        (400, "thinking is enabled but reasoning_content is missing in assistant tool call message", q.THOUGHTS_BACK),
    ],
)
def test_a_refusal_that_there_is_a_way_around(status: int, said: str, quirk: str) -> None:
    body = {"error": {"message": said}}
    assert asked_again(status, body) == {quirk}
    assert quirk not in asked_again(status, body, quirk)


def test_a_schema_is_asked_for_in_three_ways() -> None:
    body = {"error": {"message": "json_schema is not supported", "param": "response_format"}}
    assert asked_again(400, body) == {q.JSON_OBJECT}
    assert asked_again(400, body, q.JSON_OBJECT) == {q.NO_FORMAT}
    assert asked_again(400, body, q.JSON_OBJECT, q.NO_FORMAT) == set()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": "bad thing"}}),
        (400, {"error": {"message": "Invalid schema for response_format 'x': 'additionalProperties' is required"}}),
        (400, {"error": {"message": "Invalid parameter: messages with role 'tool' must follow 'tool_calls'."}}),
        (401, {"error": {"message": "stream_options"}}),
        (429, {"error": {"message": "stream_options"}}),
        (422, {"detail": [{"loc": ["body", "model"], "msg": "field required", "input": {"stream_options": 1}}]}),
    ],
)
def test_a_refusal_that_is_final(status: int, body: Any) -> None:
    assert asked_again(status, body) == set()


def test_a_place_in_the_body_is_read() -> None:
    body = {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted", "input": {}}]}
    assert asked_again(422, body) == {q.NO_STREAM_OPTIONS}


def test_a_template_that_fails_is_not_asked_again_as_it_was() -> None:
    error = WIRE_API.failure(failure(500, {"error": {"message": "Jinja Exception: roles must alternate"}}))
    assert not error.retryable


def test_a_rate_limit_inside_of_a_stream_says_how_long_to_wait() -> None:
    said = read_error(json.dumps({"error": {"message": "Please try again in 2.5s.", "code": 429}}))
    assert stream_failure(said).retry_after_s == 2.5
