"""`Worker`: turn after turn in one thread, of a mixed kind, until it is stopped."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import Struct

from bench.servers import BenchError
from bench.soak.client import STEP_S, Cut, Refused, SoakClient
from bench.soak.follower import Follower

# How often each kind comes, in a hundred.
KINDS: Final = {"plain": 70, "command": 12, "patch": 6, "interrupt": 6, "steer": 6}
_SAID: Final = {"interrupt": "slow", "steer": "slow"}
_EXPECTED: Final = {"interrupt": ("interrupted", "completed")}


class _Started(Struct):
    class Turn(Struct):
        id: str

    turn: Turn


@dataclass(slots=True)
class Tally:
    """What all workers have done. `seconds` are those of plain turns that were not cut off."""

    turns: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    """Requests for a turn that were cut off before they were answered, and that no turn came of."""
    odd_ends: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.turns.total()


class Worker:
    """`output` is how many bytes each command writes; 0 is a line."""

    def __init__(
        self, client: SoakClient, follower: Follower, tally: Tally, pause_s: float, seed: int, output: int = 0
    ) -> None:
        self._client = client
        self._follower = follower
        self._tally = tally
        self._pause_s = pause_s
        self._output = output
        self._random = random.Random(seed)
        self._kinds = self._random.choices(list(KINDS), list(KINDS.values()), k=1000)

    async def run(self, stop: asyncio.Event) -> None:
        number = 0
        while not stop.is_set():
            kind = self._kinds[number % len(self._kinds)]
            number += 1
            await self._turn(kind)
            await asyncio.sleep(self._random.uniform(0, 2 * self._pause_s))

    async def _turn(self, kind: str) -> None:
        reconnects = self._client.reconnects
        began = time.perf_counter()
        turn = await self._begin(kind)
        if turn is None:
            self._tally.unknown += 1
            return
        await self._disturb(kind, turn)
        status = await self._end(turn)
        if kind == "plain" and self._client.reconnects == reconnects:
            self._tally.seconds.append(time.perf_counter() - began)
        self._tally.turns[kind] += 1
        self._tally.odd_ends += status not in _EXPECTED.get(kind, ("completed",))

    async def _begin(self, kind: str) -> str | None:
        try:
            result = await self._client.call("turn/start", self._said(_SAID.get(kind, kind)))
            return msgspec.json.decode(result, type=_Started).turn.id
        except Cut:
            await self._client.connected.wait()
            return self._follower.running

    async def _disturb(self, kind: str, turn: str) -> None:
        if kind not in _SAID:
            return
        await asyncio.wait([self._follower.end_of(turn)], timeout=self._random.uniform(0, 0.3))
        try:
            if kind == "interrupt":
                await self._client.call("turn/interrupt", {"threadId": self._follower.thread, "turnId": turn})
            else:
                await self._client.call("turn/steer", {**self._said("plain"), "expectedTurnId": turn})
        except (Cut, Refused):
            return  # it had ended already, or will end by itself

    async def _end(self, turn: str) -> str:
        end = self._follower.end_of(turn)
        await asyncio.wait([end], timeout=STEP_S)
        self._follower.forget(turn)
        if not end.done():
            raise BenchError(f"turn {turn} of {self._follower.thread} did not end within {STEP_S:g} s")
        return end.result()

    def _said(self, wish: str) -> dict[str, Any]:
        word = self._output if wish == "command" and self._output else self._follower.thread
        text = f"soak:{wish} {word}"
        return {"threadId": self._follower.thread, "input": [{"type": "text", "text": text}]}
