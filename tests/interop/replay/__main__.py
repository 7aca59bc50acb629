"""Replay by hand, against any program that has an `app-server`:

    PYTHONPATH=src:tests python -m interop.replay [--server PROGRAM] [--all] [SCENARIO...]

Without `--server` it is our own. Another program is compared as it is; for ours the listed differences are left out,
unless `--all` is given. Patterns are allowed as scenarios. The exit code is 1 when something differs.

The scripts of the model and the player were proved with the program that was recorded (codex 0.166). What still differs
there now and then: the place of a page's end in 11 (its cursors count seconds), an estimate of tokens in 12, and the
answer to the steering in 28, which is played a little later than recorded. Where its sandbox works, 06 stops early:
the recorded one did not. Other versions differ in many members, so this is no test.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

from interop.replay.differences import Differences, load_differences
from interop.replay.replay import replay
from interop.replay.scenario import load_scenarios


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m interop.replay", description="Replay recorded app-server traffic.")
    parser.add_argument("--server", help="the program; `app-server` is added")
    parser.add_argument("--all", action="store_true", help="show listed differences too")
    parser.add_argument("--summary", action="store_true", help="count differences by method, path and kind at the end")
    parser.add_argument("scenarios", nargs="*", default=["*"])
    options = parser.parse_args()
    command = [options.server or sys.executable, *([] if options.server else ["-m", "treadle"]), "app-server"]
    listed = load_differences()
    known = Differences([], listed.out_of_scope) if options.server or options.all else listed
    totals: Counter[str] = Counter()
    for scenario in load_scenarios().values():
        if not any(fnmatchcase(scenario.name, pattern) for pattern in options.scenarios):
            continue
        with tempfile.TemporaryDirectory(prefix="replay-") as base:
            skipped = known.skipped_requests(scenario.name, ours=not options.server)
            outcome = asyncio.run(replay(scenario, command, Path(base).resolve(), skipped))
        found = known.unexplained(scenario.name, outcome.findings)
        totals.update(f"{one.method}  {one.kind} {one.path}" for one in found)
        print(outcome.account(found) if found or outcome.played.stalled else f"{scenario.name}: the same", flush=True)
    if options.summary:
        for line, count in totals.most_common():
            print(f"{count:5}  {line}")
    return 1 if totals else 0


if __name__ == "__main__":
    sys.exit(main())
