"""Project instructions that are known already: how often their files are looked at."""

from __future__ import annotations

import asyncio

import pytest

from treadle.agent.context import KnownFiles
from treadle.execution.file_snapshot import FileSnapshot

pytestmark = pytest.mark.anyio


class Looked(FileSnapshot):
    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.current = True

    def is_current(self) -> bool:
        self.looks += 1
        return self.current


async def test_turns_of_one_step_look_once_and_those_of_the_next_again() -> None:
    snapshot = Looked()
    known = KnownFiles([], snapshot)
    assert [known.are_current() for _ in range(3)] == [True] * 3
    assert snapshot.looks == 1
    await asyncio.sleep(0)
    snapshot.current = False
    assert [known.are_current() for _ in range(2)] == [False] * 2
    assert snapshot.looks == 3
    await asyncio.sleep(0)
    snapshot.current = True
    assert known.are_current()
