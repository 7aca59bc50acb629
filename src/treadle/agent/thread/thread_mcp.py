"""`ThreadMcp`: the MCP servers of a thread. It owns when each is started and stopped, what clients hear of that, and
what a server may ask while a call is under way.

A server is started for the first turn of a thread, or when somebody asks for its status, and never before. The turn
waits for it, as long as the settings allow; the next turn does not wait for one that has failed, but tries it again. A
thread that rests stops its servers, and they come back with the next turn. What a server asks the user belongs to its
calls under way: with the last of them the question is taken back.

What a connection is, and how it is restarted when it dies, is `treadle.mcp`; that a thread and its sub-agents have one
together, and which threads share theirs, is the business of `McpServices`.
"""

from __future__ import annotations

import asyncio
import logging
import os.path
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, structs

from treadle.agent.event import DeltaStream
from treadle.agent.thread.thread_state import LOCAL
from treadle.agent.tools.approval import answer_to
from treadle.errors import INTERNAL_ERROR, METHOD_NOT_FOUND, RpcError
from treadle.mcp.mcp_messages import (
    ElicitParams,
    ElicitResult,
    McpError,
    Root,
    SamplingParams,
    SamplingResult,
    ToolInfo,
)
from treadle.mcp.mcp_server import McpServer, McpStatus
from treadle.mcp.results import ResultFiles
from treadle.protocol.app.approvals import McpServerElicitationRequestParams, McpServerElicitationRequestResponse
from treadle.protocol.app.base import decode
from treadle.protocol.app.extensions import McpServerStatusUpdatedNotification
from treadle.protocol.app.settings import GranularAskForApproval

if TYPE_CHECKING:
    from treadle.agent.thread.thread import Thread
    from treadle.agent.thread.thread_state import Settings, Workplace
    from treadle.agent.tools.mcp_tools import McpToolset
    from treadle.agent.turn.turn import Turn
    from treadle.config.mcp_settings import McpServerConfig

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")

# Servers may keep something that is slow to get again (a browser, a login), so a pause in the work does not stop them.
REST_S: Final = 15 * 60.0
MAX_LOGGED: Final = 1000  # of what a server wants logged
ELICITATION: Final = "mcpServer/elicitation/request"
_NO_THREAD: Final = "error creating thread: Fatal error: Failed to initialize session"
# What of a server's settings only says what its tools may do: a change of it restarts nothing.
_NOT_OF_CONNECTION: Final[Mapping[str, Any]] = {"required": False, "default_tools_approval_mode": "auto", "tools": {}}
_STARTUP_STATES: Final[Mapping[str, Literal["starting", "ready", "failed", "cancelled"]]] = {
    "starting": "starting",
    "connected": "ready",
    "failed": "failed",
    "authenticationRequired": "failed",
    "cancelled": "cancelled",
}


def may_elicit(settings: Settings) -> bool:
    """Whether the approval policy lets a server, or a call of its tools, ask the user."""
    policy = settings.approval_policy
    return policy.granular.mcp_elicitations if isinstance(policy, GranularAskForApproval) else policy != "never"


def connection_of(config: McpServerConfig) -> McpServerConfig:
    """What of the settings of a server is about its connection: two that are equal in this can use the same one."""
    return structs.replace(config, **_NOT_OF_CONNECTION)


