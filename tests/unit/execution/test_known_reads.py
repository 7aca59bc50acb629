"""What is known already of files: how often their files are looked at."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from treadle.execution import FileSnapshot, KnownRead, KnownReads, ProjectFiles, bounded_reads


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


@pytest.mark.anyio
async def test_what_is_current_is_not_read_and_what_is_not_is_read_in_a_thread() -> None:
    known, snapshot = KnownReads[str, int](), Looked()
    reads: list[int] = []

    def read() -> int:
        reads.append(1)
        return known.store("here", len(reads), snapshot)

    assert [await known.find("here", read) for _ in range(2)] == [1, 1]
    assert known.current("there") is None
    snapshot.current = False
    await asyncio.sleep(0)
    assert known.current("here") is None
    assert await known.find("here", read) == 2


@pytest.mark.anyio
async def test_no_more_is_known_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_reads, "MAX_KNOWN", 2)
    known = KnownReads[int, str]()
    for key in range(3):
        known.store(key, "found", Looked())
    assert [known.current(key) for key in range(3)] == [None, None, "found"]


def test_what_was_left_out_of_a_project_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user may mend it where no snapshot looks, as in the settings of git."""
    monkeypatch.setattr(bounded_reads, "SETTLED_NS", 0)
    monkeypatch.setattr(FileSnapshot, "_cover", lambda *_: None)  # wherever the tests run
    snapshot = FileSnapshot()
    project = ProjectFiles(str(tmp_path), None, snapshot=snapshot)
    assert project.read(str(tmp_path / "missing"), 1) is None
    assert snapshot.is_current()
    (tmp_path / "folder").mkdir()
    assert project.read(str(tmp_path / "folder"), 1) is None
    assert project.left_out
    assert not snapshot.is_current()


@pytest.mark.anyio
async def test_who_asks_first_goes_on_first() -> None:
    """Turns reach the model in the order in which they were begun, whichever thread is the first to be done."""
    known, snapshot = KnownReads[str, int](), Looked()
    second_is_done = threading.Event()
    order: list[int] = []

    async def ask(number: int) -> None:
        def read() -> int:
            if number == 1:
                assert second_is_done.wait(30)
                return 1
            value = known.store("place", number, snapshot)
            second_is_done.set()
            return value

        order.append(await known.find("place", read))

    snapshot.current = False
    async with asyncio.TaskGroup() as group:
        for number in (1, 2):
            group.create_task(ask(number))
        while not second_is_done.is_set():
            await asyncio.sleep(0)
        snapshot.current = True
        group.create_task(ask(3))  # which need not read
    assert order == [1, 2, 2]
    assert known.current("place") == 2
