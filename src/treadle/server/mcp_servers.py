"""`McpServers`: the connections to the MCP servers of all threads.

A connection belongs to a thread and its sub-agents, as long as they have the same settings for it and work in the same
folder: many servers keep something, a page or a shell, that they go on with. With `share = true` it is one process, or
one session, for all threads with the same settings; it starts in its own `cwd`, else in the home. What a server asks
goes to the thread that has a call under way. Where several have that belong to different people, nobody can tell who is
meant, and the answer is no.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec

from treadle._version import __version__
from treadle.agent.thread.thread_mcp import ThreadServer, connection_of
from treadle.config import ConfigWriteError
from treadle.config.environment_settings import LOCAL
from treadle.errors import METHOD_NOT_FOUND, RpcError
from treadle.mcp.mcp_messages import (
    ElicitParams,
    ElicitResult,
    McpClientInfo,
    McpError,
    Root,
    SamplingParams,
    SamplingResult,
)
from treadle.mcp.mcp_server import McpServer, McpStatus
from treadle.protocol.app.extensions import McpServerOauthLoginParams, McpServerOauthLoginResponse

if TYPE_CHECKING:
    from treadle.config.mcp_settings import McpServerConfig
    from treadle.mcp.mcp_http import McpHttp
    from treadle.mcp.oauth_tokens import ServerTokens, TokenFile
    from treadle.server.app import AppServer

logger: logging.Logger = logging.getLogger(__name__)

# How long a server runs on that was started to be looked at.
INSPECTED_S: Final = 60.0
# Each has a port of its own.
MAX_LOGINS: Final = 8
MAX_LOGIN_S: Final = 3600


class McpServers:
    def __init__(self, server: AppServer) -> None:
        self._server = server
        self._shared: dict[bytes, SharedServer] = {}
        self._http: McpHttp | None = None
        self._logins: set[str] = set()  # that wait for a browser

    def connect(self, config: McpServerConfig, cwd: str | None, user: ThreadServer) -> McpServer:
        shared = self._for_all(config) if config.share else self._find(config, cwd, user.session_id)
        shared.users[user] = None
        return shared.server

    def is_shared(self, server: McpServer) -> bool:
        shared = self._of(server)
        return shared is not None and (shared.session_id is None or len(shared.users) > 1)

    def _for_all(self, config: McpServerConfig) -> SharedServer:
        return self._find(config, self._server.home if config.environment_id == LOCAL else None, None)

    def _find(self, config: McpServerConfig, cwd: str | None, session_id: str | None) -> SharedServer:
        wanted = connection_of(config)
        place = None if session_id is None else (session_id, cwd)
        key = msgspec.json.encode((place, wanted), order="deterministic")
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = SharedServer(key, wanted, session_id)
            tokens: ServerTokens | None = None
            if wanted.url is not None:
                from treadle.mcp.mcp_http import McpHttp  # loaded with the first server that is reached over HTTP
                from treadle.mcp.oauth_tokens import ServerTokens

                self._http = self._http or McpHttp()
                tokens = ServerTokens(self._token_file(wanted), self._http)
            shared.server = McpServer(  # not started yet
                wanted,
                environment=partial(self._server.environment, wanted.environment_id),
                environ=self._server.environ,
                cwd=cwd,
                handler=shared,
                client=McpClientInfo(name="treadle", title="Treadle", version=__version__),
                tokens=tokens,
                http=self._http,
                on_status=shared.status_changed,
            )
        return shared

    def _of(self, server: McpServer) -> SharedServer | None:
        return next((shared for shared in self._shared.values() if shared.server is server), None)

    async def disconnect(self, server: McpServer, user: ThreadServer) -> None:
        if (shared := self._of(server)) is not None:
            shared.users.pop(user, None)
            await self._close_unused(shared)

    async def _close_unused(self, shared: SharedServer) -> None:
        if not shared.users and shared.looked_at is None and self._shared.get(shared.key) is shared:
            del self._shared[shared.key]
            await shared.server.close()

    async def inspect(self, config: McpServerConfig) -> McpServer | None:
        """A server of the settings, outside of any thread, started; None when it is disabled. One that runs is taken,
        so that there is no second copy of it. How its start went is in its `state`."""
        if not config.enabled:
            return None
        wanted = connection_of(config)
        servers = (shared.server for shared in self._shared.values() if shared.config == wanted)
        found = next((server for server in servers if server.state == "connected"), None)
        if found is None:
            shared = self._for_all(config)
            shared.look_at(lambda: self._server.spawn(self._close_unused(shared), f"end of MCP server {config.name}"))
            found = shared.server
        try:
            await found.ready()
        except McpError as error:
            logger.info("an MCP server is not there", {"server": config.name, "reason": error.message})
        return found

    async def approve_always(self, server: str, tool: str) -> str | None:
        from treadle.config.config_access import remember_tool_approval

        try:
            await asyncio.to_thread(remember_tool_approval, self._server.home_path, server, tool)
        except ConfigWriteError as error:
            return str(error)
        self._server.refresh_config()
        return None

    async def close(self) -> None:
        """End those that no thread has ended."""
        shared, self._shared = self._shared.values(), {}
        for each in shared:
            if each.looked_at is not None:
                each.looked_at.cancel()
        await asyncio.gather(*(each.server.close() for each in shared))
        if self._http is not None:
            await self._http.close()

    # --- logins ---

    def _token_file(self, config: McpServerConfig) -> TokenFile:
        from treadle.mcp.oauth_tokens import TokenFile  # likewise

        store = self._server.shown_config.mcp_oauth_credentials_store
        return TokenFile(self._server.home_path, config.name, config.url or "", store)

    def is_logged_in(self, config: McpServerConfig) -> bool:
        return config.is_http and self._token_file(config).read() is not None

    async def log_in(
        self, config: McpServerConfig, params: McpServerOauthLoginParams, done: Callable[[str, str | None], None]
    ) -> McpServerOauthLoginResponse:
        """Begin a login in the browser. `done` gets its id when it has ended, and why it has failed. Raises
        `McpError`."""
        from treadle.mcp.oauth_login import LOGIN_S, OAuthLogin  # loaded with the first login

        if len(self._logins) >= MAX_LOGINS:
            raise McpError("start", f"{MAX_LOGINS} logins wait for a browser already; finish one of them")
        login_id = str(uuid4())
        self._logins.add(login_id)
        login = OAuthLogin(config, self._token_file(config), scopes=params.scopes)
        try:
            url = await login.begin()
        except BaseException:
            self._logins.discard(login_id)
            await login.close()
            raise
        timeout = LOGIN_S if params.timeout_secs is None else float(max(1, min(params.timeout_secs, MAX_LOGIN_S)))

        async def finish() -> None:
            error: str | None = None
            try:
                await login.wait(timeout)
            except McpError as failure:
                error = failure.message
            finally:
                self._logins.discard(login_id)
                await login.close()
            done(login_id, error)

        self._server.spawn(finish(), f"login to MCP server {config.name}")
        return McpServerOauthLoginResponse(authorization_url=url, login_id=login_id)


class SharedServer:
    """The server of a session, or of all when `session_id` is None, as an `McpHandler`: it passes on what the server
    asks and says. One that was only looked at has no users: whatever it asks is declined."""

    server: McpServer

    def __init__(self, key: bytes = b"", config: McpServerConfig | None = None, session_id: str | None = None) -> None:
        self.key: bytes = key
        self.config: McpServerConfig | None = config
        self.session_id: str | None = session_id
        self.users: dict[ThreadServer, None] = {}
        self.looked_at: asyncio.TimerHandle | None = None  # until then it stays

    def look_at(self, then: Callable[[], object]) -> None:
        """Somebody looks at it outside of any thread: so it stays for a while."""

        def over() -> None:
            self.looked_at = None
            then()

        if self.looked_at is not None:
            self.looked_at.cancel()
        self.looked_at = asyncio.get_running_loop().call_later(INSPECTED_S, over)

    def _caller(self) -> ThreadServer | None:
        """Whom the server means. All in a session ask the same people, and work in the same folder."""
        calling = [user for user in self.users if user.has_call]
        if self.session_id is not None:
            return next(iter(calling or self.users), None)
        return calling[0] if len(calling) == 1 else None

    async def elicit(self, params: ElicitParams) -> ElicitResult:
        caller = self._caller()
        return ElicitResult(action="decline") if caller is None else await caller.elicit(params)

    async def sample(self, params: SamplingParams) -> SamplingResult:
        caller = self._caller()
        if caller is None:
            raise RpcError(METHOD_NOT_FOUND, "sampling/createMessage")
        return await caller.sample(params)

    def roots(self) -> list[Root]:
        caller = self._caller()
        return [] if caller is None else caller.roots()

    def status_changed(self, status: McpStatus) -> None:
        for user in tuple(self.users):
            user.status_changed(status)

    def log(self, level: str, logger: str | None, data: object) -> None:
        user = next(iter(self.users), None)
        if user is not None:
            user.log(level, logger, data)
