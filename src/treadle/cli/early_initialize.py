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
        data = b""
        while b"\n" not in data and len(data) < MAX_BYTES:
            select.select([reader], [], [])  # works for non-blocking descriptors too
            chunk = os.read(reader, MAX_BYTES)
            if not chunk:
                break
            data += chunk
        line, end, rest = data.partition(b"\n")
        try:
            message = decode_lenient(line) if end else None
            if not isinstance(message, Request) or message.method != "initialize":
                return EarlyInitialize(None, data)
            identity, result = shake_hands(decode(message.params, InitializeParams), home)
        except (MalformedMessage, msgspec.DecodeError, RpcError):
            return EarlyInitialize(None, data)  # the server reports what is wrong with it
        frame = encode_reply(message.id, result) + b"\n"
        while frame:
            select.select([], [writer], [])
            frame = frame[os.write(writer, frame) :]
    return EarlyInitialize(identity, rest)


class _quick_exit:
    """Makes SIGTERM and SIGINT exit immediately until the server runs: there is nothing to clean up yet."""

    def __enter__(self) -> None:
        def leave(number: int, frame: object) -> None:
            sys.stderr.flush()
            os._exit(0)

        self._before = [(number, signal.signal(number, leave)) for number in (signal.SIGTERM, signal.SIGINT)]

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)
