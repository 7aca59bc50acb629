"""`OAuthLogin`: one login to an MCP server: the address for the browser, and the wait for its return.

The browser comes back to a small HTTP server on the loopback address, which lives as long as the login. Its path and
the `state` are random: no other program, and no page in the browser, can make it take a code that is not for it. Only
a client id from the settings has a plain path, because it is registered with it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

from treadle.mcp.mcp_http import McpHttp
from treadle.mcp.oauth import (
    MAX_SAID,
    AuthServer,
    Found,
    OAuthClient,
    OAuthError,
    ask_for_token,
    authorization_url,
    discover,
    register,
)
from treadle.mcp.oauth_keyring import off_loop
from treadle.mcp.oauth_tokens import OAuthTokens, TokenFile

if TYPE_CHECKING:
    from treadle.config.mcp_settings import McpServerConfig

LOGIN_S: Final = 300.0
_HOST: Final = "127.0.0.1"
_MAX_REQUEST: Final = 16 * 1024
_REQUEST_S: Final = 10.0
_MAX_CALLERS: Final = 16  # at a time: a browser has a few


class OAuthLogin:
    """Call `begin`, open its address, then `wait`; `close` in any case."""

    def __init__(self, config: McpServerConfig, file: TokenFile, *, scopes: Sequence[str] | None = None) -> None:
        self._config = config
        self._url = config.url or ""
        self._file = file
        self._asked_for = scopes
        self._scopes: tuple[str, ...] = ()
        self._state = secrets.token_urlsafe(24)
        self._verifier = secrets.token_urlsafe(48)
        self._path = "/callback" if config.oauth.client_id is not None else f"/callback/{secrets.token_urlsafe(12)}"
        self._http = McpHttp()
        self._listener: asyncio.Server | None = None
        self._code: asyncio.Future[str] | None = None
        self._callers = 0
        self._redirect_uri = ""
        self._client = OAuthClient("")
        self._found = Found(AuthServer(), "")

    async def begin(self) -> str:
        """The address that the user has to open. Raises `McpError`."""
        if not self._url:
            raise OAuthError(f"the MCP server `{self._config.name}` is a program: a login is for servers with a url")
        await off_loop(self._file.check)
        found = await discover(self._http, self._url)
        if self._config.oauth_resource is not None:
            found = Found(found.server, self._config.oauth_resource, found.scopes)
        self._found = found
        self._scopes = self._choose_scopes(found)
        self._code = asyncio.get_running_loop().create_future()
        port = self._config.oauth.callback_port or 0
        try:
            self._listener = await asyncio.start_server(self._receive, _HOST, port, limit=_MAX_REQUEST)
        except OSError as error:
            why = f"port {port}, where the browser comes back, cannot be used ({error.strerror})"
            raise OAuthError(why) from None
        self._redirect_uri = f"http://{_HOST}:{self._listener.sockets[0].getsockname()[1]}{self._path}"
        if self._config.oauth.client_id is not None:
            self._client = OAuthClient(self._config.oauth.client_id)
        else:
            self._client = await register(self._http, found, self._url, self._redirect_uri, self._scopes)
        return authorization_url(
            found,
            self._client,
            redirect_uri=self._redirect_uri,
            state=self._state,
            verifier=self._verifier,
            scopes=self._scopes,
        )

    async def wait(self, timeout: float = LOGIN_S) -> None:
        """Until the browser has come back, and the token is stored. Raises `McpError`."""
        assert self._code is not None, "begin first"
        try:
            async with asyncio.timeout(timeout):
                code = await self._code
        except TimeoutError:
            raise OAuthError(f"nobody has logged in to `{self._config.name}` within {timeout:.0f} s") from None
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": self._verifier,
            "redirect_uri": self._redirect_uri,
            "resource": self._found.resource,
        }
        endpoint = self._found.server.token_endpoint
        granted = await ask_for_token(self._http, endpoint, self._client, form)
        tokens = OAuthTokens(
            server=self._config.name,
            url=self._url,
            token_endpoint=endpoint,
            client=self._client,
            resource=self._found.resource,
            access_token=granted.access_token,
            scope=" ".join(self._scopes) or None,  # where nothing else is said, what was asked for is given
        )
        await off_loop(lambda: self._file.write(tokens.renewed(granted, time.time())))

    def _choose_scopes(self, found: Found) -> tuple[str, ...]:
        """What is asked for here, or in the settings, or by the server. What the login has, and what it has turned out
        to lack, is asked for besides: a login takes the place of the one before."""
        if self._asked_for is not None:
            return tuple(self._asked_for)
        scopes = found.scopes if self._config.scopes is None else self._config.scopes
        before = self._file.read()
        if before is not None and before.wanted is not None:
            scopes = tuple(dict.fromkeys([*scopes, *(before.scope or "").split(), *before.wanted.split()]))
        return scopes

    async def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._code is not None and not self._code.cancel() and not self._code.cancelled():
            self._code.exception()  # nobody may have waited for it
        await self._http.close()

    # --- when the browser comes back ---

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request. Whoever calls is anybody on this machine: nothing ends the login but the right answer."""
        self._callers += 1
        try:
            if self._callers > _MAX_CALLERS:
                return
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, text = self._answer(head.split(b"\r\n", 1)[0].decode("latin-1"))
                page = f"<!doctype html><meta charset=utf-8><title>Treadle</title><p>{escape(text)}</p>".encode()
                headers = (
                    f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(page)}\r\n"
                    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
                )
                writer.write(headers.encode() + page)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            self._callers -= 1
            writer.close()

    def _answer(self, line: str) -> tuple[str, str]:
        method, _, rest = line.partition(" ")
        target = urlsplit(rest.partition(" ")[0])
        if method != "GET" or not secrets.compare_digest(target.path.encode(), self._path.encode()):
            return "404 Not Found", "Nothing is here."
        query = {name: values[0] for name, values in parse_qs(target.query).items()}
        if not secrets.compare_digest(query.get("state", "").encode(), self._state.encode()):
            return "400 Bad Request", "This is not the login that was begun."
        assert self._code is not None
        if self._code.done():
            return "200 OK", "This login has ended already."
        issuer = self._found.server.issuer
        named = query.get("iss")
        if named != issuer and (named or self._found.server.authorization_response_iss_parameter_supported):
            # Another server's code, which must not be sent to this one (RFC 9207).
            self._code.set_exception(OAuthError("the login came back from another authorization server"))
            return "400 Bad Request", "The login came back from another server."
        if "code" in query and "error" not in query:
            self._code.set_result(query["code"])
            return "200 OK", "You are logged in. You can close this window."
        why = ": ".join(query[name] for name in ("error", "error_description") if name in query) or "no code"
        self._code.set_exception(OAuthError(f"the login was refused: {why[:MAX_SAID]}", refused=True))
        return "200 OK", "The login was refused. You can close this window."
