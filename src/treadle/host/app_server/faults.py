"""Errors of an app-server as `Fault`s. Pure.

Structure comes first: the `failure` that our server sends with a turn that failed, the `codexErrorInfo` of any server,
the data and code of a JSON-RPC error, the exit code of a process. Texts are looked at last, for the real codex alone,
which has no field for some of it: they change with every version.
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
from treadle.host.faults import (
    RETRYABLE,
    Fault,
    FaultKind,
    advice,
    clean,
    duration,
    limit_ends,
    says_logged_out,
    tail,
)
from treadle.protocol.app.accounts import RateLimitSnapshot
from treadle.protocol.app.turns import ModelFailure, TurnError

HALF_DONE: Final = "What it was doing may be half done: look before it is done again."
INSTALL: Final = "Install codex with `npm i -g @openai/codex`, or leave the program out to use Treadle's own server."

# What our server calls a failure of a model (`ErrorKind`).
_FAILURES: Final[Mapping[str, FaultKind]] = {
    "absent": "network",
    "unreachable": "network",
    "untrusted": "network",
    "redirected": "network",
    "unreadable": "network",
    "cut": "network",
    "overloaded": "overloaded",
    "server_failed": "overloaded",
    "rate_limited": "rate_limited",
    "quota": "usage_limit",
    "unauthorized": "auth",
    "forbidden": "auth",
    "not_found": "model_not_found",
    "refused": "refused",
    "context_too_long": "context_window",
    "policy": "policy",
}
# Of these kinds, what is the same again until somebody changes something.
_LASTING: Final[frozenset[str]] = frozenset({"untrusted", "redirected", "unreadable"})
# What any server says in `codexErrorInfo`, in small letters.
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
_BROKEN_OFF: Final = re.compile(r"^(?:stream disconnected before completion|error sending request)\b", re.IGNORECASE)
REPLACED: Final[frozenset[FaultKind]] = frozenset({"auth", "missing", "startup", "dead", "stuck"})
"""Kinds after which a runtime on an app-server is replaced: a server reads its login when it starts."""


class FaultContext(Struct, frozen=True):
    """What else is known.

    Args:
        secrets: Values that must not be shown.
        limits: The limits that the provider reported last.
        login: How to log in again.
        now: Seconds since 1970, for when a limit ends.
        replaced: Kinds after which the runtime is to be replaced.
    """

    secrets: tuple[str, ...] = ()
    limits: RateLimitSnapshot | None = None
    login: str = ""
    now: float = 0.0
    replaced: frozenset[FaultKind] = REPLACED


NO_CONTEXT: Final = FaultContext()


# --- a turn that failed ----------------------------------------------------------------------------------------------


def turn_fault(error: TurnError | None, context: FaultContext = NO_CONTEXT) -> Fault:
    """Why a turn has failed."""
    if error is None:
        return _fault("other", "The turn failed, and the server does not say why.", context)
    if isinstance(error.failure, ModelFailure):
        return _model_fault(error.message, error.failure, context)
    details = error.additional_details
    message = error.message if not details or details in error.message else f"{error.message} ({details})"
    message, code = _unwrapped(message)
    kind = info_kind(error.codex_error_info) or _CODES.get(code)
    if kind is None:
        kind = "auth" if says_logged_out(message) else "network" if _BROKEN_OFF.search(message) else "other"
    fault = _fault(kind, message, context)
    return _with_reset(fault, context.limits) if kind in ("usage_limit", "rate_limited") else fault


def _model_fault(message: str, failure: ModelFailure, context: FaultContext) -> Fault:
    """A failure that our server describes in fields."""
    message, code = _unwrapped(message)
    kind = _FAILURES.get(failure.kind, "other")
    if kind == "refused":  # the provider may have said of what
        kind = _CODES.get(code, kind)
    fault = _fault(kind, message, context)
    fault = replace(
        fault,
        # Without a status nothing was sent: a key that is missing is named by the message itself.
        advice="" if kind == "auth" and failure.status is None else fault.advice,
        retryable=fault.retryable and failure.kind not in _LASTING,
        retry_after_s=failure.retry_after_s,
    )
    if kind not in ("usage_limit", "rate_limited"):
        return fault
    wait = failure.retry_after_s
    if wait is not None and kind == "rate_limited":
        fault = replace(fault, resets_at=context.now + wait, advice=f"Try again in {duration(wait)}.")
    elif wait is not None:
        resets_at = context.now + wait
        fault = replace(fault, resets_at=resets_at, advice=f"{limit_ends(resets_at)} {fault.advice}".strip())
    return fault if fault.resets_at is not None else _with_reset(fault, context.limits)


def info_kind(info: Any) -> FaultKind | None:
    """What a `codexErrorInfo` means, as a struct or as it stands in the data of a JSON-RPC error; None when it does
    not say."""
    if isinstance(info, str):
        return _WORDS.get(info.replace("_", "").lower())
    for name in (
        "http_connection_failed",
        "response_stream_connection_failed",
        "response_stream_disconnected",
        "response_too_many_failed_attempts",
    ):
        failure = getattr(info, name, None)
        if failure is not None:
            return _status_kind(failure.http_status_code)
    for name, value in info.items() if isinstance(info, dict) else ():
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
            if isinstance(error.__cause__, FileNotFoundError):
                return _fault("missing", str(error), context)
            last = tail(error.stderr_tail or "", context.secrets)
            message = str(error).partition("; its last words:")[0]
            ended: FaultKind = "auth" if says_logged_out("", last) else "startup" if starting else "dead"
            fault = _fault(ended, message, context)
            return replace(fault, exit_code=error.exit_code, stderr_tail=last, replace_runtime=True)
        case ConfigurationError():
            return _fault("startup" if starting else "refused", error.message, context)
        case JsonRpcError():
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
        case RequestTimeout():
            return _fault("stuck", str(error), context)
        case CodexError():
            return _fault("startup" if starting else "refused", str(error), context)
    return _fault("startup" if starting else "other", f"{type(error).__name__}: {error}", context)


def _fault(kind: FaultKind, message: str, context: FaultContext) -> Fault:
    own = {"auth": "" if "environment variable" in message else context.login, "missing": INSTALL, "dead": HALF_DONE}
    return Fault(
        kind=kind,
        message=clean(message, context.secrets),
        advice=own[kind] if kind in own else advice(kind, message),
        replace_runtime=kind in context.replaced,
        retryable=kind in RETRYABLE,
    )
