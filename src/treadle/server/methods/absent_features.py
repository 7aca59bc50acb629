"""Methods about what this server does not have: plugins, the vendor's rate limits, sections of threads.

Clients ask them at their start and when they draw a menu. There being nothing is an answer, not an error.
"""

from __future__ import annotations

from treadle.protocol.app.accounts import (
    BedrockCheckGovCloudRequirementsParams,
    BedrockCheckGovCloudRequirementsResponse,
    GetAccountRateLimitsParams,
    GetAccountRateLimitsResponse,
    RateLimitSnapshot,
)
from treadle.protocol.app.plugins import (
    ExternalAgentConfigDetectParams,
    ExternalAgentConfigDetectResponse,
    PluginInstalledParams,
    PluginInstalledResponse,
    PluginListParams,
    PluginListResponse,
)
from treadle.protocol.app.sections import ThreadSectionListParams, ThreadSectionListResponse
from treadle.server.client_base import Call


def read_rate_limits(call: Call[GetAccountRateLimitsParams]) -> GetAccountRateLimitsResponse:
    """A provider says what it limits with its answers, and only for the minute; there is no account to ask."""
    return GetAccountRateLimitsResponse(rate_limits=RateLimitSnapshot())


def check_gov_cloud(call: Call[BedrockCheckGovCloudRequirementsParams]) -> BedrockCheckGovCloudRequirementsResponse:
    return BedrockCheckGovCloudRequirementsResponse(is_gov_cloud=False, should_warn=False)


def list_plugins(call: Call[PluginListParams]) -> PluginListResponse:
    return PluginListResponse(marketplaces=())


def list_installed_plugins(call: Call[PluginInstalledParams]) -> PluginInstalledResponse:
    return PluginInstalledResponse(marketplaces=())


def detect_other_agents(call: Call[ExternalAgentConfigDetectParams]) -> ExternalAgentConfigDetectResponse:
    return ExternalAgentConfigDetectResponse(items=())


def list_sections(call: Call[ThreadSectionListParams]) -> ThreadSectionListResponse:
    return ThreadSectionListResponse(data=())
