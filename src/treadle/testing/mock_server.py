"""What every mock model is: a server on 127.0.0.1 that records what it is asked, a thread per connection.

`RecordedRequest` is a request with the questions that tests ask about it, read in the form of the Responses API
whichever API it came over. `MockServer` owns sockets, framing and pacing; connections stay open as with a real server,
and a reply that is cut closes its connection. `ModelServer` owns the record and its life; what is answered is for those
who inherit from it.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, Final, Self, TypeAlias

from treadle.testing.replies import Reply, error_reply, is_delta
from treadle.testing.wires import ROUTES, route_of, translated, wire_of

MAX_BODY: Final = 64 * 1024 * 1024  # far beyond any request of a model client, far below what hurts
POLL_S: Final = 0.01  # how soon a handler notices an open gate, or that the server was closed
CLOSE_S: Final = 10.0  # handlers end at once when their socket is shut; longer means a callback of the test hangs
ACCEPT_POLL_S: Final = 0.05
MAX_RECORDED: Final = 100_000  # a client in an endless loop must not eat the machine; the oldest are dropped
WAIT_S: Final = 30.0

JsonObject: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class RecordedRequest:
    """One request, as it was sent. It is not judged: what is missing reads as empty. Header names are lower case;
    `repr` shows neither headers nor body, which may hold secrets."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @cached_property
    def json(self) -> JsonObject:
        """The body as a JSON object; `ValueError` when it is none."""
        value = json.loads(self.body)
        if not isinstance(value, dict):
            raise ValueError(f"the body of {self.method} {self.path} is no JSON object but a {type(value).__name__}")
        return value

    def header(self, name: str) -> str | None:
        """A header by name, in any case."""
        return self.headers.get(name.lower())

    @property
    def input(self) -> list[JsonObject]:
        """The conversation as items of the Responses API, whichever API was asked.

        A plain string counts as one user message, and what the system says in the other APIs as the developer's. A
        custom tool is a function there.
        """
        return [dict(item) for item in wire_of(self.path).items(self.json)]

    def input_texts(self, role: str) -> list[str]:
        """Every text of the messages of a role, in order: `"user"`, `"developer"`, `"assistant"`, `"system"`."""
        messages = (item for item in self.input if item.get("type", "message") == "message")
        return [text for item in messages if item.get("role") == role for text in _texts(item.get("content"))]

    @property
    def last_user_text(self) -> str | None:
        """The last text that the user role carries; `None` when there is none."""
        texts = self.input_texts("user")
        return texts[-1] if texts else None

    @property
    def tool_outputs(self) -> dict[str, str]:
        """The outputs of tool calls by call id, in the order of the input."""
        return {
            str(item.get("call_id")): "".join(_texts(item.get("output")))
            for item in self.input
            if str(item.get("type")).endswith("_call_output")
        }

    @property
    def tool_names(self) -> list[str]:
        """The tools that the model was offered; a tool without a name goes by its type."""
        return wire_of(self.path).tool_names(self.json)

    @property
    def reasoning_effort(self) -> str | None:
        """How hard the model was asked to think, such as `"high"`; `None` when nothing was said."""
        effort: str | None = wire_of(self.path).effort(self.json)
        return effort

    @property
    def output_schema(self) -> JsonObject | None:
        """The JSON schema that the answer had to follow; `None` when it was free."""
        schema: JsonObject | None = wire_of(self.path).output_schema(self.json)
        return schema


def _texts(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]


class ServerClosed(Exception):
    """The server was closed while a reply waited."""


