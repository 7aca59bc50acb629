"""The first answer of a server on standard input and output, given before the rest of the server is loaded.

Loading asyncio and what stands on it takes most of the start of a server, and a client that has started one waits for
`initialize`. So that is answered by plain reads and writes; the client gets on with its work while we load. Everything
else, also a first message that is something else, is left to the server.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import Final

import msgspec
from msgspec import Struct

from treadle.errors import MalformedMessage, RpcError
from treadle.protocol.app.base import decode
from treadle.protocol.app.handshake import InitializeParams
from treadle.rpc.message import Request, decode_lenient, encode_reply
from treadle.server.identity import Identity, shake_hands

# A handshake is a few hundred bytes; what is longer is not one.
MAX_BYTES: Final = 64 * 1024


class Opening(Struct, frozen=True):
    """`identity` is None when the first message was no handshake; `unread` is what the server has to read first."""

    identity: Identity | None
    unread: bytes


def answer_first(reader: int, writer: int, home: str) -> Opening:
    """Read the first message and answer it, if it is a handshake that can be answered."""
    with _quick_exit():
        data = _first_line(reader)
        line, end, rest = data.partition(b"\n")
        answered = _answer(line, home) if end else None
        if answered is None:
            return Opening(None, data)
        identity, frame = answered
        _write(writer, frame + b"\n")
    return Opening(identity, rest)


def _answer(line: bytes, home: str) -> tuple[Identity, bytes] | None:
    try:
        message = decode_lenient(line)
        if not isinstance(message, Request) or message.method != "initialize":
            return None
        identity, result = shake_hands(decode(message.params, InitializeParams), home)
    except (MalformedMessage, msgspec.DecodeError, RpcError):
        return None  # the server says what is wrong with it
    return identity, encode_reply(message.id, result)


def _first_line(reader: int) -> bytes:
    data = b""
    while b"\n" not in data and len(data) < MAX_BYTES:
        select.select([reader], [], [])  # also where the descriptor does not block
        chunk = os.read(reader, MAX_BYTES)
        if not chunk:
            break
        data += chunk
    return data


def _write(writer: int, data: bytes) -> None:
    while data:
        select.select([], [writer], [])
        data = data[os.write(writer, data) :]


class _quick_exit:
    """Until the server is there, a signal that asks for the end is followed at once: nothing has to be put in order."""

    def __enter__(self) -> None:
        self._before = [(number, signal.signal(number, _leave)) for number in (signal.SIGTERM, signal.SIGINT)]

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)


def _leave(number: int, frame: object) -> None:
    sys.stderr.flush()
    os._exit(0)
