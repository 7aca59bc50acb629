"""Built-in providers: for each, what its table in `config.toml` would say, and its default model.

It owns that data. A table of the same name in `config.toml` overrides it; other providers need a table of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from msgspec import Struct

from treadle.llm.provider import ProviderConfig

OFFLINE: Final = "offline"
"""The provider that needs no network and no key, and its only model."""
OPENAI: Final = "openai"
ANTHROPIC: Final = "anthropic"
LOCAL: Final = frozenset(("ollama", "lmstudio", "vllm"))
"""Servers that people start themselves, with as much context as they like."""
OPENAI_KEY_VARIABLE: Final = "OPENAI_API_KEY"
ANTHROPIC_KEY_VARIABLE: Final = "ANTHROPIC_API_KEY"

_LOCAL_MODEL: Final = "openai/gpt-oss-20b"


class KnownProvider(Struct, frozen=True, kw_only=True):
    """A built-in provider. `table` is as in `config.toml`; `missing` is what must be configured before its use, and
    `cheap` a model for what needs little thought."""

    table: Mapping[str, Any]
    model: str | None
    cheap: str | None = None
    missing: str | None = None


def _local(name: str, url: str, model: str) -> KnownProvider:
    """A server on this machine: it wants no key."""
    return KnownProvider(table={"name": name, "base_url": url, "wire_api": "chat"}, model=model)


KNOWN: Final[Mapping[str, KnownProvider]] = {
    OPENAI: KnownProvider(
        table={
            "name": "OpenAI",
            "base_url": "https://api.openai.com/v1",
            "requires_openai_auth": True,
            "supports_standalone_web_search": True,
        },
        model="gpt-6.1-sol",
        cheap="gpt-6-luna",
    ),
    ANTHROPIC: KnownProvider(
        table={
            "name": "Anthropic",
            "base_url": "https://api.anthropic.com/v1",
            "wire_api": "anthropic",
            "env_key": ANTHROPIC_KEY_VARIABLE,
            "env_key_instructions": "Make a key at https://platform.claude.com and set the variable to it.",
            "supports_standalone_web_search": True,
        },
        model="claude-opus-5-5",
        cheap="claude-haiku-5-5",
    ),
    "openrouter": KnownProvider(
        table={
            "name": "OpenRouter",
            "base_url": "https://openrouter.ai/api/v1",
            "wire_api": "chat",
            "env_key": "OPENROUTER_API_KEY",
            "env_key_instructions": "Make a key at https://openrouter.ai/keys and set the variable to it.",
        },
        model="anthropic/claude-sonnet-5.5",
    ),
    "azure": KnownProvider(
        table={
            "name": "Azure",
            "env_key": "AZURE_OPENAI_API_KEY",
            "env_key_instructions": "It is a key of your resource, from the Azure portal.",
        },
        model=None,
        missing='base_url = "https://RESOURCE.openai.azure.com/openai/v1" with the name of your resource (for an older '
        'API: base_url = "https://RESOURCE.openai.azure.com/openai" and query_params = { api-version = "DATE" })',
    ),
    "ollama": _local("Ollama", "http://localhost:11434/v1", "gpt-oss:20b"),
    "lmstudio": _local("LM Studio", "http://localhost:1234/v1", _LOCAL_MODEL),
    "vllm": _local("vLLM", "http://localhost:8000/v1", _LOCAL_MODEL),
}

# A table with credentials of its own replaces all of ours: half of them would ask for a key that nobody has.
_CREDENTIALS: Final = frozenset(
    ["env_key", "env_key_instructions", "experimental_bearer_token", "requires_openai_auth"]
)
KEY_HEADERS: Final = frozenset(["authorization", "api-key", "x-api-key"])


def key_variables() -> tuple[str, ...]:
    """The environment variables that hold keys of these providers."""
    named = (known.table.get("env_key") for known in KNOWN.values())
    return (OPENAI_KEY_VARIABLE, *(name for name in named if name))


@cache
def known_provider(provider_id: str) -> ProviderConfig | None:
    """The provider as it is without a table in `config.toml`; None for one that needs a `base_url` there."""
    table = KNOWN[provider_id].table
    return ProviderConfig(id=provider_id, **table) if "base_url" in table else None


def laid_over(provider_id: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """A table of `config.toml` with what is known of the provider below it."""
    known = KNOWN.get(provider_id)
    if known is None:
        return dict(table)
    below = dict(known.table)
    named = (table.get(key) for key in ("http_headers", "env_http_headers"))
    headers = {name.lower() for one in named if isinstance(one, Mapping) for name in one if isinstance(name, str)}
    if not _CREDENTIALS.isdisjoint(table) or not KEY_HEADERS.isdisjoint(headers):
        below = {key: value for key, value in below.items() if key not in _CREDENTIALS}
    if "base_url" in table:  # another server, of which nobody has said what it can do
        below.pop("supports_standalone_web_search", None)
    return {**below, **table}


def default_model(provider_id: str) -> str | None:
    """The model of a provider that is named without one; None when it has to be named."""
    if provider_id == OFFLINE:
        return OFFLINE
    known = KNOWN.get(provider_id)
    return KNOWN[OPENAI].model if known is None else known.model