class ThreadMcp:
    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self._servers: dict[str, ThreadServer] = {}  # in the order of the settings
        self._configs: Mapping[str, McpServerConfig] | None = None  # what they were made of
        self._toolset: McpToolset | None = None
        self._rest: asyncio.TimerHandle | None = None
        self._closed = False
        self.found: dict[tuple[str, str], None] = {}  # tools that the model has searched for
        self.files: ResultFiles = ResultFiles()

    # --- the servers ---

    @property
    def servers(self) -> Mapping[str, ThreadServer]:
        """Those of the settings as they are now, also disabled ones; started or not."""
        configs = self._thread.mcp_configs
        if configs is not self._configs and not self._closed:
            before, self._servers, self._configs = self._servers, {}, configs
            for name, config in configs.items():
                server = before.get(name)
                if server is not None and connection_of(config) == connection_of(server.config):
                    server.config = config
                    self._servers[name] = before.pop(name)
                else:
                    self._servers[name] = ThreadServer(self._thread, config)
            for server in before.values():
                self._thread.services.spawn(server.close(), f"end of MCP server {server.config.name}")
        return self._servers

    async def prepare(self) -> None:
        """Before the first request of a turn: start what is not started yet, and wait for it."""
        self.stay()
        waiting = []
        for server in self.servers.values():
            match server.state:
                case "notStarted" | "starting":
                    waiting.append(server.start())
                case "disabled":
                    server.report_problem()
                case "failed" | "authenticationRequired" | "cancelled":  # nobody waits for it a second time
                    self._thread.services.spawn(server.start(), f"start of MCP server {server.config.name}")
        if waiting:
            await asyncio.gather(*waiting)

    async def refresh(self) -> None:
        """Between two requests of a turn: ask the servers for their tools that say that these have changed."""
        changed = [server for server in self.servers.values() if server.has_changed]
        if changed:
            await asyncio.gather(*(server.refresh() for server in changed))

    async def start(self, names: Iterable[str] | None = None) -> None:
        """Start servers now, all by default, also those that have failed, and wait for them."""
        self.stay()
        wanted = self.servers.values() if names is None else [self.servers[name] for name in names]
        starting = (server.restart() for server in wanted if server.state not in ("disabled", "connected"))
        try:
            await asyncio.gather(*starting)
        finally:  # whoever asked for it may be gone
            self.rest()

    async def start_required(self) -> None:
        """Start the servers without which the thread is none; raises `RpcError` when one cannot be had."""
        required = [name for name, server in self.servers.items() if server.config.required]
        if not required:
            return
        await self.start(required)
        failed = [self.servers[name] for name in required if self.servers[name].state != "connected"]
        if failed:
            from treadle.agent.thread.mcp_requests import startup_error  # which needs this module

            said = ((server.config.name, startup_error(server.problem or server.state)) for server in failed)
            problems = "; ".join(f"{name}: {problem}" for name, problem in said)
            raise RpcError(INTERNAL_ERROR, f"{_NO_THREAD}: required MCP servers failed to initialize: {problems}")

    async def logged_in(self, name: str, url: str | None, *, asked: bool) -> None:
        """Somebody has logged in to a server: start it again if it waits for that, or if it was `asked` for."""
        server = self.servers.get(name)
        if server is None or server.config.url != url or server.state in ("disabled", "connected"):
            return
        if asked or server.state == "authenticationRequired":
            await server.stop()
            await self.start([name])

    async def reload(self) -> None:
        """Bring what runs to the settings as they are now. In a thread that uses none nothing is started."""
        in_use = any(server.state not in ("notStarted", "disabled") for server in self._servers.values())
        for server in self.servers.values():
            if server.state == "connected":  # it stays as it is, and clients wait to hear that
                server.publish_state()
        if in_use:
            await self.start()

    def roots_changed(self) -> None:
        """The thread works in other folders now."""
        for server in self._servers.values():
            server.roots_changed()

    def publish_states(self) -> None:
        """The thread has become known: publish how the servers are that were started before."""
        for server in self._servers.values():
            if server.state in ("connected", "failed", "authenticationRequired"):
                server.status_changed(McpStatus(name=server.config.name, status="starting"))
            server.publish_state()

    # --- tools ---

    def toolset(self) -> McpToolset:
        """What the model can call now."""
        from treadle.agent.tools.mcp_tools import McpToolset  # which needs this module

        made = self._toolset
        if made is None or not made.is_current(self):
            made = self._toolset = McpToolset(self)
        return made

    async def specs(self) -> tuple[Raw, ...]:
        """The specifications that the model is sent now."""
        settings, facts = self._thread.settings, self._thread.model_facts
        provider = self._thread.services.config_for(settings).providers.get(settings.model_provider)
        knows_it = provider is not None and provider.wire_api == "responses" and provider.namespaces
        return await self.toolset().specs(facts.usable_window, native=facts.tool_search and knows_it)

    @property
    def version(self) -> tuple[object, ...]:
        """Changes with whatever the model can call."""
        return tuple((server.config, server.tools_version) for server in self.servers.values())

    def is_logged_in(self, config: McpServerConfig) -> bool:
        return self._thread.services.mcp.is_logged_in(config)

    # --- rest and end ---

    def stay(self) -> None:
        """The thread works: its servers stay."""
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    def rest(self) -> None:
        """The thread has come to rest: after a while its servers are stopped."""
        self.stay()
        if self._closed:
            return
        self._rest = asyncio.get_running_loop().call_later(REST_S, self._stop_soon)

    def _stop_soon(self) -> None:
        self._rest = None
        if self._thread.turn is None and not any(server.has_call for server in self._servers.values()):
            self._thread.services.spawn(self.stop(), f"rest of the MCP servers of {self._thread.id}")

    async def stop(self) -> None:
        """Stop the servers; the next turn starts them again."""
        await asyncio.gather(*(server.stop() for server in self._servers.values()))

    async def close(self) -> None:
        """End them for good: nothing of the thread starts one any more."""
        self._closed = True
        self.stay()
        servers, self._servers = self._servers, {}
        await asyncio.gather(*(server.close() for server in servers.values()))
        await asyncio.to_thread(self.files.close)


