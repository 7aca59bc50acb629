"""What the threads of one server share, as the agent sees it. The server makes it; tests may make a smaller one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from treadle.agent.event import Event
    from treadle.agent.thread.client_requests import ClientRequest
    from treadle.agent.thread.thread import Thread
    from treadle.agent.thread.thread_children import NewChild
    from treadle.agent.thread.thread_handle import ThreadHandle
    from treadle.agent.thread.thread_mcp import ThreadServer
    from treadle.agent.thread.thread_state import Settings
    from treadle.config import Config
    from treadle.config.mcp_settings import McpServerConfig
    from treadle.execution import Environment
    from treadle.execution.remote_machine import RemoteMachine
    from treadle.hooks.hook_files import HookSet
    from treadle.hooks.hook_settings import Hook
    from treadle.llm import Model
    from treadle.mcp.mcp_server import McpServer
    from treadle.store.contract import Store


class Services(Protocol):
    user_agent: str

    @property
    def home(self) -> str:
        """The folder where threads are stored."""

    @property
    def cwd(self) -> str:
        """The working directory of threads that name none."""

    @property
    def config(self) -> Config:
        """The configuration for what begins now. Raises `ConfigError` as long as it cannot be used."""

    def refresh_config(self) -> None:
        """Look whether the files of the configuration have changed: before a turn starts."""

    def config_for(self, settings: Settings) -> Config:
        """The configuration with what the thread was given on top."""

    def model_for(self, settings: Settings) -> Model:
        """The model of the thread's provider. Raises `ProviderConfigError` or `ModelError`."""

    async def listed_window(self, settings: Settings) -> int | None:
        """How long the context of the thread's model is, if its server says so. It takes some seconds at most."""

    async def environment(self, environment_id: str = "local") -> Environment:
        """Where commands run; started, or connected, when it is first asked for. Raises `ExecError`."""

    def machine(self, environment_id: str) -> RemoteMachine:
        """Another machine, by the id of its environment. Raises `ExecError` for an id that nobody knows."""

    @property
    def default_environments(self) -> Sequence[str]:
        """The ids of the environments of threads that name none."""

    async def store(self) -> Store:
        """The store of threads on disk. Raises `StoreError`."""

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """The hooks that are functions of this program."""

    async def python_hooks(self, config: Config) -> HookSet:
        """Those, and those of packages that the settings name."""

    @property
    def mcp(self) -> McpServices:
        """The MCP servers of threads; made when a thread has one."""

    @property
    def skill_roots(self) -> tuple[str, ...]:
        """Folders of skills that a client has named, besides those of the settings."""

    @property
    def agents(self) -> AgentServices:
        """The threads of sub-agents; made with the first of them."""

    @property
    def ephemeral_store(self) -> Store:
        """The store of threads that end with the server."""

    @property
    def draining(self) -> bool:
        """Whether the server is about to end, so that no message of a queue is sent any more."""

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run something that the server owns and ends."""


class McpServices(Protocol):
    def connect(self, config: McpServerConfig, cwd: str | None, user: ThreadServer) -> McpServer:
        """The server of a thread and its sub-agents, or the one of all threads, which whoever uses it starts. Without a
        `cwd`, that is where its environment works."""

    def is_shared(self, server: McpServer) -> bool:
        """Whether other threads use it too, or may."""

    async def disconnect(self, server: McpServer, user: ThreadServer) -> None:
        """The thread does not need it any more: end it, unless another thread does."""

    def is_logged_in(self, config: McpServerConfig) -> bool:
        """Whether there is a token for it, of a login."""

    async def approve_always(self, server: str, tool: str) -> str | None:
        """Note in the settings that a tool may run without being asked about; why not, when that is not done."""


class AgentServices(Protocol):
    """The threads of sub-agents. Those who subscribe to a thread subscribe to them as well."""

    async def make(self, parent: Thread, new: NewChild) -> ThreadHandle:
        """A child's thread, stored and published. After a failure `discard` removes what there is of it."""

    def find(self, thread_id: str) -> ThreadHandle | None:
        """A child that is in memory."""

    async def load(self, thread_id: str) -> ThreadHandle:
        """A child, brought into memory if it is not there. Raises `RpcError` and `StoreError`."""

    async def close(self, thread_id: str) -> None:
        """End what runs in a child and in those below it; they leave memory."""

    async def discard(self, thread_id: str) -> None:
        """Remove a child that has done nothing yet."""

    def place(self, session_id: str, child_id: str, most: int) -> AbstractContextManager[None]:
        """A place for a child among the `most` of its session that work at a time, held until its turn has begun.
        Raises `RpcError` when there is none, also because others are about to begin."""

    def ended(self, parent_id: str, child_id: str, turn_id: str, *, wakes: bool) -> None:
        """A turn of a child has ended: the parent should know, also one that is not in memory if it `wakes`."""


class Subscribers(Protocol):
    """The clients that follow a thread."""

    def publish(self, event: Event) -> None: ...

    def ask(self, request: ClientRequest) -> None: ...

    @property
    def can_ask(self) -> bool:
        """Whether one of them passes a question on to a person."""

    async def wait_for_room(self) -> None:
        """Return when the slowest of those that must not lose anything has room."""
