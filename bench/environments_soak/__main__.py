"""`python -m bench environments-soak`: threads on three exec-servers, with faults at random. 1 when something is wrong.

Each exec-server is in a network namespace of its own; two of them dial the app-server. In every round all threads have
commands and patches to do, some of which wait for an approval, and one fault, or two at a time, comes in the middle:
the link is cut, one way or both ways; slow and lossy; the connection is reset; the exec-server or the app-server is
killed, or stopped; its clock is wrong; the disk is full. Afterwards these are looked for:

    lost      a byte of the output that the client, the model or the stored item does not have
    doubled   a command that ran twice, a patch or an input that was applied twice, a byte that came again
    silent    a command or patch that failed without a word, or that goes on without anybody knowing
    stuck     a thread that cannot run a command in its next turn
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.environments_soak.faults import KINDS
from bench.environments_soak.network import inside_namespaces, missing
from bench.environments_soak.soak import soak
from bench.servers import BenchError


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser().parse_args(words)
    if not options.inside:
        problem = missing()
        if problem is not None:
            print(f"bench: no machines can be made here: {problem}", file=sys.stderr)
            return 1
        with tempfile.TemporaryDirectory(prefix="treadle-environments-soak-") as folder:
            command = [sys.executable, "-m", "bench", "environments-soak", *words, "--inside", options.folder or folder]
            return subprocess.run(inside_namespaces(command), check=False).returncode
    began = time.monotonic()

    def talk(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", file=sys.stderr, flush=True)

    try:
        tally = soak(Path(options.inside), options.faults, options.seed, options.only, talk)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    for problem in tally.problems:
        print(problem)
    print(f"{sum(tally.faults.values())} faults in {time.monotonic() - began:.0f} s, seed {options.seed}: ", end="")
    print(", ".join(f"{name} {count}" for name, count in sorted(tally.faults.items())))
    kinds = ", ".join(f"{name} {count}" for name, count in sorted(tally.calls.items()))
    print(f"{sum(tally.calls.values())} calls, {tally.hit} of them not over when a fault hit their machine: {kinds}")
    print("ends: " + ", ".join(f"{name} {count}" for name, count in sorted(tally.ends.items())))
    print(f"{tally.printed / 1e6:.1f} MB of output compared; {tally.disconnected} times a thread lost its machine")
    if tally.next_s:
        quickest, slowest = statistics.median(tally.next_s), max(tally.next_s)
        print(f"a next turn after a fault took {quickest:.2f} s (median), {slowest:.1f} s (longest)")
    print(f"{len(tally.problems)} problems")
    return 1 if tally.problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench environments-soak", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--faults", type=int, default=100, metavar="N", help="how many (default 100)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="what happens, roughly when (default 1)")
    parser.add_argument("--only", action="append", metavar="KIND", choices=list(KINDS), help="only such faults")
    parser.add_argument("--folder", metavar="DIR", help="a new folder in which logs stay")
    parser.add_argument("--inside", metavar="DIR", help=argparse.SUPPRESS)
    return parser
