"""How `Codex` and `AsyncCodex` open and close: connect, initialize, check who the server is, close; and retries while
the server is busy.

`Codex` connects when it is constructed; `AsyncCodex` connects once, when it is entered or first used.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec
from msgspec import Struct

from treadle.arguments import count, function, seconds
from treadle.client.codex_config import CodexConfig
from treadle.client.sdk_errors import (
    CodexError,
    ConfigurationWarning,
    MissingMetadata,
    configuration_error,
    is_retryable_error,
)
from treadle.errors import ArgumentValueError

if TYPE_CHECKING:
    import asyncio

    from treadle.client.async_client import AsyncAppServerClient
    from treadle.client.client import AppServerClient
    from treadle.client.server_requests import ApprovalHandler, UserInputHandler

T = TypeVar("T")


# --- who the server is ---


class _Read(Struct):
    """The methods of pydantic models that programs for the official SDK call."""

    @classmethod
    def model_validate(cls, obj: object) -> Self:
        """From plain values."""
        return msgspec.convert(obj, cls)

    def model_dump(self, *, by_alias: bool = False, mode: str = "python", exclude_none: bool = False) -> dict[str, Any]:
        """This object as plain values."""
        members: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in members.items() if value is not None} if exclude_none else members


class ServerInfo(_Read):
    """The name and version of the server."""

    name: str | None = None
    version: str | None = None


class InitializeResponse(_Read):
    """Who the server is, and where; the names are those of the wire."""

    serverInfo: ServerInfo | None = None
    userAgent: str | None = None
    platformFamily: str | None = None
    platformOs: str | None = None
    codexHome: str | None = None
    extensions: Any = None
    """What the server can do beyond the Codex protocol, if it is ours."""


def client_info(config: CodexConfig) -> dict[str, Any]:
    """The params of `initialize`."""
    info = {"name": config.client_name, "title": config.client_title, "version": config.client_version}
    return {"clientInfo": info, "capabilities": {"experimentalApi": config.experimental_api}}


def check_overrides(config: CodexConfig, answer: InitializeResponse) -> None:
    """Raise `ConfigurationError` for a key of `config_overrides` that a server of ours, started here, does not know.

    The server ignores one, because the file may be shared with a newer program. But a program that passes one means it.
    """
    started_here = config.url is None and config.launch_args_override is None
    if not config.config_overrides or not started_here or "treadle/threadEvents" not in (answer.extensions or ()):
        return
    from treadle.config import ConfigError, load_config  # loaded where there are settings to check

    environ = {**os.environ, **(config.env or {})}
    try:
        loaded = load_config(Path(answer.codexHome or ""), overrides=config.config_overrides, environ=environ)
    except ConfigError:
        return  # of the file: an error of whatever needs the settings
    if unknown := loaded.unknown_keys("-c"):
        raise configuration_error(ConfigError.of(unknown))


def check_metadata(answer: InitializeResponse) -> InitializeResponse:
    """The answer with `serverInfo` filled in; raises `MissingMetadata` when it cannot be."""
    agent = (answer.userAgent or "").strip()
    given = answer.serverInfo or ServerInfo()
    name, version = (given.name or "").strip(), (given.version or "").strip()
    if agent and not (name and version):
        slash = "/" in agent
        parsed_name, _, parsed_version = agent.partition("/" if slash else " ")
        name, version = name or parsed_name.strip(), version or parsed_version.strip()
    if not (agent and name and version):
        raise MissingMetadata(
            "the initialize response is missing required metadata "
            f"(userAgent={agent!r}, server name={name!r}, server version={version!r}): is this an app-server?"
        )
    if answer.serverInfo is None:
        answer.serverInfo = ServerInfo()
    answer.serverInfo.name, answer.serverInfo.version = name, version
    return answer


# --- notebooks ---

SHOW_S: Final = 10.0
"""How long a notebook waits for a thread that is shown."""


class ShownThread:
    """A thread that a notebook shows with its last turns."""

    __slots__ = ()

    def html(self, *, timeout: float | None = None) -> str:
        """The thread as HTML."""
        raise NotImplementedError

    def _repr_html_(self) -> str | None:
        try:
            return self.html(timeout=SHOW_S)
        except CodexError:  # the client is closed, say: then it is shown as text
            return None


class AsyncShownThread:
    """One of asyncio cannot be read while it is shown: `html` is awaited."""

    __slots__ = ()


# --- opening and closing ---


class _CodexBase:
    """What `Codex` and `AsyncCodex` have in common."""

    _client: AppServerClient | AsyncAppServerClient

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of the server about its settings so far: unknown keys, settings without effect here, and a file that
        cannot be used any more. All that it knew at its start is here once the first thread is."""
        return tuple(self._client._router.warnings)

    def _warn(self) -> None:
        """Warn the caller of the caller, once, of what has come since."""
        while (text := self._client._router.take_warning()) is not None:
            warnings.warn(text, ConfigurationWarning, stacklevel=4)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {getattr(self, '_client', None)!r}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        name = type(self).__name__
        raise TypeError(f"a {name} is a live connection and cannot be pickled: pickle its CodexConfig instead")


