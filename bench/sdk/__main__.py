"""`python -m bench sdk`: run the measures round by round, the SDKs in turn, and print the table."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import machine, page, report
from bench.app_server.mock import running_mock
from bench.report import OURS, REAL, Line, Samples, Summary
from bench.sdk import interpreters
from bench.sdk.interpreters import Sdk
from bench.sdk.measures import FULL, MEASURES, QUICK, Measure, Scale
from bench.servers import BenchError, Server

NAMES: Final = tuple(measure.name for measure in MEASURES)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    scale = QUICK if options.quick else FULL
    rounds = options.rounds or scale.rounds
    measures = [measure for measure in MEASURES if not options.only or measure.name in options.only]
    taking_part = _sdks(without_real=options.without_real)
    facts = machine.facts([Server(sdk.name, sdk.version, ()) for sdk in taking_part])
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), file=sys.stderr)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with running_mock() as model_url:
            samples = take(taking_part, measures, rounds, scale, model_url)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    shown = lines(measures, samples)
    text = f"{report.explained(rounds)} {scale}\n\n{report.table(shown)}"
    print(f"\n{text}")
    if options.page:
        page.write_part("sdk", facts, text)
    if options.json:
        options.json.write_text(report.as_json(facts, samples, shown), encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench sdk",
        description="Measure our SDK and the official one side by side. The official one is installed when missing.",
    )
    parser.add_argument(
        "--rounds", type=page.positive, metavar="N", help="how often it is measured (default 7, quick 2)"
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


def _sdks(*, without_real: bool) -> list[Sdk]:
    if without_real:
        return [interpreters.ours()]
    from scripts.install_peers import InstallFailed, RegistryUnreachable

    try:
        return [interpreters.ours(), interpreters.real()]
    except (InstallFailed, RegistryUnreachable, OSError) as error:
        print(f"bench: only ours is measured, the official SDK is missing: {error}", file=sys.stderr)
        return [interpreters.ours()]


def take(taking_part: Sequence[Sdk], measures: Sequence[Measure], rounds: int, scale: Scale, model_url: str) -> Samples:
    samples = Samples()
    for sdk in taking_part:  # once before it counts: byte code is compiled, files are cached
        interpreters.start_seconds(sdk, f"import {sdk.module}; {sdk.module}.Codex")
    for number in range(rounds):
        order = taking_part if number % 2 == 0 else tuple(reversed(taking_part))
        for measure in measures:
            print(f"round {number + 1} of {rounds}: {measure.name}", file=sys.stderr, flush=True)
            for sdk in order:
                if sdk.name == OURS or not measure.only_ours:
                    values = measure.run(sdk, scale, model_url)
                    for row in measure.rows:
                        samples.values.setdefault((measure.name, row.key, sdk.name), []).append(values[row.key])
    return samples


def lines(measures: Sequence[Measure], samples: Samples) -> list[Line]:
    found = []
    for measure in measures:
        for row in measure.rows:
            ours, real = (samples.get(measure.name, row.key, name) for name in (OURS, REAL))
            comparable = bool(real) and all(real)  # of nothing there is no ratio
            ratios = tuple(one / other for one, other in zip(ours, real, strict=True)) if comparable else ()
            found.append(Line(measure.name, row, Summary.of(ours), Summary.of(real) if real else None, ratios))
    return found


if __name__ == "__main__":
    sys.exit(main())