class ThreadServer:
    """One server, as its thread has it; what the server asks comes here (it is an `McpHandler`)."""

    def __init__(self, thread: Thread, config: McpServerConfig) -> None:
        self._thread = thread
        self.config: McpServerConfig = config
        self._connection: McpServer | None = None
        self._turns: list[Turn | None] = []  # of the calls under way
        self._questions: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._reported = False

    @property
    def session_id(self) -> str:
        return self._thread.session_id

    # --- its life ---

    @property
    def connection(self) -> McpServer:
        """It is started when it is used. Raises `McpError` when the thread has ended."""
        if self._closed:
            raise McpError("closed", "the thread has ended, and its MCP servers with it")
        if self._connection is None:
            self._connection = self._thread.services.mcp.connect(self.config, self._cwd, self)
        return self._connection

    @property
    def state(self) -> str:
        if not self.config.enabled:
            return "disabled"
        return "notStarted" if self._connection is None else self._connection.state

    @property
    def problem(self) -> str | None:
        """Why it cannot be used."""
        return self.config.problem if self._connection is None else self._connection.error

    async def start(self) -> None:
        """Start it and wait for that. How it goes is published; whoever needs the server looks at its `state`."""
        is_new = self._connection is None
        try:
            if is_new and self.connection.state == "connected":  # for another thread of the session
                self.publish_state()
            await self.connection.ready()
        except McpError as error:
            logger.info("an MCP server is not there", {"server": self.config.name, "reason": error.message})

    async def restart(self) -> None:
        """Start it now, however often that has failed."""
        if self._connection is not None and self._connection.state != "starting":
            await self._connection.stop()
        await self.start()

    @property
    def connection_made(self) -> McpServer | None:
        """None when nobody has used it."""
        return self._connection

    @property
    def has_changed(self) -> bool:
        return self._connection is not None and self._connection.tools_changed

    async def refresh(self) -> None:
        """Ask it for its tools again; those that are known stay when it does not answer."""
        try:
            await self.connection.refresh_tools()
        except McpError as error:
            logger.warning("changed tools cannot be listed", {"server": self.config.name, "reason": error.message})

    @property
    def tools(self) -> tuple[ToolInfo, ...]:
        return () if self._connection is None else self._connection.tools

    @property
    def tools_version(self) -> int:
        return 0 if self._connection is None else self._connection.tools_version

    @property
    def instructions(self) -> str | None:
        """What the server says of itself."""
        info = None if self._connection is None else self._connection.info
        return None if info is None else info.instructions

    async def stop(self) -> None:
        """It comes back when it is started again; its tools stay known, unless another thread goes on with it."""
        if self._connection is None:
            return
        if self._thread.services.mcp.is_shared(self._connection):
            await self._disconnect()
        else:
            await self._connection.stop()

    async def close(self) -> None:
        self._closed = True
        await self._disconnect()

    async def _disconnect(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await self._thread.services.mcp.disconnect(connection, self)

    # --- what clients hear of it ---

    def publish_state(self) -> None:
        """The state as it is now, for who has not heard of it."""
        status = _STARTUP_STATES.get(self.state)
        if status is not None:
            self.status_changed(McpStatus(name=self.config.name, status=status, error=self.problem))

    def report_problem(self) -> None:
        """A server that cannot be used for what its settings say: once."""
        if self.config.problem is not None and not self._reported:
            self._reported = True
            self.status_changed(McpStatus(name=self.config.name, status="failed", error=self.config.problem))

    def status_changed(self, status: McpStatus) -> None:
        """Publish how its start goes. Not stored: it is true of this process, and for now."""
        params = McpServerStatusUpdatedNotification(
            thread_id=self._thread.id,
            name=self.config.name,
            status=status.status,
            error=status.error,
            failure_reason=status.failure_reason,
        )
        self._thread.journal.append(DeltaStream("mcpServer/startupStatus/updated", lambda *, delta: params), "")

    # --- calls under way, and what the server asks meanwhile ---

    @property
    def has_call(self) -> bool:
        return bool(self._turns)

    @asynccontextmanager
    async def calling(self, turn: Turn | None) -> AsyncIterator[McpServer]:
        """A call is under way, in a turn or for a client that calls tools itself."""
        self._turns.append(turn)
        try:
            yield self.connection
        finally:
            self._turns.remove(turn)
            if not self._turns and self._questions:
                for question in self._questions:
                    question.cancel()
                await asyncio.wait(self._questions)
            if turn is None and self._thread.turn is None and (mcp := self._thread.mcp) is not None:
                mcp.rest()

    async def _asked(self, work: Coroutine[Any, Any, T], otherwise: U) -> T | U:
        """Something that the server waits for; `otherwise` when its calls have ended meanwhile, or it has none: nobody
        would take the question back."""
        if not self._turns:
            work.close()
            return otherwise
        question = asyncio.get_running_loop().create_task(work, name=f"question of MCP server {self.config.name}")
        self._questions.add(question)
        try:
            await asyncio.wait([question])
        finally:  # whoever asks may be gone
            question.cancel()
            self._questions.discard(question)
        return otherwise if question.cancelled() else question.result()

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[None]:
        """With the right to write the thread, which a turn has anyway."""
        thread = self._thread
        if thread.is_idle:
            async with thread.lock:
                await thread.acquire()
        else:
            await thread.acquire()
        try:
            yield
        finally:
            thread.release()

    async def elicit(self, params: ElicitParams) -> ElicitResult:
        if not may_elicit(self._thread.settings):
            return ElicitResult(action="decline")
        return await self._asked(self._elicit(params), ElicitResult(action="cancel"))

    async def _elicit(self, params: ElicitParams) -> ElicitResult:
        is_form = params.mode == "form"
        empty_form = {"type": "object", "properties": {}}
        async with self._writing():
            answer = await self.ask(
                McpServerElicitationRequestParams(
                    thread_id=self._thread.id,
                    turn_id=self.turn_id,
                    server_name=self.config.name,
                    mode=params.mode,
                    meta=params.meta,
                    message=params.message,
                    requested_schema=(params.requested_schema or empty_form) if is_form else UNSET,
                    url=UNSET if is_form else params.url or "",
                    elicitation_id=UNSET if is_form else params.elicitation_id or "",
                )
            )
        if answer is None or answer.action != "accept":
            return ElicitResult(action="decline" if answer is None else answer.action)
        return ElicitResult(action="accept", content={} if answer.content is None else answer.content)

    async def ask(self, params: McpServerElicitationRequestParams) -> McpServerElicitationRequestResponse | None:
        """Ask the clients; None when there is no answer that can be read."""
        request = self._thread.requests.open(ELICITATION)
        request.params = params
        answer = await answer_to(self._thread, request)
        if isinstance(answer, RpcError):
            return None
        try:
            return decode(answer, McpServerElicitationRequestResponse)
        except msgspec.DecodeError:
            return None

    @property
    def turn_id(self) -> str | None:
        """The turn that the server works for."""
        turn = next((turn for turn in self._turns if turn is not None), None)
        return None if turn is None else turn.id

    async def sample(self, params: SamplingParams) -> SamplingResult:
        if not self.config.sampling:
            raise RpcError(METHOD_NOT_FOUND, "sampling/createMessage")
        from treadle.agent.thread.mcp_sampling import sample_for_server  # few servers may

        answer = await self._asked(sample_for_server(self._thread, self, params), None)
        if answer is None:
            raise RpcError(INTERNAL_ERROR, "the call that this was for has ended")
        return answer

    def roots_changed(self) -> None:
        """One of all threads has no roots of its own: it asks for those of whoever calls it."""
        if self._connection is not None and not self.config.share:
            self._connection.roots_changed()

    @property
    def _place(self) -> Workplace | None:
        """Where the thread works in the environment of the server, if it does."""
        places = self._thread.settings.workplaces
        return next((place for place in places if place.environment == self.config.environment_id), None)

    @property
    def _cwd(self) -> str | None:
        """Where the server starts; None where its environment does."""
        if self._place is not None:
            return self._place.cwd
        if self.config.environment_id != LOCAL:
            return None
        settings = self._thread.settings
        return settings.cwd if settings.remote is None else self._thread.services.cwd

    def roots(self) -> list[Root]:
        folders = () if self._place is None else self._place.workspace
        return [Root(uri=Path(each).as_uri(), name=os.path.basename(each) or each) for each in folders]

    def log(self, level: str, source: str | None, data: object) -> None:
        text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
        number = {"debug": logging.DEBUG, "info": logging.INFO, "notice": logging.INFO}.get(level, logging.WARNING)
        fields = {"server": self.config.name, "logger": source, "text": text[:MAX_LOGGED]}
        logger.log(number, "an MCP server says", fields)
