"""`AppServer`: stores threads, runs turns, talks to clients. It owns everything that threads and clients share.

Nothing heavy is loaded before it is needed: the store at the first thread, the model client at the first turn, the
place where commands run at the first command.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextvars import Context
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from msgspec import structs

from treadle.arguments import folder, path, texts, variables
from treadle.errors import INVALID_REQUEST, RpcError, TreadleError, needs_linux
from treadle.logs.metrics import Gauge
from treadle.logs.trace import outside
from treadle.server.clients import Client

if TYPE_CHECKING:
    from msgspec import Raw

    from treadle.agent.event import Event
    from treadle.agent.thread.thread_state import Settings
    from treadle.config import Config, ConfigError, ConfigProblem, ConfigWarning, Login
    from treadle.execution import Environment
    from treadle.execution.remote_machine import RemoteMachine
    from treadle.hooks.hook_files import HookSet
    from treadle.hooks.hook_settings import Hook
    from treadle.hooks.python_hooks import PythonHooks
    from treadle.llm import Model
    from treadle.llm.provider import KeySource, ProviderConfig
    from treadle.server.child_threads import ChildThreads
    from treadle.server.environment_registry import EnvironmentRegistry
    from treadle.server.executors import Executors
    from treadle.server.identity import Identity
    from treadle.server.loaded_threads import LoadedThreads
    from treadle.server.mcp_servers import McpServers
    from treadle.server.methods.skill_methods import WatchedSkills
    from treadle.server.model_clients import ModelClients, ModelLists
    from treadle.store.contract import Store
    from treadle.transport import Channel


logger: logging.Logger = logging.getLogger(__name__)
# Searches for files at a time, of all clients. Each is a process that computes.
MAX_SEARCHES: Final = 8
# Names of changed settings in a line of the log.
MAX_NAMES: Final = 50
CLOSE_S: Final = 10.0


class Watch(Protocol):
    """Something that goes on for a client. It must not stay in the table of its client when it has ended."""

    def cancel(self) -> object: ...


class Tasks:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(
        self, work: Coroutine[Any, Any, None], name: str, *, context: Context | None = None
    ) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s failed", task.get_name(), exc_info=error)

    async def close(self) -> None:
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=CLOSE_S)
            for task in left:
                logger.warning("%s did not end in time", task.get_name())


class AppServer:
    """Use it as `async with AppServer() as server`.

    Args:
        home: Where threads and settings are stored; else `TREADLE_HOME`, `CODEX_HOME` or `~/.treadle`.
        overrides: Settings as `key=value`, which come before those of `config.toml`.
        environ: The environment, which commands inherit from; else that of this process.
        cwd: The working directory of threads that name none; else that of this process. It must exist.
        hooks: Python functions by the event that they are called for (see `treadle.hooks`).
    """

    def __init__(
        self,
        *,
        home: str | os.PathLike[str] | None = None,
        overrides: Iterable[str] = (),
        environ: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        hooks: PythonHooks | None = None,
    ) -> None:
        self._environ = os.environ if environ is None else variables("environ", environ)
        if self._environ.get("TREADLE_AUDIT_FILE"):
            from treadle.logs.audit import set_up_audit  # few have one; programs do it before, for a better message

            set_up_audit(self._environ)
        self._home = None if home is None else Path(path("home", home))
        self._overrides = tuple(texts("overrides", overrides))
        self._cwd = None if cwd is None else folder("cwd", cwd)
        self.hooks: tuple[Hook, ...] = ()
        if hooks is not None:
            from treadle.hooks.python_hooks import read_python_hooks  # few have them

            self.hooks = read_python_hooks(hooks)
        self._plugged_in: tuple[tuple[str, ...], HookSet] | None = None
        self.executors: Executors | None = None
        """Exec-servers that dial this server, where it listens."""
        self.clients: dict[Client, None] = {}
        self.client_numbers: Iterator[int] = itertools.count(1)
        self.user_agent = "treadle"
        self.tasks: Tasks = Tasks()
        self.draining: bool = False
        self._config: Config | None = None
        self._config_mark: object = None  # of the files, when the settings were read
        self.config_error: ConfigError | None = None
        self.config_warnings: tuple[ConfigWarning, ...] = ()
        self._login: Login | None = None
        self.given_key: str | None = None  # for this server alone, before that of the login
        self._threads: LoadedThreads | None = None
        self._models: ModelClients | None = None
        self._mcp: McpServers | None = None
        self._agents: ChildThreads | None = None
        self._store: asyncio.Task[Store] | None = None
        self._ephemeral_store: Store | None = None
        self._environment: asyncio.Task[Environment] | None = None
        self._environments: EnvironmentRegistry | None = None
        self._writable = asyncio.Event()
        self._watches: dict[Client, dict[str, Watch]] = {}
        self.skill_roots: tuple[str, ...] = ()  # that a client has named
        self.watched_skills: WatchedSkills | None = None
        self.searching: asyncio.Semaphore = asyncio.Semaphore(MAX_SEARCHES)

    # --- life ---

    async def __aenter__(self) -> Self:
        if (missing := needs_linux("AppServer")) is not None:
            raise TreadleError(missing)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all turns as interrupted, all commands with their descendants, and release everything."""
        self.draining = True
        if self._threads is not None:
            await self._threads.close()
        for client in tuple(self.clients):
            client.close()
        await self.tasks.close()
        if self.watched_skills is not None:
            self.watched_skills.close()
        if self._mcp is not None:
            await self._mcp.close()
        if self._environments is not None:
            await self._environments.close()
        await _close_opened(self._environment)
        if self._models is not None:
            await self._models.close()
        await _close_opened(self._store)
        if self._ephemeral_store is not None:
            await self._ephemeral_store.close()

    @property
    def is_busy(self) -> bool:
        """Whether `drain` would wait for a turn."""
        return self._threads is not None and bool(self._threads.going_on())

    async def drain(self) -> None:
        """Take no more turns and wait for those that run."""
        self.draining = True
        if self._threads is not None:
            await self._threads.wait_idle()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a background task; it is cancelled when the server closes.

        Args:
            work: What to do.
            name: What it is called in logs.
        """
        return self.tasks.start(work, name)

    # --- clients ---

    def accept(
        self,
        channel: Channel,
        *,
        must_not_lose: bool = False,
        identity: Identity | None = None,
    ) -> Client:
        """Serve a client at the other end of a channel.

        Args:
            channel: The channel.
            must_not_lose: Whether the client is never cut off for being slow: its end of the channel is bounded itself.
            identity: Who it is, if its handshake is done already.
        """

        client = Client(self, channel, must_not_lose=must_not_lose)
        self.clients[client] = None
        logger.info("client connected", {"client": client.number, "peer": channel.peer})
        if identity is not None:
            from treadle.server.methods.initialize import welcome  # only after an early handshake

            welcome(self, client, identity)
        client.start()
        return client

    def client_gone(self, client: Client) -> None:
        """Forget a client whose connection has ended.

        Args:
            client: The client.
        """
        self.clients.pop(client, None)
        if self._threads is not None:
            self._threads.client_gone(client)
        for watch in tuple(self._watches.pop(client, {}).values()):
            watch.cancel()
        self.notify_writable()

    def watches(self, client: Client) -> dict[str, Watch]:
        """What a client watches or runs outside of any thread, by its own name for it; it ends with the client.

        Args:
            client: The client.
        """
        if client.closed:
            raise RpcError(INVALID_REQUEST, "the connection is closed")
        return self._watches.setdefault(client, {})

    def answered(self, client: Client, request_id: int, answer: Raw | RpcError) -> None:
        """A client has answered a request of the server.

        Args:
            client: The client.
            request_id: The id of the request.
            answer: The result, or an error.
        """
        if self._threads is not None:
            self._threads.answered(client, request_id, answer)

    def broadcast(self, event: Event) -> None:
        """Notify all clients.

        Args:
            event: The notification.
        """
        for client in tuple(self.clients):
            client.notify(event)

    async def wait_until_writable(self) -> None:
        """Wait until some client that was slow can be written to again."""
        self._writable.clear()
        await self._writable.wait()

    def notify_writable(self) -> None:
        self._writable.set()

    def gauges(self) -> Iterator[Gauge]:
        """What is true now, for metrics."""
        yield Gauge("treadle_clients", "Clients that are connected.", len(self.clients))
        if self._threads is not None:
            yield from self._threads.gauges()

    # --- what threads share ---

    @property
    def home(self) -> str:
        return str(self.home_path)

    @property
    def home_path(self) -> Path:
        if self._home is None:
            from treadle.config import find_home  # loaded with the first look at the home

            self._home = find_home(self._environ)
        return self._home

    @property
    def cwd(self) -> str:
        return self._cwd or os.getcwd()

    @property
    def config(self) -> Config:
        """The settings for what begins now. Raises `ConfigError` as long as they cannot be used: nothing runs with
        others than those that were asked for."""
        self.refresh_config()
        if self.config_error is not None:
            raise copy(self.config_error)  # one that is raised again and again grows
        assert self._config is not None
        return self._config

    @property
    def latest_config(self) -> Config:
        """The last settings that could be used: threads that are in memory go on with them."""
        return self.config if self._config is None else self._config

    @property
    def shown_config(self) -> Config:
        """The settings for lists that clients show, whatever is wrong with the file. Nothing runs with them."""
        self.refresh_config()
        if self._config is None:
            from treadle.config import built_in_config  # only when the first settings cannot be used

            return built_in_config(self.home_path)
        return self._config

    def refresh_config(self) -> None:
        """Read the settings if nobody has, and again if their files have changed since. Every thread and turn that
        starts asks for it. An error may have other causes than these files, so it is looked for each time."""
        from treadle.config import files_mark  # loaded after the answer to initialize

        if self._config_mark != files_mark(self.home_path) or self.config_error is not None:
            self.load_config()

    def load_config(self) -> None:
        """Read the settings; what is wrong with them is in `config_error` then. What clients have not heard of that,
        and what has changed, is published and logged."""
        from treadle.config import ConfigError, files_mark, load_config  # loaded after the answer to initialize

        is_first, known = self._config_mark is None, self.config_problems
        self._config_mark = files_mark(self.home_path)  # before it is read: a change meanwhile is one
        try:
            loaded = load_config(self.home_path, overrides=self._overrides, environ=self._environ)
        except ConfigError as error:
            if error.problems != known:
                logger.warning("the settings cannot be used, no thread can be started: %s", error)
            self.config_error, self.config_warnings = error, ()
        else:
            if self.config_error is not None:
                logger.warning("the settings can be used again")
            self.config_error, self.config_warnings = None, loaded.warnings
            self._adopt(loaded.config)
        if not is_first:
            from treadle.server.methods.initialize import config_warning  # only when something has changed

            for problem in self.config_problems:
                if problem not in known:
                    self.broadcast(config_warning(problem))

    def _adopt(self, config: Config) -> None:
        before = self._config
        if before is not None:
            if before.layers == config.layers:
                return  # what was made of the one before can be used again
            if names := config.layers.changed_keys(before.layers):
                # Values stay out of it: they may be secret.
                logger.warning("the settings have changed: %s", ", ".join(names[:MAX_NAMES]))
        self._config = config
        if self._models is not None:
            self._models.forget_configs()
        logger.info("model: %s", config.chosen)

    @property
    def config_problems(self) -> Sequence[ConfigProblem | ConfigWarning]:
        """What clients should know of the settings."""
        return self.config_warnings if self.config_error is None else self.config_error.problems

    def check_overrides(self) -> None:
        """Raise `ConfigError` when it is `-c` that is wrong: a server that was started wrongly should not start."""
        self.refresh_config()
        if self.config_error is not None and self.config_error.blames("-c"):
            raise self.config_error

    @property
    def environ(self) -> Mapping[str, str]:
        """Where keys are looked for; commands inherit from it, without those."""
        return self._environ

    def key_source(self, provider: ProviderConfig) -> KeySource:
        """What gives the key of a provider: the one given to this server, if it is for OpenAI, else what is stored.

        Args:
            provider: The provider.
        """
        from treadle.config.login import KEYS_FILE, key_source  # loaded with the first model

        kept = key_source(provider, self.login, self._environ)
        if provider.requires_openai_auth:
            return lambda: self.given_key or kept()
        keys = os.path.join(self.home_path, KEYS_FILE)
        return lambda: kept() if os.path.exists(keys) else None  # asked for every request: a look, not a read

    @cached_property
    def offers(self) -> ModelLists:
        from treadle.server.model_clients import ModelLists  # loaded with the first list

        return ModelLists(self._environ)

    @property
    def login(self) -> Login:
        if self._login is None:
            from treadle.config import Login  # loaded with the first look at the login

            self._login = Login(self.home_path)
        return self._login

    @property
    def threads(self) -> LoadedThreads:
        if self._threads is None:
            from treadle.server.loaded_threads import LoadedThreads  # loaded with the first thread

            self._threads = LoadedThreads(self)
        return self._threads

    @property
    def models(self) -> ModelClients:
        if self._models is None:
            from treadle.server.model_clients import ModelClients  # loaded with the first turn

            self._models = ModelClients(self)
        return self._models

    @property
    def mcp(self) -> McpServers:
        if self._mcp is None:
            from treadle.server.mcp_servers import McpServers  # loaded with the first thread that has one

            self._mcp = McpServers(self)
        return self._mcp

    @property
    def agents(self) -> ChildThreads:
        if self._agents is None:
            from treadle.server.child_threads import ChildThreads  # loaded with the first sub-agent

            self._agents = ChildThreads(self)
        return self._agents

    def config_for(self, settings: Settings) -> Config:
        """The settings of the server as they hold for a thread.

        Args:
            settings: Those of the thread.
        """
        if self._config is not None and not settings.config:
            return self._config  # asked for many times in a turn
        return self.models.config_for(settings)

    async def listed_window(self, settings: Settings) -> int | None:
        """How long the context of a thread's model is, if its server says so.

        Args:
            settings: Those of the thread.
        """
        config = self.config_for(settings)
        provider = config.providers.get(settings.model_provider)
        if provider is None:
            return None
        offers = await self.offers.of(config, provider, self.key_source(provider))
        names = (settings.model, f"{settings.model}:latest")  # as Ollama has it
        return next((offer.context_window for offer in offers if offer.id in names), None)

    def model_for(self, settings: Settings) -> Model:
        """The model that a thread asks.

        Args:
            settings: Those of the thread.
        """
        return self.models.model_for(settings)

    async def store(self) -> Store:
        """The threads that are stored. Raises `StoreError`, and `ConfigError` as long as nobody knows where they are;
        the next call tries again."""
        if self._store is None:
            from treadle.store import open_store  # loaded with the first thread

            location = self.latest_config.store or self.home_path
            self._store = asyncio.get_running_loop().create_task(
                open_store(location), name="opening the store", context=outside()
            )
        opening = self._store
        try:
            return await asyncio.shield(opening)
        except Exception:
            if self._store is opening:
                self._store = None
            raise

    @property
    def ephemeral_store(self) -> Store:
        """Threads that end with the server."""
        if self._ephemeral_store is None:
            from treadle.store import ephemeral_store  # loaded with the first ephemeral thread

            self._ephemeral_store = ephemeral_store()
        return self._ephemeral_store

    @property
    def environments(self) -> EnvironmentRegistry:
        """Other machines that threads may work on."""
        if self._environments is None:
            from treadle.server.environment_registry import EnvironmentRegistry  # loaded when there is one

            self._environments = EnvironmentRegistry(self)
        return self._environments

    @property
    def default_environments(self) -> Sequence[str]:
        configured = self.config.environments
        return ("local",) if configured is None else configured.default

    def machine(self, environment_id: str) -> RemoteMachine:
        """Another machine that threads may work on. Raises `ExecError` for an id that nobody knows.

        Args:
            environment_id: The id of its environment.
        """
        return self.environments.machine(environment_id)

    async def environment(self, environment_id: str = "local") -> Environment:
        """Where commands run; started, or connected, when it is first asked for. Raises `ExecError`.

        Args:
            environment_id: The id of the environment; else this machine.
        """
        if environment_id != "local":
            return await self.environments.machine(environment_id).environment()
        if self._environment is None:
            from treadle.execution import Environment  # loaded with the first command

            self._environment = asyncio.get_running_loop().create_task(
                Environment.connect(), name="environment", context=outside()
            )
        opening = self._environment
        try:
            return await asyncio.shield(opening)
        except Exception:
            if self._environment is opening:
                self._environment = None
            raise

    async def python_hooks(self, config: Config) -> HookSet:
        """The functions that were given, and those of the packages that the settings name.

        Args:
            config: The settings.
        """
        names = config.hooks.plug_ins
        from treadle.hooks.hook_files import HookSet
        from treadle.hooks.python_hooks import load_plug_ins

        if self._plugged_in is None or self._plugged_in[0] != names:
            found = await asyncio.to_thread(load_plug_ins, names) if names else HookSet()
            hooks = [structs.replace(hook, order=order) for order, hook in enumerate((*self.hooks, *found.hooks))]
            self._plugged_in = names, HookSet(tuple(hooks), found.warnings)
        return self._plugged_in[1]

    def warm_up(self) -> None:
        """Load what the first thread will need, while nobody waits for it, and look after what is stored."""

        async def load() -> None:
            try:
                await self.store()
            except Exception as error:  # the first request for a thread will say so
                logger.warning("the threads cannot be opened: %s", error)
            await self.threads.retain()

        self.spawn(load(), "warming up")


async def _close_opened(opening: asyncio.Task[Store] | asyncio.Task[Environment] | None) -> None:
    if opening is not None:
        try:
            opened = await opening
        except Exception:
            return  # whoever asked for it got the error
        await opened.close()
