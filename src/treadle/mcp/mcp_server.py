"""`McpServer`: one configured MCP server with its life, for one owner (a thread) or shared by several.

It owns when the server is started, restarted and stopped, what tools it has, and the words of its errors. What a call
means and who may make it is for its owner.

    notStarted ──ready()──▶ starting ──▶ connected ──death──▶ failed ──next call──▶ starting …
        ▲                      └──▶ failed, authenticationRequired, cancelled (stopped meanwhile)
        └───────stop()─────────────────────┘

A start belongs to nobody: several may wait for it, and whoever is cancelled meanwhile does not take it from the others.
A server that has died is started again by the next call: at once, then after a moment, and never more than `MAX_STARTS`
times a minute. One that did not start is not tried again before a pause that grows, so that a turn is not held up by it
each time.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct, structs

from treadle.errors import ExecError
from treadle.mcp.mcp_messages import (
    CallToolResult,
    GetPromptResult,
    ListKind,
    McpCallError,
    McpClientInfo,
    McpError,
    McpInitializeResult,
    McpPage,
    McpProgress,
    ReadResourceResult,
    SessionLost,
    ToolInfo,
    read_tool,
)
from treadle.mcp.mcp_session import Allowance, McpHandler, McpSession, McpTransport
from treadle.secrets import is_secret, redact

if TYPE_CHECKING:
    from treadle.config.mcp_settings import McpServerConfig
    from treadle.execution.environment import Environment
    from treadle.mcp.mcp_http import McpHttp
    from treadle.mcp.oauth_tokens import ServerTokens

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

McpState: TypeAlias = Literal[
    "notStarted", "starting", "connected", "authenticationRequired", "failed", "cancelled", "disabled"
]

# All that a server started over its standard input and output gets of our environment.
PASSED_ON: Final = ("HOME", "LOGNAME", "PATH", "SHELL", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ")

MAX_STARTS: Final = 3
STARTS_S: Final = 60.0
# Before the second and the third start of a minute.
PAUSES_S: Final = (0.5, 2.0)
# After a start that failed: ten times what it took, so that it costs a tenth of the time at most.
FAILED_PAUSE: Final = 10.0
MIN_FAILED_PAUSE_S: Final = 1.0
MAX_FAILED_PAUSE_S: Final = 600.0

# Of one list. A server has ten tools, some have two hundred.
MAX_ENTRIES: Final = 4096
MAX_LIST_BYTES: Final = 8 << 20
MAX_PAGES: Final = 256


class McpStatus(Struct, frozen=True, kw_only=True):
    """How the start of a server goes, as clients are notified of it."""

    name: str
    status: Literal["starting", "ready", "failed", "cancelled"]
    error: str | None = None
    failure_reason: Literal["reauthenticationRequired"] | None = None


class McpServer:
    """Call `ready` before the tools are looked at; `close` at the end, or `stop` to have it come back by `ready`. It is
    started in `cwd`, else where its environment works."""

    def __init__(
        self,
        config: McpServerConfig,
        *,
        environment: Callable[[], Awaitable[Environment]],
        environ: Mapping[str, str],
        cwd: str | None,
        handler: McpHandler,
        client: McpClientInfo,
        tokens: ServerTokens | None = None,
        http: McpHttp | None = None,
        on_status: Callable[[McpStatus], None] = lambda _: None,
    ) -> None:
        self.config = config
        self.name: str = config.name
        self.state: McpState = "notStarted" if config.enabled else "disabled"
        self.error: str | None = config.problem
        self.info: McpInitializeResult | None = None
        self.tools: tuple[ToolInfo, ...] = ()
        self.tools_version: int = 0
        self._environment = environment
        self._environ = environ
        self._cwd = cwd
        self._handler = handler
        self._client = client
        self._tokens = tokens
        self._http = http
        self._on_status = on_status
        self._session: McpSession | None = None
        self._start: asyncio.Task[None] | None = None
        self._starts: deque[float] = deque(maxlen=MAX_STARTS)
        self._failure: McpError | None = None
        self._not_before = 0.0
        self._failures = 0
        self._refreshing = asyncio.Lock()
        self._replaced: set[McpSession] = set()  # that are over, or in which requests are still under way
        self._closed = False
        self._log_lines: Allowance | None = None
        self._last_line = ""
        self._secrets = _secrets(config, environ)

    # --- its life ----------------------------------------------------------------------------------------------------

    async def ready(self) -> None:
        """Wait until it is connected and its tools are known, starting it if need be. Raises `McpError`."""
        if self._session is not None and self._session.closed is None and self._start is None:
            return
        if self._closed or self.state == "disabled":
            raise McpError("disabled", self.error or f"the MCP server `{self.name}` is switched off")
        if self._start is None:
            if self._failure is not None and asyncio.get_running_loop().time() < self._not_before:
                raise self._failure
            self._start = asyncio.get_running_loop().create_task(self._start_up())
            self._start.add_done_callback(self._start_ended)
        # The start goes on for the others when one who waits for it is cancelled.
        starting = self._start
        await asyncio.wait([starting])
        if starting.cancelled():
            raise McpError("closed", f"the start of the MCP server `{self.name}` was stopped")
        error = starting.exception()
        if error is not None:
            raise error

    async def stop(self) -> None:
        """End its process, or its session; `ready` brings it back, and its tools stay known meanwhile."""
        starting, session = self._start, self._session
        self._session = None
        if starting is not None:
            starting.cancel()
            await asyncio.wait([starting])
        for each in (*self._replaced, *([] if session is None else [session])):
            await each.close()
        self._replaced.clear()
        if self.state not in ("disabled", "cancelled"):
            self.state = "notStarted"
        self._failure = None
        self._failures = 0
        self._starts.clear()

    async def close(self) -> None:
        """End it for good."""
        self._closed = True
        await self.stop()

    def _start_ended(self, task: asyncio.Task[None]) -> None:
        if self._start is task:
            self._start = None
        if not task.cancelled():
            task.exception()  # whoever waited has got it

    async def _start_up(self) -> None:
        loop = asyncio.get_running_loop()
        for over in [each for each in self._replaced if each.is_idle]:  # such as one whose server has died
            self._replaced.discard(over)
            await over.close()
        await self._pause()
        self.state, self.error = "starting", None
        self._last_line = ""
        self._on_status(McpStatus(name=self.name, status="starting"))
        began = loop.time()
        self._starts.append(began)
        session: McpSession | None = None
        step = "the start"
        try:
            async with asyncio.timeout(self.config.startup_timeout_s):
                session = new = McpSession(
                    await self._transport(),
                    self._handler,
                    self._client,
                    name=self.name,
                    sampling=self.config.sampling,
                    on_closed=lambda reason: self._died(new, reason),
                )
                step = "initialize"
                await session.open()
                step = "tools/list"
                tools = await self._list_tools(session)
        except asyncio.CancelledError:
            if session is not None:
                await session.close()
            self.state = "cancelled"
            self._on_status(McpStatus(name=self.name, status="cancelled"))
            raise
        except Exception as error:
            if session is not None:
                await session.close()
            failure = self._start_error(error, step)
            self._failed(failure, loop.time() - began)
            raise failure from None
        self._session = session
        self.info = session.info
        self._take_tools(tools)
        self.state = "connected"
        self._failure = None
        self._failures = 0
        self._on_status(McpStatus(name=self.name, status="ready"))
        if session.closed is not None:  # in the meantime
            self._died(session, session.closed)

    async def _pause(self) -> None:
        """Wait before another start: a server that dies at each call would be started for each."""
        loop = asyncio.get_running_loop()
        recent = [at for at in self._starts if at > loop.time() - STARTS_S]
        if len(recent) >= MAX_STARTS:
            self._not_before = recent[0] + STARTS_S
            left = self._not_before - loop.time()
            self._failure = McpError(
                "start",
                f"MCP client for `{self.name}` failed to start: it was started {MAX_STARTS} times in a minute and ended"
                f" each time ({self.error or 'no reason is known'}); the next start is possible in {left:.0f} s",
            )
            raise self._failure
        if recent:
            await asyncio.sleep(max(0.0, recent[-1] + PAUSES_S[len(recent) - 1] - loop.time()))

    def _failed(self, error: McpError, took: float) -> None:
        self._failure = error
        self._failures += 1
        pause = max(MIN_FAILED_PAUSE_S * 2**self._failures, FAILED_PAUSE * took)
        self._not_before = asyncio.get_running_loop().time() + min(pause, MAX_FAILED_PAUSE_S)
        needs_login = error.kind == "authentication"
        self.state = "authenticationRequired" if needs_login else "failed"
        self.error = error.message
        again: Literal["reauthenticationRequired"] | None = (
            "reauthenticationRequired" if needs_login and self.info is not None else None
        )
        self._on_status(McpStatus(name=self.name, status="failed", error=error.message, failure_reason=again))

    def _start_error(self, error: Exception, step: str) -> McpError:
        """In the words that clients of codex know."""
        failed = f"MCP client for `{self.name}` failed to start: MCP startup failed:"
        if isinstance(error, TimeoutError):
            limit = f"{self.config.startup_timeout_s:g}"
            if step == "tools/list":
                return McpError("timeout", f"{failed} timed out awaiting tools/list after {limit}s")
            advice = f"Add or adjust `startup_timeout_sec` in your config.toml:\n[mcp_servers.{self.name}]"
            said = f"MCP client for `{self.name}` timed out after {limit} seconds."
            return McpError("timeout", f"{said} {advice}\nstartup_timeout_sec = XX")
        if not isinstance(error, McpError):
            logger.error("an MCP server could not be started", {"server": self.name}, exc_info=error)
            return McpError("start", f"{failed} {type(error).__name__}")
        if error.kind in ("authentication", "scope"):
            return McpError("authentication", error.message)
        said = self._clean(error.message)
        if error.kind == "start":
            return McpError("start", f"{failed} {said}")
        if error.kind == "closed":
            said = f"connection closed: {said}"
            if self._last_line:
                said += f"; the last it wrote is: {self._last_line}"
        during = "handshaking with MCP server failed" if step != "tools/list" else "tools/list failed"
        return McpError(error.kind, f"{failed} {during}: {said}", code=error.code)

    def _died(self, session: McpSession, reason: str) -> None:
        if self._session is not session:
            return
        self._replace(session)  # its process has ended, with all that it had started
        self.state = "failed"
        self.error = self._clean(reason)
        logger.warning("an MCP server ended", {"server": self.name, "reason": self.error})

    async def _transport(self) -> McpTransport:
        config = self.config
        # The one is not loaded for the other: HTTP brings a parser, processes bring the execution layer.
        if config.url is not None:
            from treadle.mcp.mcp_headers import HeaderSource
            from treadle.mcp.mcp_http import HttpTransport

            assert self._http is not None, "the owner of a server with a url has connections for it"
            headers = HeaderSource(
                config, self._environ, cwd=self._cwd or "/", environment=self._environment, tokens=self._tokens
            )
            agent = f"{self._client.name}/{self._client.version}"
            return HttpTransport(self._http, config.url, headers, name=self.name, user_agent=agent)
        from treadle.config.mcp_settings import EnvVar
        from treadle.execution.uris import path_from_uri
        from treadle.mcp.mcp_stdio import StdioTransport
        from treadle.protocol.exec import INHERIT_ALL

        assert config.command is not None
        try:
            environment = await self._environment()
        except ExecError as error:
            raise McpError("start", error.message) from None
        base = path_from_uri(environment.info.cwd or "file:///") if self._cwd is None else self._cwd
        variables = [EnvVar(name=each) if isinstance(each, str) else each for each in config.env_vars]
        named, policy = [each.name for each in variables if each.source == "local"], None
        if config.environment_id == "local":
            named = [*PASSED_ON, *(each.name for each in variables)]
        else:
            theirs = (*PASSED_ON, *(each.name for each in variables if each.source == "remote"))
            policy = structs.replace(INHERIT_ALL, include_only=theirs)
        return StdioTransport(
            environment,
            (config.command, *config.args),
            cwd=base if config.cwd is None else os.path.join(base, config.cwd),
            env={name: self._environ[name] for name in named if name in self._environ} | config.env,
            env_policy=policy,
            name=self.name,
            log_line=self._log_line,
        )

    # --- its tools ---------------------------------------------------------------------------------------------------

    @property
    def tools_changed(self) -> bool:
        """Whether it has said so since its tools were asked for."""
        return self._session is not None and self._session.tools_changed

    async def refresh_tools(self) -> None:
        """Ask for the tools again, if it said that they have changed. Raises `McpError`."""
        async with self._refreshing:
            session = self._session
            if session is not None and session.tools_changed:
                self._take_tools(await self._list_tools(session, timeout=self.config.startup_timeout_s))

    def _take_tools(self, tools: tuple[ToolInfo, ...]) -> None:
        """A new version only where they differ: another list of tools costs a model its cache."""
        if [bytes(tool.raw) for tool in tools] != [bytes(tool.raw) for tool in self.tools]:
            self.tools = tools
            self.tools_version += 1

    async def _list_tools(self, session: McpSession, timeout: float | None = None) -> tuple[ToolInfo, ...]:
        tools: dict[str, ToolInfo] = {}
        listed: list[Raw] = []
        session.tools_changed = False
        try:
            await _all_pages(lambda at: session.request("tools/list", at, McpPage, timeout=timeout), listed)
        except McpError as error:
            if error.kind == "rpc" and not session.info.has("tools"):  # some have tools and do not say so
                return ()
            raise
        for raw in listed:
            try:
                tool = read_tool(raw)
            except (msgspec.DecodeError, RecursionError) as error:
                logger.warning("a tool of an MCP server cannot be used", {"server": self.name, "problem": str(error)})
                continue
            if self.config.allows(tool.name):
                tools.setdefault(tool.name, tool)
        return tuple(tools.values())

    # --- asking it ---------------------------------------------------------------------------------------------------

    async def call_tool(
        self,
        name: str,
        arguments: Any,
        *,
        meta: Mapping[str, Any] | None = None,
        on_progress: Callable[[McpProgress], None] | None = None,
    ) -> CallToolResult:
        """Run a tool by its raw name. Raises `McpCallError`, whose message is for the model."""
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = arguments
        if meta is not None:
            params["_meta"] = meta
        try:
            return await self._ask(
                "tools/call", params, CallToolResult, timeout=self.config.tool_timeout_s, on_progress=on_progress
            )
        except McpError as error:
            said = error.message
            if error.kind == "rpc":
                data = "" if error.data is None else f"({msgspec.json.encode(error.data).decode()})"
                said = f"Mcp error: {error.code}: {said}{data}"
            elif error.kind == "closed" and not self.config.is_http:
                said = f"{said}; the server is started again for the next call"
            text = f"tool call error: tool call failed for `{self.name}/{name}`\n\nCaused by:\n    {self._clean(said)}"
            raise McpCallError(error, text) from None

    async def list_page(self, kind: ListKind, cursor: str | None = None) -> McpPage:
        """A page of what it has of a kind; an empty one where it does not say that it has any."""
        await self.ready()
        if self.info is None or not self.info.has(kind.partition("/")[0]):
            return McpPage()
        return await self._ask(f"{kind}/list", _at(cursor), McpPage)

    async def list_all(self, kind: ListKind) -> list[Raw]:
        """List what the server has of a kind, as far as it can say."""
        found: list[Raw] = []
        try:
            await _all_pages(lambda at: self.list_page(kind, at.get("cursor")), found)
        except McpError as error:
            logger.info("an MCP server cannot list all", {"server": self.name, "of": kind, "reason": error.message})
        return found

    async def read_resource(self, uri: str) -> ReadResourceResult:
        return await self._ask("resources/read", {"uri": uri}, ReadResourceResult)

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        return await self._ask("prompts/get", {"name": name, "arguments": arguments or {}}, GetPromptResult)

    async def _ask(
        self,
        method: str,
        params: Mapping[str, Any],
        result_type: type[T],
        *,
        timeout: float | None = None,
        on_progress: Callable[[McpProgress], None] | None = None,
    ) -> T:
        """Start it if it is not running. What it has refused without a look is asked again, once."""
        timeout = timeout or self.config.tool_timeout_s
        for attempt in (1, 2):
            await self.ready()
            session = self._session
            if session is None:  # it has died since
                continue
            try:
                return await session.request(method, params, result_type, timeout=timeout, on_progress=on_progress)
            except McpError as error:
                if isinstance(error, SessionLost) or error.kind == "authentication":
                    self._replace(session)
                if isinstance(error, SessionLost) and attempt == 1:
                    continue
                if error.kind == "authentication":  # a token that is not good any more
                    self._failed(error, 0.0)
                raise McpError(error.kind, self._clean(error.message), code=error.code, data=error.data) from None
            finally:
                if session in self._replaced and session.is_idle:
                    self._replaced.discard(session)
                    await session.close()
        raise McpError("closed", self.error or "the server ended")

    def _replace(self, session: McpSession) -> None:
        """The next request begins another. Others may still be answered in this one, or be refused as well."""
        self._replaced.add(session)
        if self._session is session:
            self._session = None

    def roots_changed(self) -> None:
        """Notify it, if it runs, that the folders are others in which it may work."""
        if self._session is not None:
            self._session.roots_changed()

    # --- its words ---------------------------------------------------------------------------------------------------

    def _log_line(self, line: str) -> None:
        """A line that it wrote to its standard error."""
        cleaned = self._clean(line)
        if cleaned.strip():
            self._last_line = cleaned[:500]
        if self._log_lines is None:
            self._log_lines = Allowance()
        if self._log_lines.take():
            logger.info("an MCP server wrote", {"server": self.name, "line": cleaned})

    def _clean(self, text: str) -> str:
        return redact(text, self._secrets)


def _secrets(config: McpServerConfig, environ: Mapping[str, str]) -> list[str]:
    """What no log and no error shows of it, longest first."""
    named = [each if isinstance(each, str) else each.name for each in config.env_vars]
    variables = {**{name: environ.get(name, "") for name in named}, **config.env}
    found = {value for name, value in variables.items() if is_secret(name, value)}
    found |= {*config.http_headers.values(), *(environ.get(name, "") for name in config.env_http_headers.values())}
    found.add(environ.get(config.bearer_token_env_var or "", ""))
    return sorted((value for value in found if len(value) >= 8), key=len, reverse=True)


async def _all_pages(ask: Callable[[Mapping[str, str]], Awaitable[McpPage]], found: list[Raw]) -> None:
    """Add what all pages have. Raises `McpError` for a page that cannot be had; what came before it is there then."""
    size = 0
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await ask(_at(cursor))
        size += sum(len(bytes(raw)) for raw in page.entries)
        if len(found) + len(page.entries) > MAX_ENTRIES or size > MAX_LIST_BYTES:
            raise McpError("protocol", f"the list has more than {MAX_ENTRIES} entries or 8 MiB")
        found += page.entries
        if page.next_cursor is None or page.next_cursor == cursor:
            return
        cursor = page.next_cursor
    raise McpError("protocol", f"the list has more than {MAX_PAGES} pages")


def _at(cursor: str | None) -> dict[str, str]:
    return {} if cursor is None else {"cursor": cursor}
