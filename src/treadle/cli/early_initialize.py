"""Answers `initialize` on standard input and output before the rest of the server is imported.

Importing asyncio and what builds on it takes most of the server's start, while the client that started it waits for
`initialize`. So that is answered with plain reads and writes, and the client can go on while we import. Everything
else, including a different first message, is left to the server.
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

# `initialize` is a few hundred bytes; anything longer is something else.
MAX_BYTES: Final = 64 * 1024


class EarlyInitialize(Struct, frozen=True):
    """`identity` is None if the first message was not `initialize`; `unread` is what the server has to read first."""

    identity: Identity | None
    unread: bytes


def answer_initialize(reader: int, writer: int, home: str) -> EarlyInitialize:
    """Read the first message, and answer it if it is a valid `initialize`."""
    with _quick_exit():
        data = _first_line(reader)
        line, end, rest = data.partition(b"\n")
        answered = _answer(line, home) if end else None
        if answered is None:
            return EarlyInitialize(None, data)
        identity, frame = answered
        _write(writer, frame + b"\n")
    return EarlyInitialize(identity, rest)


def _answer(line: bytes, home: str) -> tuple[Identity, bytes] | None:
    try:
        message = decode_lenient(line)
        if not isinstance(message, Request) or message.method != "initialize":
            return None
        identity, result = shake_hands(decode(message.params, InitializeParams), home)
    except (MalformedMessage, msgspec.DecodeError, RpcError):
        return None  # the server reports what is wrong with it
    return identity, encode_reply(message.id, result)


def _first_line(reader: int) -> bytes:
    data = b""
    while b"\n" not in data and len(data) < MAX_BYTES:
        select.select([reader], [], [])  # works for non-blocking descriptors too
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
    """Until the server runs, SIGTERM and SIGINT exit immediately: there is nothing to clean up yet."""

    def __enter__(self) -> None:
        self._before = [(number, signal.signal(number, _leave)) for number in (signal.SIGTERM, signal.SIGINT)]

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)


def _leave(number: int, frame: object) -> None:
    sys.stderr.flush()
    os._exit(0)
