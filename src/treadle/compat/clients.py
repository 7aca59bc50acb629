"""The clients of both earlier SDKs: those of `treadle.client`, with private names that programs of that time rely on.

They are what answers the server (`_approval_handler`), where notifications are put (`_router`), what reads
(`_reader_loop`), and the blocking client inside the one for asyncio (`_sync`).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.client import async_client, client
from treadle.client.codex_config import CodexConfig
from treadle.client.router import Router
from treadle.client.sdk_errors import TransportClosedError

if TYPE_CHECKING:
    from treadle.client.notification import Notification
    from treadle.client.router import Stream
    from treadle.protocol.app.base import JsonObject


@dataclass(slots=True, repr=False)
class AppServerConfig(CodexConfig):
    """`CodexConfig` under its earlier name; it introduces itself as the SDK did."""

    client_name: str = "codex_python_sdk"
    client_title: str = "Codex Python SDK"


class TurnRouter(Router):
    """The router with what tests put into it and look at."""

    route_notification: Callable[[Notification], None]

    @property
    def _pending_turn_notifications(self) -> dict[str, list[Notification]]:
        """What has come of turns that run and that nobody reads."""
        unread = (stream for stream in self.streams.values() if not stream.reading and not stream.completed)
        return {stream.key: list(stream.events) for stream in unread}


class OlderNames:
    """What both clients have besides; `self` is either of them."""

    def register_turn_notifications(self: Any, turn_id: str) -> None:
        """Open the stream of a turn, unless it is open."""
        if not self._router.stream(turn_id).reading:
            super().open_turn(turn_id)  # type: ignore[misc]

    def unregister_turn_notifications(self: Any, turn_id: str) -> None:
        """Close the stream of a turn, if it is open."""
        if (stream := self._router.streams.get(turn_id)) is not None:
            super().close_turn(stream)  # type: ignore[misc]

    def next_turn_notification(self, *ids: str, timeout: float | None = None) -> Any:
        """The next event of a turn, which the last id names. Some took the id of its thread before it."""
        return super().next_turn_notification("", ids[-1], timeout=timeout)  # type: ignore[misc]

    _approval_handler = property(
        lambda self: self.handlers.raw, lambda self, handler: setattr(self.handlers, "raw", handler)
    )

    def _new_router(self: Any) -> TurnRouter:
        router = TurnRouter()
        router.route_notification = self._dispatch_notification
        return router


class AppServerClient(OlderNames, client.AppServerClient):
    """The blocking client."""

    _read_message: Callable[[], JsonObject]

    def _reader_loop(self) -> None:
        """Take the messages of `_read_message`, which a test puts here, as if they came from a server."""
        try:
            while True:
                self.frames_received([msgspec.json.encode(self._read_message())])
        except EOFError:
            self.connection_ended(TransportClosedError("there are no more messages"))


class AsyncAppServerClient(OlderNames, async_client.AsyncAppServerClient):
    """The client for asyncio."""

    @property
    def _sync(self) -> Inside:
        return Inside(self)


class Inside:
    """Stands for the blocking client that the one for asyncio was made of, where there is none any more.

    What is set here is set there: a handler, or blocking functions in the place of its calls, which run on a thread.
    """

    def __init__(self, client: AsyncAppServerClient) -> None:
        object.__setattr__(self, "_client", client)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def __setattr__(self, name: str, value: Any) -> None:
        replaced = getattr(async_client.AsyncAppServerClient, name, None)

        async def call(*arguments: Any, **named: Any) -> Any:
            return await asyncio.to_thread(value, *arguments, **named)

        async def give(*arguments: Any, **named: Any) -> AsyncIterator[Any]:
            given, nothing = iter(value(*arguments, **named)), object()
            while (one := await asyncio.to_thread(next, given, nothing)) is not nothing:
                yield one

        blocking = not (inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value))
        kinds = (inspect.isasyncgenfunction, give), (inspect.iscoroutinefunction, call)
        put = next((one for is_kind, one in kinds if blocking and is_kind(replaced)), value)
        setattr(self._client, name, put)

    def __delattr__(self, name: str) -> None:
        delattr(self._client, name)


class OneId:
    """The streams of either client name a turn by its id alone, and use the calls above."""

    def _turn_source(self: Any, thread_id: str, turn_id: str) -> Callable[..., Any]:
        return partial(self.next_turn_notification, turn_id)

    def open_turn(self: Any, turn_id: str) -> Stream:
        self.register_turn_notifications(turn_id)
        return self._router.stream(turn_id)  # type: ignore[no-any-return]

    def close_turn(self: Any, stream: Stream) -> None:
        self.unregister_turn_notifications(stream.key)
