"""Reading and editing the configuration, feature flags, permission profiles, and saving feedback.

The configuration itself stays a plain object: it has the keys of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import UNSET, UnsetType

from treadle.protocol.app.base import (
    Closed,
    JsonObject,
    NoParams,
    Open,
    OrUnknown,
    Params,
    Unsigned32,
    Variant,
    Wire,
    Word,
)


class MergeStrategy(Word):
    replace = "replace"  # type: ignore[assignment]  # hides a method of strings, as the name is given
    upsert = "upsert"


class WriteStatus(Word):
    ok = "ok"
    ok_overridden = "okOverridden"


class PackagedDefaultsConfigLayerSource(Variant, frozen=True, kw_only=True, tag="packagedDefaults"):
    file: str


class MdmConfigLayerSource(Variant, frozen=True, kw_only=True, tag="mdm"):
    domain: str
    key: str


class SystemConfigLayerSource(Variant, frozen=True, kw_only=True, tag="system"):
    file: str


class EnterpriseManagedConfigLayerSource(Variant, frozen=True, kw_only=True, tag="enterpriseManaged"):
    id: str
    name: str


class UserConfigLayerSource(Variant, frozen=True, kw_only=True, tag="user"):
    file: str
    profile: str | None = None


class ProjectConfigLayerSource(Variant, frozen=True, kw_only=True, tag="project"):
    dot_codex_folder: str


class SessionFlagsConfigLayerSource(Variant, frozen=True, kw_only=True, tag="sessionFlags"):
    pass


class LegacyManagedConfigTomlFromFileConfigLayerSource(
    Variant, frozen=True, kw_only=True, tag="legacyManagedConfigTomlFromFile"
):
    file: str


class LegacyManagedConfigTomlFromMdmConfigLayerSource(
    Variant, frozen=True, kw_only=True, tag="legacyManagedConfigTomlFromMdm"
):
    pass


ConfigLayerSource = (
    PackagedDefaultsConfigLayerSource
    | MdmConfigLayerSource
    | SystemConfigLayerSource
    | EnterpriseManagedConfigLayerSource
    | UserConfigLayerSource
    | ProjectConfigLayerSource
    | SessionFlagsConfigLayerSource
    | LegacyManagedConfigTomlFromFileConfigLayerSource
    | LegacyManagedConfigTomlFromMdmConfigLayerSource
)


class ConfigLayerMetadata(Wire, frozen=True, kw_only=True):
    name: OrUnknown[ConfigLayerSource]
    version: str


class ConfigLayer(Wire, frozen=True, kw_only=True):
    _hidden: ClassVar = ("config",)

    config: Any
    name: OrUnknown[ConfigLayerSource]
    version: str
    disabled_reason: str | None = None


class ConfigReadParams(Params, frozen=True, kw_only=True):
    cwd: str | None = None
    include_layers: bool = False


class ConfigReadResponse(Wire, frozen=True, kw_only=True):
    _hidden: ClassVar = ("config",)

    config: JsonObject
    origins: Mapping[str, ConfigLayerMetadata]
    layers: tuple[ConfigLayer, ...] | UnsetType | None = UNSET


class ConfigEdit(Wire, frozen=True, kw_only=True):
    _hidden: ClassVar = ("value",)

    key_path: str
    merge_strategy: Closed[MergeStrategy]
    value: Any


class ConfigValueWriteParams(Params, frozen=True, kw_only=True):
    _hidden: ClassVar = ("value",)

    key_path: str
    merge_strategy: Closed[MergeStrategy]
    value: Any
    expected_version: str | None = None
    file_path: str | None = None


class ConfigBatchWriteParams(Params, frozen=True, kw_only=True):
    edits: tuple[ConfigEdit, ...]
    expected_version: str | None = None
    file_path: str | None = None
    reload_user_config: bool = False


class OverriddenMetadata(Wire, frozen=True, kw_only=True):
    _hidden: ClassVar = ("effective_value",)

    effective_value: Any
    message: str
    overriding_layer: ConfigLayerMetadata


class ConfigWriteResponse(Wire, frozen=True, kw_only=True):
    file_path: str
    status: Open[WriteStatus]
    version: str
    overridden_metadata: OverriddenMetadata | None = None


ConfigValueWriteResponse = ConfigWriteResponse
ConfigBatchWriteResponse = ConfigWriteResponse


ConfigRequirementsReadParams = NoParams


class ConfigRequirementsReadResponse(Wire, frozen=True, kw_only=True):
    _hidden: ClassVar = ("requirements",)

    requirements: JsonObject | None = None
    supports_independent_speed_modes: bool | None = None


# --- features and permission profiles ---


class ExperimentalFeatureStage(Word):
    beta = "beta"
    under_development = "underDevelopment"
    stable = "stable"
    deprecated = "deprecated"
    removed = "removed"


class ExperimentalFeature(Wire, frozen=True, kw_only=True):
    default_enabled: bool
    enabled: bool
    name: str
    stage: Open[ExperimentalFeatureStage]
    announcement: str | None = None
    description: str | None = None
    display_name: str | None = None


class ExperimentalFeatureListParams(Params, frozen=True, kw_only=True):
    thread_id: str | None = None
    cursor: str | None = None
    limit: Unsigned32 | None = None


class ExperimentalFeatureListResponse(Wire, frozen=True, kw_only=True):
    data: tuple[ExperimentalFeature, ...]
    next_cursor: str | None = None


class ExperimentalFeatureEnablementSetParams(Params, frozen=True, kw_only=True):
    enablement: Mapping[str, bool]


class ExperimentalFeatureEnablementSetResponse(Wire, frozen=True, kw_only=True):
    enablement: Mapping[str, bool]


class PermissionProfileSummary(Wire, frozen=True, kw_only=True):
    id: str
    allowed: bool
    description: str | None = None


class PermissionProfileListParams(Params, frozen=True, kw_only=True):
    cursor: str | None = None
    cwd: str | None = None
    limit: Unsigned32 | None = None


class PermissionProfileListResponse(Wire, frozen=True, kw_only=True):
    data: tuple[PermissionProfileSummary, ...]
    next_cursor: str | None = None


# --- feedback ---


class FeedbackSaveParams(Params, frozen=True, kw_only=True):
    """`save_path` is absolute, and nothing is there yet."""

    classification: str
    save_path: str
    extra_log_files: tuple[str, ...] | None = None
    include_logs: bool = False
    reason: str | None = None
    tags: Mapping[str, str] | None = None
    thread_id: str | None = None


class FeedbackSaveResponse(Wire, frozen=True, kw_only=True):
    saved_path: str
    thread_id: str
    prompt_hash: str | None = None
