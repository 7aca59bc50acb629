"""The web for a model: the search of its provider where that has one (`hosted_search`), else our own tools `web_search`
and `web_fetch` over the one server that the settings name.

Owns when there is which of them, and what may be asked. `web_search` asks only the server of the settings, which is
what the setting says. `web_fetch` sends a request from this machine to wherever the model says, and the URL may carry
what the model has read; so it goes to hosts that the settings name, or where commands may go too, and else the user is
asked. The requests themselves are made by `treadle.tools.web`.

| the host is | `web_fetch` |
|---|---|
| not among `allowed_domains`, or not allowed by the domains of the permission profile | refuses |
| named by one of them | goes there |
| not named, and commands have network | goes there; under `untrusted` the user is asked |
| not named, and commands have none | asks; under `never` it refuses |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from treadle.agent.tools.tool import Tool, ToolCall
from treadle.tools.specs import ToolInputError, function_spec, number, text

if TYPE_CHECKING:
    from treadle.agent.thread.thread_state import Settings
    from treadle.config import Config
    from treadle.config.file_settings import WebSearchTable

MAX_TEXT: Final = 40_000  # characters of a page that a model gets at a time
WEB: Final = "web"
Reach: TypeAlias = Literal["named", "open", "unnamed", "denied"]


# --- the provider's own search ----------------------------------------------------------------------------------------


def hosted_search(config: Config, provider_id: str) -> Raw | None:
    """The tool that a provider runs itself, as the Responses API has it; None where there is none, or it is not wanted.
    A provider is offered it only if it is known to have it: others refuse the request."""
    provider, mode = config.providers.get(provider_id), config.web_search
    if provider is None or not provider.supports_standalone_web_search or not _is_on(config):
        return None
    from treadle.llm.wire_api import find_wire_api  # loaded anyway by the first request to the provider

    if mode not in find_wire_api(provider.wire_api).searches:
        return None
    spec: dict[str, Any] = {"type": "web_search", "external_web_access": mode != "cached"}
    if mode == "indexed":
        spec["indexed_web_access"] = True
    table = _table(config)
    if table.allowed_domains:
        spec["filters"] = {"allowed_domains": table.allowed_domains}
    if table.location is not None:
        given = {key: value for key, value in msgspec.structs.asdict(table.location).items() if value is not None}
        spec["user_location"] = {"type": "approximate", **given}
    if table.context_size is not None:
        spec["search_context_size"] = table.context_size
    return Raw(msgspec.json.encode(spec))


def _table(config: Config) -> WebSearchTable:
    from treadle.config.file_settings import WebSearchTable

    table = config.tools.get("web_search")
    return table if isinstance(table, WebSearchTable) else WebSearchTable()


def _is_on(config: Config) -> bool:
    switch = config.tools.get("web_search", True)
    return config.web_search != "disabled" and getattr(switch, "enabled", switch) is True


# --- which hosts ------------------------------------------------------------------------------------------------------


def reach(host: str, settings: Settings, table: WebSearchTable) -> Reach:
    """Whether a page of this host may be fetched under the settings of a thread. Pure."""
    # Late: clients load this module for the names of the tools.
    from treadle.execution.sandbox.profile_sandbox import ProfileSandbox
    from treadle.execution.sandbox.sandbox_modes import is_unconfined
    from treadle.protocol.app.settings import ExternalSandboxSandboxPolicy, NetworkAccess
    from treadle.tools.web.search import is_within

    sandbox = settings.in_force
    by_profile = sandbox.allows_host(host) if isinstance(sandbox, ProfileSandbox) else None
    by_table = any(is_within(host, domain) for domain in table.allowed_domains) if table.allowed_domains else None
    if by_profile is False or by_table is False:
        return "denied"
    if by_profile or by_table:
        return "named"
    if isinstance(sandbox, ExternalSandboxSandboxPolicy):
        return "open" if sandbox.network_access == NetworkAccess.enabled else "unnamed"
    return "open" if is_unconfined(sandbox) or getattr(sandbox, "network_access", False) is True else "unnamed"


# --- web_search -------------------------------------------------------------------------------------------------------


class WebSearchArguments(Struct, frozen=True, kw_only=True):
    query: str


class WebSearch(Tool):
    name = "web_search"
    domain = WEB
    only_reads = True
    spec: Raw = function_spec(
        name,
        "Searches the web. Returns titles, URLs and short extracts of pages, which strangers wrote.",
        {"query": text("What to search for, as one would type it into a search engine.")},
        required=("query",),
    )

    def is_configured(self, config: Config) -> bool:
        return _is_on(config) and _table(config).endpoint is not None

    async def run(self, call: ToolCall) -> str:
        # Late: few turns search the web.
        from treadle.agent.tools.web_calls import search

        given = call.arguments(WebSearchArguments)
        if not given.query.strip():
            raise ToolInputError("the query is empty; say what to search for")
        return await search(call, given.query.strip(), _table(_config(call)))


# --- web_fetch --------------------------------------------------------------------------------------------------------


class WebFetchArguments(Struct, frozen=True, kw_only=True):
    url: str
    start: int = 0


class WebFetch(Tool):
    """Exclusive among its own: one page at a time, and one question."""

    name = "web_fetch"
    domain = WEB
    exclusive = True
    spec: Raw = function_spec(
        name,
        "Reads a page of the web as text, with its links. It sends nothing but the URL, and only to public hosts.",
        {
            "url": text("The whole URL, as in https://example.com/page."),
            "start": number("The character to begin with, for what is left of a long page. Default: 0."),
        },
        required=("url",),
    )

    def is_configured(self, config: Config) -> bool:
        return config.web_search == "live" and _is_on(config) and _table(config).endpoint is not None

    async def run(self, call: ToolCall) -> str:
        # Late: few turns read pages.
        from treadle.agent.tools.web_calls import PageCall

        return await PageCall(call, call.arguments(WebFetchArguments), _table(_config(call))).run()


def _config(call: ToolCall) -> Config:
    return call.turn.thread.services.config_for(call.turn.settings)
