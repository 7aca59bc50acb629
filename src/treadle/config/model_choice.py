"""Which model answers, and at which provider: decided in one place, from what was named.

Owns the rule. The offline model answers when it is named, or when nothing is: never in place of a model that somebody
has asked for.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

OFFLINE: Final = "offline"
"""The provider that needs no network and no key, and its only model."""
OPENAI: Final = "openai"
DEFAULT_MODEL: Final = "gpt-6.1-sol"
"""For a provider without a `model` beside it."""


class ModelChoice(Struct, frozen=True):
    model: str
    provider: str


def choose_model(model: str | None, provider: str | None, *, has_openai_key: bool) -> ModelChoice:
    """`model` and `provider` are what was named, None when nobody did.

    A model without a provider is OpenAI's, key or not: without one the request fails and says what is missing.
    """
    if provider is None:
        if model == OFFLINE or (model is None and not has_openai_key):
            return ModelChoice(OFFLINE, OFFLINE)
        provider = OPENAI
    if provider == OFFLINE:
        return ModelChoice(OFFLINE, OFFLINE)
    return ModelChoice(model or DEFAULT_MODEL, provider)
