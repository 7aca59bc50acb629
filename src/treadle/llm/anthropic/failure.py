"""What errors of this API mean: HTTP statuses, and error events inside a stream.

Both use the same error types, so one table classifies them; only the status and the wording differ.

`other_way` finds out which features a server does not support, by its error messages: gateways and servers of other
models implement less of the API.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from treadle.llm.failure import CONTEXT, MAX_TEXT, cut, told_wait
from treadle.llm.model import ErrorKind, HttpFailure, ModelError

_TOO_LONG: Final = re.compile(
    r"prompt is too long|exceed context limit|context window|too many total text bytes", re.IGNORECASE
)
_NO_MONEY: Final = re.compile(r"credit balance is too low", re.IGNORECASE)
_NO_MODEL: Final = re.compile(r"^model\b", re.IGNORECASE)

_LIMITS: Final = ("requests", "tokens", "input-tokens", "output-tokens")


class ApiError(Struct):
    type: str = ""
    message: str = ""


class _Body(Struct):
    error: ApiError | str | None = None
    message: str | None = None
    request_id: str | None = None


class _Meaning(Struct, frozen=True):
    kind: ErrorKind
    says: str
    retryable: bool = False


_MEANINGS: Final = {
    "invalid_request_error": _Meaning("refused", "the model server refused the request"),
    "authentication_error": _Meaning("unauthorized", "the provider does not accept the key; look at its env_key"),
    "permission_error": _Meaning("forbidden", "the key may not be used for this"),
    "billing_error": _Meaning("quota", "the account has no credit left; look at its plan and billing"),
    "not_found_error": _Meaning("not_found", "there is no such thing at the provider; look at model and base_url"),
    "model_not_found": _Meaning("not_found", "the provider has no such model, or the key may not use it"),
    "request_too_large": _Meaning("context_too_long", "the request is larger than the provider takes"),
    "context_length": _Meaning("context_too_long", CONTEXT),
    "rate_limit_error": _Meaning("rate_limited", "the rate limit of this key is reached", retryable=True),
    "timeout_error": _Meaning("server_failed", "the model server took too long", retryable=True),
    "api_error": _Meaning("server_failed", "the model server failed", retryable=True),
    "overloaded_error": _Meaning("overloaded", "the provider is overloaded", retryable=True),
}
_BY_STATUS: Final = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def http_failure(failure: HttpFailure) -> ModelError:
    """A response with a status other than 200."""
    text = failure.body.decode("utf-8", "replace").strip()
    try:
        body = msgspec.json.decode(failure.body, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        body = _Body(message=text)
    request_id = body.request_id or failure.headers.get("request-id")
    error = body.error if isinstance(body.error, ApiError) else ApiError(message=body.error or body.message or text)
    status = failure.status
    meaning = _MEANINGS[_type(error, status)]
    asked_s = failure.retry_after_s
    if asked_s is None and status == 429:
        asked_s = seconds_to_reset(failure.headers)
    # The same words mean other things from a proxy in between: what it is told to repeat, is repeated.
    retryable = meaning.retryable or status >= 500
    where = f"HTTP {status}{f', request {request_id}' if request_id else ''}"
    said = (error.message[:MAX_TEXT] or "no text") + told_wait(asked_s)
    return ModelError(
        f"{meaning.says} ({where}): {said}, url: {failure.url}",
        kind=meaning.kind,
        http_status=status,
        retryable=retryable,
        retry_after_s=asked_s,
    )


def stream_failure(error: ApiError) -> ModelError:
    """An error in the middle of a response."""
    meaning = _MEANINGS[_type(error, 500)]
    if meaning.retryable:
        failure = cut(f"{meaning.says}: {error.message[:MAX_TEXT] or error.type}")
        failure.kind = meaning.kind
        return failure
    return ModelError(f"{meaning.says}: {error.message[:MAX_TEXT] or error.type}", kind=meaning.kind)


def stopped(reason: str, explanation: str | None = None) -> ModelError | None:
    """What a `stop_reason` means that is no proper end; None for all others."""
    match reason:
        case "max_tokens":
            return ModelError(
                "the answer is not complete: it reached the most tokens that this model may write in one response. "
                'Ask for less at a time, or set a higher output_limit in [models."NAME"] of config.toml.',
                kind="incomplete",
            )
        case "model_context_window_exceeded":
            return ModelError(CONTEXT, kind="context_too_long")
        case "refusal":
            why = f": {explanation[:MAX_TEXT]}" if explanation else ""
            words = f"the model refused to answer{why}. Say it in other words, or use another model."
            return ModelError(words, kind="incomplete")
    return None


def seconds_to_reset(headers: Mapping[str, str]) -> float | None:
    """How long until all that is used up is there again, by the server's own clock."""
    from email.utils import parsedate_to_datetime  # only for servers that send dates

    try:
        now = parsedate_to_datetime(headers.get("date", "")).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    waits: list[float] = []
    for limit in _LIMITS:
        if headers.get(f"anthropic-ratelimit-{limit}-remaining") != "0":
            continue
        try:
            reset = datetime.fromisoformat(headers.get(f"anthropic-ratelimit-{limit}-reset", "")).timestamp()
        except (ValueError, OverflowError):
            continue
        waits.append(max(0.0, reset - now))
    return max(waits, default=None)


def _type(error: ApiError, status: int) -> str:
    """The kind of an error, as a key of the table. Some are recognised only by their text."""
    given = error.type if error.type in _MEANINGS else _BY_STATUS.get(status)
    if given is None:
        given = "api_error" if status >= 500 else "invalid_request_error"
    if given in ("invalid_request_error", "request_too_large") and _TOO_LONG.search(error.message):
        return "context_length"
    if given == "invalid_request_error" and _NO_MONEY.search(error.message):
        return "billing_error"
    return "model_not_found" if given == "not_found_error" and _NO_MODEL.match(error.message) else given


AS_BUDGET: Final = "thinking is sent as a budget"
NO_THINKING: Final = "thinking is not sent"
NO_THOUGHTS: Final = "thoughts are not sent back"
SCHEMA_AS_TEXT: Final = "a schema is sent as text"
NO_CACHE: Final = "nothing is marked for the cache"

_REFUSED: Final = (400, 422)
_SCHEMA: Final = re.compile(r"output_config(?!\W*effort)|output_format|json_schema|\bschema\b")
_THINKING: Final = re.compile(r"thinking|adaptive|budget_tokens|\beffort\b|output_config(?!\W*format)")
_THOUGHT: Final = re.compile(r"signature|expected \W*thinking|thinking\W+blocks?\b")


def other_way(failure: HttpFailure, quirks: frozenset[str]) -> frozenset[str] | None:
    """Which of them the refusal is about, with those that are known."""
    if failure.status not in _REFUSED:
        return None
    said = failure.body.decode("utf-8", "replace").lower()
    found: set[str] = set()
    if "cache_control" in said:
        found.add(NO_CACHE)
    if _THOUGHT.search(said) and NO_THOUGHTS not in quirks:
        found.add(NO_THOUGHTS)
    elif _THINKING.search(said):
        found.add(NO_THINKING if AS_BUDGET in quirks else AS_BUDGET)
    if _SCHEMA.search(said) and "input_schema" not in said:
        found.add(SCHEMA_AS_TEXT)
    return quirks | found if found - quirks else None
