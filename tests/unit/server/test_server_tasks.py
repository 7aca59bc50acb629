"""Background work of the server: it has an owner, failures are logged and stay alone, `close` ends what is left."""

from __future__ import annotations

import asyncio
import logging

import pytest

from treadle.server import Tasks
from treadle.server import app as tasks_module

pytestmark = pytest.mark.anyio

DEADLINE_S = 30.0


async def _nothing() -> None:
    return


async def _fails() -> None:
    raise ValueError("no")


async def test_what_has_ended_is_forgotten() -> None:
    tasks = Tasks()
    task = tasks.start(_nothing(), "work")
    assert len(tasks) == 1
    await task
    assert len(tasks) == 0


async def test_a_failure_is_logged_by_name_and_hurts_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    tasks, gate = Tasks(), asyncio.Event()

    async def waits() -> None:
        await gate.wait()

    other = tasks.start(waits(), "other")
    await asyncio.wait([tasks.start(_fails(), "copying")])
    assert [record.getMessage() for record in caplog.records] == ["copying failed"]
    assert "ValueError: no" in caplog.text
    assert not other.done()
    gate.set()
    await other


async def test_close_ends_what_is_left_and_logs_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Tasks()
    task = tasks.start(asyncio.Event().wait(), "for ever")  # type: ignore[arg-type]
    async with asyncio.timeout(DEADLINE_S):
        await tasks.close()
    assert task.cancelled()
    assert (len(tasks), caplog.records) == (0, [])


async def test_work_may_close_its_own_owner() -> None:
    tasks, done = Tasks(), asyncio.Event()

    async def closes() -> None:
        await tasks.close()
        done.set()

    tasks.start(closes(), "the last one")
    async with asyncio.timeout(DEADLINE_S):
        await done.wait()


async def test_close_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(tasks_module, "CLOSE_S", 0.01)
    caplog.set_level(logging.WARNING)
    tasks, gate, stubborn = Tasks(), asyncio.Event(), asyncio.Event()

    async def deaf() -> None:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            stubborn.set()
            await gate.wait()

    task = tasks.start(deaf(), "a deaf one")
    await asyncio.sleep(0)
    async with asyncio.timeout(DEADLINE_S):
        await tasks.close()
    assert stubborn.is_set()
    assert [record.getMessage() for record in caplog.records] == ["a deaf one did not end in time"]
    gate.set()
    await task
