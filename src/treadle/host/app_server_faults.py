"""What an app-server says when something goes wrong, as a `Fault`. Pure.

By structure first: the `codexErrorInfo` of a turn, the data and the code of a JSON-RPC error, the exit code of a
process. Words are looked at last, because they change with every version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from treadle.client.errors import (
    CodexError,
    ConfigurationError,
    JsonRpcError,
    RequestTimeout,
    ServerBusyError,
    TransportClosedError,
)
from treadle.client.secrets import redact
from treadle.host.failures import duration
from treadle.host.faults import Fault, FaultKind
from treadle.protocol.app.accounts import RateLimitSnapshot
from treadle.protocol.app.turn_errors import TurnError

LOGIN: Final = "Log in again with `codex login`, or give an API key that is valid; then try again."
AGAIN: Final = "Try again in a moment."
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
_BY_STATUS: Final[Mapping[int, FaultKind]] = {401: "auth", 403: "auth", 429: "rate_limited", 503: "overloaded"}
_ADVICE: Final[Mapping[FaultKind, str]] = {
    "auth": LOGIN,
    "usage_limit": "Wait for the limit to end, or use another account, key or model.",
    "rate_limited": AGAIN,
    "overloaded": AGAIN,
    "network": "Look at the network and at the provider's address; then try again.",
    "context_window": "The thread is full: have it summed up (compact), then try again.",
    "model_not_found": "Choose a model that the provider has: `treadle models` lists them.",
    "policy": "The provider does not answer this. Ask for something else, or in another way.",
    "sandbox": "`treadle doctor` tells what the sandbox needs on this machine.",
    "missing": INSTALL,
    "dead": HALF_DONE,
}
_RETRYABLE: Final = frozenset({"rate_limited", "overloaded", "network"})
_RETIRED: Final = frozenset({"auth", "missing", "startup", "dead", "stuck"})

# Only a login that is over says these; they may stand anywhere.
_SURELY_AUTH: Final = re.compile(
    r"invalid_grant|refresh[ _]token|token[ _]refresh|token has expired|expired_token|token_expired|"
    r"not authenticated|unauthenticated|re-?authenticate|please log ?in|no auth profile|not logged in",
    re.IGNORECASE,
)
# These also occur in the log of a server that is well, about something else.
_AUTH_IF_SAID: Final = re.compile(
    r"\b401\b.*unauthori[sz]ed|\bunauthori[sz]ed\b|\boauth\b|invalid api key", re.IGNORECASE
)
# The real codex calls it `other` when a stream breaks off.
_NETWORK_IF_SAID: Final = re.compile(
    r"^(?:stream disconnected before completion|error sending request)\b", re.IGNORECASE
)
_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# The protocol has no place for it, so our server says it in words.
_ASKED_WAIT: Final = re.compile(r"asks to wait (\d{1,9}(?:\.\d+)?) s\b")
_TAIL_LINES: Final = 20


class Telling(Struct, frozen=True):
    """What is known besides: values that must not be shown, and the limits that the provider has told."""

    secrets: tuple[str, ...] = ()
    limits: RateLimitSnapshot | None = None


NOTHING_MORE: Final = Telling()


# --- a turn that failed ----------------------------------------------------------------------------------------------


def turn_fault(error: TurnError | None, telling: Telling = NOTHING_MORE) -> Fault:
    """Why a turn has failed."""
    if error is None:
        return _fault("other", "The turn failed, and the server does not say why.", telling)
    details = error.additional_details
    message = error.message if not details or details in error.message else f"{error.message} ({details})"
    kind = info_kind(error.codex_error_info) or _kind_of_words(message)
    fault = _fault(kind, message, telling)
    if kind not in ("usage_limit", "rate_limited"):
        return fault
    return _with_reset(_with_wait(fault), telling.limits)


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


def _kind_of_words(text: str) -> FaultKind:
    if _SURELY_AUTH.search(text) or _AUTH_IF_SAID.search(text):
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
    when = datetime.fromtimestamp(window.resets_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return replace(fault, resets_at=float(window.resets_at), advice=f"The limit ends at {when}. {fault.advice}")


# --- a request that failed -------------------------------------------------------------------------------------------


def error_fault(error: Exception, telling: Telling = NOTHING_MORE, *, starting: bool = False) -> Fault:
    """Why a request, or the start of the server, has failed."""
    match error:
        case FileNotFoundError():
            return _fault("missing", str(error), telling)
        case TransportClosedError():
            return _transport_fault(error, telling, starting=starting)
        case ConfigurationError():
            return _fault("startup" if starting else "refused", error.message, telling, retire=starting)
        case JsonRpcError():
            return _rpc_fault(error, telling, starting=starting)
        case RequestTimeout():
            return _fault("stuck", str(error), telling)
        case CodexError():
            return _fault("startup" if starting else "refused", str(error), telling)
    return _fault("startup" if starting else "other", f"{type(error).__name__}: {error}", telling)


def _rpc_fault(error: JsonRpcError, telling: Telling, *, starting: bool) -> Fault:
    data = error.data if isinstance(error.data, dict) else {}
    if data.get("action") == "relogin":
        detail = data.get("detail")
        return _fault("auth", detail if isinstance(detail, str) and detail else error.message, telling)
    kind: FaultKind | None = info_kind(data.get("codexErrorInfo"))
    if kind is None and isinstance(error, ServerBusyError):
        kind = "overloaded"
    if kind is None and _kind_of_words(error.message) == "auth":
        kind = "auth"
    fault = _fault(kind or ("startup" if starting else "refused"), error.message, telling)
    return _with_reset(fault, telling.limits) if kind == "usage_limit" else fault


def _transport_fault(error: TransportClosedError, telling: Telling, *, starting: bool) -> Fault:
    if isinstance(error.__cause__, FileNotFoundError):
        return _fault("missing", str(error), telling)
    tail = _shown_tail(error.stderr_tail or "", telling)
    message = str(error).partition("; its last words:")[0]
    kind: FaultKind = "auth" if _SURELY_AUTH.search(tail) else "startup" if starting else "dead"
    return replace(_fault(kind, message, telling), exit_code=error.exit_code, stderr_tail=tail, retire=True)


def _shown_tail(text: str, telling: Telling) -> str:
    lines = [line.rstrip() for line in _clean(text, telling).splitlines()]
    return "\n".join(line for line in lines[-_TAIL_LINES:] if line)


def _fault(kind: FaultKind, message: str, telling: Telling, *, retire: bool | None = None) -> Fault:
    return Fault(
        kind=kind,
        message=_clean(message, telling),
        advice=_ADVICE.get(kind, ""),
        retire=kind in _RETIRED if retire is None else retire,
        retryable=kind in _RETRYABLE,
    )


def _clean(text: str, telling: Telling) -> str:
    """Without secrets, and without the colours that a log is written in."""
    return redact(_ANSI.sub("", text), telling.secrets)
