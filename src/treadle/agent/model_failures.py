"""Failures of a model: the word by which clients of the app-server tell them apart (`codexErrorInfo`), and what a
person can do about each (`advice`), by the kind of the `ModelError`.

A server sends both with a turn that failed, so that every client shows the same. For turns of other servers
`failure_of` finds out as much as the protocol has. The words were recorded from the real server, but for the statuses
402, 413 and 529, which no server of that API gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from msgspec import UnsetType

from treadle.llm import ErrorKind, ModelError, ProviderConfig
from treadle.llm.provider import shown_url
from treadle.protocol.app.turns import (
    CodexErrorInfo,
    CodexErrorWord,
    HttpConnectionFailedCodexErrorInfo,
    HttpFailure,
    ModelFailure,
    ResponseStreamDisconnectedCodexErrorInfo,
    ResponseTooManyFailedAttemptsCodexErrorInfo,
    TurnError,
)

# Whatever the status was.
_WORD_OF: Final[dict[ErrorKind, CodexErrorWord]] = {
    "context_too_long": "contextWindowExceeded",
    "overloaded": "serverOverloaded",
    "policy": "cyberPolicy",
    "quota": "usageLimitExceeded",
}
# Without a status: nothing was answered, or something else than a failure.
_UNANSWERED: Final[frozenset[ErrorKind]] = frozenset({"absent", "unreachable", "untrusted"})


def error_info(error: ModelError) -> CodexErrorInfo:
    """The word for a turn that ends with this error."""
    status = error.http_status
    if error.kind in _WORD_OF:
        return _WORD_OF[error.kind]
    if status == 500:
        return "internalServerError"
    if status == 429:
        return ResponseTooManyFailedAttemptsCodexErrorInfo(
            response_too_many_failed_attempts=HttpFailure(http_status_code=status)
        )
    if error.kind in _UNANSWERED or status not in (None, 200, 400):
        return HttpConnectionFailedCodexErrorInfo(http_connection_failed=HttpFailure(http_status_code=status))
    return "unauthorized" if error.kind == "unauthorized" else "other"


def retry_info(error: ModelError) -> CodexErrorInfo:
    """The word for the notice that the request will be sent again because of this error."""
    return ResponseStreamDisconnectedCodexErrorInfo(
        response_stream_disconnected=HttpFailure(http_status_code=error.http_status)
    )


_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_STATUSES: Final[Mapping[int, ErrorKind]] = {401: "unauthorized", 403: "forbidden", 404: "not_found", 402: "quota"}
_KINDS: Final[Mapping[str, ErrorKind]] = {
    "unauthorized": "unauthorized",
    "usageLimitExceeded": "quota",
    "contextWindowExceeded": "context_too_long",
    "serverOverloaded": "overloaded",
    "internalServerError": "server_failed",
}
_STARTS: Final = {"ollama": "ollama serve", "vllm": "vllm serve MODEL", "lmstudio": "lms server start"}


def model_failure(error: ModelError, provider: ProviderConfig | None) -> ModelFailure:
    """What clients are sent of an error that ends a turn."""
    return ModelFailure(
        kind=error.kind,
        status=error.http_status,
        retry_after_s=error.retry_after_s,
        advice=advice(error.kind, provider),
    )


def failure_of(error: TurnError, provider: ProviderConfig | None = None) -> ModelFailure | None:
    """Why the model gave no answer. None when the turn has failed for another reason."""
    if not isinstance(error.failure, UnsetType):
        return error.failure
    info = error.codex_error_info
    kind: ErrorKind | None = None
    status: int | None = None
    if isinstance(info, HttpConnectionFailedCodexErrorInfo):
        status = info.http_connection_failed.http_status_code
        kind = "absent" if status is None else _STATUSES.get(status, "server_failed")
    elif isinstance(info, ResponseTooManyFailedAttemptsCodexErrorInfo):
        status = info.response_too_many_failed_attempts.http_status_code
        kind = "rate_limited"
    elif isinstance(info, str):
        kind = _KINDS.get(info)
    return None if kind is None else ModelFailure(kind=kind, status=status, advice=advice(kind, provider))


def advice(kind: ErrorKind, provider: ProviderConfig | None) -> str:
    """What to type, or to do."""
    name = "PROVIDER" if provider is None else provider.id
    match kind:
        case "unauthorized" | "forbidden":
            login = f"treadle login {name}"
            if provider is None or not (provider.env_key or provider.requires_openai_auth):
                return login
            return f"{login}, or set {provider.env_key or 'OPENAI_API_KEY'}"
        case "absent" | "unreachable":
            if provider is None:
                return "check the network, and base_url in config.toml"
            url = shown_url(provider.base_url)
            if (urlsplit(provider.base_url).hostname or "") not in _LOCAL:
                return f"check the network and the proxy (HTTPS_PROXY): curl -I {url}"
            server = f"({_STARTS[provider.id]})" if provider.id in _STARTS else f"at {url}"
            return f"start the server {server}, or correct model_providers.{provider.id}.base_url"
        case "untrusted":
            return "set SSL_CERT_FILE to the certificates of your proxy or server"
        case "not_found" | "redirected" | "unreadable":
            return f"treadle models --provider {name}; if that fails too, correct base_url in config.toml"
        case "quota":
            return "look at the plan and the limits of your account, or choose another provider: treadle login status"
        case "rate_limited" | "overloaded" | "server_failed" | "cut":
            return "the same again in a minute"
        case "context_too_long":
            return "a shorter prompt, or a model with a larger context: treadle models"
    if provider is None:  # there is nobody to ask
        return "treadle login status shows which providers can be used"
    return f"treadle doctor --online shows what {name} says"
