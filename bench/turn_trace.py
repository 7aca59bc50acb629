"""`python -m bench turn-trace`: the modules that one warm turn of `Codex` passes through, counted over all threads.

The SDK, the server, its store and its model client are in this process, as they are for a user; the mock model answers
from threads of its own, whose calls are in `treadle.testing` and not counted. A change of module is a call whose
function is in another module than the function called before it on the same thread.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from inspect import CO_NEWLOCALS
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from treadle import Codex
from treadle.testing import AppServerHarness

WARM_UP = 5
TRACED = 5
MAX_TRACED = 80
# What the server still does when the turn has ended for the caller: its last commits.
SETTLE_S = 0.3


class Trace:
    """`calls` by module, in the order in which each was first entered; `changes` of module between calls."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.functions: set[tuple[str, str]] = set()
        self.changes = 0
        self._last: dict[int, str] = {}  # by thread

    def note(self, frame: FrameType) -> None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith("treadle.") or module.startswith("treadle.testing"):
            return
        thread = threading.get_ident()
        self.calls[module] += 1
        self.functions.add((module, frame.f_code.co_qualname))
        self.changes += module != self._last.get(thread, module)
        self._last[thread] = module


def trace_turn(folder: Path, wanted: int | None = None) -> Trace:
    """One plain turn (a message in, a message out) after a few that are not counted: of several the one with the fewest
    changes of module. On a busy machine tasks and threads get in between each other, which only adds changes; so with
    `wanted` turns are traced until one has no more than that."""
    traces: list[Trace] = []
    now: Trace | None = None

    def profile(frame: FrameType, event: str, _: object) -> None:
        # Functions only: a module that is loaded, or the body of a class, is no step of a turn.
        if now is not None and event == "call" and frame.f_code.co_flags & CO_NEWLOCALS:
            now.note(frame)

    # Before the threads of the client start: each takes it over when it does.
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        with AppServerHarness(folder, wire_api="responses") as harness, Codex(harness.codex_config()) as codex:
            thread = codex.thread_start()
            for turn in range(WARM_UP + MAX_TRACED):
                harness.model.enqueue_assistant_message("Hello.")
                if turn >= WARM_UP:
                    traces.append(Trace())
                    now = traces[-1]
                thread.run("hi")
                time.sleep(SETTLE_S)
                now = None
                fewest = min((trace.changes for trace in traces), default=sys.maxsize)
                if len(traces) >= TRACED and (wanted is None or fewest <= wanted):
                    break
    finally:
        threading.setprofile(None)
        sys.setprofile(None)
    return min(traces, key=lambda trace: trace.changes)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench turn-trace", description=__doc__.partition("\n")[0])
    more = f"trace up to {MAX_TRACED} turns instead of {TRACED}, until one has no more changes of module than N"
    parser.add_argument("--wanted", type=int, metavar="N", help=more)
    wanted: int | None = parser.parse_args(arguments).wanted
    with TemporaryDirectory() as folder:
        trace = trace_turn(Path(folder), wanted)
    for module, calls in trace.calls.items():
        print(f"{calls:6}  {module}")
    counts = f"{len(trace.calls)} modules, {len(trace.functions)} functions, {trace.calls.total()} calls"
    print(f"{counts}, {trace.changes} changes of module")
    return 0
