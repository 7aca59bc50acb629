"""The catalogue of models, and what a provider can do."""

from __future__ import annotations

from treadle.protocol.app.base import NoParams, Open, Params, Unsigned32, Wire, Word
from treadle.protocol.app.settings import ReasoningEffort


class InputModality(Word):
    text = "text"
    image = "image"
    audio = "audio"


class MultiAgentVersion(Word):
    disabled = "disabled"
    v1 = "v1"
    v2 = "v2"


class CyberAccessProgram(Word):
    standard = "standard"
    daybreak_blue = "daybreakBlue"
    daybreak_red = "daybreakRed"


class ReasoningEffortOption(Wire, frozen=True, kw_only=True):
    description: str
    reasoning_effort: Open[ReasoningEffort]


class ModelAccessPrograms(Wire, frozen=True, kw_only=True):
    cyber: tuple[Open[CyberAccessProgram], ...]


class ModelAvailabilityNux(Wire, frozen=True, kw_only=True):
    message: str


class ModelServiceTier(Wire, frozen=True, kw_only=True):
    id: str
    description: str
    name: str


class ModelUpgradeInfo(Wire, frozen=True, kw_only=True):
    model: str
    migration_markdown: str | None = None
    model_link: str | None = None
    retirement_at: int | None = None
    upgrade_copy: str | None = None


class Model(Wire, frozen=True, kw_only=True):
    id: str
    default_reasoning_effort: Open[ReasoningEffort]
    description: str
    display_name: str
    hidden: bool
    is_default: bool
    model: str
    supported_reasoning_efforts: tuple[ReasoningEffortOption, ...]
    additional_speed_tiers: tuple[str, ...] = ()
    availability_nux: ModelAvailabilityNux | None = None
    available_access_programs: ModelAccessPrograms | None = None
    default_service_tier: str | None = None
    input_modalities: tuple[Open[InputModality], ...] = ("text", "image")
    model_specialty: str | None = None
    multi_agent_version: Open[MultiAgentVersion] | None = None
    service_tiers: tuple[ModelServiceTier, ...] = ()
    supports_personality: bool = False
    upgrade: str | None = None
    upgrade_info: ModelUpgradeInfo | None = None


class ModelListParams(Params, frozen=True, kw_only=True):
    cursor: str | None = None
    include_hidden: bool | None = None
    limit: Unsigned32 | None = None


class ModelListResponse(Wire, frozen=True, kw_only=True):
    data: tuple[Model, ...]
    next_cursor: str | None = None


ModelProviderCapabilitiesReadParams = NoParams


class ModelProviderCapabilitiesReadResponse(Wire, frozen=True, kw_only=True):
    image_generation: bool
    web_search: bool
