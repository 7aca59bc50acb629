"""A model server that has its answers ready: `python -m bench.models.server SHORT LONG` prints its address.

A request below `/short/v1` gets as many deltas as the first number says, one below `/long/v1` as the second.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from subprocess import PIPE, Popen

from bench.models import wire
from bench.sdk.plays import ROOT


def answers(short: int, long: int) -> dict[str, bytes]:
    """By path."""
    sizes = {"short": short, "long": long}
    return {
        f"/{name}/v1{wire.PATHS[api]}": wire.http(frames(deltas))
        for name, deltas in sizes.items()
        for api, frames in wire.FRAMES.items()
    }


class Player(asyncio.Protocol):
    def __init__(self, ready: dict[str, bytes]) -> None:
        self._ready = ready
        self._data = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, body = bytes(self._data).partition(b"\r\n\r\n")
        headers = (line.lower().partition(b":") for line in head.split(b"\r\n")[1:])
        length = next((int(value) for name, _, value in headers if name == b"content-length"), 0)
        if end and len(body) >= length:
            self._data.clear()
            self._transport.write(self._ready[head.split()[1].decode()])


async def serve(sizes: Sequence[str]) -> None:
    short, long = map(int, sizes)
    ready = answers(short, long)
    server = await asyncio.get_running_loop().create_server(lambda: Player(ready), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


@contextmanager
def running(short: int, long: int) -> Iterator[str]:
    """Its address, for as long as it runs."""
    command = [sys.executable, "-m", "bench.models.server", str(short), str(long)]
    with Popen(command, stdout=PIPE, text=True, cwd=ROOT) as child:
        try:
            assert child.stdout is not None
            yield child.stdout.readline().strip()
        finally:
            child.kill()


if __name__ == "__main__":
    try:
        asyncio.run(serve(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(1)
