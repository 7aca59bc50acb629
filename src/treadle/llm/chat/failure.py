"""From an error of a Chat Completions server to a `ModelError`.

Every server has its own error format and its own words for the same problem; this is the one place that looks at words.

`other_way` finds out which features a server does not support, by its error messages.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec import Struct

from treadle.llm.failure import CONTEXT, MAX_TEXT, ErrorDetail, failed, http_failure, kind_of
from treadle.llm.model import HttpFailure, ModelError

_TOO_LONG: Final = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum (context|prompt|model|input) length|max(imum)? context size"
    r"|context (length|window|size) (of|is|has been)? ?(only|exceeded|limit)|context the overflows|context overflow"
    r"|(exceed|longer than|greater than|larger than|too (long|large) for|over)[^.]{0,60}"
    r"(context (length|size|window)|maximum number of tokens|token limit|max length|model's context)"
    r"|context window exceeds|prompt is too long|prompt too long|input is too long|input too long"
    r"|reduce the length of (the|your) (messages|prompt|input)|tokens \+ `?max_new_tokens`? must be"
    r"|prompt exceeds max length|too many (input )?tokens in",
    re.IGNORECASE,
)
_PER_MINUTE: Final = re.compile(r"per (minute|day|hour|second)|\b[TR]P[MD]\b|rate.?limit", re.IGNORECASE)
_NO_MODEL: Final = re.compile(
    r"model_not_found|not a valid model|no such model|unknown model|invalid model|not_found_error.*model"
    r"|models?\b.{0,120}?\b(not found|not exist|not available|not loaded|isn't loaded)|no models? (is )?loaded",
    re.IGNORECASE | re.DOTALL,
)
_NO_TOOLS: Final = re.compile(
    r"not support (tools?|function)|support tool use|enable-auto-tool-choice|tool use is not supported"
    r"|(tools?|function calling) (is|are) not supported",
    re.IGNORECASE,
)
_NO_MONEY: Final = re.compile(
    r"insufficient_quota|insufficient (balance|credits?|funds)|exceeded your current quota|more credits"
    r"|billing_hard_limit|out of credits|quota (is )?exhausted|payment required",
    re.IGNORECASE,
)
_TEMPLATE: Final = re.compile(r"jinja|chat.?template|roles must alternate|system message must be", re.IGNORECASE)

_TOOLS_NEEDED: Final = (
    "this model, as it is served, cannot call tools, and an agent works by calling tools. Choose a model with tools; "
    "vLLM offers them when it is started with --enable-auto-tool-choice and --tool-call-parser. The server said: "
)
_WHICH_MODELS: Final = "the model server does not have this model. Set `model` to one that it has. The server said: "


class ChatError(Struct, frozen=True):
    """The error in an answer.

    Args:
        detail: Its code, type and message.
        words: All text that can show what kind of error it is.
    """

    detail: ErrorDetail
    words: str


def read_error(body: bytes | str) -> ChatError:
    """Any form of error; what is no JSON is its own message."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    try:
        read = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        read = None
    found = find_error(read)
    if found is None and isinstance(read, dict) and read.get("message"):
        return _chat_error(read)
    if found is None:
        said = text.strip()[:MAX_TEXT]
        return ChatError(ErrorDetail(message=said or None), said)
    return found


def find_error(read: object) -> ChatError | None:
    """The error in a JSON value, where it is one."""
    if isinstance(read, list) and len(read) == 1:  # Gemini
        read = read[0]
    if not isinstance(read, dict):
        return None
    error = read.get("error") or read.get("errors")
    if error:
        return _chat_error(error)
    return _chat_error(read) if "error" in (read.get("object"), read.get("type")) or read.get("detail") else None


def _chat_error(error: object) -> ChatError:
    if not isinstance(error, dict):
        said = _message(error)
        return ChatError(ErrorDetail(message=said), said)
    message = _message(error.get("message") or error.get("detail") or error.get("error") or error)
    inner = error.get("metadata")
    if isinstance(inner, dict) and inner.get("raw"):  # OpenRouter: what the provider behind it said
        message += f" ({_message(inner['raw'])})"
    code, kind = error.get("code"), error.get("type")
    detail = ErrorDetail(
        code=code if isinstance(code, str | int) else None,
        type=kind if isinstance(kind, str) else None,
        message=message[:MAX_TEXT],
    )
    return ChatError(detail, f"{message} {code} {kind} {error.get('param')}")


