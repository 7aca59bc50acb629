"""`python -m bench.app_server`: run the measures round by round, the servers in turn, and print the tables."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import machine, page, report
from bench.app_server import growth, programs, tables
from bench.app_server.growth import Pair
from bench.app_server.measures import FULL, MEASURES, QUICK, Scale
from bench.app_server.mock import requests_per_second, running_mock
from bench.servers import BenchError, Server

THREADS: Final = "threads"
HISTORY: Final = "history"
NAMES: Final = (*(measure.name for measure in MEASURES), THREADS, HISTORY)
_OF_CLIENT_ALONE: Final = "The client alone, against a server that does nothing:"
# Those where the client could be what is slow.
_OF_CLIENT: Final = ("thread-start", "turn", "concurrent", "deltas")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    scale = QUICK if options.quick else FULL
    chosen = options.only or NAMES
    taking_part = servers_of(without_real=options.without_real)
    facts = dict(machine.facts(taking_part))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with running_mock() as model_url:
            facts["mock model"] = f"{requests_per_second(model_url):.0f} requests/s of 40 kB, one connection"
            print("\n".join(f"{name}: {value}" for name, value in facts.items()), file=sys.stderr)
            samples = _rounds(taking_part, chosen, options.rounds or scale.rounds, scale, model_url)
            threads = growth.many_threads(taking_part[0], model_url, scale) if THREADS in chosen else []
            history = _histories(taking_part, model_url, scale) if HISTORY in chosen else []
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    for name, text in _shown(samples, threads, history, scale).items():
        print(f"\n{text}")
        if options.page:
            page.write_part(name, facts if name == "app-server" else {}, text)
    if options.json:
        shown = list(report.lines(MEASURES, samples))
        options.json.write_text(tables.whole_json(facts, samples, shown, [*threads, *history]), encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.app_server",
        description="Measure our app-server and the real one side by side. The real one is installed when missing.",
    )
    parser.add_argument(
        "--rounds", type=page.positive, metavar="N", help="how often it is measured (default 5, quick 2)"
    )
    parser.add_argument("--quick", action="store_true", help="smaller amounts, fewer rounds: to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every sample to FILE")
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        choices=NAMES,
        help=f"only this measure; may be repeated: {', '.join(NAMES)}",
    )
    parser.add_argument("--without-real", action="store_true", help="only ours: no installation, no ratios")
    page.add_option(parser)
    return parser


def servers_of(*, without_real: bool) -> list[Server]:
    if without_real:
        return [programs.ours()]
    from scripts.install_peers import InstallFailed, RegistryUnreachable

    try:
        return [programs.ours(), programs.real()]
    except (InstallFailed, RegistryUnreachable, OSError) as error:
        print(f"bench: only ours is measured, the real server is missing: {error}", file=sys.stderr)
        return [programs.ours()]


def _rounds(
    taking_part: Sequence[Server], chosen: Sequence[str], rounds: int, scale: Scale, model_url: str
) -> report.Samples:
    samples = report.Samples()
    measures = [measure for measure in MEASURES if measure.name in chosen]
    for server in taking_part:  # once before it counts: byte code is compiled, files are cached
        with programs.home_for(model_url) as home, programs.running(server, home) as up:
            up.client.turn(up.client.start_threads(1)[0])
    for number in range(rounds):
        order = taking_part if number % 2 == 0 else tuple(reversed(taking_part))
        for measure in measures:
            print(f"round {number + 1} of {rounds}: {measure.name}", file=sys.stderr, flush=True)
            measured: Sequence[Server] = order
            if measure.counts_rows:
                measured = (programs.counted(),)
            elif measure.name in _OF_CLIENT:
                measured = (*order, programs.null())
            for server in measured:
                with programs.home_for(model_url, measure.deltas) as home, programs.running(server, home) as up:
                    samples.add(measure, server.name, measure.run(up, scale))
    return samples


def _histories(taking_part: Sequence[Server], model_url: str, scale: Scale) -> list[Pair]:
    pairs: list[Pair] = []
    for server in taking_part:
        print(f"a long thread: {server.name}", file=sys.stderr, flush=True)
        pairs += growth.long_history(server, model_url, scale)
    return pairs


def _shown(samples: report.Samples, threads: Sequence[Pair], history: Sequence[Pair], scale: Scale) -> dict[str, str]:
    """What was measured, by the name of its part on the page."""
    parts = {}
    if shown := list(report.lines(MEASURES, samples)):
        rounds = max(len(values) for values in samples.values.values())
        parts["app-server"] = "\n\n".join(
            [report.explained(rounds), report.table(shown), _OF_CLIENT_ALONE, tables.client_table(samples)]
        )
    if threads:
        few, many = f"{growth.FEW_THREADS} threads", f"{scale.loaded_threads:,} threads"
        parts["app-server-threads"] = (
            f"One server with many loaded threads:\n\n{tables.growth_table(threads, few, many)}"
        )
    if history:
        turns = scale.history.get("ours", growth.MANY_TURNS)
        real = f" (the real one: {scale.history['real']:,})" if "real" in scale.history else ""
        head = f"A thread with {turns:,} turns{real}, each sample from a server that was just started:"
        table = tables.growth_table(history, f"{growth.FEW_TURNS} turns", "many turns")
        parts["app-server-history"] = f"{head}\n\n{table}"
    return parts


if __name__ == "__main__":
    sys.exit(main())
