"""A small HTTP server for the tests of models: plays queued replies, byte for byte, and records what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Any, Literal
from urllib.parse import urlsplit

DEADLINE = 60.0
Json = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """`pieces` are written one by one. Then the connection is kept, closed, or left hanging until the client goes.

    With `last_when_told`, the last piece waits for the server's `told`.
    """

    pieces: Sequence[bytes]
    then: Literal["keep", "close", "hang"] = "keep"
    last_when_told: bool = False


@dataclass(frozen=True)
class Asked:
    connection: int
    path: str
    headers: Mapping[str, str]
    body: Json
    method: str = "POST"


def sse(*events: Json) -> list[bytes]:
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def text_events(text: str = "hello", item_id: str = "msg_1") -> list[Json]:
    done = {"type": "message", "id": item_id, "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**done, "content": []}},
        *({"type": "response.output_text.delta", "item_id": item_id, "delta": letter} for letter in text),
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        completed(),
    ]


def completed(response_id: str = "resp_1") -> Json:
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 15,
    }
    return {"type": "response.completed", "response": {"id": response_id, "usage": usage}}


_SSE = b"Content-Type: text/event-stream\r\n"


def chunked(pieces: Sequence[bytes], *, then: Literal["keep", "close", "hang"] = "keep", ended: bool = True) -> Reply:
    head = b"HTTP/1.1 200 OK\r\n" + _SSE + b"Transfer-Encoding: chunked\r\n\r\n"
    chunks = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
    return Reply([head, *chunks, *([b"0\r\n\r\n"] if ended else [])], then)


def close_delimited(pieces: Sequence[bytes]) -> Reply:
    return Reply([b"HTTP/1.0 200 OK\r\n" + _SSE + b"\r\n", *pieces], "close")


def status(code: int, body: str, *headers: str) -> Reply:
    payload = body.encode()
    lines = [f"HTTP/1.1 {code} X", f"Content-Length: {len(payload)}", *headers]
    return Reply(["\r\n".join(lines).encode() + b"\r\n\r\n" + payload])


@dataclass
class ModelServer:
    replies: deque[Reply] = field(default_factory=deque)
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    connections: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)  # a client left a reply that hangs
    hanging: asyncio.Event = field(default_factory=asyncio.Event)
    told: asyncio.Event = field(default_factory=asyncio.Event)
    context: SSLContext | None = None
    lists_models: bool = False
    """Whether `replies` are also for who asks which models there are. Servers ask that beside the turns."""

    @property
    def base_url(self) -> str:
        return f"{'http' if self.context is None else 'https'}://127.0.0.1:{self.port}/v1"

    def play(self, *replies: Reply) -> None:
        self.replies.extend(replies)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._serve(self.connections, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # clients that leave are part of these tests
        except asyncio.CancelledError:
            pass  # the test is over; asyncio's streams would log a handler that was cancelled
        finally:
            writer.close()

    async def _serve(self, connection: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked = await _read(connection, reader)
            if not self.lists_models and urlsplit(asked.path).path.endswith("/models"):  # beside a turn: nobody waits
                writer.write(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
                continue
            self.asked.append(asked)
            reply = self.replies.popleft()
            for number, piece in enumerate(reply.pieces, 1):
                if reply.last_when_told and number == len(reply.pieces):
                    await self.told.wait()
                writer.write(piece)
                await writer.drain()
            if reply.then == "close":
                return
            if reply.then == "hang":
                self.hanging.set()
                await reader.read()
                self.gone.set()
                return


async def _read(connection: int, reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers["content-length"])) if "content-length" in headers else b"{}"
    method, path, _ = first.split()
    return Asked(connection, path, headers, json.loads(body), method)


@asynccontextmanager
async def model_server(context: SSLContext | None = None) -> AsyncIterator[ModelServer]:
    playing = ModelServer(context=context)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        await playing.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    playing.port = server.sockets[0].getsockname()[1]
    try:
        yield playing
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
