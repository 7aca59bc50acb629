"""The models of a provider with all that is known of them: by the user, by the provider, and by the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from treadle.llm.catalogue import CATALOGUE, known_model
from treadle.llm.known_providers import ANTHROPIC, OFFLINE, OPENAI

if TYPE_CHECKING:
    from treadle.config.configuration import Config
    from treadle.llm.offers import Offer

_FAMILIES = {OPENAI: "gpt-", ANTHROPIC: "claude-", OFFLINE: OFFLINE}


def completed(offers: Sequence[Offer], config: Config) -> list[Offer]:
    """With what the provider leaves out, or what the user knows better."""
    return [_completed(offer, config) for offer in offers]


def _completed(offer: Offer, config: Config) -> Offer:
    own, known = config.models.get(offer.id), known_model(offer.id)
    window = (own and own.context_window) or offer.context_window or known.context_window
    limit = (own and own.output_limit) or offer.output_limit or known.output_limit
    price = (own and own.price) or offer.price or known.price
    return replace(offer, context_window=window, output_limit=limit, price=price)


def known_names(provider: str) -> list[str]:
    """The models of the catalogue that a provider has, where one can tell by their names."""
    family = _FAMILIES.get(provider)
    return [name for name in CATALOGUE if family and name.startswith(family) and "oss" not in name]
