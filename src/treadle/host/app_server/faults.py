"""Errors of an app-server as `Fault`s. Pure.

Structure comes first: the `codexErrorInfo` of a turn, the data and code of a JSON-RPC error, the exit code of a
process. Error texts are looked at last, because they change with every version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from treadle.client.sdk_errors import (
    CodexError,
    ConfigurationError,
    JsonRpcError,
    RequestTimeout,
    ServerBusyError,
    TransportClosedError,
)
from treadle.host.fault_text import RETRYABLE, advice, clean, duration, limit_ends, says_logged_out, tail
from treadle.host.faults import Fault, FaultKind
from treadle.protocol.app.accounts import RateLimitSnapshot
from treadle.protocol.app.turn_errors import TurnError

HALF_DONE: Final = "What it was doing may be half done: look before it is done again."
INSTALL: Final = "Install codex with `npm i -g @openai/codex`, or leave the program out to use Treadle's own server."

_WORDS: Final[Mapping[str, FaultKind]] = {
    "unauthorized": "auth",
    "usagelimitexceeded": "usage_limit",
    "sessionbudgetexceeded": "usage_limit",
    "ratelimitexceeded": "rate_limited",
    "serveroverloaded": "overloaded",
    "internalservererror": "overloaded",
    "flexunavailable": "overloaded",
    "policycapacityunavailable": "overloaded",
    "contextwindowexceeded": "context_window",
    "modelnotfound": "model_not_found",
    "cyberpolicy": "policy",
    "misalignmentpolicyviolation": "policy",
    "sandboxerror": "sandbox",
    "badrequest": "refused",
    "threadrollbackfailed": "refused",
    "toomanydenials": "aborted",
}
# What a provider calls it, where the server passes its answer on as it came.
_CODES: Final[Mapping[str, FaultKind]] = {
    "model_not_found": "model_not_found",
    "context_length_exceeded": "context_window",
    "invalid_api_key": "auth",
    "insufficient_quota": "usage_limit",
}
_BY_STATUS: Final[Mapping[int, FaultKind]] = {
    401: "auth",
    403: "auth",
    404: "model_not_found",
    429: "rate_limited",
    503: "overloaded",
}
# The real codex calls it `other` when a stream breaks off.
_NETWORK_IF_SAID: Final = re.compile(
    r"^(?:stream disconnected before completion|error sending request)\b", re.IGNORECASE
)
# The protocol has no place for it, so our server says it in words.
_ASKED_WAIT: Final = re.compile(r"asks to wait (\d{1,9}(?:\.\d+)?) s\b")
_RETIRED: Final = frozenset({"auth", "missing", "startup", "dead", "stuck"})


class FaultContext(Struct, frozen=True):
    """What else is known: values that must not be shown, the limits that the provider reported, and how to log in
    again.
    """

    secrets: tuple[str, ...] = ()
    limits: RateLimitSnapshot | None = None
    login: str = ""


NO_CONTEXT: Final = FaultContext()


# --- a turn that failed ----------------------------------------------------------------------------------------------


def turn_fault(error: TurnError | None, context: FaultContext = NO_CONTEXT) -> Fault:
    """Why a turn has failed."""
    if error is None:
        return _fault("other", "The turn failed, and the server does not say why.", context)
    details = error.additional_details
    message = error.message if not details or details in error.message else f"{error.message} ({details})"
    message, code = _unwrapped(message)
    kind = info_kind(error.codex_error_info) or _CODES.get(code) or _kind_of_words(message)
    fault = _fault(kind, message, context)
    if kind not in ("usage_limit", "rate_limited"):
        return fault
    return _with_reset(_with_wait(fault), context.limits)


def info_kind(info: Any) -> FaultKind | None:
    """What a `codexErrorInfo` means; None when it does not say."""
    if isinstance(info, str):
        return _WORDS.get(info.replace("_", "").lower())
    for name in ("http_connection_failed", "response_stream_connection_failed", "response_stream_disconnected"):
        failure = getattr(info, name, None)
        if failure is not None:
            return _status_kind(failure.http_status_code)
    failed = getattr(info, "response_too_many_failed_attempts", None)
    if failed is not None:
        return _status_kind(failed.http_status_code)
    return _plain_info(info) if isinstance(info, dict) else None


def _plain_info(info: Mapping[str, Any]) -> FaultKind | None:
    """As it stands in the data of a JSON-RPC error."""
    for name, value in info.items():
        if isinstance(value, dict) and "httpStatusCode" in value:
            return _status_kind(value["httpStatusCode"])
        found = _WORDS.get(name.replace("_", "").lower())
        if found is not None:
            return found
    return None


def _status_kind(status: Any) -> FaultKind:
    if not isinstance(status, int):
        return "network"
    return _BY_STATUS.get(status) or ("overloaded" if status >= 500 else "refused" if status >= 400 else "network")


class _Detail(Struct):
    message: str
    code: str | None = None


class _Answer(Struct):
    error: _Detail


def _unwrapped(message: str) -> tuple[str, str]:
    """What a provider says, and its code, where the server has passed on the whole answer; else the message itself."""
    try:
        found = msgspec.json.decode(message, type=_Answer).error
    except (msgspec.DecodeError, UnicodeEncodeError):
        return message, ""
    return found.message, found.code or ""


def _kind_of_words(text: str) -> FaultKind:
    if says_logged_out(text):
        return "auth"
    return "network" if _NETWORK_IF_SAID.search(text) else "other"


def _with_wait(fault: Fault) -> Fault:
    asked = _ASKED_WAIT.search(fault.message)
    if asked is None:
        return fault
    wait = float(asked[1])
    return replace(fault, retry_after_s=wait, advice=f"Try again in {duration(wait)}.")


def _with_reset(fault: Fault, limits: RateLimitSnapshot | None) -> Fault:
    windows = [] if limits is None else [window for window in (limits.primary, limits.secondary) if window is not None]
    known = [window for window in windows if window.resets_at is not None]
    if not known:
        return fault
    # The one that is used up; of two that are, the one that lasts longer.
    window = max(known, key=lambda it: (it.used_percent >= 100, it.used_percent, it.resets_at))
    assert window.resets_at is not None
    resets_at = float(window.resets_at)
    return replace(fault, resets_at=resets_at, advice=f"{limit_ends(resets_at)} {fault.advice}".strip())


# --- a request that failed -------------------------------------------------------------------------------------------


def error_fault(error: Exception, context: FaultContext = NO_CONTEXT, *, starting: bool = False) -> Fault:
    """Why a request, or the start of the server, has failed."""
    match error:
        case FileNotFoundError():
            return _fault("missing", str(error), context)
        case TransportClosedError():
            return _transport_fault(error, context, starting=starting)
        case ConfigurationError():
            return _fault("startup" if starting else "refused", error.message, context, retire=starting)
        case JsonRpcError():
            return _rpc_fault(error, context, starting=starting)
        case RequestTimeout():
            return _fault("stuck", str(error), context)
        case CodexError():
            return _fault("startup" if starting else "refused", str(error), context)
    return _fault("startup" if starting else "other", f"{type(error).__name__}: {error}", context)


def _rpc_fault(error: JsonRpcError, context: FaultContext, *, starting: bool) -> Fault:
    data = error.data if isinstance(error.data, dict) else {}
    if data.get("action") == "relogin":
        detail = data.get("detail")
        return _fault("auth", detail if isinstance(detail, str) and detail else error.message, context)
    kind: FaultKind | None = info_kind(data.get("codexErrorInfo"))
    if kind is None and isinstance(error, ServerBusyError):
        kind = "overloaded"
    if kind is None and says_logged_out(error.message):
        kind = "auth"
    fault = _fault(kind or ("startup" if starting else "refused"), error.message, context)
    return _with_reset(fault, context.limits) if kind == "usage_limit" else fault


def _transport_fault(error: TransportClosedError, context: FaultContext, *, starting: bool) -> Fault:
    if isinstance(error.__cause__, FileNotFoundError):
        return _fault("missing", str(error), context)
    last = tail(error.stderr_tail or "", context.secrets)
    message = str(error).partition("; its last words:")[0]
    kind: FaultKind = "auth" if says_logged_out("", last) else "startup" if starting else "dead"
    return replace(_fault(kind, message, context), exit_code=error.exit_code, stderr_tail=last, retire=True)


def _fault(kind: FaultKind, message: str, context: FaultContext, *, retire: bool | None = None) -> Fault:
    # A key that is missing is named by the message itself.
    own = {"auth": "" if "environment variable" in message else context.login, "missing": INSTALL, "dead": HALF_DONE}
    return Fault(
        kind=kind,
        message=clean(message, context.secrets),
        advice=own[kind] if kind in own else advice(kind, message),
        retire=kind in _RETIRED if retire is None else retire,
        retryable=kind in RETRYABLE,
    )
