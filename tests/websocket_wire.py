"""WebSocket by hand for tests: frames that may break any rule, and what a peer wrote read back, without a library."""

from __future__ import annotations

import base64
import hashlib
import struct
from typing import Final, NamedTuple

TEXT: Final = 1
BINARY: Final = 2
CLOSE: Final = 8
PING: Final = 9
PONG: Final = 10
KEY: Final = "dGhlIHNhbXBsZSBub25jZQ=="
MASK: Final = b"\x11\x22\x33\x44"


class Seen(NamedTuple):
    opcode: int
    payload: bytes
    masked: bool
    final: bool


def frame(
    opcode: int,
    payload: bytes = b"",
    *,
    masked: bool,
    final: bool = True,
    reserved: int = 0,
    length_bytes: int | None = None,
) -> bytes:
    """`length_bytes` (0, 2 or 8) is for lengths that are not in their shortest form."""
    size = len(payload)
    if length_bytes is None:
        length_bytes = 0 if size < 126 else 2 if size < 65536 else 8
    first = (0x80 if final else 0) | reserved | opcode
    mask_bit = 0x80 if masked else 0
    short = {0: size, 2: 126, 8: 127}[length_bytes]
    head = bytes((first, mask_bit | short)) + (size.to_bytes(length_bytes, "big") if length_bytes else b"")
    return head + (MASK + unmasked(payload, MASK) if masked else payload)


def close_frame(code: int, reason: bytes = b"", *, masked: bool) -> bytes:
    return frame(CLOSE, struct.pack("!H", code) + reason, masked=masked)


def unmasked(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big") if size else b""


def frames_in(stream: bytes) -> list[Seen]:
    """The frames of a well-formed stream; a torn one at its end fails the test."""
    seen: list[Seen] = []
    while stream:
        masked, size, at = bool(stream[1] & 0x80), stream[1] & 0x7F, 2
        if size > 125:
            width = 2 if size == 126 else 8
            size, at = int.from_bytes(stream[2 : 2 + width], "big"), 2 + width
        mask = stream[at : at + 4] if masked else bytes(4)
        at += 4 if masked else 0
        assert len(stream) >= at + size, "the last frame is torn"
        seen.append(Seen(stream[0] & 0x0F, unmasked(stream[at : at + size], mask), masked, bool(stream[0] & 0x80)))
        stream = stream[at + size :]
    return seen


def upgrade_request(*, without: str = "", **changes: str) -> bytes:
    headers = {
        "Host": "h",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
    } | {name.replace("_", "-"): value for name, value in changes.items()}
    lines = [f"{name}: {value}" for name, value in headers.items() if name != without]
    return "\r\n".join(("GET / HTTP/1.1", *lines, "", "")).encode()


def upgrade_answer(request: bytes, *, without: str = "", **changes: str) -> bytes:
    """The right answer to a request, with headers changed or one left out."""
    (key,) = (line[19:] for line in request.decode().split("\r\n") if line.lower().startswith("sec-websocket-key: "))
    proof = hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    headers = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Accept": base64.b64encode(proof).decode(),
    } | {name.replace("_", "-"): value for name, value in changes.items()}
    lines = [f"{name}: {value}" for name, value in headers.items() if name != without]
    return "\r\n".join(("HTTP/1.1 101 Switching Protocols", *lines, "", "")).encode()
