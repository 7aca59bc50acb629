"""WebSocket (RFC 6455), sans I/O, on the public interface of the `websockets` library: the HTTP part that opens a
connection, for both roles, and then bytes in, messages out.

`AccessControl` answers requests to a server: it answers health checks, refuses what must be refused (browsers by their
`Origin`, wrong paths, wrong tokens) and upgrades the rest, and never reads a body. `Upgrade` is the request of a
client. What a valid upgrade is, the library decides. `WebSocketFramer` owns what an open connection reads and writes:
limits, close reasons, and checks that the library leaves to others. No extension is negotiated: most payload is random
base64, or never leaves the machine, so compression would not pay.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, Literal, cast

from msgspec import Struct
from websockets.client import ClientProtocol
from websockets.datastructures import Headers
from websockets.exceptions import InvalidHandshake, PayloadTooBig
from websockets.frames import Close, CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import Protocol, Side, State
from websockets.server import ServerProtocol
from websockets.uri import WebSocketURI
from websockets.utils import generate_key

from treadle.errors import ChannelClosed
from treadle.transport.tokens import NamedToken, find

MAX_FRAME: Final = 16 << 20
MAX_MESSAGE: Final = 64 << 20
MAX_HEAD = 16 << 10
# As much of a server's answer as an error message quotes.
_QUOTED = 500
_ADVICE: Final = (
    "send it as `Authorization: Bearer TOKEN`, or connect to ws://HOST:PORT/TOKEN; the server names the file that "
    "holds it when it starts"
)
# Names of their own: looking up a member of an enumeration costs as much as a call.
_TEXT, _BINARY, _CONTINUATION = Opcode.TEXT, Opcode.BINARY, Opcode.CONT
_OPEN: Final = State.OPEN
# The library writes whole frames and heads, tokens included, to a logger that lets debug messages through.
QUIET: Final = logging.getLogger(f"{__name__}.library")
QUIET.setLevel(logging.WARNING)


class WebSocketFramer:
    """One end of an open WebSocket connection.

    `receive()` returns complete messages, text and binary alike unless it is `text_only`. Replies that the protocol
    requires (pong, close) collect in `outgoing`, which the shell writes and clears. After `ended` nothing more is read.

    Reading goes through the library's state machine, one frame at a time: the bytes are cut where frames end, and each
    header is checked before the library has the whole of it. The library rejects a reserved bit or a long control frame
    only after the payload has arrived, and a length that is not in its shortest form never. Since each frame is judged
    before the next is looked at, the cuts of the stream change nothing. Writing does not go through the state machine:
    a frame is built with the library's `Frame` alone, so that one thread may write while another reads.
    """

    def __init__(
        self, *, client: bool, text_only: bool = False, max_frame: int = MAX_FRAME, max_message: int = MAX_MESSAGE
    ) -> None:
        self._client = client
        self._text_only = text_only
        self._max_frame = max_frame
        self._max_message = max_message
        self._protocol = Protocol(Side.CLIENT if client else Side.SERVER, max_size=max_message, logger=QUIET)
        self._close_sent = False
        self._header = b""
        """The first bytes of a header whose rest has not arrived; the library has them already."""
        self._payload_left = 0
        """Bytes of the current frame, its mask included, that have not arrived."""
        self._opcode = _TEXT  # of the message that is being received
        # One buffer, not a list: a peer could make a list of any length out of empty fragments.
        self._fragments = bytearray()
        self.outgoing: list[bytes] = []
        self.ended: bool = False
        self.broken: bool = False
        self.end_reason: str = ""

    def receive(self, data: bytes) -> list[bytes]:
        """Take bytes from the peer and return the messages that they complete."""
        messages: list[bytes] = []
        fed = len(self._header)
        if fed:
            data, self._header = self._header + data, b""
        begin, size = 0, len(data)
        while begin < size and not self.ended:
            if self._payload_left:
                end = min(begin + self._payload_left, size)
                self._payload_left -= end - begin
            else:
                try:
                    header = _read_header(data, begin, self._max_frame)
                except _BadHeader as error:
                    self._protocol.receive_data(data[fed : error.end - 1])
                    if self._protocol.state is _OPEN:  # or the library has found something earlier
                        self._fail(error.code, str(error))
                    self._take_events(messages)
                    break
                if header is None:
                    self._header, end = data[begin:], size
                else:
                    end = header[0] + header[1] + (0 if self._client else 4)
                    if end > size:
                        self._payload_left, end = end - size, size
            self._protocol.receive_data(data[fed:end])
            begin = fed = end
            self._take_events(messages)
        return messages

    def _take_events(self, messages: list[bytes]) -> None:
        """Add the message that a frame completed, collect replies, and see whether the frame ended the connection."""
        protocol = self._protocol
        for frame in cast("list[Frame]", protocol.events_received()):
            opcode = frame.opcode
            if opcode is _TEXT or opcode is _BINARY or opcode is _CONTINUATION:
                if opcode is not _CONTINUATION:
                    self._opcode = opcode
                if not frame.fin:
                    self._fragments += frame.data
                    continue
                message = bytes(frame.data)
                if self._fragments:
                    message = bytes(self._fragments) + message
                    self._fragments.clear()
                if self._opcode is _BINARY:
                    if not self._text_only:
                        messages.append(message)
                elif message.isascii() or self._is_utf8(message):  # the first is ten times as fast, and mostly true
                    messages.append(message)
            elif opcode is Opcode.PING:
                self._collect_replies()
            elif opcode is Opcode.CLOSE:
                code = Close.parse(frame.data).code
                code = CloseCode.NORMAL_CLOSURE if code == CloseCode.NO_STATUS_RCVD else code
                self._end(f"the peer closed the connection (code {code:d})")
        if protocol.state is not _OPEN:
            self._collect_replies()
            error = protocol.parser_exc
            if error is not None:
                self.broken = True
                too_big = f"message is over the limit of {self._max_message} bytes"
                is_too_big = isinstance(error, PayloadTooBig)
                self._end(too_big if is_too_big else f"the peer broke the rules of WebSocket: {error}")

    def _is_utf8(self, message: bytes) -> bool:
        """Whether a text message is UTF-8; fails the connection if not, as the library leaves that to us."""
        try:
            message.decode()
        except UnicodeDecodeError as error:
            where = f"{error.reason} at position {error.start}"
            self._fail(CloseCode.INVALID_DATA, where, f"the peer sent text that is not UTF-8: {where}")
            return False
        return True

    def receive_eof(self) -> None:
        self._end("the peer closed the connection without a closing handshake")

    def message(self, payload: bytes) -> list[bytes]:
        """The bytes of one text message, in fragments that the other side will accept."""
        size = self._max_frame
        if len(payload) <= size:
            return [Frame(Opcode.TEXT, payload).serialize(mask=self._client)]
        view = memoryview(payload)
        return [
            Frame(
                Opcode.CONT if start else Opcode.TEXT, view[start : start + size], fin=start + size >= len(payload)
            ).serialize(mask=self._client)
            for start in range(0, len(payload), size)
        ]

    def ping(self) -> list[bytes]:
        return [Frame(Opcode.PING, b"").serialize(mask=self._client)]

    def close(self) -> list[bytes]:
        """The bytes of a close frame; nothing when one was sent already."""
        if self._close_sent:
            return []
        self._close_sent = True
        return [Frame(Opcode.CLOSE, Close(CloseCode.NORMAL_CLOSURE, "").serialize()).serialize(mask=self._client)]

    def _collect_replies(self) -> None:
        """Move the library's replies to `outgoing`, without the empty piece, its sign for the end of our half, which
        the shell closes anyway. After our close frame no reply is sent: the library does not know of that frame, since
        another thread may have written it."""
        pieces = self._protocol.data_to_send()
        if not self._close_sent:
            self.outgoing += [piece for piece in pieces if piece]
            self._close_sent = self._protocol.state is not _OPEN

    def _fail(self, code: CloseCode, close_reason: str, end_reason: str = "") -> None:
        self.broken = True
        self._end(end_reason or f"the peer broke the rules of WebSocket: {close_reason}")
        self._protocol.fail(code, close_reason)

    def _end(self, reason: str) -> None:
        if not self.ended:
            self.ended = True
            self.end_reason = reason


class _BadHeader(Exception):
    """A header breaks a rule that its bytes up to `end` show."""

    def __init__(self, end: int, code: CloseCode, problem: str) -> None:
        super().__init__(problem)
        self.end = end
        self.code = code


def _read_header(data: bytes, begin: int, max_frame: int) -> tuple[int, int] | None:
    """Where the header of a frame ends (without the mask), and the length of the payload; None while bytes are
    missing."""
    size = len(data)
    if size < begin + 2:
        return None
    first, length, end = data[begin], data[begin + 1] & 0x7F, begin + 2
    if first & 0x70:
        raise _BadHeader(end, CloseCode.PROTOCOL_ERROR, "reserved bits must be 0")
    if length > 125:
        if first & 0x08:
            raise _BadHeader(end, CloseCode.PROTOCOL_ERROR, "control frame too long")
        end, least = (end + 2, 126) if length == 126 else (end + 8, 1 << 16)
        if size < end:
            return None
        length = int.from_bytes(data[begin + 2 : end], "big")
        if length < least or length >> 63:
            raise _BadHeader(end, CloseCode.PROTOCOL_ERROR, "length is not in its shortest form")
    if length > max_frame:
        raise _BadHeader(end, CloseCode.MESSAGE_TOO_BIG, f"frame of {length} bytes is over the limit of {max_frame}")
    return end, length


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


class HandshakeAnswer(Struct, frozen=True):
    """The answer to a request: an upgrade, which has its proof in `accept`, or a status and a text for the client.
    `token_name` says whose token came with an upgrade, where tokens have names; `dial_in` whether it was at that."""

    status: HTTPStatus
    text: str = ""
    advice: str = ""
    accept: str = ""
    token_name: str = ""
    dial_in: bool = False

    def __bytes__(self) -> bytes:
        if self.status != HTTPStatus.SWITCHING_PROTOCOLS:
            return response(self.status, f"{self.text}: {self.advice}" if self.advice else self.text)
        lines = ("HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade")
        return "\r\n".join((*lines, f"Sec-WebSocket-Accept: {self.accept}", "", "")).encode()


class AccessControl(Struct, frozen=True):
    """Access control: health paths are open, everything else needs the token, if there is one.

    The token comes as `Authorization: Bearer TOKEN`, or as the first part of the path (`/TOKEN`) for clients that can
    only be given a URL; what follows it is then the path. While `draining`, health paths and good upgrades get 503; the
    latter not while clients may come back for what they have here (`resuming`).
    Requests to `http_path` are `HANDED_OVER` to somebody else, and whoever may connect gets `METRICS` as well: they
    say which models are used, and what for money. With `named` tokens in place of one, these say who may.
    """

    token: str | None = None
    health_paths: tuple[str, ...] = ("/readyz",)
    any_path: bool = False
    draining: bool = False
    resuming: bool = False
    http_path: str | None = None
    named: tuple[NamedToken, ...] = ()
    dial_in_path: str | None = None
    dial_in_token: str | None = None
    """Whoever connects at that path needs that token, and no other will do. Without one it is closed."""

    def __repr__(self) -> str:
        return f"AccessControl(token={None if self.token is None else '…'}, health_paths={self.health_paths!r})"

    def answer(self, head: Head, certificate: str | None = None) -> HandshakeAnswer:
        """The answer to a client, who has shown a certificate with this name."""
        method, _, rest = head.start.partition(" ")
        target, _, version = rest.rpartition(" ")
        if not target or not version.startswith("HTTP/1."):
            return HandshakeAnswer(HTTPStatus.BAD_REQUEST, "not an HTTP/1.1 request")
        if "origin" in head.headers:
            return HandshakeAnswer(HTTPStatus.FORBIDDEN, "requests from web pages are refused")
        path = target.partition("?")[0]
        given, path, client = self._given(head, path, certificate)
        if path in self.health_paths:
            if method not in ("GET", "HEAD"):
                return HandshakeAnswer(HTTPStatus.METHOD_NOT_ALLOWED, "use GET")
            return SHUTTING_DOWN if self.draining else HandshakeAnswer(HTTPStatus.OK)
        if path == METRICS_PATH:
            if given != "right":
                return HandshakeAnswer(HTTPStatus.UNAUTHORIZED, f"{given} token", _ADVICE)
            if client is not None and not client.metrics:
                return HandshakeAnswer(HTTPStatus.FORBIDDEN, "this token may not read the metrics")
            return METRICS if method == "GET" else HandshakeAnswer(HTTPStatus.METHOD_NOT_ALLOWED, "use GET")
        if path == self.http_path and "upgrade" not in head.headers:
            if given != "right":
                return HandshakeAnswer(HTTPStatus.UNAUTHORIZED, f"{given} token", _ADVICE)
            return SHUTTING_DOWN if self.draining else HANDED_OVER
        accept = _accept(head, method, target, version)
        if path == self.dial_in_path:
            return self._answer_dial_in(head, accept)
        known = path == "/" or self.any_path
        if accept is None and known:
            return HandshakeAnswer(HTTPStatus.BAD_REQUEST, "expected a WebSocket upgrade (version 13)")
        if accept is not None and given != "right":
            return HandshakeAnswer(HTTPStatus.UNAUTHORIZED, f"{given} token", _ADVICE)
        if accept is None or not known:
            places = " or ask ".join(("/", *self.health_paths, METRICS_PATH))
            return HandshakeAnswer(HTTPStatus.NOT_FOUND, f"no such path; connect to {places}")
        if self.draining and not self.resuming:
            return SHUTTING_DOWN
        name = "" if client is None else client.name
        return HandshakeAnswer(HTTPStatus.SWITCHING_PROTOCOLS, accept=accept, token_name=name)

    def _answer_dial_in(self, head: Head, accept: str | None) -> HandshakeAnswer:
        if self.dial_in_token is None:
            return HandshakeAnswer(HTTPStatus.NOT_FOUND, "nobody is taken here: the server has no token for it")
        if accept is None:
            return HandshakeAnswer(HTTPStatus.BAD_REQUEST, "expected a WebSocket upgrade (version 13)")
        bearer = _bearer(head)
        if not hmac.compare_digest(bearer.encode("latin-1"), self.dial_in_token.encode()):
            return HandshakeAnswer(HTTPStatus.UNAUTHORIZED, f"{'wrong' if bearer else 'missing'} token")
        if self.draining:
            return SHUTTING_DOWN
        return HandshakeAnswer(HTTPStatus.SWITCHING_PROTOCOLS, accept=accept, dial_in=True)

    def _given(
        self, head: Head, path: str, certificate: str | None
    ) -> tuple[Literal["right", "wrong", "missing"], str, NamedToken | None]:
        """What was given for a token, the path without it, and whose it is if it has a name."""
        if self.token is None and not self.named:
            return "right", path, None
        bearer = _bearer(head)
        first, _, rest = path.removeprefix("/").partition("/")
        if self.named:
            if first and (client := find(self.named, first, certificate)) is not None:
                return "right", f"/{rest}", client
            if (client := find(self.named, bearer or None, certificate)) is not None:
                return "right", path, client
        elif first and self._is_token(first):
            return "right", f"/{rest}", None
        elif bearer and self._is_token(bearer):
            return "right", path, None
        return "wrong" if bearer or first else "missing", path, None

    def _is_token(self, given: str) -> bool:
        assert self.token is not None
        return hmac.compare_digest(given.encode("latin-1"), self.token.encode())


METRICS_PATH: Final = "/metrics"
METRICS: Final = HandshakeAnswer(HTTPStatus.OK)
HANDED_OVER: Final = HandshakeAnswer(HTTPStatus.CONTINUE)
SHUTTING_DOWN: Final = HandshakeAnswer(
    HTTPStatus.SERVICE_UNAVAILABLE, "the server is shutting down; connect when it is back"
)


def _bearer(head: Head) -> str:
    scheme, _, bearer = head.headers.get("authorization", "").partition(" ")
    return bearer.strip() if scheme.lower() == "bearer" else ""


def _accept(head: Head, method: str, target: str, version: str) -> str | None:
    """The proof that we have read the key; None when this is no good upgrade."""
    if (method, version) != ("GET", "HTTP/1.1"):
        return None
    try:
        headers = Headers(head.headers)
    except InvalidHandshake:
        return None
    answer = ServerProtocol(logger=QUIET).accept(Request(target, headers))
    return answer.headers["Sec-WebSocket-Accept"] if answer.status_code == HTTPStatus.SWITCHING_PROTOCOLS else None


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
            said = rest[:_QUOTED].decode("utf-8", "replace").strip()
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
