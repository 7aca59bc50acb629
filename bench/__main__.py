"""`python -m bench`: run the measures round by round, the servers in turn, and print the table.

It owns the exec-server's; `python -m bench app-server`, `mcp`, `hands`, `environments`, `sdk`, `models`, `runners`,
`search`, `turn-trace`, `soak`, `host-soak`, `agents-soak` and `environments-soak` go to those of these names, `kills`
and `fuzz` to modules beside the soak.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import machine, page, report, servers
from bench.measures import FULL, MEASURES, QUICK, Load, Measure, Plan, Scale
from bench.servers import BenchError, Server


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["app-server"]:
        from bench.app_server.__main__ import main as measure_app_server

        return measure_app_server(words[1:])
    if words[:1] == ["mcp"]:
        from bench.mcp import main as measure_mcp

        return measure_mcp(words[1:])
    if words[:1] == ["hands"]:
        from bench.hands import main as measure_hands

        return measure_hands(words[1:])
    if words[:1] == ["environments"]:
        from bench.environments import main as measure_environments

        return measure_environments(words[1:])
    if words[:1] == ["sdk"]:
        from bench.sdk.__main__ import main as measure_sdk

        return measure_sdk(words[1:])
    if words[:1] == ["models"]:
        from bench.models.__main__ import main as measure_models

        return measure_models(words[1:])
    if words[:1] == ["runners"]:
        from bench.runners import main as measure_runners

        return measure_runners(words[1:])
    if words[:1] == ["search"]:
        from bench.search import main as measure_search

        return measure_search(words[1:])
    if words[:1] == ["turn-trace"]:
        from bench.turn_trace import main as trace_turn

        return trace_turn(words[1:])
    if words[:1] == ["soak"]:
        from bench.soak.__main__ import main as soak

        return soak(words[1:])
    if words[:1] == ["host-soak"]:
        from bench.host_soak.__main__ import main as soak_host

        return soak_host(words[1:])
    if words[:1] == ["agents-soak"]:
        from bench.agents_soak import main as soak_agents

        return soak_agents(words[1:])
    if words[:1] == ["environments-soak"]:
        from bench.environments_soak.__main__ import main as soak_environments

        return soak_environments(words[1:])
    if words[:1] == ["kills"]:
        from bench.soak.kills import main as kill

        return kill(words[1:])
    if words[:1] == ["fuzz"]:
        from bench.soak.fuzz import main as fuzz

        return fuzz(words[1:])
    options = _parser().parse_args(words)
    rounds = options.rounds or (2 if options.quick else 5)
    measures = [measure for measure in MEASURES if not options.only or measure.name in options.only]
    taking_part = _servers(without_real=options.without_real)
    facts = machine.facts(taking_part)
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), file=sys.stderr)
    try:
        samples = asyncio.run(_run(taking_part, measures, rounds, QUICK if options.quick else FULL))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    shown = list(report.lines(measures, samples))
    text = f"{report.explained(rounds)}\n\n{report.table(shown)}"
    print(f"\n{text}")
    if options.page:
        page.write_part("exec-server", facts, text)
    if options.json:
        options.json.write_text(report.as_json(facts, samples, shown), encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure our exec-server and the real one side by side. The real one is installed when missing.",
        epilog="Others: python -m bench "
        "{app-server,mcp,environments,sdk,models,runners,search,soak,host-soak,agents-soak,environments-soak,kills,fuzz}"
        " --help",
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
        choices=[measure.name for measure in MEASURES],
        help=f"only this measure; may be repeated: {', '.join(measure.name for measure in MEASURES)}",
    )
    parser.add_argument("--without-real", action="store_true", help="only ours: no installation, no ratios")
    page.add_option(parser)
    return parser


def _servers(*, without_real: bool) -> list[Server]:
    if without_real:
        return [servers.ours()]
    from scripts.install_peers import InstallFailed, RegistryUnreachable

    try:
        return [servers.ours(), servers.real()]
    except (InstallFailed, RegistryUnreachable, OSError) as error:
        print(f"bench: only ours is measured, the real server is missing: {error}", file=sys.stderr)
        return [servers.ours()]


async def _run(taking_part: Sequence[Server], measures: Sequence[Measure], rounds: int, scale: Scale) -> report.Samples:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    samples = report.Samples()
    with TemporaryDirectory(prefix="treadle-bench-") as folder:
        plan = Plan(
            scale,
            Load.write(Path(folder), scale.output_mb),
            Load.write_lines(Path(folder), scale.terminal_mb),
        )
        for server in taking_part:  # once before it counts: byte code is compiled, files are cached
            async with servers.running(server):
                pass
        for number in range(rounds):
            order = taking_part if number % 2 == 0 else tuple(reversed(taking_part))
            for measure in measures:
                print(f"round {number + 1} of {rounds}: {measure.name}", file=sys.stderr, flush=True)
                for server in order:
                    async with servers.running(server) as running:
                        samples.add(measure, server.name, await measure.run(running, plan))
    return samples


if __name__ == "__main__":
    # Or the servers that are measured would go on without it.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
