"""WebSocket framing (RFC 6455) without I/O: bytes in, messages out, and bytes to send.

It owns frames, fragments, masking, pings and the closing handshake, for both roles. It does not negotiate extensions
and does not open connections (`handshake` does the HTTP part).

Written here rather than taken from the `websockets` library because that costs 45 ms and 4.5 MB at the start of a
server (see docs/performance.md); the tests run this module against that library.
"""

from __future__ import annotations

import os
from enum import IntEnum

MAX_FRAME = 16 << 20
MAX_MESSAGE = 64 << 20


class Opcode(IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class CloseCode(IntEnum):
    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    POLICY_VIOLATION = 1008
    TOO_BIG = 1009


_OPCODES = frozenset(int(code) for code in Opcode)


class FrameError(Exception):
    """The peer broke the framing rules; the connection must end with `code`."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class WebSocketFramer:
    """One end of an open WebSocket connection.

    `receive()` returns complete messages, text and binary alike unless it is `text_only`. Replies that the protocol
    owes (pong, close) collect in `outgoing`, which the shell writes and clears. After `ended` nothing more is read.
    """

    def __init__(
        self, *, client: bool, text_only: bool = False, max_frame: int = MAX_FRAME, max_message: int = MAX_MESSAGE
    ) -> None:
        self._client = client
        self._text_only = text_only
        self._is_binary = False  # the message that is being received
        self._max_frame = max_frame
        self._max_message = max_message
        self._buffer = bytearray()
        # One buffer, not a list: a peer could make a list of any length out of empty fragments.
        self._fragments: bytearray | None = None
        self._close_sent = False
        self.outgoing: list[bytes] = []
        self.ended: bool = False
        self.end_reason: str = ""

    def receive(self, data: bytes) -> list[bytes]:
        """Take bytes from the peer and give the messages that they complete."""
        messages: list[bytes] = []
        if self.ended:
            return messages
        self._buffer += data
        try:
            while not self.ended:
                frame = self._next_frame()
                if frame is None:
                    break
                self._handle(*frame, messages)
        except FrameError as error:
            self._end(error.code, error.reason)
        return messages

    def receive_eof(self) -> None:
        if not self.ended:
            self.ended = True
            self.end_reason = "the peer closed the connection without a closing handshake"

    def message(self, payload: bytes) -> list[bytes]:
        """The bytes of one text message, in fragments that the other side will accept."""
        if len(payload) <= self._max_frame:
            return self._frame(Opcode.TEXT, payload)
        pieces: list[bytes] = []
        for start in range(0, len(payload), self._max_frame):
            opcode = Opcode.CONTINUATION if start else Opcode.TEXT
            end = start + self._max_frame
            pieces += self._frame(opcode, payload[start:end], final=end >= len(payload))
        return pieces

    def ping(self) -> list[bytes]:
        return self._frame(Opcode.PING, b"")

    def close(self, code: CloseCode = CloseCode.NORMAL, reason: str = "") -> list[bytes]:
        """The bytes of a close frame; nothing when one was sent already."""
        if self._close_sent:
            return []
        self._close_sent = True
        return self._frame(Opcode.CLOSE, int(code).to_bytes(2, "big") + reason.encode()[:120])

    def _end(self, code: CloseCode, reason: str) -> None:
        self.outgoing += self.close(code, reason)
        self.ended = True
        self.end_reason = reason

    def _next_frame(self) -> tuple[int, bool, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        length, start = second & 0x7F, 2
        if length == 126:
            start = 4
        elif length == 127:
            start = 10
        if second & 0x80:
            start += 4
        opcode = first & 0x0F
        self._check_header(first, second, opcode, length)
        if len(buffer) < start:
            return None
        if length >= 126:
            length = int.from_bytes(buffer[2 : 4 if length == 126 else 10], "big")
        if length > self._max_frame:
            raise FrameError(CloseCode.TOO_BIG, f"frame of {length} bytes is over the limit of {self._max_frame}")
        end = start + length
        if len(buffer) < end:
            return None
        payload = bytes(memoryview(buffer)[start:end])
        if second & 0x80:
            payload = _masked(payload, bytes(buffer[start - 4 : start]))
        del buffer[:end]
        return opcode, bool(first & 0x80), payload

    def _check_header(self, first: int, second: int, opcode: int, length: int) -> None:
        if first & 0x70:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "reserved bits are set and no extension was agreed")
        if opcode not in _OPCODES:
            raise FrameError(CloseCode.PROTOCOL_ERROR, f"unknown opcode {opcode}")
        if opcode >= Opcode.CLOSE and (length > 125 or not first & 0x80):
            raise FrameError(CloseCode.PROTOCOL_ERROR, "control frame is fragmented or longer than 125 bytes")
        if bool(second & 0x80) is self._client:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "frame is masked" if self._client else "frame is not masked")

    def _handle(self, opcode: int, final: bool, payload: bytes, messages: list[bytes]) -> None:
        if opcode == Opcode.PING:
            if not self._close_sent:
                self.outgoing += self._frame(Opcode.PONG, payload)
        elif opcode == Opcode.PONG:
            pass
        elif opcode == Opcode.CLOSE:
            code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else CloseCode.NORMAL
            self._end(CloseCode.NORMAL, f"the peer closed the connection (code {int(code)})")
        elif opcode == Opcode.CONTINUATION and self._fragments is None:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "continuation without a message to continue")
        elif opcode != Opcode.CONTINUATION and self._fragments is not None:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "a new message before the last one was complete")
        else:
            if opcode != Opcode.CONTINUATION:
                self._is_binary = opcode == Opcode.BINARY
            if final and self._fragments is None:
                self._add_message(payload, messages)
            else:
                self._add_fragment(payload, final, messages)

    def _add_message(self, payload: bytes, messages: list[bytes]) -> None:
        if not (self._is_binary and self._text_only):
            messages.append(payload)

    def _add_fragment(self, payload: bytes, final: bool, messages: list[bytes]) -> None:
        if self._fragments is None:
            self._fragments = bytearray()
        self._fragments += payload
        if len(self._fragments) > self._max_message:
            raise FrameError(CloseCode.TOO_BIG, f"message is over the limit of {self._max_message} bytes")
        if final:
            self._add_message(bytes(self._fragments), messages)
            self._fragments = None

    def _frame(self, opcode: Opcode, payload: bytes, *, final: bool = True) -> list[bytes]:
        first = opcode | (0x80 if final else 0)
        mask_bit = 0x80 if self._client else 0
        length = len(payload)
        if length < 126:
            header = bytes((first, mask_bit | length))
        elif length < 65536:
            header = bytes((first, mask_bit | 126)) + length.to_bytes(2, "big")
        else:
            header = bytes((first, mask_bit | 127)) + length.to_bytes(8, "big")
        if not self._client:
            return [header, payload]
        mask = os.urandom(4)
        return [header, mask, _masked(payload, mask)]


def _masked(payload: bytes, mask: bytes) -> bytes:
    """XOR with the repeated mask, as one big-integer operation: the fastest way without C."""
    length = len(payload)
    if not length:
        return payload
    key = (mask * (length // 4 + 1))[:length]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(key, "little")).to_bytes(length, "little")
