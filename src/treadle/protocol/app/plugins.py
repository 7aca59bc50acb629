"""Plugins and the settings of other agents: `plugin/list`, `plugin/installed`, `externalAgentConfig/detect`.

What a marketplace or a finding is made of is left as JSON: nothing here acts on it.
"""

from __future__ import annotations

from treadle.protocol.app.base import JsonObject, Params, Unsigned32, Wire


class PluginListParams(Params, frozen=True, kw_only=True):
    cwds: tuple[str, ...] | None = None
    force_refetch: bool = False
    marketplace_kinds: tuple[str, ...] | None = None


class PluginListResponse(Wire, frozen=True, kw_only=True):
    marketplaces: tuple[JsonObject, ...]
    featured_plugin_ids: tuple[str, ...] = ()
    marketplace_load_errors: tuple[JsonObject, ...] = ()


class PluginInstalledParams(Params, frozen=True, kw_only=True):
    cwds: tuple[str, ...] | None = None
    install_suggestion_plugin_names: tuple[str, ...] | None = None


class PluginInstalledResponse(Wire, frozen=True, kw_only=True):
    marketplaces: tuple[JsonObject, ...]
    marketplace_load_errors: tuple[JsonObject, ...] = ()


class ExternalAgentConfigDetectParams(Params, frozen=True, kw_only=True):
    cwds: tuple[str, ...] | None = None
    include_home: bool = False
    max_session_age_days: Unsigned32 | None = None
    max_sessions: Unsigned32 | None = None
    migration_source: str | None = None
    source: str | None = None


class ExternalAgentConfigDetectResponse(Wire, frozen=True, kw_only=True):
    items: tuple[JsonObject, ...]
    connectors: tuple[JsonObject, ...] = ()
