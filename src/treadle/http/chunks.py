"""Chunked bodies, sans I/O: parsed by llhttp where chunk sizes are plain, line by line where they are not.

It owns chunk framing and its limits. `http1` finds where a chunked body begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Protocol

from httptools import HttpParserError, HttpResponseParser

from treadle.http.http_errors import NotHttp

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
        while not self.ended and (self._take_data() if self._left else self._take_line()):
            pass

    def _take_data(self) -> bool:
        piece = self._buffer[: self._left]
        self._body += piece
        self._left -= len(piece)
        del self._buffer[: len(piece)]
        return not self._left

    def _take_line(self) -> bool:
        end = self._buffer.find(b"\n")
        if max(end, len(self._buffer) if end < 0 else 0) + self._trailers > MAX_LINES:
            raise NotHttp("the lines between chunks are too long")
        if end < 0:
            return False
        line = bytes(self._buffer[:end]).removesuffix(b"\r")
        del self._buffer[: end + 1]
        self._line(line)
        return True

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
        """They are checked and dropped."""
        self.ended = not line
        self._trailers += len(line)
        if line and not _TRAILER.fullmatch(line):
            raise NotHttp("a trailer is no header")
