"""From upstream errors to a `ModelError`: HTTP statuses, failed streams and broken ones; and how long to wait before a
retry: one rule for requests and for streams.

It is the one table, so that an agent only looks at fields. The texts are safe to show: URLs come without query and
credentials; what a server wrote must be redacted by the caller.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from msgspec import Struct

from treadle.llm.model import MAX_ASKED_S, ErrorKind, HttpFailure, ModelError

# Of what a server wrote: enough to understand it, too little to flood a client.
MAX_TEXT: Final = 8192

_CUT: Final = "stream disconnected before completion: "
_TRY_AGAIN: Final = re.compile(r"try again in\s*(\d{1,6}(?:\.\d{1,6})?)\s*(ms|s(?:econds?)?)\b", re.IGNORECASE)

CONTEXT: Final = "the conversation is longer than the model's context window. Compact the thread, or start a new one."
_USAGE: Final = "the usage limit of this account is reached. Wait until it is reset, or use another account."
_QUOTA: Final = "the quota of this account is used up. Look at its plan and billing."
_OVERLOAD: Final = "the model has no free capacity now. Try again later, or choose another model."
_SERVER: Final = "the model server failed (HTTP 500), perhaps under high demand. Try again later."

# Codes for which it makes no sense to send the same request again, wherever they come from.
_FINAL: Final[dict[str, tuple[ErrorKind, str]]] = {
    "context_length_exceeded": ("context_too_long", CONTEXT),
    "insufficient_quota": ("quota", _QUOTA),
    "usage_limit_reached": ("quota", _USAGE),
    "usage_not_included": ("quota", "the plan of this account does not include this model."),
    "server_is_overloaded": ("overloaded", _OVERLOAD),
    "slow_down": ("overloaded", _OVERLOAD),
}
# The same, with the server's own words.
_FINAL_AS_SAID: Final[dict[str, ErrorKind]] = {"invalid_prompt": "refused", "cyber_policy": "policy"}

# Statuses that say who has to do something.
_KINDS: Final[dict[int, ErrorKind]] = {
    401: "unauthorized",
    402: "quota",
    403: "forbidden",
    404: "not_found",
    413: "context_too_long",
    429: "rate_limited",
    529: "overloaded",
}


class ErrorDetail(Struct):
    """The `error` of an HTTP body, of `response.failed`, or of an `error` event."""

    code: str | int | None = None
    type: str | None = None
    message: str | None = None
    resets_in_seconds: float | None = None
    resets_at: float | None = None

    def known(self) -> tuple[ErrorKind, str] | None:
        for name in (self.code, self.type):
            if isinstance(name, str) and name in _FINAL:
                kind, message = _FINAL[name]
                return kind, f"{message}{self._reset()}" if kind == "quota" else message
        return None

    def _reset(self) -> str:
        if self.resets_at is None:
            return ""
        try:
            return time.strftime(" The limit ends at %Y-%m-%d %H:%M UTC.", time.gmtime(self.resets_at))
        except (ValueError, OverflowError, OSError):
            return ""


class _HttpBody(Struct):
    error: ErrorDetail | str | None = None
    message: str | None = None
    detail: str | None = None


def http_failure(failure: HttpFailure) -> ModelError:
    """A response with a status other than 200."""
    status, body, url, retry_after_s = failure.status, failure.body, failure.url, failure.retry_after_s
    text = body.decode("utf-8", "replace").strip()[:MAX_TEXT]
    detail = _detail(body)
    if detail.resets_in_seconds is not None:
        retry_after_s = detail.resets_in_seconds
    known = detail.known()
    if known is not None:
        kind, message = known
        return ModelError(message, kind=kind, http_status=status, retry_after_s=retry_after_s)
    if status == 400:
        return ModelError(text or "the model server refused the request (HTTP 400)", kind="refused", http_status=status)
    said = (detail.message or text)[:MAX_TEXT]
    wait = told_wait(retry_after_s)
    if status == 429:
        return ModelError(
            f"exceeded retry limit, last status: {_status(status)}{': ' if said else ''}{said}{wait}",
            kind=kind_of(status),
            http_status=status,
            retryable=True,
            retry_after_s=retry_after_s,
        )
    if status == 500:
        return ModelError(
            _SERVER + wait, kind="server_failed", http_status=status, retryable=True, retry_after_s=retry_after_s
        )
    return ModelError(
        f"unexpected status {_status(status)}: {said or 'no text'}{wait}, url: {url}",
        kind=kind_of(status),
        http_status=status,
        retryable=status >= 500,
        retry_after_s=retry_after_s,
    )


def kind_of(status: int) -> ErrorKind:
    """Whose matter a status is."""
    return _KINDS.get(status, "server_failed" if status >= 500 else "refused" if status >= 400 else "other")


def failed(detail: ErrorDetail) -> ModelError:
    """A response that the server itself declared failed."""
    known = detail.known()
    if known is not None:
        kind, message = known
        return ModelError(message, kind=kind)
    said = (detail.message or "the server gave no reason")[:MAX_TEXT]
    if isinstance(detail.code, str) and detail.code in _FINAL_AS_SAID:
        return ModelError(said, kind=_FINAL_AS_SAID[detail.code])
    limited = detail.code in ("rate_limit_exceeded", 429, "429")
    asked = _TRY_AGAIN.search(said) if limited else None
    wait = None if asked is None else float(asked[1]) / (1000 if asked[2].lower() == "ms" else 1)
    other: ErrorKind = "rate_limited" if limited else "server_failed"
    return ModelError(_CUT + said, kind=other, retryable=True, retry_after_s=wait)


def incomplete(reason: str) -> ModelError:
    return ModelError(f"Incomplete response returned, reason: {reason[:MAX_TEXT]}", kind="incomplete")


def cut(why: str = "stream closed before response.completed") -> ModelError:
    """The stream ended, by whatever, before the response did."""
    return ModelError(_CUT + why, kind="cut", retryable=True)


def absent(why: str, url: str) -> ModelError:
    """The error of a request that nobody answers at this address."""
    return ModelError(f"{why}, url: {url}", kind="absent", retryable=True)


def unreachable(why: str, url: str) -> ModelError:
    """No response at all."""
    return ModelError(f"{why}, url: {url}", kind="unreachable", retryable=True)


def untrusted(why: str, url: str) -> ModelError:
    """The server is there, but is not shown to be the one that is meant: that stays so."""
    return ModelError(f"{why}, url: {url}", kind="untrusted")


def redirected(status: int, place: str, url: str) -> ModelError:
    """The error of a redirect, which is not followed: whom the credentials are for is the user's to say."""
    to = f"to {place}" if place else "and does not say where to"
    why = f"the model server redirects {to} (HTTP {status}), which is not followed with credentials"
    return ModelError(f"{why}; correct base_url in config.toml, url: {url}", kind="redirected", http_status=status)


