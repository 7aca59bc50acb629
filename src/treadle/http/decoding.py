"""Content codings, sans I/O: for servers that compress although we never ask for it.

It owns gzip and deflate, and limits how much is decompressed at a time: a small input may expand a thousandfold.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Final

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


def decoder_for(headers: Mapping[str, str]) -> Decoder | None:
    """None for a body that is not coded. Raises `UnknownCoding`."""
    coding = headers.get("content-encoding")
    if coding is None:
        return None
    names = [name for word in coding.split(",") if (name := word.strip().lower()) not in ("", "identity")]
    if not names:
        return None
    if len(names) > 1 or names[0] not in _NAMES:
        raise UnknownCoding(", ".join(names))
    return Decoder(_NAMES[names[0]])


class Decoder:
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
