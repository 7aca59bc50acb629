"""`account/*`: who is logged in; `model/list` and what a provider can do; and the methods about what this server does
not have: plugins, the vendor's rate limits, sections of threads.

Keys are stored by `treadle.config`; no answer and no event has one. Clients ask for what is not there at their start
and when they draw a menu: an empty list is an answer, not an error.
"""

from __future__ import annotations

from treadle.agent.event import Event, now_ms
from treadle.config import InvalidCursor
from treadle.config import list_models as catalog
from treadle.errors import INVALID_REQUEST, RpcError, TreadleError
from treadle.protocol.app.accounts import (
    AccountLoginCompletedNotification,
    AccountUpdatedNotification,
    ApiKeyLoginAccountParams,
    ApiKeyLoginAccountResponse,
    BedrockCheckGovCloudRequirementsParams,
    BedrockCheckGovCloudRequirementsResponse,
    CancelLoginAccountParams,
    CancelLoginAccountResponse,
    ChatgptAuthTokensLoginAccountParams,
    ChatgptAuthTokensLoginAccountResponse,
    GetAccountParams,
    GetAccountRateLimitsParams,
    GetAccountRateLimitsResponse,
    GetAccountResponse,
    LoginAccountParams,
    LoginAccountResponse,
    LogoutAccountParams,
    LogoutAccountResponse,
    RateLimitSnapshot,
)
from treadle.protocol.app.extensions import (
    ExternalAgentConfigDetectParams,
    ExternalAgentConfigDetectResponse,
    PluginInstalledParams,
    PluginInstalledResponse,
    PluginListParams,
    PluginListResponse,
)
from treadle.protocol.app.models import (
    ModelListParams,
    ModelListResponse,
    ModelProviderCapabilitiesReadParams,
    ModelProviderCapabilitiesReadResponse,
)
from treadle.protocol.app.settings import (
    CollaborationModeListParams,
    CollaborationModeListResponse,
    CollaborationModeMask,
)
from treadle.protocol.app.thread_methods import ThreadSectionListParams, ThreadSectionListResponse
from treadle.server.app import AppServer
from treadle.server.clients import ServerCall

# --- the login --------------------------------------------------------------------------------------------------------


def read_account(call: ServerCall[GetAccountParams]) -> GetAccountResponse:
    server = call.server
    provider = server.shown_config.provider
    needs_login = provider is not None and provider.requires_openai_auth
    # A provider with a key of its own has no use for the login.
    account = None if provider is not None and not needs_login else server.login.account()
    return GetAccountResponse(account=account, requires_openai_auth=needs_login)


def start_login(call: ServerCall[LoginAccountParams]) -> LoginAccountResponse:
    params, login = call.params, call.server.login
    result: LoginAccountResponse
    try:
        if isinstance(params, ApiKeyLoginAccountParams):
            login.set_api_key(params.api_key)
            result = ApiKeyLoginAccountResponse()
        elif isinstance(params, ChatgptAuthTokensLoginAccountParams):
            login.set_chatgpt_tokens(params.access_token, params.chatgpt_account_id, params.chatgpt_plan_type)
            result = ChatgptAuthTokensLoginAccountResponse()
        else:
            raise RpcError(INVALID_REQUEST, 'this login needs a browser, which is not supported; use type "apiKey"')
    except (TreadleError, OSError) as error:
        raise error if isinstance(error, RpcError) else RpcError(INVALID_REQUEST, str(error)) from None
    call.server.refresh_config()

    def publish() -> None:
        done = AccountLoginCompletedNotification(login_id=None, success=True, error=None)
        call.server.broadcast(Event("account/login/completed", done, None, now_ms()))
        _broadcast_account(call.server)

    call.afterwards(publish)
    return result


def cancel_login(call: ServerCall[CancelLoginAccountParams]) -> CancelLoginAccountResponse:
    """No login of ours takes time."""
    return CancelLoginAccountResponse(status="notFound")


def logout(call: ServerCall[LogoutAccountParams]) -> LogoutAccountResponse:
    call.server.login.logout()
    call.server.refresh_config()
    call.afterwards(lambda: _broadcast_account(call.server))
    return LogoutAccountResponse()


def _broadcast_account(server: AppServer) -> None:
    params = AccountUpdatedNotification(auth_mode=server.login.auth_mode(), plan_type=server.login.plan_type())
    server.broadcast(Event("account/updated", params, None, now_ms()))


# --- models -----------------------------------------------------------------------------------------------------------


async def list_models(call: ServerCall[ModelListParams]) -> ModelListResponse:
    server = call.server
    config = server.shown_config
    provider = config.provider
    offers = () if provider is None else await server.offers.of(config, provider, server.key_source(provider))
    try:
        return catalog(config, call.params, offers)
    except InvalidCursor as error:
        raise RpcError(INVALID_REQUEST, str(error)) from None


def read_capabilities(call: ServerCall[ModelProviderCapabilitiesReadParams]) -> ModelProviderCapabilitiesReadResponse:
    from treadle.agent.tools.web_tools import hosted_search  # few clients ask

    config = call.server.shown_config
    searches = hosted_search(config, config.model_provider) is not None
    return ModelProviderCapabilitiesReadResponse(image_generation=False, web_search=searches)


def list_collaboration_modes(call: ServerCall[CollaborationModeListParams]) -> CollaborationModeListResponse:
    plan = CollaborationModeMask(name="Plan", mode="plan", reasoning_effort="medium")
    return CollaborationModeListResponse(data=(plan, CollaborationModeMask(name="Default", mode="default")))


# --- what this server does not have -----------------------------------------------------------------------------------


def read_rate_limits(call: ServerCall[GetAccountRateLimitsParams]) -> GetAccountRateLimitsResponse:
    """A provider says what it limits with its answers, and only for the minute; there is no account to ask."""
    return GetAccountRateLimitsResponse(rate_limits=RateLimitSnapshot())


def check_gov_cloud(
    call: ServerCall[BedrockCheckGovCloudRequirementsParams],
) -> BedrockCheckGovCloudRequirementsResponse:
    return BedrockCheckGovCloudRequirementsResponse(is_gov_cloud=False, should_warn=False)


def list_plugins(call: ServerCall[PluginListParams]) -> PluginListResponse:
    return PluginListResponse(marketplaces=())


def list_installed_plugins(call: ServerCall[PluginInstalledParams]) -> PluginInstalledResponse:
    return PluginInstalledResponse(marketplaces=())


def detect_other_agents(call: ServerCall[ExternalAgentConfigDetectParams]) -> ExternalAgentConfigDetectResponse:
    return ExternalAgentConfigDetectResponse(items=())


def list_sections(call: ServerCall[ThreadSectionListParams]) -> ThreadSectionListResponse:
    return ThreadSectionListResponse(data=())