def _message(value: object) -> str:
    """FastAPI has a list of what is wrong, each with its place and with what was sent, which nobody needs again."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "; ".join(_place(part) for part in value)
    return msgspec.json.encode(value).decode()


def _place(part: Any) -> str:
    if not isinstance(part, dict) or "msg" not in part:
        return _message(part)
    place = part.get("loc")
    return f"{'.'.join(map(str, place))}: {part['msg']}" if isinstance(place, list) else str(part["msg"])


def is_too_long(words: str) -> bool:
    """Whether the conversation does not fit into the context window."""
    return bool(_TOO_LONG.search(words)) and not _PER_MINUTE.search(words)


def chat_failure(failure: HttpFailure) -> ModelError:
    """A response with a status other than 200."""
    status, error = failure.status, read_error(failure.body)
    known = _known(error, status)
    if known is not None:
        known.http_status = status
        known.retry_after_s = failure.retry_after_s
        return known
    if status in (400, 422):
        said = error.detail.message or "no text"
        words = f"the model server refused the request (HTTP {status}): {said}"
        return ModelError(words, kind="refused", http_status=status)
    body = msgspec.json.encode({"error": error.detail}) if error.detail.message else b""
    result = http_failure(msgspec.structs.replace(failure, body=body))
    if status == 413:  # it would fit into the window, but not into what the account may send in a minute
        result.kind = "rate_limited"
    if _TEMPLATE.search(error.words):  # a template that cannot be filled today cannot be filled tomorrow
        result.retryable = False
    return result


def stream_failure(error: ChatError) -> ModelError:
    """An error inside a stream that began well. A status may be in it as its code."""
    code = error.detail.code
    if isinstance(code, str):
        code = int(code) if code.isascii() and code.isdecimal() and len(code) == 3 else None
    status = code if code is not None and 400 <= code < 600 else None
    result = _known(error, status) or failed(error.detail)
    if status is not None and result.kind == "server_failed":
        result.kind = kind_of(status)
        result.retryable = status >= 500 or status in (408, 409, 425, 429)
    result.answer = HttpFailure(status or 400, {}, error.words.encode(), "")
    return result


def _known(error: ChatError, status: int | None) -> ModelError | None:
    """The kind of an error by its text; None where the status is more exact."""
    said, words = error.detail.message or "no reason", error.words
    if status not in (401, 403, 429) and (is_too_long(words) or (status == 413 and not _PER_MINUTE.search(words))):
        return ModelError(CONTEXT, kind="context_too_long")
    if status == 402 or (status in (None, 400, 403, 429) and _NO_MONEY.search(words)):
        return ModelError(f"the account has no credit left for this model: {said}", kind="quota")
    if status in (400, 404, 422, 500, 501) and _NO_TOOLS.search(words):
        return ModelError(_TOOLS_NEEDED + said)
    if status in (400, 404) and _NO_MODEL.search(words):
        return ModelError(_WHICH_MODELS + said, kind="not_found")
    return None


NO_STREAM_OPTIONS: Final = "no stream_options"
NO_PARALLEL: Final = "no parallel_tool_calls"
NO_EFFORT: Final = "no reasoning_effort"
JSON_OBJECT: Final = "json_object for json_schema"
NO_FORMAT: Final = "no response_format"
OTHER_LIMIT: Final = "the other name of max_tokens"
AS_DEVELOPER: Final = "developer for system"
AS_USER: Final = "user for system"
SYSTEM_FIRST: Final = "system only at the beginning"
ALTERNATING: Final = "roles alternate"
NINE: Final = "call ids of nine letters"
THOUGHTS_BACK: Final = "reasoning_content is sent back"


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


# In this order: the first that fits and is not known yet is tried. Those of a family come one after the other.
_REFUSALS: Final[tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]] = (
    (_words(r"stream_options|include_usage"), (NO_STREAM_OPTIONS,)),
    (_words(r"parallel_tool_calls|parallel tool calls"), (NO_PARALLEL,)),
    (_words(r"reasoning_effort|reasoning effort|reasoning\.effort|not support (thinking|reasoning)"), (NO_EFFORT,)),
    (
        _words(r"reasoning_content.*(missing|must|required|passed|pass back)|missing.*reasoning_content"),
        (THOUGHTS_BACK,),
    ),
    (_words(r"max_completion_tokens|max_tokens"), (OTHER_LIMIT,)),
    (_words(r"tool.?call.?id.*(length of 9|a-z)"), (NINE,)),
    (_words(r"system (message|role|prompt)s? (must|should|can only) be (at|the|first)"), (SYSTEM_FIRST, AS_USER)),
    (_words(r"role.*not support.*'system'|'system'.*use 'developer'"), (AS_DEVELOPER, AS_USER)),
    (_words(r"system role (is )?not supported|not support.*system (role|message|prompt|instruction)"), (AS_USER,)),
    (_words(r"unknown variant `(system|developer)`|role[^.]{0,60}(system|developer)[^.]{0,60}not"), (AS_USER,)),
    (_words(r"roles? must alternate|must alternate|alternate user"), (ALTERNATING,)),
    (_words(r"response_format|json_schema|json_object|json mode|structured outputs?"), (JSON_OBJECT, NO_FORMAT)),
)
# That the schema itself is wrong is for whoever wrote it.
_BAD_SCHEMA: Final = _words(r"invalid schema|invalid json.?schema|schema is (invalid|not valid)")
# 500 and 501: template errors of local servers. The other statuses are about something else than the request.
_STATUSES: Final = frozenset({400, 404, 405, 415, 422, 500, 501})


def other_way(failure: HttpFailure, quirks: frozenset[str]) -> frozenset[str] | None:
    """The quirks with which to ask again, when the refusal is about one of them."""
    if failure.status not in _STATUSES:
        return None
    said = read_error(failure.body).words
    if is_too_long(said) or _BAD_SCHEMA.search(said):
        return None
    for refusal, ways in _REFUSALS:
        way = next((way for way in ways if way not in quirks), None)
        if way is not None and refusal.search(said):
            return quirks | {way}
    return None
