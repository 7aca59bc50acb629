"""`python -m bench host-soak`: run the turns, print the tables. The exit code is 1 when something was wrong."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from bench import machine
from bench.host_soak.plan import BY_NAME, Program, turns
from bench.host_soak.report import ends, series, table
from bench.host_soak.soak import EVERY, Tally, soak


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    print("\n".join(f"{name}: {value}" for name, value in machine.facts([]).items()), flush=True)
    began = time.monotonic()
    tally = soak(options.runtime, turns(options.runtime, options.turns, options.seed, options.only), _Talk())
    print(f"\n{table(tally, time.monotonic() - began)}\n\n{ends(tally)}\n\n{series(tally)}")
    if options.json:
        told = {"ends": [[*end, count] for end, count in tally.ends.items()], "problems": tally.problems}
        samples = [
            asdict(sample) | asdict(beside) for sample, beside in zip(tally.samples, tally.children, strict=True)
        ]
        options.json.write_text(json.dumps({**told, "left": tally.left, "samples": samples}), encoding="utf-8")
    return 1 if tally.problems or any(tally.left.values()) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench host-soak",
        description="One conversation of a HostAgent with faults at random: killed, stopped, cut off, refused, slow.",
    )
    parser.add_argument("--turns", type=int, default=500, metavar="N", help="how many (default 500)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which faults, and when (default 1)")
    parser.add_argument("--runtime", choices=get_args(Program), default="app_server", help="default app_server")
    parser.add_argument(
        "--only", action="append", default=[], choices=list(BY_NAME), metavar="KIND", help="only turns of this kind"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every sample to FILE")
    return parser


class _Talk:
    """On standard error: every problem when it is found, and now and then how it goes."""

    def __init__(self) -> None:
        self._told = 0

    def __call__(self, tally: Tally) -> None:
        for problem in tally.problems[self._told :]:
            print(problem, file=sys.stderr, flush=True)
        self._told = len(tally.problems)
        if tally.total % EVERY == 0:
            last, beside = tally.samples[-1], tally.children[-1]
            print(
                f"{last.at_s:.0f} s: {last.turns} turns, {last.memory:.1f} MB, {last.descriptors} descriptors, "
                f"{last.threads} threads, {beside.processes} processes, {len(tally.problems)} problems",
                file=sys.stderr,
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
