"""What must not grow: the answers of one server with many threads, and of one thread with many turns.

Each pair is measured on the same program, a small case and a large one; the ratio is large to small.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from bench.app_server.client import Client
from bench.app_server.measures import Scale
from bench.app_server.programs import home_for, running
from bench.servers import Server

FEW_THREADS: Final = 10
FEW_TURNS: Final = 5
MANY_TURNS: Final = 5_000
_SAMPLES_OF_A_REQUEST: Final = 200
_PAGE: Final = 25
_WITH_TURNS: Final = "`thread/resume` with turns"
_FIRST_TURN: Final = "first turn after a resume"
_WHOLE: Final = (_WITH_TURNS, _FIRST_TURN)


class _Resumed(Struct):
    class Thread(Struct):
        turns: list[Raw]

    thread: Thread


_resumed: Final = msgspec.json.Decoder(_Resumed).decode


@dataclass(frozen=True, slots=True)
class Timing:
    """In milliseconds."""

    p50: float
    p99: float

    @classmethod
    def of(cls, seconds: list[float]) -> Timing:
        ordered = sorted(seconds)
        return cls(statistics.median(ordered) * 1e3, ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1e3)


@dataclass(frozen=True, slots=True)
class Limit:
    """For the median of the large case: in milliseconds, or as a multiple of the small one."""

    value: float
    unit: Literal["ms", ""] = ""


# "In milliseconds", as long as there are not two digits of them.
MILLISECONDS: Final = Limit(10, "ms")
# "As fast as": what two measurements of the same thing differ by on a busy machine.
SAME: Final = Limit(1.5)


@dataclass(frozen=True, slots=True)
class Pair:
    server: str
    what: str
    small: Timing
    large: Timing
    limit: Limit | None
    """None where it has to grow: an answer, or a request to the model, that holds everything."""

    @property
    def ratio(self) -> float:
        return self.large.p50 / self.small.p50


Timings = Mapping[str, Timing]


def many_threads(server: Server, model_url: str, scale: Scale) -> list[Pair]:
    """On one server, before and after most of its threads are loaded."""
    with home_for(model_url) as home, running(server, home) as up:
        threads = up.client.start_threads(FEW_THREADS)
        small = _requests(up.client, threads)
        threads += up.client.start_threads(scale.loaded_threads - FEW_THREADS)
        large = _requests(up.client, threads)
    return [Pair(server.name, what, small[what], large[what], MILLISECONDS) for what in small]


def _requests(client: Client, threads: list[str]) -> Timings:
    chosen = random.Random(1)
    client.turn(chosen.choice(threads))
    steps: dict[str, Callable[[], object]] = {
        "`thread/read`": lambda: client.call("thread/read", {"threadId": chosen.choice(threads)}),
        "`thread/loaded/list`, 25": lambda: client.call("thread/loaded/list", {"limit": _PAGE}),
        "`turn/start` to `turn/completed`": lambda: client.turn(chosen.choice(threads)),
    }
    return {what: Timing.of([_seconds(step) for _ in range(_SAMPLES_OF_A_REQUEST)]) for what, step in steps.items()}


def long_history(server: Server, model_url: str, scale: Scale) -> list[Pair]:
    """Made turn by turn; then every sample is taken from a server that has just been started and knows nothing.

    A sample ends with a turn, so both threads grow by one each time.
    """
    turns = scale.history.get(server.name, MANY_TURNS)
    with home_for(model_url) as home:
        with running(server, home) as up:
            short, long, other = up.client.start_threads(3)
            for thread, count in ((short, FEW_TURNS), (long, turns), (other, 1)):
                for _ in range(count):
                    up.client.turn(thread)
        small, large = [], []
        for _ in range(scale.samples):
            small.append(_reopened(server, home, short, other))
            large.append(_reopened(server, home, long, other))
    came = f"{_WITH_TURNS} ({small[-1].turns} and {large[-1].turns} came)"
    return [
        Pair(
            server.name,
            came if what == _WITH_TURNS else what,
            _collected(small, what),
            _collected(large, what),
            None if what in _WHOLE else SAME,
        )
        for what in small[0].seconds
    ]


@dataclass(slots=True)
class _Reopened:
    """`turns` is how many the answer of a resume held: a server need not send them all."""

    seconds: dict[str, float] = field(default_factory=dict)
    turns: int = 0


def _reopened(server: Server, home: Path, thread: str, other: str) -> _Reopened:
    """Another thread goes first: what is loaded once for all threads is not counted."""
    found = _Reopened()

    def take(what: str, step: Callable[[], object]) -> None:
        found.seconds[what] = _seconds(step)

    with running(server, home) as up:
        client = up.client
        _open(client, other)
        take("`thread/resume`", lambda: client.call("thread/resume", _resume(thread, exclude=True)))
        take("`thread/turns/list`, 5", lambda: client.call("thread/turns/list", _turns_page(thread)))
        take("`thread/list`", lambda: client.call("thread/list", {}))
        take(_FIRST_TURN, lambda: client.turn(thread))
    with running(server, home) as up:
        client = up.client
        _open(client, other)
        answers: list[Raw] = []
        take(_WITH_TURNS, lambda: answers.append(client.call("thread/resume", _resume(thread, exclude=False))))
    found.turns = len(_resumed(answers[0]).thread.turns)
    return found


def _open(client: Client, thread: str) -> None:
    client.call("thread/resume", _resume(thread, exclude=True))
    client.call("thread/turns/list", _turns_page(thread))
    client.call("thread/list", {})
    client.turn(thread)


def _resume(thread: str, *, exclude: bool) -> dict[str, Any]:
    return {"threadId": thread, "excludeTurns": exclude}


def _turns_page(thread: str) -> dict[str, Any]:
    """As many as the short thread has: the answers are of one size."""
    return {"threadId": thread, "limit": FEW_TURNS}


def _collected(samples: list[_Reopened], what: str) -> Timing:
    return Timing.of([sample.seconds[what] for sample in samples])


def _seconds(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began
