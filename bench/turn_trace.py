"""`python -m bench turn-trace`: the way of one warm turn through the modules, counted on the event loop's thread.

The server, its store and its model client are in this process; the mock model answers from threads of its own, which
are not counted. A change of module is a call whose function is in another module than the function called before it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from msgspec import Struct

from treadle.protocol.app.handshake import ClientInfo, InitializeCapabilities, InitializeParams
from treadle.protocol.app.inputs import TextUserInput
from treadle.protocol.app.thread_methods import ThreadStartParams
from treadle.protocol.app.turns import TurnStartParams
from treadle.server import AppServer
from treadle.testing import AppServerHarness

WARM_UP = 5
TRACED = 10
_INITIALIZE = InitializeParams(
    client_info=ClientInfo(name="trace", version="1"), capabilities=InitializeCapabilities(experimental_api=True)
)


class Trace(Struct):
    """`calls` by module, in the order in which each was first entered; `changes` of module between calls."""

    calls: Counter[str]
    functions: set[tuple[str, str]]
    changes: int = 0
    last: str = ""

    def note(self, frame: FrameType, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event != "call" or not module.startswith("treadle.") or module.startswith("treadle.testing"):
            return
        self.calls[module] += 1
        self.functions.add((module, frame.f_code.co_qualname))
        if module != self.last:
            self.changes += 1
            self.last = module


async def trace_turn(folder: Path) -> Trace:
    """One plain turn (a message in, a message out) after a few that are not counted: of several the one with the fewest
    changes of module, because on a busy machine tasks and threads get in between each other."""
    traces: list[Trace] = []
    with AppServerHarness(folder, wire_api="responses") as harness:
        async with AppServer(home=harness.home, cwd=harness.workspace) as server:
            ended = asyncio.Event()
            client = server.connect(
                lambda event: ended.set() if event.method == "turn/completed" else None, lambda request: None
            )
            await client.request("initialize", _INITIALIZE)
            thread = (await client.request("thread/start", ThreadStartParams())).thread.id
            for turn in range(WARM_UP + TRACED):
                harness.model.enqueue_assistant_message("Hello.")
                params = TurnStartParams(thread_id=thread, input=(TextUserInput(text="hi"),))
                ended.clear()
                trace = Trace(Counter(), set())
                sys.setprofile(trace.note if turn >= WARM_UP else None)
                try:
                    await client.request("turn/start", params)
                    await ended.wait()
                finally:
                    sys.setprofile(None)
                traces.append(trace)
    return min(traces[WARM_UP:], key=lambda trace: trace.changes)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench turn-trace", description=__doc__.partition("\n")[0])
    parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        trace = asyncio.run(trace_turn(Path(folder)))
    for module, calls in trace.calls.items():
        print(f"{calls:6}  {module}")
    print(f"{len(trace.calls)} modules, {len(trace.functions)} functions, {trace.changes} changes of module")
    return 0
