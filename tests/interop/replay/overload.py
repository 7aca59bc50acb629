"""`burst`: more requests at once than a server takes, for the recording that holds only the refusal.

Owns the flood. It is one write, of a request that needs the store, so that more comes than can have been answered.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from interop.replay.recording import Line, received
from interop.replay.scenario import Places, Scenario
from interop.replay.wire import stdio_server

RECORDING: Final = "21_overload_error"
BURST: Final = 6000
ANSWER_SECONDS: Final = 60.0

_INITIALIZE: Final = {"id": 0, "method": "initialize", "params": {"clientInfo": {"name": "probe", "version": "1"}}}


async def burst(command: Sequence[str], base: Path) -> list[Line]:
    """Every answer to the flood; fewer than `BURST` when the server left some unanswered."""
    places = Places(base)
    answers: list[Line] = []
    ready, done = asyncio.Event(), asyncio.Event()

    def receive(conn: str, text: str | None) -> None:
        if text is None:
            ready.set()
            done.set()
            return
        line = received(conn, text)
        if not line.is_response:
            return
        if not ready.is_set():
            ready.set()
            return
        answers.append(line)
        if len(answers) == BURST:
            done.set()

    nothing = Scenario(RECORDING, [], [], config={}, files={}, git=False, replies=[])
    nothing.prepare(places, "http://127.0.0.1:9/v1")
    flood = [{"id": f"x{number}", "method": "thread/list", "params": {}} for number in range(BURST)]
    async with (
        stdio_server(command, places, base / "server.log", receive, {}) as wire,
        asyncio.timeout(ANSWER_SECONDS),
    ):
        await wire.send("", json.dumps(_INITIALIZE))
        await ready.wait()
        await wire.send("", "\n".join(json.dumps(request) for request in flood))
        await done.wait()
        await wire.finish("eof")
    return answers
