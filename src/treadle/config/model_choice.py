"""Which model answers, at which provider, and why: decided in one place, from what was named and which keys exist.

The offline model is used when it is named, or when nothing is named and there is no key: never in place of a model that
was asked for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from treadle.llm.known_providers import (
    ANTHROPIC,
    ANTHROPIC_KEY_VARIABLE,
    KNOWN,
    OFFLINE,
    OPENAI,
    OPENAI_KEY_VARIABLE,
    default_model,
)

NOTHING: Final = f"neither {OPENAI_KEY_VARIABLE} nor {ANTHROPIC_KEY_VARIABLE} is set, and nobody is logged in"
_CLAUDE: Final = "claude-"
# Of those that there may be a key for, the ones that can be asked with nothing else said.
_USABLE: Final = tuple(name for name, known in KNOWN.items() if known.model and known.table.get("env_key"))


class ModelChoice(Struct, frozen=True):
    """`model` is empty if the provider has no default. `because` explains the choice of provider."""

    model: str
    provider: str
    because: str = ""

    def __str__(self) -> str:
        return f"{self.model} ({self.provider}, because {self.because})" if self.because else self.model


class FoundKey(Struct, frozen=True):
    """The provider for which a key was found. It is used if no provider is named."""

    provider: str = OFFLINE
    because: str = NOTHING


def find_key(home: Path, environ: Mapping[str, str]) -> FoundKey:
    """A key in the environment goes before a login: whoever sets it means this run."""
    for provider, variable in ((OPENAI, OPENAI_KEY_VARIABLE), (ANTHROPIC, ANTHROPIC_KEY_VARIABLE)):
        if environ.get(variable, "").strip():
            return FoundKey(provider, f"{variable} is set")
    if os.path.exists(home / "auth.json"):
        from treadle.config.login import Login  # only when there is a login file

        if Login(home).auth_mode() == "apikey":
            return FoundKey(OPENAI, "you are logged in")
    if os.path.exists(home / "keys.json"):
        from treadle.config.stored_keys import StoredKeys  # only when keys are kept

        kept = StoredKeys(home).providers()
        for provider in (name for name in _USABLE if name in kept):
            return FoundKey(provider, f"you are logged in to {provider}")
    return FoundKey()


def choose_model(
    model: str | None, provider: str | None, found: FoundKey, *, named_by: str = "it was named", gateway: bool = False
) -> ModelChoice:
    """What was named, None when nobody did, and what there is a key for.

    A model without a provider is OpenAI's, key or not: without one the request fails and says what is missing. Only a
    model of Claude's name is Anthropic's, unless the requests for OpenAI go to a gateway, which may have it.

    Args:
        model: The model.
        provider: The provider.
        found: What there is a key for.
        named_by: Who named the provider.
        gateway: Whether OpenAI's place is taken by another server.
    """
    if provider == OFFLINE:
        return ModelChoice(OFFLINE, OFFLINE, named_by)
    if provider is not None:
        return ModelChoice(model or default_model(provider) or "", provider, named_by)
    if model is None:
        return ModelChoice(default_model(found.provider) or "", found.provider, found.because)
    if model == OFFLINE:
        return ModelChoice(OFFLINE, OFFLINE, "that model was named")
    if model.startswith(_CLAUDE) and not gateway:
        return ModelChoice(model, ANTHROPIC, "the model is one of Claude's")
    return ModelChoice(model, OPENAI, "a model was named and no provider")
