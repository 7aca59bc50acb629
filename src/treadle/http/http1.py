"""The client side of HTTP/1.1, sans I/O: encodes a request, and parses bytes into one response.

It owns heads, body lengths and limits; `chunks` parses chunked bodies. It knows nothing of connections or of what a
body says. A reader is for one response; `reusable` says whether another may follow on the same connection.

Chunks are parsed by llhttp (`httptools`), because there may be one per word. Heads are parsed here: there is only one
per response, and llhttp rejects heads that real servers and gateways send. It never accepts a repeated
`Content-Length`, even with equal values. It accepts `Content-Length` next to `Transfer-Encoding`, bare LF line ends and
`HTTP/1.2` only in lenient modes, which also let folded header lines through. It has no size limits, and does not say
whether the connection is reusable after such a head.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

from treadle.http.chunks import MAX_LINES, Chunks, chunks_for
from treadle.http.http_errors import NotHttp

MAX_HEAD: Final = 64 * 1024
MAX_HEADERS: Final = 256
# Responses before the response ("100 Continue"): each is tolerated, an endless row of them is not.
MAX_INTERIM: Final = 64
# Empty lines before a response, as characters.
MAX_BLANK: Final = 16

# As lenient with line ends as the servers of this world need: a lone LF ends a line of a head.
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_HEADER: Final = re.compile(rb"([-!#$%&'*+.^_`|~0-9A-Za-z]+):([\t\x20-\x7e\x80-\xff]*)")
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_NAME: Final = b"HTTP/1."


class ResponseHead(Struct, frozen=True):
    """Header names are lower case; repeated headers are joined with commas."""

    status: int
    headers: Mapping[str, str]


def encode_request(method: bytes, target: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes = b"") -> bytes:
    """Raises ValueError when a line end in `target` or `headers` would make it another request."""
    lines = [method + b" " + target + b" HTTP/1.1", *[name + b": " + value for name, value in headers]]
    head = b"\r\n".join(lines)
    ends = len(lines) - 1
    if head.count(b"\n") != ends or head.count(b"\r") != ends or b"\0" in head:
        raise ValueError("a line end in the head of a request")
    return head + b"\r\n\r\n" + body


class ResponseReader:
    """Feed it with `receive_data`, however the bytes are cut, and `receive_eof`; look at `head`, `take_body`, `ended`.

    After `NotHttp` it takes nothing more. `tunnel` is for the response to CONNECT, which has no body on success.
    """

    __slots__ = (
        "_blank",
        "_body",
        "_buffer",
        "_chunks",
        "_interim",
        "_left",
        "_scanned",
        "_step",
        "_tunnel",
        "began",
        "ended",
        "head",
        "reusable",
    )

    def __init__(self, *, tunnel: bool = False) -> None:
        self.head: ResponseHead | None = None
        self.began: bool = False
        self.ended: bool = False
        self.reusable: bool = False
        self._tunnel = tunnel
        self._buffer = bytearray()
        self._scanned = 0  # so much of the buffer holds no end of the head
        self._blank = 0
        self._interim = 0
        self._body = bytearray()
        self._left = 0  # of the body
        self._chunks: Chunks | None = None
        self._step: Callable[[], bool] = self._read_head  # true when there may be more to do

    @property
    def unread(self) -> int:
        return len(self._body)

    def take_body(self) -> bytes:
        """All of the body that has come and was not taken."""
        body = bytes(self._body)
        self._body.clear()
        return body

    def receive_data(self, data: bytes) -> None:
        self.began = True
        try:
            if self._chunks is not None:
                self._receive_chunks(data)
            else:
                self._buffer += data
                while self._step():
                    pass
        except NotHttp:
            self.reusable = False
            self._stop(ended=False)
            raise
        if self.ended and self._buffer.strip(b"\r\n"):
            self.reusable = False  # nobody asked for what follows

    def receive_eof(self) -> None:
        """The other side sends no more; raises `NotHttp` when that is too early."""
        if self._step == self._read_to_eof:
            self._stop()
        self.reusable = False
        if not self.ended:
            raise NotHttp("the response ended early")

    # --- steps -------------------------------------------------------------------------------------------------------

    def _read_head(self) -> bool:
        buffer = self._buffer
        while buffer and buffer[0] in b"\r\n":  # left over from the response before, with some servers
            if self._blank >= MAX_BLANK:
                raise NotHttp("no status line")
            self._blank += 1
            del buffer[:1]
        if not buffer.startswith(_NAME[: len(buffer)]):
            raise NotHttp("no status line")
        end = _HEAD_END.search(buffer, max(0, self._scanned - 2))
        self._scanned = len(buffer)
        if (len(buffer) if end is None else end.end()) > MAX_HEAD:
            raise NotHttp("the head is too large")
        if end is None:
            return False
        lines = bytes(buffer[: end.start()]).split(b"\n")
        del buffer[: end.end()]
        self._scanned = 0
        self._take_head(*_parse_head(lines))
        return True

    def _take_head(self, minor: int, head: ResponseHead) -> None:
        if 100 <= head.status < 200 and head.status != 101:
            self._interim += 1
            if self._interim > MAX_INTERIM:
                raise NotHttp("too many responses before the response")
            return
        self.head = head
        asked = head.headers.get("connection", "").lower()
        self.reusable = minor > 0 and "close" not in [option.strip() for option in asked.split(",")]
        self._frame(head)

    def _frame(self, head: ResponseHead) -> None:
        """Where the body ends; see RFC 9112, 6.3."""
        coding = head.headers.get("transfer-encoding")
        if head.status in (204, 304):
            self._stop()
        elif head.status == 101 or (self._tunnel and head.status < 300):
            self.reusable = False  # from here it is another protocol
            self._stop()
        elif coding is not None:
            if {word.strip().lower() for word in coding.split(",")} != {"chunked"}:
                raise NotHttp("a transfer coding that cannot be read")
            # A length beside it is how responses are smuggled.
            self.reusable = self.reusable and "content-length" not in head.headers
            self._step = self._read_first_size
        elif (length := head.headers.get("content-length")) is not None:
            self._left = _length(length)
            self._step = self._read_length
        else:
            self.reusable = False
            self._step = self._read_to_eof

    def _read_length(self) -> bool:
        piece = self._buffer[: self._left]
        self._body += piece
        del self._buffer[: len(piece)]
        self._left -= len(piece)
        if not self._left:
            self._stop()
        return False

    def _read_to_eof(self) -> bool:
        self._body += self._buffer
        self._buffer.clear()
        return False

    def _read_first_size(self) -> bool:
        buffer = self._buffer
        end = buffer.find(b"\n") + 1
        if (end or len(buffer)) > MAX_LINES:
            raise NotHttp("the line of a chunk is too long")
        if end:
            self._step = _nothing
            self._chunks = chunks_for(bytes(buffer[:end]), self._body)
            data = bytes(buffer)
            buffer.clear()
            self._receive_chunks(data)
        return False

    def _receive_chunks(self, data: bytes) -> None:
        chunks = self._chunks
        assert chunks is not None
        chunks.receive(data)
        if chunks.ended:
            self.reusable = self.reusable and not chunks.followed
            self._stop()

    def _stop(self, *, ended: bool = True) -> None:
        self.ended = ended
        self._chunks = None
        self._step = _nothing


def _nothing() -> bool:
    return False


def _parse_head(lines: list[bytes]) -> tuple[int, ResponseHead]:
    """The minor version, and the head."""
    found = _STATUS_LINE.fullmatch(lines[0].removesuffix(b"\r"))
    if found is None:
        raise NotHttp("no status line")
    return int(found[1]), ResponseHead(int(found[2]), _parse_headers(lines[1:]))


def _parse_headers(lines: list[bytes]) -> dict[str, str]:
    if len(lines) > MAX_HEADERS:
        raise NotHttp("too many headers")
    headers: dict[str, str] = {}
    for line in lines:
        found = _HEADER.fullmatch(line.removesuffix(b"\r"))
        if found is None:  # also a line that continues the one before, which is obsolete
            raise NotHttp("a line of the head is no header")
        name, value = found[1].decode("latin-1").lower(), found[2].strip(b" \t").decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _length(value: str) -> int:
    """Of a `Content-Length`, which may be repeated."""
    lengths = {length.strip(" \t") for length in value.split(",")}
    length = lengths.pop()
    if lengths or not _LENGTH.fullmatch(length):
        raise NotHttp("a content length that cannot be read")
    return int(length)
