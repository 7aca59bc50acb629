"""WebSocket framing (RFC 6455) with the sans-I/O protocol of the `websockets` library: bytes in, messages out.

It owns what an open connection reads and writes, for both roles: limits, close reasons, and checks that the library
leaves to others (text must be UTF-8, lengths in their shortest form). It does not open connections
(`websocket_handshake` does the HTTP part) and negotiates no extension: most payload is random base64, or never leaves
the machine, so compression would not pay.

Reading goes through the library's state machine. Writing does not: a frame is built with the library's `Frame` alone,
so that one thread may write while another reads.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from struct import Struct
from typing import Final

from websockets.exceptions import PayloadTooBig, ProtocolError
from websockets.frames import Close, CloseCode, Frame, Opcode
from websockets.protocol import Protocol, Side, State
from websockets.streams import StreamReader

try:
    from websockets.speedups import apply_mask
except ImportError:  # a build without C
    from websockets.utils import apply_mask

MAX_FRAME: Final = 16 << 20
MAX_MESSAGE: Final = 64 << 20
# The library writes whole frames and heads, tokens included, to a logger that lets debug messages through.
QUIET: Final = logging.getLogger(f"{__name__}.library")
QUIET.setLevel(logging.WARNING)
_FINAL_TEXT: Final = 0x81
_CONTROL: Final = 0x08
_RESERVED: Final = 0x70
# The longest payloads whose length takes no bytes of its own, and two.
_SHORT: Final = 125
_MEDIUM: Final = (1 << 16) - 1
_UINT16: Final = Struct("!H")
_UINT64: Final = Struct("!Q")


class WebSocketFramer:
    """One end of an open WebSocket connection.

    `receive()` returns complete messages, text and binary alike unless it is `text_only`. Replies that the protocol
    requires (pong, close) collect in `outgoing`, which the shell writes and clears. After `ended` nothing more is read.
    """

    def __init__(
        self, *, client: bool, text_only: bool = False, max_frame: int = MAX_FRAME, max_message: int = MAX_MESSAGE
    ) -> None:
        self._client = client
        self._max_frame = max_frame
        self._max_message = max_message
        self._protocol = _Protocol(client, text_only, max_message, max_frame)
        self._close_sent = False
        self.outgoing: list[bytes] = []
        self.ended: bool = False
        self.broken: bool = False
        self.end_reason: str = ""

    def receive(self, data: bytes) -> list[bytes]:
        """Take bytes from the peer and give the messages that they complete."""
        if self.ended:
            return []
        protocol = self._protocol
        protocol.receive_data(data)
        messages = protocol.messages_received()
        if protocol.writes:
            self._owe(protocol.data_to_send())
        if protocol.parser_exc is not None:
            self.broken = True
            self._end(self._complaint(protocol.parser_exc))
        elif protocol.close_rcvd is not None:
            self._end(f"the peer closed the connection (code {_code(protocol.close_rcvd)})")
        return messages

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

    def _owe(self, pieces: list[bytes]) -> None:
        """The empty piece is the library's sign for the end of our half, which the shell closes anyway. After our close
        frame nothing is owed: the library does not know of it, since it is another thread that may have sent it."""
        if not self._close_sent:
            self.outgoing += [piece for piece in pieces if piece]
            self._close_sent = self._protocol.close_sent is not None

    def _end(self, reason: str) -> None:
        if not self.ended:
            self.ended = True
            self.end_reason = reason

    def _complaint(self, error: Exception) -> str:
        if isinstance(error, UnicodeDecodeError):
            return f"the peer sent text that is not UTF-8: {error.reason} at position {error.start}"
        if not isinstance(error, PayloadTooBig):
            return f"the peer broke the rules of WebSocket: {error}"
        if error.size is not None and error.size > self._max_frame:
            return f"frame of {error.size} bytes is over the limit of {self._max_frame}"
        return f"message is over the limit of {self._max_message} bytes"


class _Protocol(Protocol):
    """The library's protocol, which joins fragments and checks text. An exception in here makes the library close the
    connection with the right code: 1007 for bad UTF-8, 1002 otherwise.
    """

    def __init__(self, client: bool, text_only: bool, max_message: int, max_frame: int) -> None:
        self._text_only = text_only
        self._messages: list[bytes] = []
        self._opcode = Opcode.TEXT  # of the message that is being received
        # One buffer, not a list: a peer could make a list of any length out of empty fragments.
        self._fragments = bytearray()
        self._max_frame = max_frame
        super().__init__(Side.CLIENT if client else Side.SERVER, max_size=(max_message, max_frame), logger=QUIET)

    @property
    def takes_messages(self) -> bool:
        """Whether a whole message may come next."""
        return self.state is State.OPEN and self.current_size is None

    def messages_received(self) -> list[bytes]:
        messages, self._messages = self._messages, []
        return messages

    def parse(self) -> Generator[None]:
        self.reader = _Reader(self, masked=self.side is Side.SERVER, max_frame=self._max_frame)
        return super().parse()

    def recv_frame(self, frame: Frame) -> None:
        super().recv_frame(frame)
        self.events.clear()
        if frame.opcode & _CONTROL:
            return
        if frame.opcode is not Opcode.CONT:
            self._opcode = frame.opcode
        self._fragments += frame.data
        if frame.fin:
            message = bytes(self._fragments)
            self._fragments.clear()
            if self._opcode is Opcode.TEXT:
                self.take_text(message)
            elif not self._text_only:
                self._messages.append(message)

    def take_text(self, message: bytes) -> None:
        if not message.isascii():  # ten times as fast as decoding, and true of nearly all that comes
            message.decode()
        self._messages.append(message)


class _Reader(StreamReader):
    """The library's reader, with two additions. Before each frame the library asks for the end of the stream, then
    reads the header, then the extended length if there is one; each goes through a generator or two.

    Whole text messages in a single frame, nearly all of the traffic, are taken before the library sees them: it needs
    twice the time for small ones. For all other frames the header is checked here: the library rejects a bad one only
    after its payload has arrived, or not at all.
    """

    def __init__(self, protocol: _Protocol, *, masked: bool, max_frame: int) -> None:
        super().__init__()
        self._protocol = protocol
        self._masked = masked
        self._max_frame = max_frame
        self._header_is_next = False
        self._length_is_next = False

    def at_eof(self) -> Generator[None, None, bool]:
        self._header_is_next = True
        while True:
            waits = self._protocol.takes_messages and self._take_messages()
            if self.buffer and not (waits and not self.eof):
                return False
            if self.eof:
                return True
            yield

    def read_exact(self, n: int) -> Generator[None, None, bytearray]:
        if self._header_is_next:
            self._header_is_next = False
            return self._read_header(n)
        if self._length_is_next:
            self._length_is_next = False
            return self._read_length(n)
        return super().read_exact(n)

    def _take_messages(self) -> bool:
        """Whether the next one is on its way. What is unusual stays for the library."""
        buffer = self.buffer
        begin = 0
        try:
            while True:
                place = _plain_text(buffer, begin, self._masked)
                if place is None or place[1] - place[0] > self._max_frame:
                    return False
                start, end = place
                if end > len(buffer):
                    return True
                with memoryview(buffer) as whole, whole[start:end] as payload:
                    mask = buffer[start - 4 : start] if self._masked else None
                    message = bytes(payload) if mask is None else apply_mask(payload, mask)
                begin = end
                self._protocol.take_text(message)
        finally:
            del buffer[:begin]

    def _read_header(self, n: int) -> Generator[None, None, bytearray]:
        header = yield from super().read_exact(n)
        if header[0] & _RESERVED:
            raise ProtocolError("reserved bits must be 0")
        self._length_is_next = header[1] & 0x7F > _SHORT
        if self._length_is_next and header[0] & _CONTROL:
            raise ProtocolError("control frame too long")
        return header

    def _read_length(self, n: int) -> Generator[None, None, bytearray]:
        data = yield from super().read_exact(n)
        length = int.from_bytes(data, "big")
        if length <= (_SHORT if n == 2 else _MEDIUM) or length >> 63:
            raise ProtocolError("length is not in its shortest form")
        return data


def _plain_text(buffer: bytearray, begin: int, masked: bool) -> tuple[int, int] | None:
    """Where the payload of a text message in one frame starts and ends; None for any other frame, or too few bytes."""
    here = len(buffer) - begin
    if here < 2 or buffer[begin] != _FINAL_TEXT:
        return None
    length = buffer[begin + 1] - (0x80 if masked else 0)
    start = begin + 2
    if length > _SHORT:
        if length == 126 and here >= 4:
            (length,), least, start = _UINT16.unpack_from(buffer, start), _SHORT, start + 2
        elif length == 127 and here >= 10:
            (length,), least, start = _UINT64.unpack_from(buffer, start), _MEDIUM, start + 8
        else:
            return None
        if length <= least:
            return None
    elif length < 0:
        return None
    start += 4 if masked else 0
    return start, start + length


def _code(close: Close) -> int:
    return CloseCode.NORMAL_CLOSURE if close.code == CloseCode.NO_STATUS_RCVD else close.code
