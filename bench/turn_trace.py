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
from typing import Any

from msgspec import Struct

from treadle.testing import AppServerHarness

WARM_UP = 5


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
    """One plain turn (a message in, a message out) after a few that are not counted."""
    trace = Trace(Counter(), set())
    with AppServerHarness(folder, wire_api="responses") as harness:
        async with harness.connect() as client:
            thread: Any = await client.request("thread/start", {})
            for turn in range(WARM_UP + 1):
                harness.model.enqueue_assistant_message("Hello.")
                if turn == WARM_UP:
                    sys.setprofile(trace.note)
                try:
                    await client.run_turn(thread["thread"]["id"], "hi")
                finally:
                    sys.setprofile(None)
    return trace


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench turn-trace", description=__doc__.partition("\n")[0])
    parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        trace = asyncio.run(trace_turn(Path(folder)))
    for module, calls in trace.calls.items():
        print(f"{calls:6}  {module}")
    print(f"{len(trace.calls)} modules, {len(trace.functions)} functions, {trace.changes} changes of module")
    return 0
