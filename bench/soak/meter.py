"""What the server holds, second by second, as /proc shows it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """`memory` is resident, in MB of 10^6 bytes, of the server itself."""

    at_s: float
    turns: int
    memory: float
    descriptors: int
    threads: int


class Meter:
    def __init__(self, pid: int, turns: Callable[[], int]) -> None:
        self._pid = pid
        self._turns = turns
        self._began = time.monotonic()
        self.samples: list[Sample] = []

    def take(self) -> Sample:
        status = _status(self._pid)
        sample = Sample(
            time.monotonic() - self._began,
            self._turns(),
            status["VmRSS"] * 1024 / 1e6,
            len(os.listdir(f"/proc/{self._pid}/fd")),
            status["Threads"],
        )
        self.samples.append(sample)
        return sample

    async def run(self) -> None:
        while True:
            self.take()
            await asyncio.sleep(EVERY_S)


def _status(pid: int) -> dict[str, int]:
    with open(f"/proc/{pid}/status") as file:
        lines = (line.split() for line in file)
        return {words[0].rstrip(":"): int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()}
