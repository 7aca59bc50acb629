"""The client of the soak: requests, and every message that came, in order, with the life of the server it came in."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.servers import BenchError
from treadle.errors import ChannelClosed
from treadle.transport import Address, Channel
from treadle.transport.sockets import connect

Json = dict[str, Any]
ANSWER_S: Final = 60.0


class Refused(Exception):
    """The server answered with an error."""


class Client:
    """`lives` counts how often it has connected."""

    def __init__(self, url: str, token: str, ca_file: Path) -> None:
        self._to = (Address.parse(url), token, str(ca_file))
        self._channel: Channel | None = None
        self._calls: dict[int, asyncio.Future[Json]] = {}
        self._number = 0
        self._news = asyncio.Event()
        self.lives = 0
        self.ended = ""
        self.deltas: dict[str, list[tuple[int, str]]] = defaultdict(list)
        """Of each item: the life, and what came."""
        self.started: dict[str, list[Json]] = defaultdict(list)
        self.completed: dict[str, list[Json]] = defaultdict(list)
        self.turns: dict[str, list[Json]] = defaultdict(list)
        """Of each turn: how it ended."""
        self.asked: dict[str, list[tuple[int, Json]]] = defaultdict(list)
        """Of each item: the life, and the request for approval."""
        self.warned: list[str] = []
        self.disconnected = 0

    async def open(self, deadline_s: float = 60.0) -> None:
        """Until the server is there."""
        address, token, ca_file = self._to
        end = asyncio.get_running_loop().time() + deadline_s
        while True:
            try:
                self._channel = await connect(address, token=token, ca_file=ca_file)
                break
            except ChannelClosed as error:
                if asyncio.get_running_loop().time() > end:
                    raise BenchError(f"the app-server is not there: {error}") from None
                await asyncio.sleep(0.05)
        self.lives += 1
        self._channel.attach(self)
        info = {"name": "treadle_soak", "title": None, "version": "1"}
        await self.call("initialize", {"clientInfo": info, "capabilities": {"experimentalApi": True}})
        self._channel.send(b'{"method":"initialized"}')

    async def close(self) -> None:
        if self._channel is not None:
            self._channel.abort()
            await self._channel.wait_closed()

    async def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Raises `Refused`, and `ChannelClosed` when the server goes away."""
        assert self._channel is not None
        self._number += 1
        number = self._number
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        self._send({"id": number, "method": method, "params": params})
        try:
            async with asyncio.timeout(ANSWER_S):
                message = await answer
        except TimeoutError:
            raise BenchError(f"{method} was not answered within {ANSWER_S:g} s") from None
        finally:
            self._calls.pop(number, None)
        if "error" in message:
            raise Refused(f"{method}: {message['error']}")
        return message["result"]

    def answer(self, request: Json, result: Mapping[str, Any]) -> None:
        self._send({"id": request["id"], "result": result})

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._channel is not None
        if self._channel.closed:
            raise ChannelClosed(self.ended)
        self._channel.send(json.dumps(message).encode())

    async def until(self, true: Any, deadline_s: float) -> bool:
        """Whether it becomes true, looked at after every message."""
        try:
            async with asyncio.timeout(deadline_s):
                while not true():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return True

    # --- Receiver ---

    def frame_received(self, frame: bytes) -> None:
        message: Json = json.loads(frame)
        method, params = message.get("method"), message.get("params") or {}
        item = params.get("item") or {}
        match method:
            case None:
                answer = self._calls.get(message["id"])
                if answer is not None and not answer.done():
                    answer.set_result(message)
            case "item/commandExecution/outputDelta":
                self.deltas[params["itemId"]].append((self.lives, params["delta"]))
            case "item/started":
                self.started[item["id"]].append(item)
            case "item/completed":
                self.completed[item["id"]].append(item)
            case "turn/completed":
                self.turns[params["turn"]["id"]].append(params["turn"])
            case "item/commandExecution/requestApproval" | "item/fileChange/requestApproval":
                self.asked[params["itemId"]].append((self.lives, message))
            case "thread/environment/disconnected":
                self.disconnected += 1
            case "warning" | "error":
                self.warned.append(json.dumps(params)[:300])
        self._news.set()

    def channel_closed(self, reason: str) -> None:
        self.ended = reason
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(ChannelClosed(reason))
        self._news.set()

    def channel_writable(self) -> None: ...
