"""A server that does nothing: it answers with ready lines, as many and as long as a real turn's.

What the benchmark's client measures on it is what the client itself costs. Started like the others, with the same
arguments; it finds the number of deltas where they find their model.
"""

from __future__ import annotations

import os
import re
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from bench.app_server.mock import DELTA

_TURN: Final = "019a0000-0000-7000-8000-00000000ffff"
_MESSAGES: Final = (
    "thread/status/changed",
    "turn/started",
    "item/started",
    "item/completed",
    "item/started",
)
_LAST_MESSAGES: Final = ("item/completed", "thread/tokenUsage/updated", "thread/status/changed")


class _Request(Struct):
    method: str
    id: int | None = None
    params: dict[str, Any] = {}


def _notification(method: str, **params: Any) -> bytes:
    params |= {"threadId": "THREAD", "turnId": _TURN}
    return msgspec.json.encode({"method": method, "params": params, "emittedAtMs": 1_800_000_000_000}) + b"\n"


@cache
def _turn(deltas: int) -> bytes:
    """The notifications of a turn. A filler stands for the fields that are not sent."""
    filler = {"filler": "x" * 150}
    lines = [_notification(method, **filler) for method in _MESSAGES]
    lines += [_notification("item/agentMessage/delta", itemId="msg_00000001", delta=DELTA)] * deltas
    lines += [_notification(method, **filler) for method in _LAST_MESSAGES]
    turn: dict[str, Any] = {"id": _TURN, "items": [], "status": "completed", "error": None}
    return b"".join((*lines, _notification("turn/completed", turn=turn)))


def _answer(request: _Request, numbers: count[int], deltas: int) -> bytes:
    result: dict[str, Any] = {}
    if request.method == "thread/start":
        result = {"thread": {"id": f"019a0000-0000-7000-8000-{next(numbers):012d}"}, "filler": "x" * 900}
    reply = msgspec.json.encode({"id": request.id, "result": result}) + b"\n"
    if request.method != "turn/start":
        return reply
    return reply + _turn(deltas).replace(b"THREAD", request.params["threadId"].encode())


def serve(source: int = 0, sink: int = 1) -> None:
    config = (Path(os.environ["CODEX_HOME"]) / "config.toml").read_text()
    found = re.search(r"/d(\d+)", config)
    deltas = int(found[1]) if found else 1
    decoder, numbers, rest = msgspec.json.Decoder(_Request), count(1), b""
    while data := os.read(source, 1 << 20):
        *lines, rest = (rest + data).split(b"\n")
        requests = [decoder.decode(line) for line in lines]
        out = b"".join(_answer(request, numbers, deltas) for request in requests if request.id is not None)
        while out:
            out = out[os.write(sink, out) :]


if __name__ == "__main__":
    serve()
