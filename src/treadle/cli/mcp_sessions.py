"""MCP over streamable HTTP, at `/mcp` of the app-server's listener, which has checked the token: sessions of clients.

Each request has a connection of its own. A call is answered with a stream of events, which has its progress and its
questions too; there is no stream besides (GET), and none is resumed: when the client goes, its turn runs on, and can be
read with `treadle_read`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from treadle.cli.mcp_threads import ThreadTools
from treadle.client import AsyncAppServerClient, CodexConfig, CodexError
from treadle.client.async_connection import DirectChannel
from treadle.errors import INTERNAL_ERROR, MalformedMessage, RpcError
from treadle.mcp.mcp_messages import PROTOCOL_VERSIONS
from treadle.mcp.mcp_serving import McpConnection
from treadle.rpc import Request
from treadle.rpc.message import decode, is_too_deep
from treadle.transport.websocket import Head

MAX_SESSIONS: Final = 64
"""A further one takes the place of the one that was idle longest; when none is idle, it is refused."""
_MAX_BODY: Final = 16 << 20
_BODY_S: Final = 30.0  # to send a body in
_ALIVE_S: Final = 20.0  # clients and proxies give up a stream that is silent for some minutes
_MAX_UNREAD: Final = 1 << 20  # of a stream; what is not an answer or a question is then left out


class McpSessions:
    """The sessions of all clients. They share one client of the app-server, which is made for the first of them."""

    def __init__(self, url: str, token: str | None) -> None:
        self._threads = ThreadTools()
        config = CodexConfig(url=url, token=token, client_name="treadle_mcp_server", request_timeout=None)
        answer: Any = self._threads.answer
        self._threads.client = AsyncAppServerClient(config, answer)
        self._opening = asyncio.Lock()
        self._initialized = False
        self._sessions: dict[str, _Session] = {}  # the one that was used last at the end
        self._tasks: set[asyncio.Task[None]] = set()

    def exchange(self, head: Head, lost: Callable[[], None]) -> asyncio.Protocol:
        """What answers a request."""
        return _Exchange(head, self._received, lost)

    async def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        for session in self._sessions.values():
            await session.wait_closed()
        await self._threads.client.close()

    def _received(self, exchange: _Exchange, body: bytes) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(exchange, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, exchange: _Exchange, body: bytes) -> None:
        method = exchange.head.start.partition(" ")[0]
        version = exchange.head.headers.get("mcp-protocol-version", PROTOCOL_VERSIONS[0])
        given = exchange.head.headers.get("mcp-session-id", "")
        session = self._sessions.pop(given, None)
        if session is not None:
            self._sessions[given] = session
        if method not in ("POST", "DELETE"):
            exchange.answer(HTTPStatus.METHOD_NOT_ALLOWED, "use POST", "Allow: POST, DELETE")
        elif version not in PROTOCOL_VERSIONS:
            exchange.answer(HTTPStatus.BAD_REQUEST, f"known versions are {', '.join(PROTOCOL_VERSIONS)}")
        elif given and session is None:
            exchange.answer(HTTPStatus.NOT_FOUND, "no such session: begin a new one")
        elif method == "POST":
            await self._post(exchange, body, session)
        elif session is None:
            exchange.answer(HTTPStatus.BAD_REQUEST, "the header Mcp-Session-Id is missing")
        else:
            del self._sessions[given]
            session.close()
            exchange.answer(HTTPStatus.NO_CONTENT)

    async def _post(self, exchange: _Exchange, body: bytes, session: _Session | None) -> None:
        try:
            if is_too_deep(body):
                raise MalformedMessage("the message is nested too deep")
            message = decode(body, untrusted=True)
            async with self._opening:
                await self._threads.client.start()  # which does nothing when it is connected
                if not self._initialized:
                    await self._threads.client.initialize()
                    self._initialized = True
        except MalformedMessage as error:
            exchange.answer(HTTPStatus.BAD_REQUEST, str(error))
            return
        except CodexError as error:
            exchange.answer(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            return
        opens = isinstance(message, Request) and message.method == "initialize"
        if session is None and opens:
            session = self._new_session()
        if session is None:
            full = HTTPStatus.SERVICE_UNAVAILABLE, "too many sessions are in use"
            missing = HTTPStatus.BAD_REQUEST, "the header Mcp-Session-Id is missing"
            exchange.answer(*(full if opens else missing))
        elif not isinstance(message, Request):
            session.frame_received(body)
            exchange.answer(HTTPStatus.ACCEPTED)
        elif message.id in session.streams:
            exchange.answer(HTTPStatus.BAD_REQUEST, f"a request with the id {message.id!r} is being answered")
        else:
            session.streams[message.id] = exchange
            exchange.stream(session.id)
            session.frame_received(body)

    def _new_session(self) -> _Session | None:
        if len(self._sessions) >= MAX_SESSIONS:
            idle = next((session for session in self._sessions.values() if not session.streams), None)
            if idle is None:
                return None
            del self._sessions[idle.id]
            idle.close()
        session = _Session(self._threads)
        self._sessions[session.id] = session
        return session


class _Session(McpConnection):
    """A client: what belongs to one of its requests goes into the stream of that."""

    def __init__(self, threads: ThreadTools) -> None:
        super().__init__(DirectChannel(lambda _: None), threads)
        self.id: str = secrets.token_urlsafe(24)
        self.streams: dict[int | str, _Exchange] = {}  # of the requests that have no answer yet

    def send(self, frame: bytes, about: int | str | None) -> None:
        if about is not None and about in self.streams:
            self.streams[about].event(frame)

    def respond(self, frame: bytes, request_id: int | str) -> None:
        self.streams.pop(request_id).event(frame, last=True)

    def notify(self, method: str, params: Mapping[str, Any], about: int | str) -> None:
        stream = self.streams.get(about)
        if stream is not None and stream.is_read:
            super().notify(method, params, about)

    async def ask(self, method: str, params: Mapping[str, Any], about: int | str) -> Any:
        gone = self.streams[about].gone
        asking = asyncio.ensure_future(super().ask(method, params, about))
        gone.add_done_callback(lambda _: asking.cancel())
        if gone.done():
            asking.cancel()
        try:
            return await asking
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                raise RpcError(INTERNAL_ERROR, "the client has closed the stream of its call") from None
            raise

    def call_ended(self, request_id: int | str) -> None:
        stream = self.streams.pop(request_id, None)  # there when the call was cancelled
        if stream is not None:
            stream.end()


class _Exchange(asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, head: Head, received: Callable[[_Exchange, bytes], None], lost: Callable[[], None]) -> None:
        self.head = head
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._received = received
        self._lost = lost
        self._body = bytearray()
        self._length: int | None = 0
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_read(self) -> bool:
        """Whether the client reads its stream."""
        return self._transport is not None and self._transport.get_write_buffer_size() <= _MAX_UNREAD

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._timer = asyncio.get_running_loop().call_later(
            _BODY_S, self.answer, HTTPStatus.REQUEST_TIMEOUT, "too slow"
        )
        length = self.head.headers.get("content-length", "0")
        if "transfer-encoding" in self.head.headers or not (length.isascii() and length.isdigit()):
            self.answer(HTTPStatus.LENGTH_REQUIRED, "a body needs a Content-Length")
        elif len(length) > 12 or int(length) > _MAX_BODY:
            self.answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {_MAX_BODY} bytes")
        else:
            self._length = int(length)
            return
        self._length = None

    def data_received(self, data: bytes) -> None:
        if self._length is None:  # the answer has begun: there is nothing more to say
            return
        self._body += data
        if len(self._body) >= self._length:
            body, self._length = bytes(self._body[: self._length]), None
            self._body.clear()
            self._stop_timer()
            self._received(self, body)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._stop_timer()
        if not self.gone.done():
            self.gone.set_result(None)
        self._lost()

    def answer(self, status: HTTPStatus, text: str = "", *headers: str) -> None:
        """Answer with a text, and end."""
        body = text.encode()
        lines = (f"Content-Length: {len(body)}", "Content-Type: text/plain; charset=utf-8", *headers)
        self._write(_head(status, *lines) + body)
        self.end()

    def stream(self, session_id: str) -> None:
        """Begin to answer with events."""
        lines = ("Content-Type: text/event-stream", "Cache-Control: no-store", f"Mcp-Session-Id: {session_id}")
        self._write(_head(HTTPStatus.OK, *lines))
        self._stay_alive()

    def event(self, frame: bytes, *, last: bool = False) -> None:
        self._write(b"event: message\ndata: " + frame + b"\n\n")
        if last:
            self.end()

    def end(self) -> None:
        self._stop_timer()
        if self._transport is not None:
            self._transport.close()

    def _stay_alive(self) -> None:
        self._write(b": \n\n")
        self._timer = asyncio.get_running_loop().call_later(_ALIVE_S, self._stay_alive)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _head(status: HTTPStatus, *lines: str) -> bytes:
    start = f"HTTP/1.1 {status.value} {status.phrase}"
    return "\r\n".join((start, "Connection: close", *lines, "", "")).encode()
