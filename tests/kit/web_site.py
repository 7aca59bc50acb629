"""A web server for tests: each path is a function that answers as it likes, byte by byte if it wants to."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from typing import Any, TypeAlias


class Asked(BaseHTTPRequestHandler):
    """One request; `send` answers it."""

    protocol_version = "HTTP/1.1"
    server: Site

    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers)))
        answer = self.server.pages.get(self.path.partition("?")[0], not_found)
        try:
            answer(self)
        except OSError:  # the client went away, which some of the tests are about
            self.close_connection = True

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


Answer: TypeAlias = Callable[[Asked], None]


def not_found(asked: Asked) -> None:
    asked.send(404, b"not found")


def page(body: str | bytes, kind: str = "text/html; charset=utf-8", **headers: str) -> Answer:
    content = body.encode() if isinstance(body, str) else body
    return lambda asked: asked.send(200, content, content_type=kind, **headers)


def moved(to: str, status: int = 302) -> Answer:
    return lambda asked: asked.send(status, b"", location=to)


def silent(asked: Asked) -> None:
    """No answer, as long as the server lives."""
    asked.server.closing.wait(60)


def found(*results: Mapping[str, Any]) -> Answer:
    """What SearXNG answers."""
    return page(json.dumps({"results": results}), "application/json")


class Site(ThreadingHTTPServer):
    """`asked` has the path and the headers of each request."""

    daemon_threads = True

    def __init__(self, pages: Mapping[str, Answer], context: SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Asked)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.pages = dict(pages)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.closing = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is nothing to print a traceback for."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return self.server_address[1]

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


@contextmanager
def site(pages: Mapping[str, Answer], context: SSLContext | None = None) -> Iterator[Site]:
    with Site(pages, context) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()


def unused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