class Lifecycle(_CodexBase):
    """Opens and closes a `Codex`."""

    _client: AppServerClient
    _init: InitializeResponse

    def _open(self, approval_handler: ApprovalHandler | None, user_input_handler: UserInputHandler | None) -> None:
        client = self._client
        try:
            if approval_handler is not None:
                client.handlers.approval = approval_handler
            if user_input_handler is not None:
                client.handlers.user_input = user_input_handler
            client.start()
            self._init = check_metadata(client.initialize())
            check_overrides(client.config, self._init)
        except BaseException:
            client.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def metadata(self) -> InitializeResponse:
        """The answer of the server to `initialize`: who and where it is."""
        return self._init

    def close(self) -> None:
        """End the connection, and the server if it is our own. May be called again."""
        self._client.close()


class AsyncLifecycle(_CodexBase):
    """Opens and closes an `AsyncCodex`."""

    _client: AsyncAppServerClient
    _init: InitializeResponse | None
    _initialized: bool

    def _open(self, approval_handler: ApprovalHandler | None, user_input_handler: UserInputHandler | None) -> None:
        if approval_handler is not None:
            self._client.handlers.approval = approval_handler
        if user_input_handler is not None:
            self._client.handlers.user_input = user_input_handler
        self._init = None
        self._initialized = False
        self._lock: asyncio.Lock | None = None

    async def __aenter__(self) -> Self:
        await self._ensure_initialized()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _ensure_initialized(self) -> None:
        if self._initialized:
            return
        import asyncio  # the blocking `Codex` shares this module and may not need asyncio

        self._client._check_usable()
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            if self._initialized:
                return
            try:
                await self._client.start()
                self._init = check_metadata(await self._client.initialize())
                check_overrides(self._client.config, self._init)
                self._initialized = True
            except BaseException:
                self._init = None
                await self._client.close()
                raise

    @property
    def metadata(self) -> InitializeResponse:
        """The answer of the server to `initialize`: who and where it is."""
        if self._init is None:
            raise MissingMetadata("AsyncCodex is not connected yet: use `async with AsyncCodex() as codex`")
        return self._init

    async def close(self) -> None:
        """End the connection, and the server if it is our own. May be called again, and the object used again."""
        self._client._check_closable()
        self._init = None
        self._initialized = False
        self._lock = None  # a lock is bound to the loop it was used on
        await self._client.close()


# --- retries ---


def retry_on_overload(
    op: Callable[[], T],
    *,
    max_attempts: int = 3,
    initial_delay_s: float = 0.25,
    max_delay_s: float = 2.0,
    jitter_ratio: float = 0.2,
) -> T:
    """Call a function until it succeeds, as long as the server says that it is busy.

    Other errors, and the last one, are raised as they are.

    Args:
        op: The function.
        max_attempts: How often it is called at most.
        initial_delay_s: Seconds to wait after the first attempt; after each other one it is twice as long.
        max_delay_s: The longest wait.
        jitter_ratio: How much longer or shorter each wait may be, as a part of it.
    """
    function("op", op, "nothing")
    delays = _delays(max_attempts, initial_delay_s, max_delay_s, jitter_ratio)

    while True:
        try:
            return op()
        except Exception as error:
            delay = next(delays, None)
            if delay is None or not is_retryable_error(error):
                raise
        time.sleep(delay)


async def async_retry_on_overload(
    op: Callable[[], Awaitable[T]],
    *,
    max_attempts: int = 3,
    initial_delay_s: float = 0.25,
    max_delay_s: float = 2.0,
    jitter_ratio: float = 0.2,
) -> T:
    """`retry_on_overload` for a function that gives something to await.

    Args:
        op: The function.
        max_attempts: How often it is called at most.
        initial_delay_s: Seconds to wait after the first attempt; after each other one it is twice as long.
        max_delay_s: The longest wait.
        jitter_ratio: How much longer or shorter each wait may be, as a part of it.
    """
    import asyncio  # the blocking client shares this module and may not need asyncio

    function("op", op, "nothing")
    delays = _delays(max_attempts, initial_delay_s, max_delay_s, jitter_ratio)
    while True:
        try:
            return await op()
        except Exception as error:
            delay = next(delays, None)
            if delay is None or not is_retryable_error(error):
                raise
        await asyncio.sleep(delay)


def _delays(attempts: int, first: float, most: float, jitter: float) -> Iterator[float]:
    if count("max_attempts", attempts) < 1:
        raise ArgumentValueError("max_attempts", "max_attempts must be at least 1")
    first, most = seconds("initial_delay_s", first), seconds("max_delay_s", most)
    jitter = seconds("jitter_ratio", jitter)
    import random  # only when the server is busy

    return (
        max(0.0, delay + random.uniform(-jitter, jitter) * delay)
        for delay in (min(most, first * 2 ** min(number, 60)) for number in range(attempts - 1))
    )
