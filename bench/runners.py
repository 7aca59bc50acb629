"""`python -m bench runners`: what a run costs beside the engine itself.

Decoding the recorded streams, a run next to the bare program, many runs at once, and memory over a long stream. The
engine is a shell script that prints what codex prints, so that nothing else is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench import machine
from treadle.runners.codex import CodexRunner
from treadle.runners.engine import Ending, RunRequest
from treadle.runners.engine_registry import find_engine
from treadle.runners.output_reader import OutputReader
from treadle.runners.run_events import ActionEvent, CompletedEvent

STREAMS: Final = Path(__file__).parents[1] / "tests" / "data" / "engine_streams"
ENGINES: Final = ("codex", "claude", "opencode", "pi")
SESSION: Final = "019b73c4-0c3f-7701-a0bb-aac6b4d8a3bc"
CHUNK: Final = 64 << 10
AT_ONCE: Final = 200
DECODED: Final = 100_000

_SCRIPT: Final = """#!/bin/sh
read id
echo "{\\"type\\":\\"thread.started\\",\\"thread_id\\":\\"$id\\"}"
for i in 1 2 3 4 5 6 7 8 9; do
echo '{"type":"item.completed","item":{"type":"web_search","id":"'$i'","query":"'$i'"}}'
done
echo '{"type":"turn.completed","usage":{}}'
"""
_FLOOD: Final = """#!/bin/sh
read id
echo "{{\\"type\\":\\"thread.started\\",\\"thread_id\\":\\"$id\\"}}"
yes '{{"type":"item.updated","item":{{"id":"item_1","type":"web_search","query":"again and again"}}}}' | head -n {lines}
echo '{{"type":"turn.completed","usage":{{}}}}'
"""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench runners", description=__doc__.partition("\n")[2].strip())
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="how often each is measured (default 5)")
    parser.add_argument("--quick", action="store_true", help="smaller amounts: to see that it works")
    options = parser.parse_args(arguments)
    print("\n".join(f"{name}: {value}" for name, value in machine.facts([]).items()), file=sys.stderr)
    print("| measure | median (least – most) | target |\n|---|---|---|")
    for engine in ENGINES:
        lines = DECODED // (20 if options.quick else 1)
        rates = [decoding(engine, lines) for _ in range(options.rounds)]
        _row(f"{engine}: recorded lines decoded per second", rates, "at least 50,000", "{:,.0f}")
    with TemporaryDirectory(prefix="treadle-bench-") as folder:
        os.environ["TREADLE_HOME"] = f"{folder}/home"
        asyncio.run(_processes(Path(folder), options.rounds, options.quick))
    return 0


def _row(name: str, values: Sequence[float], target: str, shape: str) -> None:
    shown = [shape.format(value) for value in (statistics.median(values), min(values), max(values))]
    print(f"| {name} | {shown[0]} ({shown[1]} – {shown[2]}) | {target} |", flush=True)


def decoding(engine: str, lines: int) -> float:
    """Lines per second, all recorded cases of the engine over and over, in pieces as a pipe gives them."""
    cases = [path.read_bytes() for path in sorted(STREAMS.glob(f"{engine}_*.jsonl"))]
    cases = [case for case in cases if case]
    known = find_engine(engine)
    done = 0
    started = time.perf_counter()
    while done < lines:
        for case in cases:
            reading = OutputReader(known, RunRequest(prompt="", cwd="/scratch/proj"))
            for at in range(0, len(case), CHUNK):
                for _ in reading.receive(case[at : at + CHUNK]):
                    pass
            reading.end(Ending(exit_code=0, lines=reading.lines))
            done += reading.lines
    return done / (time.perf_counter() - started)


async def _processes(folder: Path, rounds: int, quick: bool) -> None:
    script = _program(folder / "codex", _SCRIPT)
    runner = CodexRunner(script)
    await _one(runner, 0)  # the helper process starts once
    over, bare = [], []
    for _ in range(rounds * (2 if quick else 20)):
        alone, driven = await asyncio.to_thread(_bare, script), await _one(runner, 0)
        bare.append(alone * 1000)
        over.append((driven - alone) * 1000)
    _row("the bare program, ms", bare, "", "{:.1f}")
    _row("a run over the bare program, ms", over, "at most 15", "{:.1f}")
    at_once = [await _many(runner) for _ in range(1 if quick else rounds)]
    _row(f"{AT_ONCE} runs at once, s, no event lost", at_once, "", "{:.2f}")
    lines = 50_000 if quick else 1_000_000
    await _flood(folder, lines)


def _program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def _bare(script: str) -> float:
    started = time.perf_counter()
    subprocess.run([script], input=f"{SESSION}\n".encode(), capture_output=True, check=True)
    return time.perf_counter() - started


async def _one(runner: CodexRunner, number: int) -> float:
    started = time.perf_counter()
    session = f"00000000-0000-7000-8000-{number:012d}"
    events: list[Any] = [event async for event in runner.run(f"{session}\n")]
    titles = [event.action.title for event in events if isinstance(event, ActionEvent)]
    if titles != [*"123456789"] or not events[-1].ok or events[-1].resume.value != session:
        raise SystemExit(f"bench: an event was lost: {events}")
    return time.perf_counter() - started


async def _many(runner: CodexRunner) -> float:
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(AT_ONCE):
            group.create_task(_one(runner, number))
    return time.perf_counter() - started


async def _flood(folder: Path, lines: int) -> None:
    """Memory after a tenth of the lines and after all of them."""
    runner = CodexRunner(_program(folder / "flood", _FLOOD.format(lines=lines)))
    seen, tenth = 0, 0.0
    started = time.perf_counter()
    async for event in runner.run(f"{SESSION}\n"):
        if isinstance(event, ActionEvent):
            seen += 1
            if seen == lines // 10:
                tenth = _resident_mb()
        elif isinstance(event, CompletedEvent) and not (event.ok and seen == lines):
            raise SystemExit(f"bench: {lines - seen} lines were lost: {event}")
    seconds = time.perf_counter() - started
    _row(f"{lines:,} lines in one run, lines per second", [lines / seconds], "", "{:,.0f}")
    _row("memory from a tenth of them to all, MB more", [_resident_mb() - tenth], "flat", "{:.1f}")


def _resident_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
