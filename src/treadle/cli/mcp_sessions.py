"""MCP over streamable HTTP, at `/mcp` of the app-server's listener, which has checked the token: sessions of clients.

Each request has a connection of its own, and a call is answered with a stream of events, which has its progress and its
questions too. Events are numbered: a client that has lost the connection takes the stream up again where it was (GET
with `Last-Event-ID`); what it asks for is done meanwhile, and its questions wait for it, `AWAY_S` long.

    session ─┬─ stream 1 (a call) ──── connection of its POST, then of a GET
             ├─ stream 2 (a call) ──── nobody, for now
             └─ stream 3 (no call) ─── connection of a GET; it ends with the session
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from treadle.client.async_connection import DirectChannel
from treadle.errors import INTERNAL_ERROR, MalformedMessage, RpcError
from treadle.mcp.mcp_messages import PROTOCOL_VERSIONS
from treadle.mcp.mcp_serving import McpConnection, ServedTools
from treadle.rpc import Request
from treadle.rpc.message import decode, is_too_deep
from treadle.transport.websocket import Head, response

MAX_SESSIONS: Final = 64
"""A further one takes the place of the one that was idle longest; when none is idle, it is refused."""
IDLE_S: Final = 3600.0
"""How long a session lasts of whose client nothing is heard, and which has no connection."""
AWAY_S: Final = 30.0
"""How long the questions of a call wait for a client whose connection was lost."""
MAX_KEPT: Final = 1 << 20
"""Bytes of events of a session that can be sent again; older ones cannot."""
_MAX_BODY: Final = 16 << 20
_BODY_S: Final = 30.0  # to send a body in
_ALIVE_S: Final = 20.0  # clients and proxies close a stream that is silent for some minutes
_MAX_UNREAD: Final = 1 << 20  # of a connection; what the client may miss is then left out
_FIRST_EVENTS: Final = "2025-11-25"  # from this version on, a stream begins with an event without a message
_MISSING: Final = HTTPStatus.BAD_REQUEST, "the header Mcp-Session-Id is missing"


class McpSessions:
    """The sessions of all clients."""

    def __init__(self, tools: ServedTools) -> None:
        self._tools = tools
        self._sessions: dict[str, _Session] = {}  # the one that was used last at the end

    def exchange(self, head: Head, lost: Callable[[], None]) -> asyncio.Protocol:
        """What answers a request."""
        return _Exchange(head, self._received, lost)

    async def close(self) -> None:
        ending = tuple(self._sessions.values())
        for session in ending:
            session.close()
        for session in ending:
            await session.wait_closed()

    def _received(self, exchange: _Exchange, body: bytes) -> None:
        headers = exchange.head.headers
        method = exchange.head.start.partition(" ")[0]
        given = headers.get("mcp-session-id", "")
        session = self._sessions.pop(given, None)
        if session is not None:
            self._sessions[given] = session
            session.used()
        if method not in ("GET", "POST", "DELETE"):
            exchange.answer(HTTPStatus.METHOD_NOT_ALLOWED, "use POST, GET or DELETE")
        elif headers.get("mcp-protocol-version", _FIRST_EVENTS) not in PROTOCOL_VERSIONS:
            exchange.answer(HTTPStatus.BAD_REQUEST, f"known versions are {', '.join(PROTOCOL_VERSIONS)}")
        elif given and session is None:
            exchange.answer(HTTPStatus.NOT_FOUND, "no such session: begin a new one")
        elif method == "POST":
            self._post(exchange, body, session)
        elif session is None:
            exchange.answer(*_MISSING)
        elif method == "GET":
            session.listen(exchange, headers.get("last-event-id"))
        else:
            session.close()
            exchange.answer(HTTPStatus.NO_CONTENT)

    def _post(self, exchange: _Exchange, body: bytes, session: _Session | None) -> None:
        try:
            if is_too_deep(body):
                raise MalformedMessage("the message is nested too deep")
            message = decode(body, untrusted=True)
        except MalformedMessage as error:
            exchange.answer(HTTPStatus.BAD_REQUEST, str(error))
            return
        opens = isinstance(message, Request) and message.method == "initialize"
        if session is None and opens:
            session = self._new_session()
        if session is None:
            full = HTTPStatus.SERVICE_UNAVAILABLE, "too many sessions are in use"
            exchange.answer(*(full if opens else _MISSING))
        elif not isinstance(message, Request):
            session.frame_received(body)
            exchange.answer(HTTPStatus.ACCEPTED)
        elif message.id in session.streams:
            exchange.answer(HTTPStatus.BAD_REQUEST, f"a request with the id {message.id!r} is being answered")
        else:
            session.open(message.id, exchange)
            session.frame_received(body)

    def _new_session(self) -> _Session | None:
        if len(self._sessions) >= MAX_SESSIONS:
            idle = next((session for session in self._sessions.values() if not session.works), None)
            if idle is None:
                return None
            idle.close()
        session = _Session(self._tools, self._sessions)
        self._sessions[session.id] = session
        return session


class _Stream:
    """The events about one request of a client, or about none."""

    def __init__(self, key: int) -> None:
        self.key = key
        self.count = 0
        self.ended = False
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._exchange: _Exchange | None = None
        self._away: asyncio.TimerHandle | None = None

    @property
    def is_attached(self) -> bool:
        return self._exchange is not None

    @property
    def takes_more(self) -> bool:
        return self._exchange is None or self._exchange.is_read

    def attach(self, exchange: _Exchange) -> None:
        if self._exchange is not None:  # the client has noticed first that it was lost
            self._exchange.end()
        if self._away is not None:
            self._away.cancel()
        self._exchange = exchange
        exchange.gone.add_done_callback(lambda _: self._detach(exchange))

    def _detach(self, exchange: _Exchange) -> None:
        if self._exchange is exchange:
            self._exchange = None
            if not self.ended:
                self._away = asyncio.get_running_loop().call_later(AWAY_S, self._client_lost)

    def _client_lost(self) -> None:
        if not self.lost.done():
            self.lost.set_result(None)

    def write(self, event: bytes) -> None:
        if self._exchange is not None:
            self._exchange.write(event)

    def end(self) -> None:
        self.ended = True
        if self._exchange is not None:
            self._exchange.end()


class _Session(McpConnection):
    """A client: what belongs to one of its requests goes into the stream of that."""

    def __init__(self, tools: ServedTools, everyone: dict[str, _Session]) -> None:
        super().__init__(DirectChannel(lambda _: None), tools)
        self.id: str = secrets.token_urlsafe(24)
        self.streams: dict[int | str | None, _Stream] = {}  # of the requests that have no answer yet; None: of none
        self._everyone = everyone
        self._kept: deque[tuple[_Stream, int, bytes]] = deque()
        self._kept_bytes = 0
        self._opened = 0
        self._expiring: asyncio.TimerHandle | None = None
        self.used()

    @property
    def works(self) -> bool:
        """Whether a request has no answer yet."""
        return any(request_id is not None for request_id in self.streams)

    def used(self) -> None:
        """Put off the end of the session: something was heard of the client."""

        def expire() -> None:
            if self.works or any(stream.is_attached for stream in self.streams.values()):
                self.used()
            else:
                self.close()

        if self._expiring is not None:
            self._expiring.cancel()
        self._expiring = asyncio.get_running_loop().call_later(IDLE_S, expire)

    def close(self) -> None:
        self._everyone.pop(self.id, None)
        if self._expiring is not None:
            self._expiring.cancel()
        super().close()
        general = self.streams.pop(None, None)
        if general is not None:
            general.end()

    # --- streams ---

    def open(self, request_id: int | str | None, exchange: _Exchange) -> None:
        """Answer a request with a stream of its own."""
        self._opened += 1
        stream = self.streams[request_id] = _Stream(self._opened)
        self._connect(stream, exchange)

    def listen(self, exchange: _Exchange, last_event: str | None) -> None:
        """Send what belongs to no request; or, after an event, the rest of its stream."""
        if last_event is None:
            general = self.streams.get(None)
            if general is not None and general.is_attached:
                exchange.answer(HTTPStatus.CONFLICT, "this session has such a stream: close that first")
            else:
                self.open(None, exchange)
            return
        key, _, number = last_event.partition(".")
        known = {stream.key: stream for stream in (*self.streams.values(), *(stream for stream, _, _ in self._kept))}
        stream = known.get(int(key)) if _is_number(key) and _is_number(number) else None
        if stream is None:
            exchange.answer(HTTPStatus.BAD_REQUEST, "no such event, or one that is too old")
            return
        self._connect(stream, exchange)
        for of, count, event in tuple(self._kept):
            if of is stream and count > int(number):
                exchange.write(event)
        if stream.ended:
            exchange.end()

    def _connect(self, stream: _Stream, exchange: _Exchange) -> None:
        exchange.stream(self.id)
        stream.attach(exchange)
        if self.version >= _FIRST_EVENTS:
            exchange.write(b"id: %d.%d\nretry: 1000\ndata: \n\n" % (stream.key, stream.count))

    def _write(self, stream: _Stream, frame: bytes) -> None:
        stream.count += 1
        event = b"id: %d.%d\nevent: message\ndata: %b\n\n" % (stream.key, stream.count, frame)
        self._kept.append((stream, stream.count, event))
        self._kept_bytes += len(event)
        while self._kept_bytes > MAX_KEPT:
            self._kept_bytes -= len(self._kept.popleft()[2])
        stream.write(event)

    # --- for the conversation ---

    def send(self, frame: bytes, about: int | str, *, may_miss: bool = False) -> None:
        stream = self.streams.get(about)
        if stream is not None and (stream.takes_more or not may_miss):
            self._write(stream, frame)

    def respond(self, frame: bytes, request_id: int | str) -> None:
        stream = self.streams.pop(request_id)
        self._write(stream, frame)
        stream.end()

    async def ask(self, method: str, params: Any, about: int | str) -> Any:
        lost = self.streams[about].lost
        asking = asyncio.ensure_future(super().ask(method, params, about))
        lost.add_done_callback(lambda _: asking.cancel())
        if lost.done():
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
        """Whether the client reads what it is sent."""
        return self._transport is not None and self._transport.get_write_buffer_size() <= _MAX_UNREAD

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._timer = asyncio.get_running_loop().call_later(
            _BODY_S, self.answer, HTTPStatus.REQUEST_TIMEOUT, "too slow"
        )
        length = self.head.headers.get("content-length", "0")
        if "transfer-encoding" in self.head.headers or not _is_number(length):
            self.answer(HTTPStatus.LENGTH_REQUIRED, "a body needs a Content-Length")
        elif int(length) > _MAX_BODY:
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

    def answer(self, status: HTTPStatus, text: str = "") -> None:
        """Answer with a text, and end."""
        self.write(response(status, text))
        self.end()

    def stream(self, session_id: str) -> None:
        """Begin to answer with events."""
        lines = ("HTTP/1.1 200 OK", "Connection: close", "Content-Type: text/event-stream", "Cache-Control: no-store")
        self.write("\r\n".join((*lines, f"Mcp-Session-Id: {session_id}", "", "")).encode())
        self._stay_alive()

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def end(self) -> None:
        self._stop_timer()
        if self._transport is not None:
            self._transport.close()

    def _stay_alive(self) -> None:
        self.write(b": \n\n")
        self._timer = asyncio.get_running_loop().call_later(_ALIVE_S, self._stay_alive)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12
