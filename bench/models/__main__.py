"""`python -m bench models`: run the clients in turn, round by round, and print two tables.

One puts each wire API beside the official client of that API, the other beside our own Responses.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench import machine, report
from bench.measures import Row
from bench.models import server, wire
from bench.report import OURS, REAL, Line, Samples, Summary
from bench.sdk.plays import ROOT
from bench.servers import BenchError, Server

PLAY_SECONDS: Final = 600.0
OFFICIAL: Final = {"responses": "openai", "chat": "openai", "anthropic": "anthropic"}
TITLES: Final = {"responses": "Responses", "chat": "Chat Completions", "anthropic": "Anthropic Messages"}
BESIDE: Final = 1.5
"""How much more than Responses another API may take."""


@dataclass(frozen=True, slots=True)
class Scale:
    rounds: int
    runs: int
    short: int = 5
    long: int = 2_000

    def __str__(self) -> str:
        return (
            f"A request has an answer of {self.short} deltas; a delta is what one of {self.long:,} takes more. "
            f"Medians of {self.runs * 10} and {self.runs} answers."
        )


FULL: Final = Scale(rounds=7, runs=10)
QUICK: Final = Scale(rounds=2, runs=5, long=1_000)
ROWS: Final = (
    Row("request", "CPU time of a request", "µs", "less"),
    Row("delta", "CPU time of a delta", "µs", "less", 1 / 5),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench models",
        description="Measure our model client beside the official ones, which are installed when missing.",
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each is measured (default 7, quick 2)")
    parser.add_argument("--quick", action="store_true", help="smaller amounts, fewer rounds: to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every sample to FILE")
    parser.add_argument("--without-real", action="store_true", help="only ours: no installation, no ratios")
    options = parser.parse_args(arguments)
    scale = QUICK if options.quick else FULL
    rounds = options.rounds or scale.rounds
    libraries = {} if options.without_real else _libraries()
    facts = machine.facts([Server(name, path.parent.name, ()) for name, path in libraries.items()])
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), file=sys.stderr)
    try:
        samples = take(libraries, rounds, scale)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    shown = lines(samples)
    print(f"\nMedians (least – most) of {rounds} round(s); the ratio is the median of the rounds' ratios. {scale}\n")
    print(report.table(shown))
    print(f"\n{beside(samples)}")
    if options.json:
        options.json.write_text(report.as_json(facts, samples, shown), encoding="utf-8")
    return 0


def _libraries() -> dict[str, Path]:
    """The official clients, installed first if need be."""
    from scripts.install_peers import PEERS, InstallFailed, RegistryUnreachable, ensure

    try:
        return {name: ensure(PEERS[name]) for name in ("openai", "anthropic")}
    except (InstallFailed, RegistryUnreachable, OSError) as error:
        print(f"bench: only ours is measured, an official client is missing: {error}", file=sys.stderr)
        return {}


def take(libraries: Mapping[str, Path], rounds: int, scale: Scale) -> Samples:
    from treadle import __file__ as place

    assert place is not None
    samples = Samples()
    with server.running(scale.short, scale.long) as address:
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            for api in wire.PATHS:
                pair = [(OURS, "ours", Path(place).parents[1])]
                if OFFICIAL[api] in libraries:
                    pair.append((REAL, OFFICIAL[api], libraries[OFFICIAL[api]].parent))
                for side, client, path in pair if number % 2 == 0 else reversed(pair):
                    for key, value in _play(client, api, path, address, scale).items():
                        samples.values.setdefault((api, key, side), []).append(value)
    return samples


def _play(client: str, api: str, library: Path, address: str, scale: Scale) -> dict[str, float]:
    numbers = map(str, (scale.short, scale.long, scale.runs))
    with TemporaryDirectory(prefix="treadle-bench-") as home:
        env = {"PATH": os.environ["PATH"], "HOME": home, "PYTHONPATH": os.pathsep.join((str(library), str(ROOT)))}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "bench.models.player", client, api, address, *numbers],
                cwd=ROOT,
                env=env,
                capture_output=True,
                text=True,
                timeout=PLAY_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise BenchError(f"{client} took over {PLAY_SECONDS:g} s with {api}") from None
    if done.returncode != 0:
        raise BenchError(f"{client} could not be measured with {api}: {done.stderr[-3000:].strip()}")
    values: dict[str, float] = json.loads(done.stdout)
    return values


def lines(samples: Samples) -> list[Line]:
    found = []
    for api in wire.PATHS:
        for row in ROWS:
            ours, real = (samples.get(api, row.key, side) for side in (OURS, REAL))
            ratios = tuple(one / other for one, other in zip(ours, real, strict=True)) if real else ()
            named = Row(row.key, f"{TITLES[api]}: {row.title}", row.unit, row.better, row.target)
            found.append(Line(api, named, Summary.of(ours), Summary.of(real) if real else None, ratios))
    return found


def beside(samples: Samples) -> str:
    """Each of our APIs as a multiple of our Responses, round by round."""
    rows = ["| ours, compared with our Responses | ratio | target |  |", "| --- | --- | --- | --- |"]
    for api in ("chat", "anthropic"):
        for row in ROWS:
            pairs = zip(samples.get(api, row.key, OURS), samples.get("responses", row.key, OURS), strict=True)
            ratio = statistics.median(one / other for one, other in pairs)
            verdict = "reached" if ratio <= BESIDE else "missed"
            rows.append(f"| {TITLES[api]}: {row.title} | {ratio:.2f} | ≤ {BESIDE} | {verdict} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
