"""A program that uses a store in a process of its own, to be killed by tests. Run by `store_process`.

store_program.py <home> obey             does what the lines of its standard input say
store_program.py <home> flood <thread>   writes to a thread until it is killed, and prints what was committed
store_program.py <home> fill             fills the disk, makes room, and goes on
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from treadle.store import Release, SqliteStore, StoreError, open_sqlite
from treadle.testing import A, commit, event, history, item, thread, turn

WINDOW = 64


def say(**message: Any) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


async def obey(home: str) -> None:
    """One command a line, one answer a line; the last is `close`, or a signal."""
    say(state="starting")
    async with await open_sqlite(home) as store:
        say(state="open")
        loop = asyncio.get_running_loop()
        while True:
            line = await loop.run_in_executor(None, sys.stdin.readline)
            command, *words = line.split()
            if command == "close":
                break
            try:
                say(answer=await _do(store, command, *words))
            except StoreError as error:
                say(error=error.kind, message=error.message)
    say(state="closed")


async def _do(store: SqliteStore, command: str, thread_id: str, *words: str) -> Any:
    if command == "thread":
        return await commit(store, thread(thread_id))
    if command == "claim":
        return (await store.claim(thread_id, -1)).fence
    if command == "write":
        fence, number = map(int, words)
        return await store.commit(
            thread_id, fence, [item(number, thread_id, data=b'"under %d"' % fence), event(number, thread_id)]
        )
    if command == "run":
        return await commit(store, turn(int(words[0]), thread_id, status="inProgress"))
    if command == "release":
        return await commit(store, Release(thread_id))
    if command == "events":
        for number in range(1, int(words[0]) + 1):
            await commit(store, event(number, thread_id), item(number, thread_id, text=f"word{number}"))
        return None
    raise AssertionError(command)


async def flood(home: str, thread_id: str) -> None:
    """Each call writes an item, a row of history and an event of the same number."""
    say(state="starting")
    async with await open_sqlite(home) as store:
        await commit(store, thread(thread_id))
        await store.claim(thread_id, 0)
        await commit(store, turn(1, thread_id, status="inProgress"))
        say(state="open")
        room = asyncio.Semaphore(WINDOW)
        number = 0
        while True:
            await room.acquire()
            number += 1
            store.submit(thread_id, 1, _row(thread_id, number), partial(_written, number, room))


def _row(thread_id: str, number: int) -> list[Any]:
    blob = b'"%b"' % (b"x" * random.choice((10, 500, 5_000, 50_000)))
    text = f"number {number}" if number % 3 == 0 else None
    return [
        item(number, thread_id, data=blob, text=text),
        history(number, thread_id, data=blob),
        event(number, thread_id),
    ]


def _written(number: int, room: asyncio.Semaphore, error: StoreError | None) -> None:
    if error is not None:
        say(error=error.kind, message=error.message)
        os._exit(1)
    os.write(1, b"%d\n" % number)
    room.release()


async def fill(home: str) -> None:
    ballast = os.path.join(home, "ballast")
    async with await open_sqlite(home) as store:
        with open(ballast, "wb") as file:
            file.write(b"x" * 1_400_000)
        await commit(store, thread(), item(1, text="kept"))
        number = 0
        while True:
            try:
                await commit(store, event(number + 1, frame=b'"%b"' % (b"x" * 20_000)))
            except StoreError as error:
                say(error=error.kind, message=error.message, written=number)
                break
            number += 1
        # Small calls fail too, or not: whatever they say is true, and reading goes on.
        for _ in range(20):
            try:
                await commit(store, event(number + 1))
                number += 1
            except StoreError as error:
                say(error=error.kind)
        async with await open_sqlite(home) as second:
            page = await second.events(A, 0, 10_000)
            say(read=len(page.events), written=number, found=len(await store.search("kept")))
        os.unlink(ballast)
        await commit(store, event(number + 1, frame=b'"%b"' % (b"x" * 20_000)), item(2, text="more"))
    async with await open_sqlite(home) as store:
        page = await store.events(A, 0, 10_000)
        hits = len(await store.search("kept")) + len(await store.search("more"))
        say(read=len(page.events), written=number + 1, found=hits)


if __name__ == "__main__":
    programs: dict[str, Callable[..., Coroutine[None, None, None]]] = {"obey": obey, "flood": flood, "fill": fill}
    asyncio.run(programs[sys.argv[2]](sys.argv[1], *sys.argv[3:]))
