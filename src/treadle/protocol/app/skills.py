"""Skills: what was found where, and which are enabled."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from treadle.protocol.app.base import Empty, Open, Params, Wire, Word


class SkillScope(Word):
    user = "user"
    repo = "repo"
    system = "system"
    admin = "admin"


class SkillToolDependency(Wire, frozen=True, kw_only=True):
    type: str
    value: str
    command: str | None = None
    description: str | None = None
    transport: str | None = None
    url: str | None = None


class SkillDependencies(Wire, frozen=True, kw_only=True):
    tools: tuple[SkillToolDependency, ...]


class SkillInterface(Wire, frozen=True, kw_only=True):
    brand_color: str | None = None
    default_prompt: str | None = None
    display_name: str | None = None
    icon_large: str | None = None
    icon_large_url: str | None = None
    icon_small: str | None = None
    icon_small_url: str | None = None
    short_description: str | None = None


class SkillMetadata(Wire, frozen=True, kw_only=True):
    description: str
    enabled: bool
    name: str
    path: str
    scope: Open[SkillScope]
    dependencies: SkillDependencies | UnsetType | None = UNSET
    interface: SkillInterface | None = None
    plugin_id: str | None = None
    short_description: str | UnsetType | None = UNSET


class SkillErrorInfo(Wire, frozen=True, kw_only=True):
    message: str
    path: str


class SkillsListEntry(Wire, frozen=True, kw_only=True):
    cwd: str
    errors: tuple[SkillErrorInfo, ...]
    skills: tuple[SkillMetadata, ...]


class SkillsListParams(Params, frozen=True, kw_only=True):
    cwds: tuple[str, ...] = ()
    force_reload: bool = False


class SkillsListResponse(Wire, frozen=True, kw_only=True):
    data: tuple[SkillsListEntry, ...]


class SkillsConfigWriteParams(Params, frozen=True, kw_only=True):
    enabled: bool
    name: str | None = None
    path: str | None = None


class SkillsConfigWriteResponse(Wire, frozen=True, kw_only=True):
    effective_enabled: bool


class SkillsExtraRootsSetParams(Params, frozen=True, kw_only=True):
    extra_roots: tuple[str, ...]


SkillsExtraRootsSetResponse = Empty


class SkillsChangedNotification(Wire, frozen=True, kw_only=True):
    pass
