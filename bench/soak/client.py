"""`SoakClient`: one WebSocket connection with some threads, which it cuts and makes again, by cursor, on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from bench.servers import BenchError
from bench.soak.follower import Follower, Message, read_message, read_params
from treadle.transport import Address, Channel
from treadle.transport.sockets import connect

# No single step takes this long on a machine that can be measured at all.
STEP_S: Final = 120.0
PAGE: Final = 500
_encode: Final = msgspec.json.Encoder().encode


class Cut(Exception):
    """The connection was cut while a request was under way: whether it was handled is not known."""


class Refused(Exception):
    """The server answered with an error."""


class _Started(Struct):
    class Thread(Struct):
        id: str

    thread: Thread


class _Resumed(Struct):
    seq: int


class _Page(Struct, rename="camel"):
    data: list[Message]
    has_more: bool


class SoakClient:
    """A receiver of a channel. `connected` is set while requests can be made."""

    def __init__(self, url: str) -> None:
        self._address = Address.parse(url)
        self._channel: Channel | None = None
        self._calls: dict[int, asyncio.Future[Raw]] = {}
        self._next_id = 0
        self._cutting = False
        self.followers: dict[str, Follower] = {}
        self.connected = asyncio.Event()
        self.reconnects = 0
        self.failure: BenchError | None = None

    # --- life ---

    async def open(self) -> None:
        self._channel = await connect(self._address)
        self._channel.attach(self)
        info = {"name": "treadle_soak", "title": None, "version": "1"}
        await self._call("initialize", {"clientInfo": info, "capabilities": {"experimentalApi": True}})
        self._channel.send(b'{"method":"initialized"}')
        for follower in self.followers.values():
            await self._catch_up(follower)
        self.connected.set()

    async def reopen(self) -> None:
        """Cut the connection in the middle of everything, and come back."""
        assert self._channel is not None
        self._cutting = True
        self.connected.clear()
        self._channel.abort()
        await self._channel.wait_closed()
        for follower in self.followers.values():
            follower.hold()
        self.reconnects += 1
        self._cutting = False
        await self.open()

    async def close(self) -> None:
        self._cutting = True
        if self._channel is not None:
            self._channel.close()
            await self._channel.wait_closed()

    def expect_end(self) -> None:
        """The server is about to be killed: what is under way is cut, and that is no failure."""
        self._cutting = True

    async def gone(self) -> None:
        """Until everything has arrived that the server had sent."""
        assert self._channel is not None
        await self._channel.wait_closed()

    async def start_thread(self) -> Follower:
        thread = msgspec.json.decode(await self.call("thread/start", {}), type=_Started).thread.id
        # `thread/started` may be heard before or after the answer is looked at; it is number 1 in either case.
        follower = self.followers[thread] = Follower(thread)
        follower.seq = 1
        return follower

    async def _catch_up(self, follower: Follower) -> None:
        place: dict[str, Any] = {"threadId": follower.thread}
        resumed = await self._call("thread/resume", {**place, "excludeTurns": True})
        seq = msgspec.json.decode(resumed, type=_Resumed).seq
        missed: list[Message] = []
        after = follower.seq
        while after < seq:
            asked = {**place, "afterSeq": after, "limit": PAGE}
            page = msgspec.json.decode(await self._call("thread/events/list", asked), type=_Page)
            if not page.data:
                break
            missed += page.data
            after = page.data[-1].seq or seq
        follower.catch_up(missed, seq)

    # --- requests ---

    async def call(self, method: str, params: Mapping[str, Any]) -> Raw:
        """Raises `Cut` and `Refused`."""
        await self.connected.wait()
        return await self._call(method, params)

    def fire(self, frame: bytes) -> None:
        """Send anything, and wait for nothing."""
        assert self._channel is not None
        self._channel.send(frame)

    async def _call(self, method: str, params: Mapping[str, Any]) -> Raw:
        assert self._channel is not None
        self._next_id += 1
        number = self._next_id
        answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        self._channel.send(_encode({"id": number, "method": method, "params": params}))
        try:
            async with asyncio.timeout(STEP_S):
                return await answer
        except TimeoutError:
            raise BenchError(f"{method} was not answered within {STEP_S:g} s") from None
        finally:
            self._calls.pop(number, None)

    # --- Receiver ---

    def frame_received(self, frame: bytes) -> None:
        message = read_message(frame)
        if message.method is None:
            self._answered(message)
            return
        params = read_params(message.params)
        thread = params.thread_id or (params.thread.id if params.thread is not None else "")
        follower = self.followers.get(thread)
        if follower is not None and message.method != "thread/started":
            follower.hear(message, params)

    def _answered(self, message: Message) -> None:
        answer = self._calls.pop(message.id or 0, None)
        if answer is None or answer.done():
            return
        if message.error is None:
            answer.set_result(message.result)
        else:
            answer.set_exception(Refused(str(message.error)))

    def channel_closed(self, reason: str) -> None:
        if not self._cutting:
            self.failure = BenchError(f"the server ended a connection: {reason}")
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(self.failure or Cut())
        self._calls.clear()

    def channel_writable(self) -> None:
        """Requests are small, and each waits for its answer."""
