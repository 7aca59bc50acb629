"""Feature flags and permission profiles that a server offers."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.protocol.app.base import Open, Params, Unsigned32, Wire, Word


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
