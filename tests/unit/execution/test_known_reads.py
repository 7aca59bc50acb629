"""What is known already of files: how often their files are looked at."""

from __future__ import annotations

import asyncio

import pytest

from treadle.execution import FileSnapshot, KnownRead


class Looked(FileSnapshot):
    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.current = True

    def is_current(self) -> bool:
        self.looks += 1
        return self.current


def test_what_one_loop_has_seen_is_not_known_to_another() -> None:
    """The first may have ended, or be held up, before its step was over."""
    snapshot = Looked()
    known = KnownRead("what was read", snapshot)
    for current in (True, False):
        snapshot.current = current
        loop = asyncio.new_event_loop()
        seen: list[bool] = []
        loop.call_soon(lambda seen=seen: seen.append(known.is_current()))  # type: ignore[misc]
        loop.call_soon(loop.stop)
        loop.run_forever()  # one step
        loop.close()
        assert seen == [current]
    assert snapshot.looks == 2


@pytest.mark.anyio
async def test_turns_of_one_step_look_once_and_those_of_the_next_again() -> None:
    snapshot = Looked()
    known = KnownRead("what was read", snapshot)
    assert [known.is_current() for _ in range(3)] == [True] * 3
    assert snapshot.looks == 1
    await asyncio.sleep(0)
    snapshot.current = False
    assert [known.is_current() for _ in range(2)] == [False] * 2
    assert snapshot.looks == 3
    await asyncio.sleep(0)
    snapshot.current = True
    assert known.is_current()
