"""A model that answers at once, as a process of its own: it shares no interpreter with the client.

The path of the request says how many deltas the answer has: `POST /d20/responses`. With a c (`/c20/responses`) it calls
a tool of an MCP server first, in each turn. With an x (`/x20-HEX/responses`) it runs so many commands first, one after
another; the command line is written in hexadecimal digits. Everything but two ids is made before, and one write sends
it. Started by `running_mock`; it prints its address and ends when its input does.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import Final

DELTA: Final = "word "
CALLED: Final = "one"  # the MCP server, which has a tool `echo`
_ID: Final = b"00000000"
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"
_NOT_HERE: Final = b"HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
_numbers: Final = count(1)


@cache
def _parts(deltas: int) -> tuple[bytes, ...]:
    """The answer, cut where the number of the response goes."""
    from treadle.testing.replies import frame, message_events, message_item, stream

    number = _ID.decode()
    item = message_item(f"msg_{number}", DELTA * deltas, None)
    events = stream(f"resp_{number}", list(message_events(item, [DELTA] * deltas)), [item], None)
    return _cut(b"".join(map(frame, events)))


@cache
def _call(name: str, arguments: str, namespace: str | None = None) -> tuple[bytes, ...]:
    from treadle.testing.replies import frame, item_events, stream

    number = _ID.decode()
    called = {"name": name, "arguments": arguments} | ({} if namespace is None else {"namespace": namespace})
    item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", **called}
    return _cut(b"".join(map(frame, stream(f"resp_{number}", list(item_events(item, 0)), [item], None))))


@cache
def _command(line: str) -> tuple[bytes, ...]:
    # So long that none is left behind in the background.
    return _call("exec_command", json.dumps({"cmd": line, "yield_time_ms": 30_000}))


def _cut(body: bytes) -> tuple[bytes, ...]:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
    return tuple((head.encode() + body).split(_ID))


def answer(path: bytes, request: bytes | bytearray = b"") -> bytes:
    """The whole HTTP answer. Ids differ between answers, as they do in the world."""
    folder, _, name = path.rpartition(b"/")
    if name != b"responses":
        return _NOT_HERE
    kind = folder[folder.rfind(b"/") + 1 :]
    outputs = request.count(b'"function_call_output"', max(request.rfind(b'"role":"user"'), 0))
    wanted, _, line = kind[1:].partition(b"-")
    if kind.startswith(b"x"):
        parts = _command(bytes.fromhex(line.decode()).decode()) if outputs < int(wanted) else _parts(1)
    elif kind.startswith(b"c") and not outputs:
        parts = _call("echo", '{"text":"hello"}', f"mcp__{CALLED}")
    else:
        parts = _parts(int(wanted))
    return (b"%08d" % next(_numbers)).join(parts)


class _Connection(asyncio.Protocol):
    """Keep-alive, one request after another; a body must have a length."""

    def __init__(self) -> None:
        self._held = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._held += data
        while (size := request_size(self._held)) is not None and len(self._held) >= size:
            path = bytes(self._held[: self._held.index(b"\r\n")]).split(b" ")[1]
            request = self._held[:size]
            del self._held[:size]
            self._transport.write(answer(path, request))


def request_size(data: bytes | bytearray) -> int | None:
    """Of the first request with its body; None while the head is not complete."""
    end = data.find(_HEAD_END)
    if end < 0:
        return None
    head = data[:end].lower()
    at = head.find(_LENGTH)
    length = int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0]) if at >= 0 else 0
    return end + len(_HEAD_END) + length


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    await ended.wait()


@contextmanager
def running_mock() -> Iterator[str]:
    """The address, without the part that says how many deltas."""
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.app_server.mock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(child.stdout.readline())}"
    finally:
        child.stdin.close()
        child.stdout.close()
        child.wait()


def requests_per_second(url: str, requests: int = 5_000, body: int = 40_000) -> float:
    """How fast it is, with bodies as large as a model's instructions and tools are."""
    import socket

    host, port = url.removeprefix("http://").split(":")
    request = b"POST /d1/responses HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % body + bytes(body)
    size = len(answer(b"/d1/responses"))
    with socket.create_connection((host, int(port))) as connection:
        began = time.perf_counter()
        for _ in range(requests):
            connection.sendall(request)
            left = size
            while left:
                left -= len(connection.recv(left))
        return requests / (time.perf_counter() - began)


if __name__ == "__main__":
    try:
        asyncio.run(_serve())
    except KeyboardInterrupt:
        os._exit(130)
