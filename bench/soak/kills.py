"""`python -m bench kills`: `kill -9` in the middle of turns, again and again; is everything there that was announced?

One home, some threads, and a server that is started anew after every kill. An item counts as announced when its
`item/completed` has arrived.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from bench.servers import BenchError
from bench.soak.client import Cut, SoakClient
from bench.soak.follower import Follower, Named
from bench.soak.model import running_model
from bench.soak.server import home_for, running

_WISHES: Final = ("command", "patch", "slow", "plain")
_THREADS: Final = 4


class _Read(Struct):
    class Thread(Struct):
        class Turn(Struct):
            items: list[Named]

        turns: list[Turn]

    thread: Thread


class Keeper(Follower):
    """Remembers every item that was announced as completed."""

    def __init__(self, thread: str) -> None:
        super().__init__(thread)
        self.announced: dict[str, str] = {}

    def _follow_item(self, method: str, item: Named) -> None:
        if method == "item/completed":
            self.announced[item.id] = item.text


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench kills", description=__doc__)
    parser.add_argument("--times", type=int, default=30, metavar="N", help="how often it is killed (default 30)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    try:
        with running_model() as model_url, home_for(model_url) as home:
            announced, lost = asyncio.run(_lives(home, options.times, random.Random(options.seed)))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(f"{options.times} × kill -9: {announced} announced items, {lost} lost")
    return 0


async def _lives(home: Path, times: int, chance: random.Random) -> tuple[int, int]:
    keepers: list[Keeper] = []
    for _ in range(times):
        with running(home) as (url, pid):
            client = SoakClient(url)
            await client.open()
            await _resume(client, keepers)
            working = [asyncio.ensure_future(_work(client, keeper, chance)) for keeper in keepers]
            await asyncio.sleep(chance.uniform(0.1, 1.0))
            client.expect_end()
            os.kill(pid, signal.SIGKILL)
            await client.gone()
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
    with running(home) as (url, _):
        client = SoakClient(url)
        await client.open()
        lost = sum([await _missing(client, keeper) for keeper in keepers])
        await client.close()
    return sum(len(keeper.announced) for keeper in keepers), lost


async def _resume(client: SoakClient, keepers: list[Keeper]) -> None:
    if not keepers:
        keepers += [Keeper((await client.start_thread()).thread) for _ in range(_THREADS)]
    for keeper in keepers:
        client.followers[keeper.thread] = keeper
        await client.call("thread/resume", {"threadId": keeper.thread, "excludeTurns": True})


async def _work(client: SoakClient, keeper: Keeper, chance: random.Random) -> None:
    with suppress(Cut):
        while True:
            text = f"soak:{chance.choice(_WISHES)} {keeper.thread}"
            said: dict[str, Any] = {"threadId": keeper.thread, "input": [{"type": "text", "text": text}]}
            result = msgspec.json.decode(await client.call("turn/start", said))
            await keeper.end_of(result["turn"]["id"])


async def _missing(client: SoakClient, keeper: Keeper) -> int:
    answer = await client.call("thread/read", {"threadId": keeper.thread, "includeTurns": True})
    turns = msgspec.json.decode(answer, type=_Read).thread.turns
    there = {item.id: item.text for turn in turns for item in turn.items}
    return sum(there.get(item_id) != text for item_id, text in keeper.announced.items())
