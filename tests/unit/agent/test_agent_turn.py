"""A turn by itself: how one ends that was interrupted before its first step, and which events it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.agent import Thread, Turn
from treadle.store import EventRecord, HistoryRecord
from unit.agent.bare_thread import THREAD, bare_thread

pytestmark = pytest.mark.anyio
PROMISED = 20_000  # events that clients can ask for again (docs/app-server.md)


async def _started(thread: Thread, worked: list[str]) -> Turn:
    async def work(turn: Turn) -> None:
        worked.append(turn.id)

    await thread.acquire()
    turn = Turn(thread, work)
    turn.start()
    return turn


async def test_a_turn_that_is_interrupted_before_its_first_step(tmp_path: Path) -> None:
    async with bare_thread(tmp_path) as (thread, ears):
        worked: list[str] = []
        turn = await _started(thread, worked)
        stopped = turn.interrupt()
        await turn.wait()
        assert worked == []
        assert stopped.done()
        assert turn.state.status == "interrupted"
        (record,) = await thread.store.turns(THREAD)
        assert record.status == "interrupted"
        told = [event["params"]["turn"]["status"] for event in ears.told if event["method"].startswith("turn/")]
        assert told == ["inProgress", "interrupted"]
        assert thread.state.queue_held, "what waits in the queue waits until somebody goes on"


async def test_a_turn_that_nobody_interrupts_is_completed(tmp_path: Path) -> None:
    async with bare_thread(tmp_path) as (thread, _):
        worked: list[str] = []
        turn = await _started(thread, worked)
        await turn.wait()
        assert worked == [turn.id]
        assert turn.state.status == "completed"
        assert not thread.state.queue_held


async def test_the_first_turn_of_a_thread_does_not_read_a_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bare_thread(tmp_path) as (thread, _):

        async def history(thread_id: str) -> list[HistoryRecord]:
            raise AssertionError(f"{thread_id} has none")

        monkeypatch.setattr(thread.store, "history", history)
        assert len(await thread.load_history()) == 0


async def test_the_last_20_000_events_can_be_asked_for_again(tmp_path: Path) -> None:
    async with bare_thread(tmp_path) as (thread, _):
        many = [EventRecord(THREAD, number, b"{}") for number in range(1, PROMISED + 5_000)]
        await thread.store.commit(THREAD, 0, many)
        loaded = await thread.store.load(THREAD)
        assert loaded is not None
        busy = Thread(thread.services, thread.store, thread.subscribers, loaded)
        await (await _started(busy, [])).wait()
        page = await busy.store.events(THREAD, 0, 1)
        assert page.last_seq == busy.journal.seq > len(many)
        assert page.last_seq - page.first_seq + 1 >= PROMISED
        assert page.first_seq > 1, "older ones are gone"