class MockServer(ThreadingHTTPServer):
    """Serves from construction until `stop`."""

    daemon_threads = True
    request_queue_size = 512  # tests open hundreds of connections at once

    def __init__(
        self, answer: Callable[[RecordedRequest], Reply], port: int = 0, routes: Sequence[str] = ROUTES
    ) -> None:
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise OSError(error.errno, f"the mock model cannot listen on 127.0.0.1:{port}: {error.strerror}") from None
        self.answer = answer
        self.routes = routes
        self.listed: Sequence[Mapping[str, Any]] = ()
        self.closed: threading.Event = threading.Event()
        self.failures: list[BaseException] = []
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()  # guards _open
        self._thread = threading.Thread(
            target=self.serve_forever, args=(ACCEPT_POLL_S,), name="mock-model", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def stop(self) -> None:
        """End every connection and thread. A handler that does not end in time is a `TimeoutError`."""
        if self.closed.is_set():
            return
        self.closed.set()
        _shut(self.socket)  # wakes the thread that accepts, where the system does that; else it looks up by itself
        self.shutdown()
        self._thread.join(CLOSE_S)
        self.server_close()
        with self._changed:
            for connection in self._open:
                _shut(connection)
            if not self._changed.wait_for(lambda: not self._open, CLOSE_S):
                raise TimeoutError(f"{len(self._open)} connections of the mock model did not end in {CLOSE_S:.0f} s")

    def opened(self, connection: socket.socket) -> None:
        with self._changed:
            self._open.add(connection)
            if self.closed.is_set():
                _shut(connection)

    def ended(self, connection: socket.socket) -> None:
        with self._changed:
            self._open.discard(connection)
            self._changed.notify_all()

    def handle_error(self, request: object, client_address: object) -> None:
        """Record what went wrong, except that a client hung up or that the server was closed: tests do both."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError | ServerClosed):
            self.failures.append(error)

    def pause(self, reply: Reply, sent: int) -> None:
        """Wait for the gate of a reply, when it stands after `sent` frames."""
        if reply.gate is None or sent != reply.gate_after:
            return
        while not reply.gate.wait(POLL_S):
            if self.closed.is_set():
                raise ServerClosed


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the client was faster


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    server: MockServer

    def setup(self) -> None:
        self.server.opened(self.request)
        super().setup()

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            self.server.ended(self.request)

    def log_message(self, format: str, *args: object) -> None:
        """Tests look at `requests()`; standard error is theirs."""

    def do_GET(self) -> None:
        if route_of(self.path) == "/models":
            self._send(error_reply(200, {"object": "list", "data": list(self.server.listed), "models": []}))
            return
        routes = " or ".join(f"{{base_url}}{route}" for route in self.server.routes)
        self._send(refusal_reply(404, f"the mock model has no {self.command} {self.path}: use POST {routes}"))

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        refusal = None
        if not (length.isascii() and length.isdigit()):
            refusal = refusal_reply(411, "the mock model needs a Content-Length")
        elif int(length) > MAX_BODY:
            refusal = refusal_reply(413, f"the mock model takes at most {MAX_BODY} bytes")
        elif self.headers.get("Content-Encoding", "identity") != "identity":
            refusal = refusal_reply(415, "the mock model takes no compressed bodies: send it plain")
        if refusal is not None:
            self.close_connection = True  # the body was not read, so the next request cannot be found
            self._send(refusal)
            return
        body: bytes = self.rfile.read(int(length))
        if len(body) < int(length):
            raise ConnectionError("the client hung up in the middle of its request")
        if route_of(self.path) not in self.server.routes:
            self.do_GET()
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._send(self.server.answer(RecordedRequest(self.command, self.path, headers, body)))

    # --- the reply ---

    def _send(self, reply: Reply) -> None:
        if reply.delay_s and self.server.closed.wait(reply.delay_s):
            raise ServerClosed
        if reply.gate_after == 0:
            self.server.pause(reply, 0)
        if reply.dropped:
            self.close_connection = True
            return
        chunked = reply.streamed and self.request_version != "HTTP/1.0"
        body = b"" if reply.streamed else b"".join(reply.frames)
        if reply.streamed:
            framing = ("Transfer-Encoding", "chunked") if chunked else ("Connection", "close")
        else:
            framing = ("Content-Length", str(len(body)))
        self.send_response(reply.status)
        for name, value in (*reply.headers.items(), framing):
            self.send_header(name, value)
        self.end_headers()
        if not reply.streamed:
            self.wfile.write(body)
            return
        for part in self._parts(reply):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
            self.wfile.flush()
        if reply.cut_after is not None or not chunked:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _parts(self, reply: Reply) -> Iterator[bytes]:
        """The frames in as few pieces as the gate and the delay allow: a client must take any cut, and few are fast."""
        held: list[bytes] = []
        for sent, frame in enumerate(reply.frames[: reply.cut_after]):
            if reply.delta_delay_s and is_delta(frame):
                yield from _joined(held)
                if self.server.closed.wait(reply.delta_delay_s):
                    raise ServerClosed
            held.append(frame)
            if sent + 1 == reply.gate_after:
                yield from _joined(held)
                self.server.pause(reply, reply.gate_after)
        yield from _joined(held)


def _joined(held: list[bytes]) -> Iterator[bytes]:
    """Join what is held into one piece, and empty it."""
    piece = b"".join(held)
    held.clear()
    if piece:  # an empty chunk would be the end of the body
        yield piece


def refusal_reply(status: int, message: str) -> Reply:
    """What the mock model answers when it cannot do what it is asked."""
    return error_reply(status, {"error": {"message": message, "type": "mock_model", "code": None}})


class ModelServer:
    """Serves from construction until `close()`, in threads of its own.

    Args:
        port: Where it answers; 0 takes a free one.
    """

    _ROUTES: ClassVar[tuple[str, ...]] = ROUTES

    def __init__(self, *, port: int = 0) -> None:
        self._requests: deque[RecordedRequest] = deque(maxlen=MAX_RECORDED)
        self._received = 0
        self._closing = False
        self._changed = threading.Condition()  # guards the record, and the state of those who inherit
        self._server = MockServer(self._answer, port, self._ROUTES)

    def list_models(self, *models: Mapping[str, Any]) -> None:
        """List these models from now on, to who asks `GET {base_url}/models`; without any there are none.

        Args:
            models: As servers list them, such as `{"id": "a-model", "max_model_len": 32768}`.
        """
        self._server.listed = models

    # --- life ---

    @property
    def base_url(self) -> str:
        """What a client is configured with: the path of the API is added to it, such as `/responses`."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def port(self) -> int:
        """Where it answers."""
        return self._server.port

    def close(self) -> None:
        """End every connection and thread; waiting replies are cancelled. May be called again."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        if error is None and self._server.failures:
            raise self._server.failures[0]

    # --- what was asked ---

    def requests(self) -> list[RecordedRequest]:
        """Every request for a response so far, in the order of arrival."""
        with self._changed:
            return list(self._requests)

    def single_request(self) -> RecordedRequest:
        """The only request; `AssertionError` when there was none, or more than one."""
        requests = self.requests()
        if len(requests) != 1:
            raise AssertionError(f"the mock model was asked {len(requests)} times, not once")
        return requests[0]

    def wait_for_requests(self, n: int, timeout: float = WAIT_S) -> list[RecordedRequest]:
        """Block until so many requests have arrived in all, and return all; `TimeoutError` says how many did.

        In an async test that runs the client on the same loop, use `await model.arrived(n)`.

        Args:
            n: How many.
            timeout: Seconds to wait for them.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._received >= n, timeout):
                raise TimeoutError(f"the mock model was asked {self._received} times in {timeout:g} s, not {n} times")
            return list(self._requests)

    async def arrived(self, n: int, timeout: float = WAIT_S) -> list[RecordedRequest]:
        """`wait_for_requests` without blocking the event loop.

        Args:
            n: How many.
            timeout: Seconds to wait for them.
        """
        return await asyncio.to_thread(self.wait_for_requests, n, timeout)

    def _answer(self, request: RecordedRequest) -> Reply:
        with self._changed:
            self._requests.append(request)
            self._received += 1
            number = self._received
            self._changed.notify_all()
        return self._reply(request, number)

    def _reply(self, request: RecordedRequest, number: int) -> Reply:
        """What is answered to a request, the `number`th of all."""
        raise NotImplementedError


def in_the_api_of(request: RecordedRequest, reply: Reply) -> Reply:
    """The reply as the API has it that was asked; those without events or a body stay as they are."""
    if not reply.events and reply.body is None:
        return reply
    try:
        asked = request.json
    except ValueError:  # only what is no stream in the other APIs needs it
        asked = {}
    return translated(reply, request.path, asked)
