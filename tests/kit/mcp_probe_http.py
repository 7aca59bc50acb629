"""The probe over streamable HTTP: sessions, and streams with numbered events that can be taken up again."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kit.mcp_probe import Probe

DROP = "drop"  # in a stream: the connection is closed here
END = "end"


class Stream:
    """Messages for one response, which more than one response may carry: a later one goes on after an event."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._messages: list[Any] = []
        self._changed = threading.Condition()

    def put(self, message: Any) -> None:
        with self._changed:
            self._messages.append(message)
            self._changed.notify_all()

    def at(self, index: int) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: index < len(self._messages))
            return self._messages[index]


class Sessions:
    """What the handlers share."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.local = threading.local()
        self.lock = threading.Lock()
        self.count = 0
        self.session: str | None = None
        self.streams: dict[int, Stream] = {}
        self.general = self.new_stream()

    def new_stream(self) -> Stream:
        with self.lock:
            stream = self.streams[len(self.streams)] = Stream(len(self.streams))
            return stream

    def send(self, message: dict[str, Any]) -> None:
        """What a request's thread sends goes with its answer, the rest to the GET of the session."""
        stream = getattr(self.local, "stream", None)
        (stream or self.general).put(message)

    def begin(self) -> str:
        self.count += 1
        self.session = f"session-{self.count}"
        return self.session


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes
    sessions: Sessions

    def log_message(self, format: str, *args: Any) -> None:
        pass

    @property
    def options(self) -> Any:
        return self.sessions.probe.options

    def _record(self, body: Any = None) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        message = {"method": self.command, "path": self.path, "headers": headers, "body": body}
        message["peer"] = self.client_address[1]
        self.sessions.probe.record("http", message)

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _is_let_in(self) -> bool:
        """Whether token and session are right; otherwise it is answered."""
        if self.options.token and self.headers.get("authorization") != f"Bearer {self.options.token}":
            self._answer(401, b"who?", www_authenticate='Bearer realm="probe"')
            return False
        return True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        message = json.loads(body)
        self._record(message)
        if self.path == "/moved":
            self._answer(307, location="/mcp")
            return
        if self.path == "/away":
            self._answer(307, location="http://127.0.0.2:1/mcp?key=hidden")
            return
        if self.path != "/mcp" or self.options.fault == "old":
            self._answer(405 if self.options.fault == "old" else 404)
            return
        if self.options.fault == "not-mcp":
            self._answer(200, b"<html>hello</html>", content_type="text/html")
            return
        if not self._is_let_in():
            return
        begins = message.get("method") == "initialize"
        if self.options.fault == "error-500" and not begins:
            error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "the backend is down"}}
            self._answer(500, json.dumps(error).encode(), content_type="application/json")
            return
        if begins:
            self.sessions.begin()
        elif self.headers.get("mcp-session-id") != self.sessions.session:
            self._answer(404, b"no such session")
            return
        if "id" not in message or "method" not in message:
            self.sessions.probe.receive(message)
            self._answer(202)
            return
        stream = self.sessions.new_stream()

        def prepare() -> None:
            self.sessions.local.stream = None if self.options.json else stream

        self.sessions.probe.receive(message, prepare, stream.put)
        if self.options.json:
            found = stream.at(0)
            self._answer(
                200,
                json.dumps(found).encode(),
                content_type="application/json",
                mcp_session_id=self.sessions.session or "",
            )
            return
        self._stream(stream, 0, primed=message.get("method") == "tools/call")

    def do_GET(self) -> None:
        self._record()
        if self.options.fault == "old":
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b"event: endpoint\ndata: /messages?id=1\n\n")
            self.close_connection = True
            return
        if not self._is_let_in():
            return
        last = self.headers.get("last-event-id")
        if last is not None:
            number, _, index = last.partition("-")
            self._stream(self.sessions.streams[int(number)], int(index) + 1)
        elif self.options.fault == "no-get":
            self._answer(405)
        else:
            self._stream(self.sessions.general, 0)

    def do_DELETE(self) -> None:
        self._record()
        if self.headers.get("mcp-session-id") != self.sessions.session:
            self._answer(404, b"no such session")
            return
        self.sessions.session = None
        self._answer(200)

    def _stream(self, stream: Stream, index: int, *, primed: bool = False) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        if self.sessions.session is not None:
            self.send_header("mcp-session-id", self.sessions.session)
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        ids = self.options.fault != "no-ids"
        try:
            if primed and ids:
                self.wfile.write(f"id: {stream.number}-{index - 1}\nretry: 1\ndata: \n\n".encode())
            while True:
                message = stream.at(index)
                if message == DROP:
                    index += 1
                    if ids:
                        self.wfile.write(f"id: {stream.number}-{index - 1}\nretry: 1\ndata: \n\n".encode())
                    return
                if message == END:
                    return
                mark = f"id: {stream.number}-{index}\n" if ids else ""
                self.wfile.write(f"{mark}event: message\ndata: {json.dumps(message)}\n\n".encode())
                index += 1
                if self.options.fault == "open":  # it does not end with the answer, as it should
                    continue
                if "method" not in message and "id" in message and stream is not self.sessions.general:
                    return
        except OSError:
            return  # the client has gone


def serve(probe: Probe, port: int, ready: Callable[[int], None]) -> None:
    """Until the process ends."""
    sessions = Sessions(probe)
    probe.streams = sessions
    probe.set_send(sessions.send)
    server = ThreadingHTTPServer(("127.0.0.1", port), type("BoundHandler", (Handler,), {"sessions": sessions}))
    server.daemon_threads = True
    ready(server.server_address[1])
    server.serve_forever()
