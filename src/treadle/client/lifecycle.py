"""How `Codex` and `AsyncCodex` open and close: connect, initialize, close.

`Codex` connects when it is constructed; `AsyncCodex` connects once, when it is entered or first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from treadle.client.metadata import InitializeResponse, check_metadata

if TYPE_CHECKING:
    import asyncio

    from treadle.client.approval_requests import ApprovalHandler, UserInputHandler
    from treadle.client.async_client import AsyncAppServerClient
    from treadle.client.client import AppServerClient


class _Shown:
    """What both have in common."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {getattr(self, '_client', None)!r}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        name = type(self).__name__
        raise TypeError(f"a {name} is a live connection and cannot be pickled: pickle its CodexConfig instead")


class Lifecycle(_Shown):
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
        except BaseException:
            client.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def metadata(self) -> InitializeResponse:
        """What the server says of itself."""
        return self._init

    def close(self) -> None:
        """End the connection, and the server if it is our own. May be called again."""
        self._client.close()


class AsyncLifecycle(_Shown):
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
                self._initialized = True
            except BaseException:
                self._init = None
                await self._client.close()
                raise

    @property
    def metadata(self) -> InitializeResponse:
        """What the server says of itself."""
        if self._init is None:
            raise RuntimeError("AsyncCodex is not connected yet: use `async with AsyncCodex() as codex`")
        return self._init

    async def close(self) -> None:
        """End the connection, and the server if it is our own. May be called again, and the object used again."""
        self._client._check_closable()
        self._init = None
        self._initialized = False
        self._lock = None  # a lock is bound to the loop it was used on
        await self._client.close()