def unreadable(coding: str, url: str) -> ModelError:
    """The error of a response in an unknown coding: it would be the same again."""
    why = f"the answer of the model server is in the content coding `{coding[:40]}`, which is not read here"
    return ModelError(f"{why}; switch that off there, or in the gateway before it, url: {url}", kind="unreadable")


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait, as the headers of a response ask for: in milliseconds, in seconds, or until a date.

    A date is compared with the server's own clock where it tells it, else with `now`.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    asked = headers.get("retry-after", "")
    seconds = _number(asked)
    if seconds is not None:
        return seconds
    until, there = _date(asked), _date(headers.get("date", ""))
    return None if until is None else max(0.0, until - (now if there is None else there))


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\s*[0-9]{1,9}(\.[0-9]{1,9})?\s*", text) else None


def _date(text: str) -> float | None:
    """A date of HTTP as seconds since 1970."""
    if not text:
        return None
    from email.utils import parsedate_to_datetime  # only for servers that send dates

    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError, OSError):
        return None


def told_wait(seconds: float | None) -> str:
    """Only where it is longer than we wait: then it is for a person to do."""
    if seconds is None or seconds <= MAX_ASKED_S:
        return ""
    return f" (the server asks to wait {seconds:.0f} s)"


def _detail(body: bytes) -> ErrorDetail:
    try:
        read = msgspec.json.decode(body, type=_HttpBody)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ErrorDetail()
    if isinstance(read.error, ErrorDetail):
        return read.error
    return ErrorDetail(message=read.error or read.message or read.detail)


def _status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


FIRST_PAUSE_S: Final = 0.2
MAX_PAUSE_S: Final = 30.0
# Many threads fail at once, and should not come back at once.
JITTER: Final = 0.1


def pause(attempt: int, asked_s: float | None, longest_s: float = MAX_ASKED_S) -> float | None:
    """Seconds to wait after failed `attempt` (0 is the first): as the server asked, else twice as long each time.

    None when the server asks for more than `longest_s`. What it asked for is never undercut.
    """
    import random  # only for retries

    if asked_s is not None:
        return asked_s * random.uniform(1.0, 1.0 + JITTER) if asked_s <= longest_s else None
    # The exponent is bounded because 2.0 ** 2000 is an error.
    doubled = min(FIRST_PAUSE_S * 2.0 ** min(attempt, 30), MAX_PAUSE_S)
    return min(doubled * random.uniform(1.0 - JITTER, 1.0 + JITTER), longest_s)


def pause_after(error: ModelError, attempt: int, limit: int, *, answered: bool) -> float | None:
    """Seconds to wait before a response that failed is asked for again; None when it is not worth it.

    Args:
        error: Why it failed.
        attempt: How many attempts there were before this one.
        limit: How often it is asked for again.
        answered: Whether the provider has answered anything before: a server that was not there from the start will
            not be there in a moment either.
    """
    hopeless = not error.retryable or (error.kind == "absent" and not answered)
    return None if hopeless or attempt >= limit else pause(attempt, error.retry_after_s)


def was_retried(error: ModelError) -> bool:
    """Whether the request was sent several times already, silently: then the next attempts send it once each."""
    return error.kind == "unreachable" or (error.http_status or 0) >= 500
