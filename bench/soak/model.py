"""The model of the soak, as a process of its own: the last thing said decides what it answers.

`soak:command` and `soak:patch` make it call a tool (a number after the first: so many bytes are written), `soak:slow`
makes it talk slowly, anything else gets a short answer at once. It reports the size of the request as
tokens, so that threads are compacted as they are in the world. Started by `running_model`; it prints its port and ends
when its input does.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final

import msgspec
from msgspec import Raw, Struct

from bench.app_server.mock import request_size
from treadle.testing.replies import ToolCall, Usage, frame, item_events, message_events, message_item, stream

SLOW_PIECES: Final = 20
SLOW_S: Final = 0.02
_HEAD_END: Final = b"\r\n\r\n"
_PATCH: Final = "*** Begin Patch\n*** Add File: soak-{word}.txt\n+{number}\n*** End Patch"
_numbers: Final = count(1)


class _Part(Struct):
    text: str = ""


class _Item(Struct):
    type: str = ""
    role: str = ""
    content: list[_Part] = []


class _Asked(Struct):
    input: list[Raw]


_asked: Final = msgspec.json.Decoder(_Asked).decode
_item: Final = msgspec.json.Decoder(_Item, strict=False).decode


def wish_of(body: bytes) -> str:
    """What the request ends with: a wish of the user, or nothing in particular."""
    items = _asked(body).input
    last = _view(items[-1]) if items else _Item()
    said = last.content[0].text if last.role == "user" and last.content else ""
    return said.removeprefix("soak:") if said.startswith("soak:") else ""


def _view(item: Raw) -> _Item:
    try:
        return _item(item)
    except msgspec.ValidationError:  # content that is no list of parts
        return _Item()


def pieces_of(wish: str, tokens: int) -> list[bytes]:
    """The whole HTTP answer; more than one piece when it comes slowly."""
    number = next(_numbers)
    kind, _, word = wish.partition(" ")
    usage = Usage(input_tokens=tokens)
    if kind in ("command", "patch"):
        patch = _PATCH.format(word=word or "x", number=number)
        loud = f"head -c {word} /dev/zero | tr '\\0' x" if word.isdecimal() else f"echo {number}"
        command = {"cmd": loud, "login": False}
        call = ToolCall("apply_patch", patch, custom=True) if kind == "patch" else ToolCall("exec_command", command)
        item = call.item(f"call_{number}")
        events = stream(f"resp_{number}", list(item_events(item, 0)), [item], usage)
    else:
        words = [f"{number}.{index} " for index in range(SLOW_PIECES if kind == "slow" else 3)]
        item = message_item(f"msg_{number}", "".join(words), None)
        events = stream(f"resp_{number}", list(message_events(item, words)), [item], usage)
    frames = [frame(event) for event in events]
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {sum(map(len, frames))}\r\n\r\n"
    return [head.encode(), *frames] if kind == "slow" else [head.encode() + b"".join(frames)]


class _Connection(asyncio.Protocol):
    """Keep-alive, one request after another."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._slow: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self._slow is not None:
            self._slow.cancel()

    def data_received(self, data: bytes) -> None:
        self._held += data
        while (size := request_size(self._held)) is not None and len(self._held) >= size:
            body = bytes(self._held[self._held.index(_HEAD_END) + len(_HEAD_END) : size])
            del self._held[:size]
            pieces = pieces_of(wish_of(body), size // 4)
            if len(pieces) == 1:
                self._transport.write(pieces[0])
            else:
                self._slow = asyncio.get_running_loop().create_task(self._talk(pieces))

    async def _talk(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self._transport.write(piece)
            await asyncio.sleep(SLOW_S)


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()


@contextmanager
def running_model() -> Iterator[str]:
    """The address that a provider is configured with."""
    child = subprocess.Popen([sys.executable, "-m", "bench.soak.model"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(child.stdout.readline())}/v1"
    finally:
        child.stdin.close()
        child.stdout.close()
        child.wait()


if __name__ == "__main__":
    asyncio.run(_serve())
