"""What is done with an SDK in its own interpreter. Written once: ours has the names of the official one.

A play checks what it received after the clock has stopped: a lost, doubled or swapped event is an error, not a result.
What an SDK may import itself is imported where it is used: else one play would hide a part of another's start.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from bench.sdk import wire

ROOT: Final = Path(__file__).resolve().parents[2]
_WARM_UP: Final = 200
_LINES: Final = 512
_SLICE_SECONDS: Final = 0.0003

Values = dict[str, float]
Reader = Callable[[bytes], Any]


class PlayFailed(Exception):
    """Something was not as it has to be; a time would mean nothing."""


class Heard:
    """What a stream has sent."""

    __slots__ = ("others", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.others: list[str] = []

    def lost(self, deltas: int) -> int:
        """How many of all events did not come; raises when one came twice or in another order."""
        missing = 0
        for came, sent in ((self.texts, map(wire.text, range(deltas))), (self.others, (*wire.BEFORE, *wire.AFTER))):
            left = iter(came)
            wanted = next(left, None)
            for one in sent:
                if one == wanted:
                    wanted = next(left, None)
                else:
                    missing += 1
            if wanted is not None:
                raise PlayFailed(f"{wanted!r} came twice, or in another order")
        return missing

    def check(self, deltas: int) -> None:
        if self.texts != list(map(wire.text, range(deltas))):
            raise PlayFailed(f"{len(self.texts)} deltas came of {deltas}, or in another order")
        if tuple(self.others) != (*wire.BEFORE, *wire.AFTER):
            raise PlayFailed(f"beside the deltas came {', '.join(self.others) or 'nothing'}")


def read(events: Iterator[Any]) -> Heard:
    heard = Heard()
    for event in events:
        if event.method == wire.DELTA:
            heard.texts.append(event.payload.delta)
        else:
            heard.others.append(event.method)
    return heard


async def read_async(events: AsyncIterator[Any]) -> Heard:
    heard = Heard()
    async for event in events:
        if event.method == wire.DELTA:
            heard.texts.append(event.payload.delta)
        else:
            heard.others.append(event.method)
    return heard


class Clock:
    """From now on: how long something takes, and what it costs this process."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._began = time.perf_counter()

    def values(self, events: int) -> Values:
        seconds = time.perf_counter() - self._began
        return {"rate": events / seconds, "cpu": (time.process_time() - self._cpu) / events * 1e6}


# --- decoding ---


def decode(module: str, seconds: float) -> Values:
    """Lines to notifications, per second."""
    kinds = {
        "delta": [wire.delta(1, 1, wire.text(number)) for number in range(_LINES)],
        "message": [wire.completed_message(1, 1, wire.text(number) * 20) for number in range(_LINES)],
        "short_command": [wire.completed_command(1, 1, number, output=60) for number in range(_LINES)],
        "command": [wire.completed_command(1, 1, number) for number in range(_LINES)],
    }
    reader = _reader_of(module)
    return {name: _rate(reader, [line.rstrip() for line in lines], seconds) for name, lines in kinds.items()}


def _reader_of(module: str) -> Reader:
    """What the SDK does with a line before it looks for somebody who wants it."""
    if module == "treadle":
        from treadle.client.notification import frequent_reader

        return frequent_reader()
    coerce = import_module("openai_codex.client").CodexClient()._coerce_notification

    def read_line(line: bytes) -> Any:
        message = json.loads(str(line, "utf-8"))  # it reads text; that is decoded in larger pieces
        return coerce(message["method"], message.get("params"))

    return read_line


def _rate(reader: Reader, lines: Sequence[bytes], seconds: float) -> float:
    """Of the slice that was disturbed least. Slices are equally short for both SDKs: a long one is disturbed sooner."""
    for line in lines:
        _check_known(reader, line)
    count = 1
    while count < len(lines) and _seconds(reader, lines[:count]) < _SLICE_SECONDS:
        count += 1
    chosen = lines[:count]
    end = time.perf_counter() + seconds
    least = _seconds(reader, chosen)
    while time.perf_counter() < end:
        least = min(least, _seconds(reader, chosen))
    return count / least


def _seconds(reader: Reader, lines: Sequence[bytes]) -> float:
    began = time.perf_counter()
    for line in lines:
        reader(line)
    return time.perf_counter() - began


def _check_known(reader: Reader, line: bytes) -> None:
    try:
        known = type(reader(line).payload).__name__ != "UnknownNotification"
    except Exception as error:
        raise PlayFailed(f"a line was not understood: {error}") from error
    if not known:
        raise PlayFailed("a line was not understood: then there is nothing to compare")


# --- streams ---


def stream(module: str, deltas: int) -> Values:
    sdk = import_module(module)
    with sdk.Codex(_flooded_by(sdk, f"1x{_WARM_UP}", f"1x{deltas}")) as codex:
        read(codex.thread_start().turn("x").stream()).check(_WARM_UP)
        thread = codex.thread_start()
        clock = Clock()
        heard = read(thread.turn("x").stream())
        values = clock.values(deltas)
    heard.check(deltas)
    return values


