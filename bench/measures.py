"""What is measured: each measure drives one fresh server and gives one or more values, which are rows of the table."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal
from zlib import crc32

from bench import family
from bench.client import Heard, Session
from bench.public import public_session
from bench.raw import raw_session
from bench.servers import BenchError, Running

TRUE: Final = ("/bin/true",)
SLEEP: Final = ("/bin/sleep", "600")
_SETTLE_SECONDS: Final = 60.0
_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything, so that a round takes seconds."""

    starts: int
    concurrent_starts: int
    concurrency: int
    echoes: int
    output_mb: int
    terminal_mb: int
    sleepers: int


FULL: Final = Scale(
    starts=60, concurrent_starts=320, concurrency=32, echoes=40, output_mb=150, terminal_mb=20, sleepers=200
)
QUICK: Final = Scale(
    starts=20, concurrent_starts=96, concurrency=32, echoes=10, output_mb=100, terminal_mb=20, sleepers=200
)


@dataclass(frozen=True, slots=True)
class Row:
    """A value that a measure gives. `target` is for ours : real, at least that when more is better, else at most."""

    key: str
    title: str
    unit: str
    better: Literal["more", "less"]
    target: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """What the big writer writes: a file, so that the bytes are known before."""

    path: Path
    expected: Heard

    @classmethod
    def write(cls, folder: Path, megabytes: int) -> Load:
        """Random blocks that differ in their first bytes: a lost, doubled or swapped one changes the checksum."""
        path, heard = folder / "output", Heard()
        noise = os.urandom(_BLOCK - 8)
        with path.open("wb") as file:
            for number in range(megabytes * 1_000_000 // _BLOCK + 1):
                block = number.to_bytes(8, "big") + noise
                file.write(block)
                heard.size += len(block)
                heard.checksum = crc32(block, heard.checksum)
        return cls(path, heard)

    @classmethod
    def write_lines(cls, folder: Path, megabytes: int) -> Load:
        """Numbered lines of text, which a terminal shows with a carriage return each."""
        path = folder / "lines"
        lines = b"".join(b"%079d\n" % number for number in range(megabytes * 1_000_000 // 80))
        path.write_bytes(lines)
        shown = Heard()
        shown.add(lines.replace(b"\n", b"\r\n"))
        return cls(path, shown)


@dataclass(frozen=True, slots=True)
class Plan:
    scale: Scale
    load: Load
    lines: Load


Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    rows: tuple[Row, ...]
    run: Callable[[Running, Plan], Awaitable[Values]]


async def _startup(running: Running, plan: Plan) -> Values:
    async with raw_session(running.url):
        return {"startup": (time.perf_counter() - running.launched_at) * 1e3}


async def _sequential(session: Session, running: Running, plan: Plan) -> Values:
    async with session(running.url) as client:
        await client.run(TRUE)
        began = time.perf_counter()
        for _ in range(plan.scale.starts):
            await client.run(TRUE)
        return {"sequential": plan.scale.starts / (time.perf_counter() - began)}


async def _concurrent(session: Session, running: Running, plan: Plan) -> Values:
    async with session(running.url) as client:
        await client.run(TRUE)
        left = plan.scale.concurrent_starts

        async def work() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await client.run(TRUE)

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(plan.scale.concurrency):
                group.create_task(work())
        return {"concurrent": plan.scale.concurrent_starts / (time.perf_counter() - began)}


async def _echo(session: Session, running: Running, plan: Plan) -> Values:
    async with session(running.url) as client:
        echo = await client.start_echo()
        await echo(b"hello\n")
        taken: list[float] = []
        for _ in range(plan.scale.echoes):
            began = time.perf_counter()
            await echo(b"hello\n")
            taken.append(time.perf_counter() - began)
        return {"echo": statistics.median(taken) * 1e3}


async def _output(session: Session, running: Running, plan: Plan) -> Values:
    """Also the CPU time behind it, which a busy machine disturbs less, and how busy the client was: near 100 % it is
    the client that is being measured."""
    async with session(running.url) as client:
        await client.run(TRUE)
        server_cpu, client_cpu, began = family.cpu_seconds(running.pid), time.process_time(), time.perf_counter()
        heard = await client.run(("/bin/cat", str(plan.load.path)))
        seconds = time.perf_counter() - began
        client_cpu = time.process_time() - client_cpu
        server_cpu = family.cpu_seconds(running.pid) - server_cpu
    if heard != plan.load.expected:
        raise BenchError(f"the output was damaged: {heard} instead of {plan.load.expected}")
    return {
        "output": heard.size / 1e6 / seconds,
        "output-server-cpu": server_cpu * 1e9 / heard.size,
        "output-client-busy": client_cpu / seconds * 100,
    }


async def _terminal(session: Session, running: Running, plan: Plan) -> Values:
    """A terminal gives 4 KiB at a time: here it is the cost of a read and of a message that counts."""
    async with session(running.url) as client:
        await client.run(TRUE, tty=True)
        server_cpu, client_cpu, began = family.cpu_seconds(running.pid), time.process_time(), time.perf_counter()
        heard = await client.run(("/bin/cat", str(plan.lines.path)), tty=True)
        seconds = time.perf_counter() - began
        client_cpu = time.process_time() - client_cpu
        server_cpu = family.cpu_seconds(running.pid) - server_cpu
    if heard != plan.lines.expected:
        raise BenchError(f"the output was damaged: {heard} instead of {plan.lines.expected}")
    return {
        "terminal": heard.size / 1e6 / seconds,
        "terminal-server-cpu": server_cpu * 1e9 / heard.size,
        "terminal-client-busy": client_cpu / seconds * 100,
    }


async def _memory(running: Running, plan: Plan) -> Values:
    """Idle means: a client is there and one command has run, so that whatever is made lazily has been made."""
    async with raw_session(running.url) as client:
        await client.run(TRUE)
        await _until_commands(running, 0)
        idle = family.memory(running.pid)
        await asyncio.gather(*(client.start(SLEEP) for _ in range(plan.scale.sleepers)))
        await _until_commands(running, plan.scale.sleepers)
        busy = family.memory(running.pid)
    return {"idle-rss": idle.rss, "idle-pss": idle.pss, "busy-rss": busy.rss, "busy-pss": busy.pss}


async def _until_commands(running: Running, count: int) -> None:
    """Wait until exactly so many descendants are commands: a command shows as its server until its exec."""
    async with asyncio.timeout(_SETTLE_SECONDS):
        while len(family.members(running.pid)) - len(family.own(running.pid)) != count:  # noqa: ASYNC110 - see /proc
            await asyncio.sleep(0.02)


def _rows(client: str, *rows: Row) -> tuple[Row, ...]:
    """The targets hold for the raw client; other clients' rows are for information."""
    if client == "raw":
        return rows
    return tuple(Row(row.key, f"{row.title}, {client}", row.unit, row.better) for row in rows)


def _driven(suffix: str, client: str, session: Session) -> tuple[Measure, ...]:
    """The measures that make sense with any client."""
    return (
        Measure(
            f"sequential{suffix}",
            _rows(client, Row("sequential", "`/bin/true`, start to closed, one after another", "1/s", "more", 10)),
            partial(_sequential, session),
        ),
        Measure(
            f"concurrent{suffix}",
            _rows(client, Row("concurrent", "`/bin/true`, start to closed, 32 at a time", "1/s", "more", 5)),
            partial(_concurrent, session),
        ),
        Measure(
            f"echo{suffix}",
            _rows(client, Row("echo", "echo through `cat`, round trip", "ms", "less", 1 / 50)),
            partial(_echo, session),
        ),
        Measure(
            f"output{suffix}",
            _rows(
                client,
                Row("output", "pushed output", "MB/s", "more", 1.5),
                Row("output-server-cpu", "pushed output, CPU time of the server", "s/GB", "less"),
                Row("output-client-busy", "pushed output, CPU use of the client", "%", "less"),
            ),
            partial(_output, session),
        ),
        Measure(
            f"terminal{suffix}",
            _rows(
                client,
                Row("terminal", "pushed output of a terminal", "MB/s", "more", 1),
                Row("terminal-server-cpu", "pushed output of a terminal, CPU time of the server", "s/GB", "less"),
                Row("terminal-client-busy", "pushed output of a terminal, CPU use of the client", "%", "less"),
            ),
            partial(_terminal, session),
        ),
    )


MEASURES: Final = (
    Measure(
        "startup", (Row("startup", "start of the program to first `initialize` answer", "ms", "less", 6),), _startup
    ),
    *_driven("", "raw", raw_session),
    Measure(
        "memory",
        (
            Row("idle-rss", "resident memory, idle", "MB", "less", 0.7),
            Row("idle-pss", "proportional memory (PSS), idle", "MB", "less"),
            Row("busy-rss", "resident memory, 200 sleeping processes", "MB", "less", 0.7),
            Row("busy-pss", "proportional memory (PSS), 200 sleeping processes", "MB", "less"),
        ),
        _memory,
    ),
    *_driven("-env", "`Environment`", public_session),
)
