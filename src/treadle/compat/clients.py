"""The clients of both earlier SDKs: those of `treadle.client`, plus the calls from which a turn's stream was built.

Their private names are kept as far as programs of that time, and their tests, rely on them: what answers the server
(`_approval_handler`), where notifications are put (`_router`), what reads (`_reader_loop`), and the blocking client
inside the async one (`_sync`).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from treadle.client.async_client import AsyncAppServerClient as NewAsyncClient
from treadle.client.client import AppServerClient as NewClient
from treadle.client.router import Router
from treadle.client.sdk_errors import TransportClosedError
from treadle.client.shared_router import SharedRouter

if TYPE_CHECKING:
    from treadle.client.codex_config import CodexConfig
    from treadle.client.handlers import RawHandler
    from treadle.client.notification import Notification
    from treadle.client.router import Stream
    from treadle.protocol.app.base import JsonObject
    from treadle.protocol.app.item_notifications import AgentMessageDeltaNotification
    from treadle.protocol.app.thread_notifications import TurnCompletedNotification
    from treadle.protocol.app.turns import TurnStartParams

T = TypeVar("T")


class AppServerClient(NewClient):
    """The blocking client."""

    def __init__(self, config: CodexConfig | None = None, approval_handler: RawHandler | None = None) -> None:
        super().__init__(config, approval_handler)
        self._registered: dict[str, Stream] = {}

    def register_turn_notifications(self, turn_id: str) -> None:
        """Say that somebody reads a turn."""
        if turn_id not in self._registered:
            self._registered[turn_id] = self.open_turn(turn_id)

    def unregister_turn_notifications(self, turn_id: str) -> None:
        """The reader of a turn has gone."""
        stream = self._registered.pop(turn_id, None)
        if stream is not None:
            self.close_turn(stream)

    def next_turn_notification(  # one id then, two now: both come here
        self, *ids: str, timeout: float | None = None
    ) -> Notification:
        """The next event of a turn, which the last of the ids names; waits for it."""
        return super().next_turn_notification("", ids[-1], timeout=timeout)

    def wait_for_turn_completed(self, turn_id: str) -> TurnCompletedNotification:
        """Read a turn to its end."""
        self.register_turn_notifications(turn_id)
        try:
            while True:
                found = self.next_turn_notification(turn_id)
                if found.method == "turn/completed":
                    return cast("TurnCompletedNotification", found.payload)
        finally:
            self.unregister_turn_notifications(turn_id)

    def stream_text(
        self, thread_id: str, text: str, params: TurnStartParams | JsonObject | None = None
    ) -> Iterator[AgentMessageDeltaNotification]:
        """Run a turn and give the pieces of what the agent says."""
        turn_id = self.turn_start(thread_id, text, params=params).turn.id
        self.register_turn_notifications(turn_id)
        try:
            while True:
                found = self.next_turn_notification(turn_id)
                if found.method == "item/agentMessage/delta":
                    yield cast("Any", found.payload)
                elif found.method == "turn/completed":
                    return
        finally:
            self.unregister_turn_notifications(turn_id)

    @property
    def _approval_handler(self) -> RawHandler | None:
        return self.handlers.raw

    @_approval_handler.setter
    def _approval_handler(self, handler: RawHandler | None) -> None:
        self.handlers.raw = handler

    def _new_router(self) -> Router:
        return SharedTurnRouter(self._dispatch_notification)

    def _read_message(self) -> JsonObject:
        raise NotImplementedError("the connection reads: put a function here that gives messages to _reader_loop()")

    def _reader_loop(self) -> None:
        """Take the messages that `_read_message` gives, as if they came from a server, until it raises."""
        try:
            while True:
                self.frames_received([msgspec.json.encode(self._read_message())])
        except EOFError:
            self.connection_ended(TransportClosedError("there are no more messages"))


class AsyncAppServerClient(NewAsyncClient):
    """The same for asyncio."""

    def __init__(self, config: CodexConfig | None = None, approval_handler: RawHandler | None = None) -> None:
        super().__init__(config, approval_handler)
        self._registered: dict[str, Stream] = {}
        self._sync = Inside(self)

    def register_turn_notifications(self, turn_id: str) -> None:
        """Say that somebody reads a turn."""
        if turn_id not in self._registered:
            self._registered[turn_id] = self.open_turn(turn_id)

    def unregister_turn_notifications(self, turn_id: str) -> None:
        """The reader of a turn has gone."""
        stream = self._registered.pop(turn_id, None)
        if stream is not None:
            self.close_turn(stream)

    async def next_turn_notification(  # one id then, two now: both come here
        self, *ids: str, timeout: float | None = None
    ) -> Notification:
        """The next event of a turn, which the last of the ids names; waits for it."""
        return await super().next_turn_notification("", ids[-1], timeout=timeout)

    async def wait_for_turn_completed(self, turn_id: str) -> TurnCompletedNotification:
        """Read a turn to its end."""
        self.register_turn_notifications(turn_id)
        try:
            while True:
                found = await self.next_turn_notification(turn_id)
                if found.method == "turn/completed":
                    return cast("TurnCompletedNotification", found.payload)
        finally:
            self.unregister_turn_notifications(turn_id)

    async def stream_text(
        self, thread_id: str, text: str, params: TurnStartParams | JsonObject | None = None
    ) -> AsyncIterator[AgentMessageDeltaNotification]:
        """Run a turn and give the pieces of what the agent says."""
        turn_id = (await self.turn_start(thread_id, text, params=params)).turn.id
        self.register_turn_notifications(turn_id)
        try:
            while True:
                found = await self.next_turn_notification(turn_id)
                if found.method == "item/agentMessage/delta":
                    yield cast("Any", found.payload)
                elif found.method == "turn/completed":
                    return
        finally:
            self.unregister_turn_notifications(turn_id)

    @property
    def _approval_handler(self) -> RawHandler | None:
        return self.handlers.raw

    @_approval_handler.setter
    def _approval_handler(self, handler: RawHandler | None) -> None:
        self.handlers.raw = handler

    def _new_router(self) -> Router:
        return TurnRouter(self._dispatch_notification)


class TurnRouter(Router):
    """The router with what tests put into it and look at."""

    def __init__(self, route: Callable[[Notification], None]) -> None:
        super().__init__()
        self.route_notification = route

    @property
    def _pending_turn_notifications(self) -> dict[str, list[Notification]]:
        """What has come of turns that run and that nobody reads."""
        unread = (stream for stream in self._streams.values() if not stream.reading and not stream.completed)
        return {stream.key: list(stream.events) for stream in unread}


class SharedTurnRouter(TurnRouter, SharedRouter):
    """The same for threads."""


class Inside:
    """Stands for the blocking client that the one for asyncio was made of, where there is none any more.

    What is set here is set there: a handler, or blocking functions in the place of its calls, which run on a thread.
    """

    def __init__(self, client: AsyncAppServerClient) -> None:
        object.__setattr__(self, "_client", client)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def __setattr__(self, name: str, value: Any) -> None:
        replaced, blocking = getattr(type(self._client), name, None), not _is_for_asyncio(value)
        if blocking and inspect.isasyncgenfunction(replaced):
            value = _asked_on_a_thread(value)
        elif blocking and inspect.iscoroutinefunction(replaced):
            value = _called_on_a_thread(value)
        setattr(self._client, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._client, name)


def _is_for_asyncio(function: object) -> bool:
    """As is what was there before, which a test puts back."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _called_on_a_thread(function: Callable[..., T]) -> Callable[..., Any]:
    async def call(*arguments: Any, **named: Any) -> T:
        return await asyncio.to_thread(function, *arguments, **named)

    return call


def _asked_on_a_thread(function: Callable[..., Iterator[T]]) -> Callable[..., AsyncIterator[T]]:
    async def give(*arguments: Any, **named: Any) -> AsyncIterator[T]:
        given, nothing = iter(function(*arguments, **named)), object()
        while (one := await asyncio.to_thread(next, given, nothing)) is not nothing:
            yield cast("T", one)

    return give
