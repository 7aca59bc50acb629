"""What is measured side by side: each measure drives one fresh server and gives values, which are rows of the table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from bench import family
from bench.app_server.mock import DELTA
from bench.app_server.programs import Running
from bench.app_server.row_counter import rows_of
from bench.measures import Row

DELTAS: Final = 20_000
_IDLE_SECONDS: Final = 1.0
_WARM_UP: Final = 5


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything."""

    rounds: int
    starts: int
    turns: int
    concurrency: int
    batches: Mapping[str, int]
    """Of concurrent turns, by server: one batch takes the real one as long as hundreds take ours."""
    long_turns: int
    idle_threads: Mapping[str, int]
    loaded_threads: int
    history: Mapping[str, int]
    """Turns of the long thread, by server: every one sends the whole history to the model."""
    samples: int
    """Of each request on many threads and on a long thread."""


FULL: Final = Scale(
    rounds=5,
    starts=40,
    turns=40,
    concurrency=100,
    batches={"real": 1},
    long_turns=3,
    idle_threads={"real": 200},
    loaded_threads=10_000,
    history={"real": 500},
    samples=7,
)
QUICK: Final = Scale(
    rounds=2,
    starts=10,
    turns=15,
    concurrency=100,
    batches={"real": 1},
    long_turns=1,
    idle_threads={"real": 100},
    loaded_threads=1_000,
    history={"ours": 500, "real": 50},
    samples=3,
)
_BATCHES: Final = 5
_IDLE_THREADS: Final = 2_000

Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    rows: tuple[Row, ...]
    run: Callable[[Running, Scale], Values]
    deltas: int = 1
    """In each answer of the model."""
    counts_rows: bool = False
    """Of ours alone, as a program that counts the rows of its store; it is for numbers, not for times."""


def _start(running: Running, scale: Scale) -> Values:
    time.sleep(_IDLE_SECONDS)  # what it does by itself after its start is part of being idle
    idle = family.memory(running.pid)
    running.client.turn(running.client.start_threads(1)[0])
    used = family.memory(running.pid)
    return {
        "start": running.start_seconds * 1e3,
        "idle-rss": idle.rss,
        "idle-pss": idle.pss,
        "used-rss": used.rss,
    }


def _thread_start(running: Running, scale: Scale) -> Values:
    running.client.start_threads(_WARM_UP, at_once=1)
    return {"thread-start": median_ms(lambda: running.client.start_threads(1), scale.starts)}


def _turn(running: Running, scale: Scale) -> Values:
    (thread,) = running.client.start_threads(1)
    for _ in range(_WARM_UP):
        running.client.turn(thread)
    return {"turn": median_ms(lambda: running.client.turn(thread), scale.turns)}


def _rows(running: Running, scale: Scale) -> Values:
    (thread,) = running.client.start_threads(1)
    for _ in range(_WARM_UP):
        running.client.turn(thread)
    before = rows_of(running.home)
    for _ in range(scale.turns):
        running.client.turn(thread)
    return {"rows": (rows_of(running.home) - before) / scale.turns}


def _concurrent(running: Running, scale: Scale) -> Values:
    """Each is the first turn of its thread."""
    client = running.client
    client.turn(client.start_threads(1)[0])
    batches = [
        client.turns(client.start_threads(scale.concurrency))
        for _ in range(scale.batches.get(running.server.name, _BATCHES))
    ]
    return {"concurrent": scale.concurrency / statistics.median(batches)}


def _long_turn(running: Running, scale: Scale) -> Values:
    """Also how many notifications the client got for a delta of the model: one, unless deltas were joined."""
    turns = []
    for _ in range(scale.long_turns + 1):
        (thread,) = running.client.start_threads(1)
        turns.append(running.client.long_turn(thread, DELTAS, DELTA))
    seconds, notifications = zip(*turns[1:], strict=True)
    return {"deltas": DELTAS / statistics.median(seconds), "joined": statistics.median(notifications) / DELTAS}


def _per_thread(running: Running, scale: Scale) -> Values:
    """The first threads load what threads share, which is not theirs."""
    running.client.start_threads(_WARM_UP)
    count = scale.idle_threads.get(running.server.name, _IDLE_THREADS)
    before = family.memory(running.pid)
    running.client.start_threads(count)
    after = family.memory(running.pid)
    return {
        "thread-rss": (after.rss - before.rss) * 1e3 / count,
        "thread-pss": (after.pss - before.pss) * 1e3 / count,
    }


def median_ms(step: Callable[[], object], times: int) -> float:
    taken: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        step()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e3


MEASURES: Final = (
    Measure(
        "start",
        (
            Row("start", "start of the program to the answer of `initialize`", "ms", "less", 1 / 2),
            Row("idle-rss", "resident memory, idle", "MB", "less", 0.4),
            Row("idle-pss", "proportional memory (PSS), idle", "MB", "less"),
            Row("used-rss", "resident memory, after the first turn", "MB", "less"),
        ),
        _start,
    ),
    Measure(
        "thread-start",
        (Row("thread-start", "`thread/start`, median", "ms", "less", 1 / 10),),
        _thread_start,
    ),
    Measure(
        "turn",
        (Row("turn", "`turn/start` to `turn/completed`, median", "ms", "less", 1 / 30),),
        _turn,
    ),
    Measure(
        "rows",
        (Row("rows", "rows written in a turn", "", "less"),),
        _rows,
        counts_rows=True,
    ),
    Measure(
        "concurrent",
        (Row("concurrent", "turns, 100 at a time", "1/s", "more", 300),),
        _concurrent,
    ),
    Measure(
        "deltas",
        (
            Row("deltas", "deltas, 20,000 in one turn", "1/s", "more", 8),
            Row("joined", "notifications for each delta", "", "more"),
        ),
        _long_turn,
        deltas=DELTAS,
    ),
    Measure(
        "per-thread",
        (
            Row("thread-rss", "resident memory of an idle thread", "kB", "less", 1 / 20),
            Row("thread-pss", "proportional memory (PSS) of an idle thread", "kB", "less"),
        ),
        _per_thread,
    ),
)
