"""A server made with the official `mcp` package that wants a login, with an authorization server of the package beside
it whose user agrees at once: `official_login_server.py 8000`, in an interpreter that has the package."""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
import warnings
from importlib import import_module
from typing import Any

warnings.simplefilter("ignore")
server_module = import_module("mcp.server.mcpserver")
provider = import_module("mcp.server.auth.provider")
settings = import_module("mcp.server.auth.settings")
auth = import_module("mcp.shared.auth")

PORT = int(sys.argv[1])
URL = f"http://127.0.0.1:{PORT}"
SHORT_S = 1  # so that the first token is renewed before it is used


class Users:
    """All in memory; the package checks the rest: PKCE, the client, the redirect address, the scopes."""

    def __init__(self) -> None:
        self.clients: dict[str, Any] = {}
        self.codes: dict[str, Any] = {}
        self.tokens: dict[str, Any] = {}
        self.refreshes: dict[str, Any] = {}

    async def get_client(self, client_id: str) -> Any:
        return self.clients.get(client_id)

    async def register_client(self, client: Any) -> None:
        self.clients[client.client_id] = client

    async def authorize(self, client: Any, params: Any) -> str:
        code = secrets.token_urlsafe(24)
        self.codes[code] = provider.AuthorizationCode(
            code=code,
            client_id=client.client_id,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return str(provider.construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state))

    async def load_authorization_code(self, client: Any, code: str) -> Any:
        return self.codes.get(code)

    async def exchange_authorization_code(self, client: Any, code: Any) -> Any:
        del self.codes[code.code]
        return self._grant(client, code.scopes, code.resource, SHORT_S)

    async def load_refresh_token(self, client: Any, token: str) -> Any:
        return self.refreshes.get(token)

    async def exchange_refresh_token(self, client: Any, token: Any, scopes: list[str]) -> Any:
        del self.refreshes[token.token]
        return self._grant(client, scopes, f"{URL}/mcp", 3600)

    async def load_access_token(self, token: str) -> Any:
        return self.tokens.get(token)

    async def revoke_token(self, token: Any) -> None:
        self.tokens.pop(token.token, None)

    def _grant(self, client: Any, scopes: list[str], resource: str | None, seconds: int) -> Any:
        access, refresh = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        common = {"client_id": client.client_id, "scopes": scopes}
        until = int(time.time()) + seconds
        self.tokens[access] = provider.AccessToken(token=access, expires_at=until, resource=resource, **common)
        self.refreshes[refresh] = provider.RefreshToken(token=refresh, **common)
        return auth.OAuthToken(
            access_token=access, expires_in=seconds, refresh_token=refresh, scope=" ".join(scopes) or None
        )


options = settings.ClientRegistrationOptions(enabled=True, valid_scopes=["notes"], default_scopes=["notes"])
server = server_module.MCPServer(
    "locked",
    auth_server_provider=Users(),
    auth=settings.AuthSettings(
        issuer_url=URL,
        resource_server_url=f"{URL}/mcp",
        client_registration_options=options,
        required_scopes=["notes"],
        validate_token_resource=True,
    ),
)


@server.tool()  # type: ignore[untyped-decorator]
def whisper() -> str:
    return "for those who are logged in"


if __name__ == "__main__":
    asyncio.run(server.run_streamable_http_async(port=PORT))
