"""`account/*`: who is logged in. Keys are kept by `treadle.config`; they are in no answer and no event."""

from __future__ import annotations

from treadle.agent.event import Event
from treadle.agent.ids import now_ms
from treadle.config import Login
from treadle.errors import INVALID_REQUEST, RpcError, TreadleError
from treadle.protocol.app.accounts import (
    AccountLoginCompletedNotification,
    AccountUpdatedNotification,
    ApiKeyLoginAccountParams,
    ApiKeyLoginAccountResponse,
    CancelLoginAccountParams,
    CancelLoginAccountResponse,
    ChatgptAuthTokensLoginAccountParams,
    ChatgptAuthTokensLoginAccountResponse,
    GetAccountParams,
    GetAccountResponse,
    LoginAccountParams,
    LoginAccountResponse,
    LogoutAccountParams,
    LogoutAccountResponse,
)
from treadle.server.app import AppServer
from treadle.server.client_base import Call


def read(call: Call[GetAccountParams]) -> GetAccountResponse:
    server = call.server
    provider = server.shown_config.provider
    needs_login = provider is not None and provider.requires_openai_auth
    # A provider with a key of its own has no use for the login.
    account = None if provider is not None and not needs_login else server.login.account()
    return GetAccountResponse(account=account, requires_openai_auth=needs_login)


def start_login(call: Call[LoginAccountParams]) -> LoginAccountResponse:
    try:
        result = _log_in(call.server.login, call.params)
    except (TreadleError, OSError) as error:
        raise error if isinstance(error, RpcError) else RpcError(INVALID_REQUEST, str(error)) from None
    call.server.account_changed()
    call.afterwards(lambda: _broadcast_login(call.server))
    return result


def _log_in(login: Login, params: LoginAccountParams) -> LoginAccountResponse:
    if isinstance(params, ApiKeyLoginAccountParams):
        login.set_api_key(params.api_key)
        return ApiKeyLoginAccountResponse()
    if isinstance(params, ChatgptAuthTokensLoginAccountParams):
        login.set_chatgpt_tokens(params.access_token, params.chatgpt_account_id, params.chatgpt_plan_type)
        return ChatgptAuthTokensLoginAccountResponse()
    raise RpcError(INVALID_REQUEST, 'this login needs a browser, which is not supported; use type "apiKey"')


def _broadcast_login(server: AppServer) -> None:
    done = AccountLoginCompletedNotification(login_id=None, success=True, error=None)
    server.broadcast(Event("account/login/completed", done, None, now_ms()))
    _broadcast_account(server)


def cancel_login(call: Call[CancelLoginAccountParams]) -> CancelLoginAccountResponse:
    """No login of ours takes time."""
    return CancelLoginAccountResponse(status="notFound")


def logout(call: Call[LogoutAccountParams]) -> LogoutAccountResponse:
    call.server.login.logout()
    call.server.account_changed()
    call.afterwards(lambda: _broadcast_account(call.server))
    return LogoutAccountResponse()


def _broadcast_account(server: AppServer) -> None:
    params = AccountUpdatedNotification(auth_mode=server.login.auth_mode(), plan_type=server.login.plan_type())
    server.broadcast(Event("account/updated", params, None, now_ms()))
