"""What is measured side by side: each measure takes one SDK and gives values, which are rows of the table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from bench.app_server import programs
from bench.measures import Row
from bench.sdk.interpreters import Sdk, play, start_seconds


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything."""

    rounds: int
    imports: int
    decode_seconds: float
    deltas: int
    turns: int
    turn_deltas: int
    readers: int
    """Threads that read a stream each: every event of the official SDK wakes all of them."""
    runs: int

    def __str__(self) -> str:
        return (
            f"A long turn has {self.deltas:,} deltas. Many turns are {self.turns:,} at a time, {self.readers:,} with "
            f"threads, of {self.turn_deltas:,} deltas each."
        )


FULL: Final = Scale(
    rounds=7, imports=5, decode_seconds=0.5, deltas=50_000, turns=1_000, turn_deltas=50, readers=100, runs=40
)
QUICK: Final = Scale(
    rounds=2, imports=2, decode_seconds=0.1, deltas=10_000, turns=200, turn_deltas=50, readers=20, runs=10
)

Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    rows: tuple[Row, ...]
    run: Callable[[Sdk, Scale, str], Values]
    """The last is the address of the model."""
    only_ours: bool = False


def _import(sdk: Sdk, scale: Scale, model_url: str) -> Values:
    """What an empty interpreter takes is subtracted; the two take turns."""
    wanted = f"import {sdk.module}; {sdk.module}.Codex"
    pairs = [(start_seconds(sdk, "pass"), start_seconds(sdk, wanted)) for _ in range(scale.imports)]
    empty, full = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {"import": (full - empty) * 1e3}


def _decode(sdk: Sdk, scale: Scale, model_url: str) -> Values:
    return play(sdk, "decode", seconds=scale.decode_seconds)


def _stream(sdk: Sdk, scale: Scale, model_url: str) -> Values:
    found = {"sync": play(sdk, "stream", deltas=scale.deltas), "async": play(sdk, "stream_async", deltas=scale.deltas)}
    return _flat(found)


def _many(sdk: Sdk, scale: Scale, model_url: str) -> Values:
    turns, deltas = scale.turns, scale.turn_deltas
    return _flat(
        {
            "async": play(sdk, "many_async", turns=turns, deltas=deltas),
            "sync": play(sdk, "many", turns=turns, deltas=deltas),
            "threads": play(sdk, "threaded", turns=scale.readers, deltas=deltas),
        }
    )


def _flat(found: Mapping[str, Values]) -> Values:
    return {f"{face}-{name}": value for face, values in found.items() for name, value in values.items()}


def _server(sdk: Sdk, scale: Scale, model_url: str) -> Values:
    with programs.home_for(model_url) as home:
        return play(sdk, "run", command=programs.ours().command, home=str(home), runs=scale.runs)


def _local_server(sdk: Sdk, scale: Scale, model_url: str) -> Values:
    with programs.home_for(model_url) as home:
        return play(sdk, "run", command=(), home=str(home), runs=scale.runs)


MEASURES: Final = (
    Measure("import", (Row("import", "import, up to the class `Codex`", "ms", "less", 1 / 10),), _import),
    Measure(
        "decode",
        (
            Row("delta", "decoding `item/agentMessage/delta`", "1/s", "more", 8),
            Row("message", "decoding `item/completed`, a message", "1/s", "more", 20),
            Row("short_command", "decoding `item/completed`, a command with a line of output", "1/s", "more", 20),
            Row("command", "decoding `item/completed`, a command with 2 KB of output", "1/s", "more", 20),
        ),
        _decode,
    ),
    Measure(
        "stream",
        (
            Row("sync-rate", "deltas of a long turn through `stream()`, sync", "1/s", "more", 5),
            Row("sync-cpu", "CPU time of the client for a delta, sync", "µs", "less"),
            Row("async-rate", "deltas of a long turn through `stream()`, async", "1/s", "more"),
            Row("async-cpu", "CPU time of the client for a delta, async", "µs", "less"),
        ),
        _stream,
    ),
    Measure(
        "many",
        (
            Row("async-rate", "events of many turns at a time, async", "1/s", "more"),
            Row("async-lost", "of these, lost", "events", "less"),
            Row("sync-rate", "events of many turns, read one after another, sync", "1/s", "more"),
            Row("sync-lost", "of these, lost", "events", "less"),
            Row("threads-rate", "events of many turns at a time, a thread for each", "1/s", "more"),
            Row("threads-lost", "of these, lost", "events", "less"),
        ),
        _many,
    ),
    Measure(
        "server",
        (
            Row("whole", "import to the first thread, `treadle app-server` as a child", "ms", "less"),
            Row("start", "`Codex()` to the first thread, `treadle app-server` as a child", "ms", "less"),
            Row("run", "`thread.run`, `treadle app-server` as a child, median", "ms", "less"),
        ),
        _server,
    ),
    Measure(
        "local",
        (
            Row("whole", "import to the first thread, server in this process", "ms", "less"),
            Row("start", "`Codex()` to the first thread, server in this process", "ms", "less"),
            Row("run", "`thread.run`, server in this process, median", "ms", "less"),
        ),
        _local_server,
        only_ours=True,
    ),
)
