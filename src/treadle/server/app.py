"""`AppServer`: keeps threads, runs turns, talks to clients. It owns everything that threads and clients share.

Nothing heavy is loaded before it is needed: the store at the first thread, the model client at the first turn, the
place where commands run at the first command.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from treadle.arguments import folder, path, texts, variables
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.logs.trace import outside
from treadle.server.client_base import Client
from treadle.server.tasks import Tasks

if TYPE_CHECKING:
    from msgspec import Raw

    from treadle.agent.client_requests import ClientRequest
    from treadle.agent.event import Event
    from treadle.agent.state import Settings
    from treadle.agent.turn_runtime import Runtime
    from treadle.config import Config, ConfigError, ConfigWarning, Login
    from treadle.execution import Environment
    from treadle.llm import Model
    from treadle.llm.provider import KeySource, ProviderConfig
    from treadle.server.channel_client import ChannelClient
    from treadle.server.identity import Identity
    from treadle.server.loaded_threads import LoadedThreads
    from treadle.server.local_client import LocalClient
    from treadle.server.model_clients import Models
    from treadle.server.offer_cache import Offers
    from treadle.store.contract import Store
    from treadle.transport import Channel

logger: logging.Logger = logging.getLogger(__name__)

# Searches for files at a time, of all clients. Each is a process that computes.
MAX_SEARCHES: Final = 8


class Watch(Protocol):
    """Something that goes on for a client. It must not stay in the table of its client when it has ended."""

    def cancel(self) -> object: ...


class AppServer:
    """Use it as `async with AppServer() as server`.

    Args:
        home: Where threads and settings are kept; else `TREADLE_HOME`, `CODEX_HOME` or `~/.treadle`.
        overrides: Settings as `key=value`, which come before those of `config.toml`.
        environ: The environment, which commands inherit from; else that of this process.
        cwd: The working directory of threads that name none; else that of this process. It must exist.
    """

    def __init__(
        self,
        *,
        home: str | os.PathLike[str] | None = None,
        overrides: Iterable[str] = (),
        environ: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> None:
        self._environ = os.environ if environ is None else variables("environ", environ)
        self._home = None if home is None else Path(path("home", home))
        self._overrides = tuple(texts("overrides", overrides))
        self._cwd = None if cwd is None else folder("cwd", cwd)
        self.clients: dict[Client, None] = {}
        self.client_numbers: Iterator[int] = itertools.count(1)
        self.user_agent = "treadle"
        self.tasks: Tasks = Tasks()
        self.draining: bool = False
        self._config: Config | None = None
        self.config_error: ConfigError | None = None
        self.config_warnings: tuple[ConfigWarning, ...] = ()
        self._login: Login | None = None
        self.given_key: str | None = None  # for this server alone, before that of the login
        self._threads: LoadedThreads | None = None
        self._models: Models | None = None
        self._store: asyncio.Task[Store] | None = None
        self._ephemeral_store: Store | None = None
        self._environment: asyncio.Task[Environment] | None = None
        self._runtimes: dict[str, Runtime] = {}  # by provider
        self._relief = asyncio.Event()
        self._watches: dict[Client, dict[str, Watch]] = {}
        self.searching: asyncio.Semaphore = asyncio.Semaphore(MAX_SEARCHES)

    # --- life ---

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all turns as interrupted, all commands with their descendants, and release everything."""
        self.draining = True
        if self._threads is not None:
            await self._threads.close()
        for client in tuple(self.clients):
            client.close()  # type: ignore[attr-defined]
        await self.tasks.close()
        await self._close_environment()
        if self._models is not None:
            await self._models.close()
        await self._close_stores()

    async def _close_environment(self) -> None:
        if self._environment is not None:
            try:
                environment = await self._environment
            except Exception:
                return  # whoever asked for it was told
            await environment.close()

    async def _close_stores(self) -> None:
        if self._store is not None:
            try:
                store = await self._store
            except Exception:
                return  # whoever asked for it was told
            await store.close()
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
        """Do something beside everything else; it ends with the server.

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
    ) -> ChannelClient:
        """Serve a client at the other end of a channel.

        Args:
            channel: The channel.
            must_not_lose: Whether the client is never cut off for being slow: its end of the channel is bounded itself.
            identity: Who it is, if its handshake is done already.
        """
        from treadle.server.channel_client import ChannelClient  # a program that embeds the server may have none

        client = ChannelClient(self, channel, must_not_lose=must_not_lose)
        self.clients[client] = None
        logger.info("client connected", {"client": client.number, "peer": channel.peer})
        if identity is not None:
            from treadle.server.methods.initialize import welcome  # only after an early handshake

            welcome(self, client, identity)
        client.start()
        return client

    def connect(self, on_event: Callable[[Event], None], on_request: Callable[[ClientRequest], None]) -> LocalClient:
        """A client in this process.

        Args:
            on_event: Is given each notification, at once.
            on_request: Is given each request of the server, at once; `answer` of the client replies.
        """
        from treadle.server.local_client import LocalClient  # a server of its own has none

        client = LocalClient(self, on_event, on_request)
        self.clients[client] = None
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
        self.relieved()

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
        """Tell all clients.

        Args:
            event: The notification.
        """
        for client in tuple(self.clients):
            client.notify(event)

    async def relief(self) -> None:
        """Wait until some client has caught up."""
        self._relief.clear()
        await self._relief.wait()

    def relieved(self) -> None:
        self._relief.set()

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
        if self._config is None or self.config_error is not None:
            self.load_config()
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
        """For lists that clients show, whatever is wrong with the file. Nothing runs with it."""
        from treadle.config import ConfigError, built_in_config  # as above

        try:
            return self.latest_config
        except ConfigError:
            return built_in_config(self.home_path)

    def load_config(self) -> None:
        """Read the settings; what is wrong with them is in `config_error` then."""
        from treadle.config import ConfigError, load_config  # loaded after the answer to initialize

        try:
            loaded = load_config(self.home_path, overrides=self._overrides, environ=self._environ)
        except ConfigError as error:
            self.config_error, self.config_warnings = error, ()
        else:
            self.config_error, self.config_warnings = None, loaded.warnings
            self._config = loaded.config
            logger.info("model: %s", loaded.config.chosen)

    def require_config(self) -> None:
        """Have the settings read, if nobody has."""
        if self._config is None and self.config_error is None:
            self.load_config()

    def check_overrides(self) -> None:
        """Raise `ConfigError` when it is `-c` that is wrong: a server that was started wrongly should not start."""
        self.load_config()
        if self.config_error is not None and self.config_error.blames("-c"):
            raise self.config_error

    def account_changed(self) -> None:
        """Which provider is in use may depend on whether there is a key."""
        self.load_config()
        self.models.forget_configs()

    @property
    def environ(self) -> Mapping[str, str]:
        """Where keys are looked for; commands inherit from it, without those."""
        return self._environ

    def key_source(self, provider: ProviderConfig) -> KeySource:
        """What gives the key of a provider: the one given to this server, if it is for OpenAI, else what is kept.

        Args:
            provider: The provider.
        """
        from treadle.config.stored_keys import FILE_NAME, key_source  # loaded with the first model

        kept = key_source(provider, self.login, self._environ)
        if provider.requires_openai_auth:
            return lambda: self.given_key or kept()
        keys = os.path.join(self.home_path, FILE_NAME)
        return lambda: kept() if os.path.exists(keys) else None  # asked for every request: a look, not a read

    @cached_property
    def offers(self) -> Offers:
        from treadle.server.offer_cache import Offers  # loaded with the first list of models

        return Offers(self._environ)

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
    def models(self) -> Models:
        if self._models is None:
            from treadle.server.model_clients import Models  # loaded with the first turn

            self._models = Models(self)
        return self._models

    def config_for(self, settings: Settings) -> Config:
        """The settings of the server as they hold for a thread.

        Args:
            settings: Those of the thread.
        """
        if self._config is not None and not settings.config:
            return self._config  # asked for many times in a turn
        return self.models.config_for(settings)

    def model_for(self, settings: Settings) -> Model:
        """The model that a thread asks.

        Args:
            settings: Those of the thread.
        """
        return self.models.model_for(settings)

    def runtime_for(self, settings: Settings) -> Runtime:
        """What runs the turns of a thread.

        Args:
            settings: Those of the thread.
        """
        runtime = self._runtimes.get(settings.model_provider)
        if runtime is None:
            from treadle.agent.turn_runtime import runtime_of  # loaded with the first turn

            runtime = self._runtimes[settings.model_provider] = runtime_of(settings.model_provider)
        return runtime

    async def store(self) -> Store:
        """The threads on disk. Raises `StoreError`; the next call tries again."""
        if self._store is None:
            self._store = asyncio.get_running_loop().create_task(
                self._open_store(), name="opening the store", context=outside()
            )
        opening = self._store
        try:
            return await asyncio.shield(opening)
        except Exception:
            if self._store is opening:
                self._store = None
            raise

    async def _open_store(self) -> Store:
        from treadle.store import open_store  # loaded with the first thread

        return await open_store(self.home_path)

    @property
    def ephemeral_store(self) -> Store:
        """Threads that end with the server."""
        if self._ephemeral_store is None:
            from treadle.store import ephemeral_store  # loaded with the first ephemeral thread

            self._ephemeral_store = ephemeral_store()
        return self._ephemeral_store

    async def environment(self) -> Environment:
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

    def warm_up(self) -> None:
        """Load what the first thread will need, while nobody waits for it."""
        self.spawn(self._warm_up(), "warming up")

    async def _warm_up(self) -> None:
        try:
            await self.store()
        except Exception as error:  # the first request for a thread will say so
            logger.warning("the threads cannot be opened: %s", error)
        _ = self.threads
