"""The models that a client can choose from (`model/list`), and what the turn loop must know of a model.

The module owns what is shown of them; the facts are in `treadle.llm.catalogue`. A model that is not listed works as
well; it only has to be configured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from treadle.config.configuration import Config
from treadle.errors import TreadleError
from treadle.llm.catalogue import CATALOGUE, Price, known_model
from treadle.llm.known_providers import ANTHROPIC, OFFLINE, OPENAI
from treadle.protocol.app.models import (
    Model,
    ModelListParams,
    ModelListResponse,
    ModelServiceTier,
    ReasoningEffortOption,
)

if TYPE_CHECKING:
    from treadle.llm.provider_models import ModelListing

CONTEXT_WINDOW: Final = 272_000
# Where a thread is compacted whose model nobody knows, at a server of which nobody knows what it runs: few have less.
# Clients are sent the window that the real codex assumes.
CAREFUL_WINDOW: Final = 128_000
"""Tokens, for a model of which nothing else is known."""

_USABLE_PERCENT: Final = 95  # headroom for what the provider adds
_COMPACT_PERCENT: Final = 90  # early enough that the request for the summary still fits

# Whose models are the long ones, also those that are newer than the catalogue.
_VENDORS: Final = (None, OPENAI, ANTHROPIC, OFFLINE)
_FAMILIES: Final = {OPENAI: "gpt-", ANTHROPIC: "claude-", OFFLINE: OFFLINE}

EFFORTS: Final = (
    ReasoningEffortOption(reasoning_effort="none", description="Answers at once, without reasoning first"),
    ReasoningEffortOption(reasoning_effort="minimal", description="Reasons as little as it can"),
    ReasoningEffortOption(reasoning_effort="low", description="A little reasoning, for simple tasks"),
    ReasoningEffortOption(reasoning_effort="medium", description="Enough reasoning for most tasks"),
    ReasoningEffortOption(reasoning_effort="high", description="Much reasoning, for hard tasks"),
    ReasoningEffortOption(reasoning_effort="xhigh", description="As much reasoning as it takes"),
)


class InvalidCursor(TreadleError):
    """The cursor is not one of ours."""


class ModelFacts(Struct, frozen=True, kw_only=True):
    """The facts of a model that the turn loop needs. Sizes are in tokens; `usable_window` is what clients are sent.
    `output_limit` is the limit that the user set; if None, requests leave it out unless their API requires it.
    """

    context_window: int
    usable_window: int
    auto_compact_limit: int
    output_limit: int | None
    price: Price | None
    freeform_patch: bool
    supports_images: bool
    tool_search: bool = False
    window_from: Literal["user", "server", "catalogue", "nobody"] = "catalogue"
    """Who says how long the context is; where nobody does, a window is assumed."""


_PRIORITY: Final = ModelServiceTier(id="priority", name="Fast", description="Answers sooner, at a higher price")


def _model(
    model_id: str,
    name: str,
    description: str,
    *,
    hidden: bool = False,
    images: bool = True,
    tiers: tuple[ModelServiceTier, ...] = (),
) -> Model:
    return Model(
        id=model_id,
        model=model_id,
        display_name=name,
        description=description,
        hidden=hidden,
        is_default=False,
        default_reasoning_effort="medium",
        supported_reasoning_efforts=EFFORTS,
        input_modalities=("text", "image") if images else ("text",),
        service_tiers=tiers,
        supports_personality=True,
    )


CATALOG: Final = (
    _model("gpt-6.1-sol", "GPT-6.1 Sol", "For everyday coding", tiers=(_PRIORITY,)),
    _model("gpt-6-astra", "GPT-6 Astra", "For the hardest tasks", tiers=(_PRIORITY,)),
    _model("gpt-6-luna", "GPT-6 Luna", "Quick and cheap, for easy tasks", tiers=(_PRIORITY,)),
    _model("gpt-5.5", "GPT-5.5", "An older model for coding", tiers=(_PRIORITY,)),
    _model("gpt-5.4", "GPT-5.4", "An older model for coding", hidden=True),
    _model("gpt-5.4-mini", "GPT-5.4 mini", "An older, small model", hidden=True),
    _model("gpt-5.3-codex", "GPT-5.3 Codex", "An older model for coding", hidden=True),
)
OFFLINE_MODEL: Final = _model(
    OFFLINE, "Offline", "Scripted: needs no network and no key, and calls real tools", images=False
)


def models(config: Config, offers: Sequence[ModelListing] = ()) -> tuple[Model, ...]:
    """All models, the hidden ones too; exactly one is the default. `offers` is what the provider lists, if it does."""
    listed = _listed(config, offers)
    if all(model.id != config.model for model in listed):
        listed = [_model(config.model, config.model, f"Configured, from `{config.model_provider}`"), *listed]
    return tuple(
        replace(model, is_default=model.id == config.model, hidden=model.hidden and model.id != config.model)
        for model in listed
    )


def _listed(config: Config, offers: Sequence[ModelListing]) -> list[Model]:
    if config.is_offline:
        return [OFFLINE_MODEL, *CATALOG]
    if not offers:
        if config.model_provider == ANTHROPIC:
            return [_model(name, name, "A model of Anthropic") for name in known_names(ANTHROPIC)]
        return list(CATALOG)
    described = {model.id: model for model in CATALOG}
    ids = {offer.id for offer in offers}
    # OpenAI lists all that it ever had, for speech and pictures too: what we do not know of is there on request.
    is_openai = config.model_provider == OPENAI
    others = []
    for offer in offers:
        if offer.id in described:
            continue
        facts = [f"{offer.context_window:,} tokens of context"] if offer.context_window else []
        if offer.price is not None:
            facts.append(f"${offer.price.input:g} in and ${offer.price.output:g} out per million tokens")
        others.append(_model(offer.id, offer.name, ", ".join(facts), hidden=is_openai))
    return [*(model for model in CATALOG if model.id in ids), *others]


def list_models(config: Config, params: ModelListParams, offers: Sequence[ModelListing] = ()) -> ModelListResponse:
    """One page of models. A cursor is the number of models before it; raises `InvalidCursor`."""
    cursor = "0" if params.cursor is None else params.cursor
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 20):
        raise InvalidCursor(f"invalid cursor: {cursor}")
    start = int(cursor)
    listed = [model for model in models(config, offers) if params.include_hidden or not model.hidden]
    if start > len(listed):
        raise InvalidCursor(f"cursor {start} exceeds total models {len(listed)}")
    # A page of none would never come to an end.
    stop = len(listed) if params.limit is None else min(len(listed), start + max(1, params.limit))
    return ModelListResponse(data=tuple(listed[start:stop]), next_cursor=str(stop) if stop < len(listed) else None)


def model_facts(
    model_id: str, config: Config, provider: str | None = None, listed_window: int | None = None
) -> ModelFacts:
    """The facts of a model, also of one that is not in the catalogue.

    Args:
        model_id: Its name.
        config: The settings.
        provider: Who has it, if that is known.
        listed_window: How long its context is, as that server says.
    """
    known, own = known_model(model_id, config.models), config.models.get(model_id)
    window, said_by = _window(model_id, config, listed_window)
    filled = CAREFUL_WINDOW if said_by == "nobody" and provider not in _VENDORS else window
    bare = model_id.rpartition("/")[2]  # gateways name them `vendor/model`
    return ModelFacts(
        context_window=window,
        window_from=said_by,
        usable_window=window * _USABLE_PERCENT // 100,
        auto_compact_limit=config.model_auto_compact_token_limit or filled * _COMPACT_PERCENT // 100,
        output_limit=None if own is None else own.output_limit,
        price=known.price,
        freeform_patch=bare.startswith(("gpt-5", "gpt-6")),
        supports_images=bare != OFFLINE,
        tool_search=known.tool_search is True,
    )


def _window(
    model_id: str, config: Config, listed: int | None
) -> tuple[int, Literal["user", "server", "catalogue", "nobody"]]:
    """The context window, and who says so. A thread is compacted before it exceeds what the model reads and, where long
    prompts cost more, before it is a long one, unless the user has set the window."""
    own = config.models.get(model_id)
    of_user = config.model_context_window or (None if own is None else own.context_window)
    if of_user is not None:
        return of_user, "user"
    known = known_model(model_id)
    long = known.price.long if known.price is not None else None
    window = known.input_limit or known.context_window
    if listed is not None:  # a server may have been started with less than the model could read
        return min(listed, window or listed), "server"
    if window is None:
        return CONTEXT_WINDOW, "nobody"
    return window if long is None else min(window, long.tokens), "catalogue"


def with_known_facts(offers: Sequence[ModelListing], config: Config) -> list[ModelListing]:
    """Offers completed with what the catalogue knows; the user's own settings take precedence."""
    completed = []
    for offer in offers:
        own, known = config.models.get(offer.id), known_model(offer.id)
        window = (own and own.context_window) or offer.context_window or known.context_window
        limit = (own and own.output_limit) or offer.output_limit or known.output_limit
        price = (own and own.price) or offer.price or known.price
        completed.append(replace(offer, context_window=window, output_limit=limit, price=price))
    return completed


def known_names(provider: str) -> list[str]:
    """The models of the catalogue that belong to a provider, as far as their names show."""
    family = _FAMILIES.get(provider)
    return [name for name in CATALOGUE if family and name.startswith(family) and "oss" not in name]