def stream_async(module: str, deltas: int) -> Values:
    import asyncio

    sdk = import_module(module)

    async def play() -> Values:
        async with sdk.AsyncCodex(_flooded_by(sdk, f"1x{_WARM_UP}", f"1x{deltas}")) as codex:
            first = await (await codex.thread_start()).turn("x")
            (await read_async(first.stream())).check(_WARM_UP)
            thread = await codex.thread_start()
            clock = Clock()
            heard = await read_async((await thread.turn("x")).stream())
            values = clock.values(deltas)
        heard.check(deltas)
        return values

    return asyncio.run(play())


def many_async(module: str, turns: int, deltas: int) -> Values:
    """All streams are read at the same time."""
    import asyncio

    sdk = import_module(module)

    async def play() -> Values:
        async with sdk.AsyncCodex(_flooded_by(sdk, f"1x{_WARM_UP}", f"{turns}x{deltas}")) as codex:
            first = await (await codex.thread_start()).turn("x")
            (await read_async(first.stream())).check(_WARM_UP)
            threads = [await codex.thread_start() for _ in range(turns)]
            clock = Clock()
            started = await asyncio.gather(*(thread.turn("x") for thread in threads))
            heard = await asyncio.gather(*(read_async(turn.stream()) for turn in started))
            values = clock.values(_events(turns, deltas))
        return {**values, **_lost(heard, turns, deltas)}

    return asyncio.run(play())


def many(module: str, turns: int, deltas: int) -> Values:
    """One thread starts all of them, then reads one after another: what the others are sent has to be stored."""
    sdk = import_module(module)
    with sdk.Codex(_flooded_by(sdk, f"1x{_WARM_UP}", f"{turns}x{deltas}")) as codex:
        read(codex.thread_start().turn("x").stream()).check(_WARM_UP)
        threads = [codex.thread_start() for _ in range(turns)]
        clock = Clock()
        started = [thread.turn("x") for thread in threads]
        heard = [read(turn.stream()) for turn in started]
        values = clock.values(_events(turns, deltas))
    return {**values, **_lost(heard, turns, deltas)}


def threaded(module: str, turns: int, deltas: int) -> Values:
    """Each stream is read by a thread of its own."""
    import threading

    sdk = import_module(module)
    heard: list[Heard] = []
    with sdk.Codex(_flooded_by(sdk, f"1x{_WARM_UP}", f"{turns}x{deltas}")) as codex:
        read(codex.thread_start().turn("x").stream()).check(_WARM_UP)
        threads = [codex.thread_start() for _ in range(turns)]
        readers = [
            threading.Thread(target=lambda thread=thread: heard.append(read(thread.turn("x").stream())))
            for thread in threads
        ]
        clock = Clock()
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        values = clock.values(_events(turns, deltas))
    return {**values, **_lost(heard, turns, deltas)}


def _events(turns: int, deltas: int) -> int:
    return turns * (deltas + len(wire.BEFORE) + len(wire.AFTER))


def _lost(heard: Sequence[Heard], turns: int, deltas: int) -> Values:
    """How many events did not come. One that came twice or in another order is no matter of a number."""
    if len(heard) != turns:
        raise PlayFailed(f"{len(heard)} of {turns} readers came to the end")
    return {"lost": float(sum(one.lost(deltas) for one in heard))}


def _flooded_by(sdk: Any, *groups: str) -> Any:
    return sdk.CodexConfig(launch_args_override=(sys.executable, "-m", "bench.sdk.flood", *groups), cwd=str(ROOT))


# --- a whole server ---


def run(module: str, command: Sequence[str], home: str, runs: int) -> Values:
    """The time to the first thread, with and without the import, and of a short turn.

    Without a command the server is in this process.
    """
    began = time.perf_counter()
    sdk = import_module(module)
    make = sdk.Codex
    imported = time.perf_counter()
    env = {"HOME": home, "CODEX_HOME": home, "TREADLE_HOME": home}
    program = {"launch_args_override": tuple(command)} if command else {}
    config = sdk.CodexConfig(cwd=f"{home}/work", env=env, **program)
    with make(config) as codex:
        thread = codex.thread_start()
        ready = time.perf_counter()
        for _ in range(5):
            thread.run("hello")
        taken = []
        for _ in range(runs):
            asked = time.perf_counter()
            result = thread.run("hello")
            taken.append(time.perf_counter() - asked)
            if not result.final_response:
                raise PlayFailed("the agent said nothing")
    return {
        "whole": (ready - began) * 1e3,
        "start": (ready - imported) * 1e3,
        "run": sorted(taken)[runs // 2] * 1e3,
    }


PLAYS: Final[Mapping[str, Callable[..., Values]]] = {
    play.__name__: play for play in (decode, stream, stream_async, many_async, many, threaded, run)
}
