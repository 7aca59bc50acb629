"""A provider that cannot be asked, for people: what to type, by the kind of the failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from treadle.cli.problem import Problem
from treadle.llm import ErrorKind, ModelError, ProviderConfig
from treadle.llm.provider import shown_url
from treadle.protocol.app.turn_errors import (
    HttpConnectionFailedCodexErrorInfo,
    ResponseTooManyFailedAttemptsCodexErrorInfo,
    TurnError,
)

_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_STATUSES: Final[Mapping[int, ErrorKind]] = {401: "unauthorized", 403: "forbidden", 404: "not_found", 402: "quota"}
_WORDS: Final[Mapping[str, ErrorKind]] = {
    "unauthorized": "unauthorized",
    "usageLimitExceeded": "quota",
    "contextWindowExceeded": "context_too_long",
    "serverOverloaded": "overloaded",
    "internalServerError": "server_failed",
}
_STARTS: Final = {"ollama": "ollama serve", "vllm": "vllm serve MODEL", "lmstudio": "lms server start"}


def model_problem(error: ModelError, provider: ProviderConfig | None, what: str) -> Problem:
    """What went wrong when a provider was asked.

    Args:
        error: The error.
        provider: The provider, if it is known.
        what: What was wanted and did not work.
    """
    return Problem(what, why=error.message, do=remedy(error, provider))


def turn_remedy(error: TurnError, provider: ProviderConfig | None) -> str | None:
    """The same for a turn that has failed. None when it was not the provider's doing."""
    info = error.codex_error_info
    kind: ErrorKind | None = None
    if isinstance(info, HttpConnectionFailedCodexErrorInfo):
        status = info.http_connection_failed.http_status_code
        kind = "absent" if status is None else _STATUSES.get(status, "server_failed")
    elif isinstance(info, ResponseTooManyFailedAttemptsCodexErrorInfo):
        kind = "rate_limited"
    elif isinstance(info, str):
        kind = _WORDS.get(info)
    return None if kind is None else _remedy(kind, provider)


def remedy(error: ModelError, provider: ProviderConfig | None) -> str:
    """What to type."""
    return _remedy(error.kind, provider)


def _remedy(kind: ErrorKind, provider: ProviderConfig | None) -> str:
    name = "PROVIDER" if provider is None else provider.id
    match kind:
        case "unauthorized" | "forbidden":
            return f"treadle login {name}" + _or_variable(provider)
        case "absent" | "unreachable":
            return _reach(provider)
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
    return f"treadle doctor --online shows what {name} says"


def _or_variable(provider: ProviderConfig | None) -> str:
    if provider is None or not (provider.env_key or provider.requires_openai_auth):
        return ""
    return f", or set {provider.env_key or 'OPENAI_API_KEY'}"


def _reach(provider: ProviderConfig | None) -> str:
    if provider is None:
        return "check the network, and base_url in config.toml"
    host = urlsplit(provider.base_url).hostname or ""
    if provider.id in _STARTS and host in _LOCAL:
        return f"start the server ({_STARTS[provider.id]}), or correct model_providers.{provider.id}.base_url"
    if host in _LOCAL:
        return f"start the server at {shown_url(provider.base_url)}, or correct model_providers.{provider.id}.base_url"
    return f"check the network and the proxy (HTTPS_PROXY): curl -I {shown_url(provider.base_url)}"
