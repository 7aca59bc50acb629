"""`initialize`: who the two sides are."""

from __future__ import annotations

from treadle.protocol.app.base import JsonObject, Params, Wire


class ClientInfo(Wire, frozen=True, kw_only=True):
    name: str
    version: str
    title: str | None = None


class InitializeCapabilities(Wire, frozen=True, kw_only=True):
    """What the client can take; `opt_out_notification_methods` are exact names."""

    experimental_api: bool = False
    explicit_gateway_oauth: bool = False
    extensions: JsonObject | None = None
    mcp_server_openai_form_elicitation: bool = False
    opt_out_notification_methods: tuple[str, ...] | None = None
    request_attestation: bool = False


class InitializeParams(Params, frozen=True, kw_only=True):
    client_info: ClientInfo
    capabilities: InitializeCapabilities | None = None


class InitializeResponse(Wire, frozen=True, kw_only=True):
    user_agent: str
    """`<client name>/<server version> (…)`: clients split it at the first slash."""
    codex_home: str
    platform_family: str
    platform_os: str
