"""`python -m bench soak`: start the server, let the clients work, print the table. It ends by itself."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bench import machine
from bench.app_server import programs
from bench.servers import BenchError
from bench.soak.client import SoakClient
from bench.soak.meter import Meter, Sample
from bench.soak.model import running_model
from bench.soak.report import series, table
from bench.soak.server import COMPACT_AT, NEVER, home_for, running
from bench.soak.worker import Tally, Worker

_REPORT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    seconds: float
    turns: int | None
    clients: int
    threads: int
    pause_s: float
    cut_every_s: float
    seed: int
    output: int


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    plan = Plan(
        seconds=options.minutes * 60,
        turns=options.turns,
        clients=options.clients,
        threads=options.threads,
        pause_s=options.pause,
        cut_every_s=options.cut,
        seed=options.seed,
        output=options.output,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with (
            running_model() as model,
            home_for(model, compact_at=options.compact_at) as home,
            running(home) as (url, pid),
        ):
            samples, tally, clients = asyncio.run(_soak(plan, url, pid))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    print("\n".join(f"{name}: {value}" for name, value in machine.facts([programs.ours()]).items()))
    print(f"\n{table(samples, tally, clients)}\n\n{series(samples)}")
    if options.json:
        options.json.write_text(json.dumps([asdict(sample) for sample in samples]), encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench soak",
        description="One app-server under mixed work: plain turns, commands, patches, interrupts, steers, reconnects.",
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default 30)")
    parser.add_argument("--turns", type=int, metavar="N", help="end earlier, when so many turns are done")
    parser.add_argument("--threads", type=int, default=50, metavar="N", help="threads in all (default 50)")
    parser.add_argument("--clients", type=int, default=5, metavar="N", help="connections that share them (default 5)")
    parser.add_argument("--pause", type=float, default=0.2, metavar="S", help="mean pause between turns (default 0.2)")
    parser.add_argument("--cut", type=float, default=5.0, metavar="S", help="between reconnects (default 5)")
    compaction = parser.add_mutually_exclusive_group()
    compaction.add_argument("--compact-at", type=int, default=COMPACT_AT, metavar="TOKENS", help="default %(default)s")
    compaction.add_argument("--no-compaction", action="store_const", const=NEVER, dest="compact_at")
    parser.add_argument(
        "--output", type=int, default=0, metavar="BYTES", help="what a command writes (default: a line)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every sample to FILE")
    return parser


async def _soak(plan: Plan, url: str, pid: int) -> tuple[list[Sample], Tally, list[SoakClient]]:
    tally = Tally()
    meter = Meter(pid, lambda: tally.total)
    meter.take()  # before anybody has asked for anything
    clients = [SoakClient(url) for _ in range(plan.clients)]
    for client in clients:
        await client.open()
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        beside = [
            group.create_task(meter.run()),
            group.create_task(_cut(clients, plan)),
            group.create_task(_talk(meter)),
        ]
        working = []
        for number in range(plan.threads):
            client = clients[number % len(clients)]
            worker = Worker(client, await client.start_thread(), tally, plan.pause_s, plan.seed + number, plan.output)
            working.append(group.create_task(worker.run(stop)))
        await _until_enough(plan, tally, clients)
        stop.set()
        await asyncio.wait(working)
        for task in beside:
            task.cancel()
    meter.take()
    for client in clients:
        await client.close()
    return meter.samples, tally, clients


async def _until_enough(plan: Plan, tally: Tally, clients: Sequence[SoakClient]) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + plan.seconds
    while loop.time() < end and (plan.turns is None or tally.total < plan.turns):
        for client in clients:
            if client.failure is not None:
                raise client.failure
        await asyncio.sleep(0.1)


async def _cut(clients: Sequence[SoakClient], plan: Plan) -> None:
    chosen = random.Random(plan.seed)
    while True:
        await asyncio.sleep(plan.cut_every_s)
        # Not to be cancelled half way: the workers wait for the connection.
        await asyncio.shield(chosen.choice(clients).reopen())


async def _talk(meter: Meter) -> None:
    while True:
        await asyncio.sleep(_REPORT_S)
        last = meter.samples[-1]
        said = f"{last.at_s:.0f} s: {last.turns} turns, {last.memory:.1f} MB, {last.descriptors} descriptors"
        print(said, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
