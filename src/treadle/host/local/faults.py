"""From a `ModelError` to a `Fault`: what went wrong at a provider, and what a person can do about it. Pure."""

from __future__ import annotations

from typing import Final

from treadle.host.fault_text import advice, clean, limit_ends
from treadle.host.faults import Fault, FaultKind
from treadle.llm import ErrorKind, ModelError
from treadle.llm.known_providers import OPENAI, OPENAI_KEY_VARIABLE
from treadle.llm.provider import ProviderConfig

_KINDS: Final[dict[ErrorKind, FaultKind]] = {
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


def model_fault(error: ModelError, provider: ProviderConfig | None, *, now: float, given_key: bool = False) -> Fault:
    """What a turn that ended with this error has failed of.

    Args:
        error: The error, without secrets.
        provider: Whose; None for the offline model.
        now: Seconds since 1970, for when a limit ends.
        given_key: Whether the key was given to the runtime, and is not from the environment or a login.
    """
    kind = _KINDS.get(error.kind, "other")
    ends = error.retry_after_s if kind in ("usage_limit", "rate_limited") else None
    resets_at = None if ends is None else now + ends
    sent = error.http_status is not None  # else the error itself says what is missing
    what_to_do = advice(kind, error.message)
    if kind == "auth":
        what_to_do = _key_advice(provider, given_key=given_key) if sent else ""
    return Fault(
        kind=kind,
        message=clean(error.message),
        advice=f"{limit_ends(resets_at)} {what_to_do}".strip() if kind == "usage_limit" else what_to_do,
        retryable=error.retryable or error.kind == "overloaded",
        retry_after_s=error.retry_after_s,
        resets_at=resets_at,
    )


def _key_advice(provider: ProviderConfig | None, *, given_key: bool) -> str:
    if given_key:
        return "Pass another api_key: this one is not accepted."
    if provider is None:
        return ""
    if provider.env_key is not None:
        return f"Set {provider.env_key} to a key that the provider `{provider.id}` accepts."
    if provider.id == OPENAI or provider.requires_openai_auth:
        return f"Set {OPENAI_KEY_VARIABLE} to a key that is accepted, or log in again."
    return f"Give the provider `{provider.id}` a key: env_key in its table in config.toml."
