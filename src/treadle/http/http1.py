"""The client side of HTTP/1.1, sans I/O: encodes a request, and parses bytes into one response.

It owns heads, body lengths and limits. It knows nothing of connections or of what a
body says. A reader is for one response; `reusable` says whether another may follow on the same connection.

Chunks are parsed by llhttp (`httptools`), because there may be one per word. Heads are parsed here: there is only one
per response, and llhttp rejects heads that real servers and gateways send. It never accepts a repeated
`Content-Length`, even with equal values. It accepts `Content-Length` next to `Transfer-Encoding`, bare LF line ends and
`HTTP/1.2` only in lenient modes, which also let folded header lines through. It has no size limits, and does not say
whether the connection is reusable after such a head.

Chunked bodies are parsed by llhttp where chunk sizes are plain, line by line where they are not. `ContentDecoder` is
for servers that compress although we never ask for it: gzip and deflate, with a limit on how much is decompressed at a
time, since a small input may expand a thousandfold.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from httptools import HttpParserError, HttpResponseParser
from msgspec import Struct

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
        """Take what has come of the body since the last call."""
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
        found = _STATUS_LINE.fullmatch(lines[0].removesuffix(b"\r"))
        if found is None:
            raise NotHttp("no status line")
        lines = lines[1:]
        if len(lines) > MAX_HEADERS:
            raise NotHttp("too many headers")
        headers: dict[str, str] = {}
        for line in lines:
            header = _HEADER.fullmatch(line.removesuffix(b"\r"))
            if header is None:  # also a line that continues the one before, which is obsolete
                raise NotHttp("a line of the head is no header")
            name, value = header[1].decode("latin-1").lower(), header[2].strip(b" \t").decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        self._take_head(int(found[1]), ResponseHead(int(found[2]), headers))
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
        # Where the body ends; see RFC 9112, 6.3.
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
            lengths = {each.strip(" \t") for each in length.split(",")}  # it may be repeated
            length = lengths.pop()
            if lengths or not _LENGTH.fullmatch(length):
                raise NotHttp("a content length that cannot be read")
            self._left = int(length)
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


# Of lines in a row that are no body: sizes with extensions, which nobody uses, and trailers. How exactly it is kept
# depends on how the bytes come; what matters is that there is an end to it.
MAX_LINES: Final = 64 * 1024

_HEAD: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_PLAIN_SIZE: Final = re.compile(rb"[0-9A-Fa-f]+\r\n")
_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*")


class Chunks(Protocol):
    """Feed it what follows the head; body bytes are appended to the bytearray passed to the constructor."""

    ended: bool

    @property
    def followed(self) -> bool:
        """Whether something came after the end that is no empty line."""

    def receive(self, data: bytes) -> None:
        """Raises `NotHttp`."""


def chunks_for(first_line: bytes, body: bytearray) -> Chunks:
    """What reads a body that begins with this line.

    Servers that write extensions, pad sizes or end lines by LF alone do so from the start. llhttp refuses some of that,
    and an LF after a size makes it swallow the first byte of data when that is an LF too.
    """
    return ParsedChunks(body) if _PLAIN_SIZE.fullmatch(first_line) else LineChunks(body)


class ParsedChunks:
    """Parsed by llhttp, for speed: a model may send a chunk per word."""

    __slots__ = ("_body", "_lines", "_parser", "ended", "followed", "on_body")

    def __init__(self, body: bytearray) -> None:
        self.ended: bool = False
        self.followed: bool = False
        self._body = body
        self._lines = 0
        self.on_body: Callable[[bytes], object] = body.__iadd__
        parser = HttpResponseParser(self)
        parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)
        parser.feed_data(_HEAD)  # ours is read already
        self._parser: HttpResponseParser | None = parser

    def receive(self, data: bytes) -> None:
        if self._parser is None:
            return
        before = len(self._body)
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._parser = None
            if not self.ended:
                raise NotHttp("a chunk cannot be read") from error
        self._lines = self._lines + len(data) if len(self._body) == before else 0
        if self.ended:
            self._parser = None  # it knows us: nobody should have to find that ring
        elif self._lines > MAX_LINES:
            raise NotHttp("the lines between chunks are too long")

    def on_message_begin(self) -> None:
        if self.ended:
            self.followed = True
            raise NotHttp("nobody asked for another response")  # or its body would be added to ours

    def on_message_complete(self) -> None:
        self.ended = True


class LineChunks:
    """Parsed line by line; a line ends with CRLF or LF."""

    __slots__ = ("_body", "_buffer", "_left", "_line", "_trailers", "ended")

    def __init__(self, body: bytearray) -> None:
        self.ended: bool = False
        self._body = body
        self._buffer = bytearray()
        self._left = 0
        self._line = self._size
        self._trailers = 0

    @property
    def followed(self) -> bool:
        return self.ended and bool(self._buffer.strip(b"\r\n"))

    def receive(self, data: bytes) -> None:
        self._buffer += data
        while not self.ended:
            if self._left:
                piece = self._buffer[: self._left]
                self._body += piece
                self._left -= len(piece)
                del self._buffer[: len(piece)]
                if self._left:
                    return
            else:
                end = self._buffer.find(b"\n")
                if (len(self._buffer) if end < 0 else end) + self._trailers > MAX_LINES:
                    raise NotHttp("the lines between chunks are too long")
                if end < 0:
                    return
                line = bytes(self._buffer[:end]).removesuffix(b"\r")
                del self._buffer[: end + 1]
                self._line(line)

    # --- what a line can be ------------------------------------------------------------------------------------------

    def _size(self, line: bytes) -> None:
        found = _SIZE_LINE.fullmatch(line)
        if found is None:
            raise NotHttp("no size of a chunk")
        self._left = int(found[1], 16)
        self._line = self._end_of_data if self._left else self._trailer

    def _end_of_data(self, line: bytes) -> None:
        if line:
            raise NotHttp("a chunk is longer than its size")
        self._line = self._size

    def _trailer(self, line: bytes) -> None:
        """Check and drop a trailer."""
        self.ended = not line
        self._trailers += len(line)
        if line and not _TRAILER.fullmatch(line):
            raise NotHttp("a trailer is no header")


MAX_PIECE: Final = 256 * 1024

_GZIP: Final = 16 + zlib.MAX_WBITS
_ZLIB: Final = zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS  # what some servers take deflate for
_NAMES: Final = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}


class UnknownCoding(Exception):
    """A content coding that we do not support, or more than one."""

    def __init__(self, name: str) -> None:
        super().__init__("a content coding that is not known")
        self.name = name


class BadCoding(Exception):
    """The body is corrupt or truncated."""


def decoder_for(headers: Mapping[str, str]) -> ContentDecoder | None:
    """The decoder for a body; None for one that is not coded. Raises `UnknownCoding`."""
    coding = headers.get("content-encoding")
    if coding is None:
        return None
    names = [name for word in coding.split(",") if (name := word.strip().lower()) not in ("", "identity")]
    if not names:
        return None
    if len(names) > 1 or names[0] not in _NAMES:
        raise UnknownCoding(", ".join(names))
    return ContentDecoder(_NAMES[names[0]])


class ContentDecoder:
    """Call `receive`, then `take` until it returns nothing; at the end of the body, `end`. Raises `BadCoding`."""

    def __init__(self, name: str) -> None:
        self._is_gzip = name == "gzip"
        self._member = zlib.decompressobj(_GZIP) if self._is_gzip else None
        self._coded = b""
        self._begun = False
        self._full = False  # the last piece was as large as one may be: there can be more without more data

    def receive(self, data: bytes) -> None:
        self._begun = True
        self._coded += data

    def take(self) -> bytes:
        """No more than `MAX_PIECE` of what can be had; none when more is needed."""
        while self._coded or self._full:
            if self._member is None and not self._begin_deflate():
                return b""
            assert self._member is not None
            if self._member.eof and not self._begin_member():
                return b""
            try:
                piece = self._member.decompress(self._coded, MAX_PIECE)
            except zlib.error:
                raise BadCoding("the body is not what its coding says") from None
            self._coded = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            self._full = len(piece) == MAX_PIECE
            if piece:
                return piece
        return b""

    def end(self) -> None:
        if self._begun and (self._member is None or not self._member.eof):
            raise BadCoding("the body is not all there")

    def _begin_deflate(self) -> bool:
        """zlib's two bytes of head are the standard; without them it is the bare thing."""
        if len(self._coded) < 2:
            return False
        headed = self._coded[0] & 0x0F == 8 and int.from_bytes(self._coded[:2], "big") % 31 == 0
        self._member = zlib.decompressobj(_ZLIB if headed else _RAW)
        return True

    def _begin_member(self) -> bool:
        """gzip may go on with another; whatever else follows is not looked at."""
        if not (self._is_gzip and self._coded[:1] == b"\x1f"):
            self._coded, self._full = b"", False
            return False
        self._member = zlib.decompressobj(_GZIP)
        return True
