"""The HTTP part of a WebSocket connection, sans I/O, for both roles.

The server half answers health checks, rejects what must be rejected (browsers by their `Origin`, wrong paths, wrong
tokens) and upgrades the rest. It never reads a body. The `websockets` library decides what a valid upgrade is, for
requests and responses.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, Literal

from msgspec import Struct
from websockets.client import ClientProtocol
from websockets.datastructures import Headers
from websockets.exceptions import InvalidHandshake
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.uri import WebSocketURI
from websockets.utils import generate_key

from treadle.errors import ChannelClosed
from treadle.transport.websocket import QUIET

MAX_HEAD = 16 << 10
_SAID = 500
_ADVICE: Final = (
    "send it as `Authorization: Bearer TOKEN`, or connect to ws://HOST:PORT/TOKEN; the server names the file that "
    "holds it when it starts"
)


class BadRequest(Exception):
    """The head is not HTTP, or too long."""


class Head(Struct, frozen=True):
    """The head of a request or response: its first line and its headers, with lower-case names."""

    start: str
    headers: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Head({len(self.headers)} headers)"  # the path and the authorization may be secrets


def split_head(buffer: bytes) -> tuple[Head, bytes] | None:
    """The head and what follows it, or None while it is incomplete."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        if len(buffer) > MAX_HEAD:
            raise BadRequest(f"the head is longer than {MAX_HEAD} bytes")
        return None
    if end > MAX_HEAD:
        raise BadRequest(f"the head is longer than {MAX_HEAD} bytes")
    start, *lines = buffer[:end].decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest("a header line is malformed")
        name = name.lower()
        headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
    return Head(start, headers), buffer[end + 4 :]


class AccessControl(Struct, frozen=True):
    """Access control: health paths are open, everything else needs the token, if there is one.

    The token comes as `Authorization: Bearer TOKEN`, or as the first part of the path (`/TOKEN`) for clients that can
    only be given a URL; what follows it is then the path.
    """

    token: str | None = None
    health_paths: tuple[str, ...] = ("/readyz",)
    any_path: bool = False

    def __repr__(self) -> str:
        return f"AccessControl(token={None if self.token is None else '…'}, health_paths={self.health_paths!r})"

    def answer(self, head: Head) -> tuple[bytes, bool]:
        """The response, and whether it upgrades the connection."""
        method, _, rest = head.start.partition(" ")
        target, _, version = rest.rpartition(" ")
        if not target or not version.startswith("HTTP/1."):
            return response(HTTPStatus.BAD_REQUEST, "not an HTTP/1.1 request"), False
        if "origin" in head.headers:
            return response(HTTPStatus.FORBIDDEN, "requests from web pages are refused"), False
        path = target.partition("?")[0]
        given, path = self._given(head, path)
        if path in self.health_paths:
            if method not in ("GET", "HEAD"):
                return response(HTTPStatus.METHOD_NOT_ALLOWED, "use GET"), False
            return response(HTTPStatus.OK, ""), False
        known = path == "/" or self.any_path
        accept = _accept(head, method, target, version)
        if accept is None and known:
            return response(HTTPStatus.BAD_REQUEST, "expected a WebSocket upgrade (version 13)"), False
        if accept is not None and given != "right":
            return response(HTTPStatus.UNAUTHORIZED, f"{given} token: {_ADVICE}"), False
        if accept is None or not known:
            places = " or ask ".join(("/", *self.health_paths))
            return response(HTTPStatus.NOT_FOUND, f"no such path; connect to {places}"), False
        return _upgraded(accept), True

    def _given(self, head: Head, path: str) -> tuple[Literal["right", "wrong", "missing"], str]:
        """What was given for a token, and the path without it."""
        if self.token is None:
            return "right", path
        scheme, _, bearer = head.headers.get("authorization", "").partition(" ")
        bearer = bearer.strip() if scheme.lower() == "bearer" else ""
        first, _, rest = path.removeprefix("/").partition("/")
        if first and self._is_token(first):
            return "right", f"/{rest}"
        if bearer and self._is_token(bearer):
            return "right", path
        return "wrong" if bearer or first else "missing", path

    def _is_token(self, given: str) -> bool:
        assert self.token is not None
        return hmac.compare_digest(given.encode("latin-1"), self.token.encode())


def _accept(head: Head, method: str, target: str, version: str) -> str | None:
    """The proof that we have read the key; None when this is no good upgrade."""
    try:
        request = Request(target, Headers(head.headers), method, version)
        accept, _, _ = ServerProtocol(logger=QUIET).process_request(request)
    except InvalidHandshake:
        return None
    return accept


def _upgraded(accept: str) -> bytes:
    lines = ("HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade")
    return "\r\n".join((*lines, f"Sec-WebSocket-Accept: {accept}", "", "")).encode()


def response(status: HTTPStatus, text: str) -> bytes:
    body = f"{text}\n".encode() if text else b""
    challenge = "WWW-Authenticate: Bearer\r\n" if status == HTTPStatus.UNAUTHORIZED else ""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n{challenge}"
        f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


class Upgrade(Struct, frozen=True):
    """The client half: one request, and the check of its response."""

    host: str
    path: str
    token: str | None
    key: str
    advice: str = ""
    """For whoever is refused for want of the right token."""

    def __repr__(self) -> str:
        return f"Upgrade(host={self.host!r})"  # the path may be a secret as well

    @classmethod
    def new(cls, host: str, path: str, token: str | None, advice: str = "") -> Upgrade:
        if token is not None and not (token and token.isascii() and token.isprintable() and " " not in token):
            raise ChannelClosed("the token must be one word of printable ASCII, without the end of its line")
        return cls(host, path or "/", token, generate_key(), advice)

    def request(self) -> bytes:
        authorization = f"Authorization: Bearer {self.token}\r\n" if self.token is not None else ""
        return (
            f"GET {self.path} HTTP/1.1\r\nHost: {self.host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {self.key}\r\nSec-WebSocket-Version: 13\r\n{authorization}\r\n"
        ).encode()

    def check(self, head: Head, rest: bytes) -> None:
        """Raise `ChannelClosed` unless the server agreed."""
        status = head.start.split(" ")[1:2]
        if status != ["101"]:
            said = rest[:_SAID].decode("utf-8", "replace").strip()
            parts = [f"the server refused the connection: HTTP {head.start.partition(' ')[2]}", said]
            if status == [str(HTTPStatus.UNAUTHORIZED.value)]:
                parts.append(self.advice)
            raise ChannelClosed(": ".join(part for part in parts if part))
        client = ClientProtocol(WebSocketURI(False, "", 0, self.path, "", None, None), logger=QUIET)
        client.key = self.key
        try:
            client.process_response(Response(HTTPStatus.SWITCHING_PROTOCOLS, "", Headers(head.headers)))
        except InvalidHandshake as error:
            raise ChannelClosed(f"the server's WebSocket handshake does not match the request: {error}") from None
