"""A server that says what it has to say as fast as a pipe takes it: `python -m bench.sdk.flood 1x100 1000x50`.

Each argument is a group, TURNSxDELTAS: when as many turns have been started, their notifications follow, one of each
turn in turn. All lines are made before the first request is read. Turns and threads are numbered from 0 as they are
started, and turn n is taken to be on thread n.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final

from bench.sdk import wire

_READ: Final = 1 << 20


def floods(groups: Sequence[str]) -> dict[int, bytes]:
    """What follows the start of which turn: the last of each group."""
    found: dict[int, bytes] = {}
    first = 0
    for group in groups:
        turns, deltas = map(int, group.split("x"))
        found[first + turns - 1] = wire.interleaved(range(first, first + turns), deltas)
        first += turns
    return found


class Flood:
    """What is answered to a request."""

    def __init__(self, groups: Sequence[str]) -> None:
        self._floods = floods(groups)
        self._threads = count()
        self._turns = count()

    def take(self, line: bytes) -> Iterator[bytes]:
        request: dict[str, Any] = json.loads(line)
        if "id" not in request:
            return
        result: dict[str, Any] = {}
        follows = b""
        match request["method"]:
            case "initialize":
                result = wire.initialized()
            case "thread/start":
                result = wire.thread_started(next(self._threads))
            case "turn/start":
                number = next(self._turns)
                result, follows = wire.turn_started(number), self._floods.get(number, b"")
        yield wire.answer(request["id"], result)
        yield follows


def serve(groups: Sequence[str], source: int = 0, sink: int = 1) -> None:
    flood, rest = Flood(groups), b""
    while data := os.read(source, _READ):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            for out in flood.take(line):
                _write(sink, out)


def _write(sink: int, out: bytes) -> None:
    left = memoryview(out)
    while left:
        left = left[os.write(sink, left) :]


if __name__ == "__main__":
    try:
        serve(sys.argv[1:])
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(1)
