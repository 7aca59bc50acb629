"""`MockServer`: the HTTP side of the mock model, on 127.0.0.1, a thread per connection.

Owns sockets, framing and pacing. What is answered it asks of `answer`, one request at a time per connection.
Connections are kept alive as a real server does; a reply that is cut closes its connection.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from treadle.testing.recorded import RecordedRequest
from treadle.testing.replies import Reply, error_reply, is_delta
from treadle.testing.wires import ROUTES, route_of

MAX_BODY: Final = 64 * 1024 * 1024  # far beyond any request of a model client, far below what hurts
POLL_S: Final = 0.01  # how soon a handler notices an open gate, or that the server was closed
CLOSE_S: Final = 10.0  # handlers end at once when their socket is shut; longer means a callback of the test hangs
ACCEPT_POLL_S: Final = 0.05


class Closed(Exception):
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
        """Keep what went wrong, except that a client hung up or that the server was closed: tests do both."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError | Closed):
            self.failures.append(error)

    def pause(self, reply: Reply, sent: int) -> None:
        """Wait for the gate of a reply, when it stands after `sent` frames."""
        if reply.gate is None or sent != reply.gate_after:
            return
        while not reply.gate.wait(POLL_S):
            if self.closed.is_set():
                raise Closed


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
        if self._route == "/models":
            self._send(error_reply(200, {"object": "list", "data": [], "models": []}))
            return
        routes = " or ".join(f"{{base_url}}{route}" for route in self.server.routes)
        self._send(_refusal(404, f"the mock model has no {self.command} {self.path}: use POST {routes}"))

    def do_POST(self) -> None:
        body = self._body()
        if isinstance(body, Reply):
            self.close_connection = True  # the body was not read, so the next request cannot be found
            self._send(body)
            return
        if self._route not in self.server.routes:
            self.do_GET()
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._send(self.server.answer(RecordedRequest(self.command, self.path, headers, body)))

    @property
    def _route(self) -> str:
        return route_of(self.path)

    def _body(self) -> bytes | Reply:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            return _refusal(411, "the mock model needs a Content-Length")
        if int(length) > MAX_BODY:
            return _refusal(413, f"the mock model takes at most {MAX_BODY} bytes")
        if self.headers.get("Content-Encoding", "identity") != "identity":
            return _refusal(415, "the mock model takes no compressed bodies: send it plain")
        body: bytes = self.rfile.read(int(length))
        if len(body) < int(length):
            raise ConnectionError("the client hung up in the middle of its request")
        return body

    # --- the reply ---

    def _send(self, reply: Reply) -> None:
        if reply.delay_s and self.server.closed.wait(reply.delay_s):
            raise Closed
        if reply.gate_after == 0:
            self.server.pause(reply, 0)
        if reply.dropped:
            self.close_connection = True
            return
        if reply.streamed:
            self._stream(reply)
            return
        body = b"".join(reply.frames)
        self._head(reply, ("Content-Length", str(len(body))))
        self.wfile.write(body)

    def _head(self, reply: Reply, framing: tuple[str, str]) -> None:
        self.send_response(reply.status)
        for name, value in (*reply.headers.items(), framing):
            self.send_header(name, value)
        self.end_headers()

    def _stream(self, reply: Reply) -> None:
        chunked = self.request_version != "HTTP/1.0"
        self._head(reply, ("Transfer-Encoding", "chunked") if chunked else ("Connection", "close"))
        for part in self._parts(reply):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
            self.wfile.flush()
        if reply.cut_after is not None or not chunked:
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")

    def _parts(self, reply: Reply) -> Iterator[bytes]:
        """The frames in as few pieces as the gate and the delay allow: a client must take any cut, and few are fast."""
        held: list[bytes] = []
        for sent, frame in enumerate(reply.frames[: reply.cut_after]):
            if reply.delta_delay_s and is_delta(frame):
                yield from _joined(held)
                if self.server.closed.wait(reply.delta_delay_s):
                    raise Closed
            held.append(frame)
            if sent + 1 == reply.gate_after:
                yield from _joined(held)
                self.server.pause(reply, reply.gate_after)
        yield from _joined(held)


def _joined(held: list[bytes]) -> Iterator[bytes]:
    """What is held, in one piece; then nothing is."""
    piece = b"".join(held)
    held.clear()
    if piece:  # an empty chunk would be the end of the body
        yield piece


def _refusal(status: int, message: str) -> Reply:
    return error_reply(status, {"error": {"message": message, "type": "mock_model", "code": None}})


def refusal_of(error: BaseException) -> Reply:
    """What the client is told when a callback of the test failed."""
    return _refusal(500, f"on_empty of the mock model raised {type(error).__name__}: {error}")


def empty_queue(number: int) -> Reply:
    """The default answer when nothing is queued."""
    return _refusal(
        500, f"the mock model has no response queued for request {number}: call one of its enqueue methods first"
    )
