"""Several processes on one home: they start at once, share it, are killed, and lose nothing that was committed."""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from treadle.store import StoreError, open_sqlite
from treadle.store.sqlite import schema
from treadle.testing import A, B, event
from unit.store.pause import stopped
from unit.store.store_process import store_process

pytestmark = pytest.mark.anyio

KILLS = 15


def _assert_sound(home: Path) -> None:
    with closing(sqlite3.connect(home / "threads.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.execute("INSERT INTO messages (messages) VALUES ('integrity-check')")


async def test_processes_that_start_at_once_share_a_new_home(tmp_path: Path) -> None:
    for attempt in range(3):
        home = tmp_path / str(attempt)
        with ExitStack() as stack:
            programs = [stack.enter_context(store_process(home, "obey")) for _ in range(4)]
            for number, program in enumerate(programs):
                program.opened()
                assert program.ask("thread", f"thread-{number}") == {"answer": None}
            for program in programs:
                assert program.ask("close", "") == {"state": "closed"}
        async with await open_sqlite(home) as store:
            assert [await store.load(f"thread-{number}") is not None for number in range(4)] == [True] * 4
        _assert_sound(home)
        with closing(sqlite3.connect(home / "threads.db")) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (len(schema.migrations()),)


async def test_two_processes_write_at_the_same_time(tmp_path: Path) -> None:
    with store_process(tmp_path, "obey") as one, store_process(tmp_path, "obey") as two:
        both = ((one, A), (two, B))
        for program, thread_id in both:
            program.opened()
            assert program.ask("thread", thread_id) == {"answer": None}
            assert program.ask("claim", thread_id) == {"answer": 1}
        for program, thread_id in both:
            program.send("events", thread_id, 300)
        for program, _ in both:
            assert program.hear() == {"answer": None}
            assert program.ask("close", "") == {"state": "closed"}
    async with await open_sqlite(tmp_path) as store:
        for thread_id in (A, B):
            assert [found.seq for found in (await store.events(thread_id, 0, 1000)).events] == list(range(1, 301))
        assert len(await store.search("word250")) == 2
    _assert_sound(tmp_path)


async def test_a_thread_belongs_to_one_process_until_that_is_dead(tmp_path: Path) -> None:
    with store_process(tmp_path, "obey") as one:
        one.opened()
        one.ask("thread", A)
        assert one.ask("claim", A) == {"answer": 1}
        one.ask("run", A, 1)
        async with await open_sqlite(tmp_path) as store:
            with pytest.raises(StoreError) as caught:
                await store.claim(A, 0)
            assert caught.value.kind == "claimed"
            assert str(one.process.pid) in caught.value.message
            assert [found.status for found in await store.turns(A)] == ["inProgress"]

            one.kill()
            assert [found.status for found in await store.turns(A)] == ["interrupted"]
            found = await store.turn(A, "turn-1")
            assert found is not None
            assert found.status == "interrupted"
            claim = await store.claim(A, 0)
            assert claim.news is not None
            assert (claim.fence, claim.news.counters.turn) == (2, 1)
            # For good: also while somebody holds the thread again.
            assert [found.status for found in await store.turns(A)] == ["interrupted"]
            assert len(list((tmp_path / "run").iterdir())) == 1


async def test_a_release_hands_the_thread_to_another_process(tmp_path: Path) -> None:
    with store_process(tmp_path, "obey") as one, store_process(tmp_path, "obey") as two:
        one.opened()
        two.opened()
        one.ask("thread", A)
        one.ask("claim", A)
        assert two.ask("claim", A)["error"] == "claimed"
        assert one.ask("release", A) == {"answer": None}
        assert two.ask("claim", A) == {"answer": 2}
        refused = one.ask("claim", A)
        assert refused["error"] == "claimed"
        assert str(two.process.pid) in refused["message"]


async def test_a_process_that_was_stopped_past_its_claim_changes_nothing(tmp_path: Path) -> None:
    with store_process(tmp_path, "obey") as one, store_process(tmp_path, "obey") as two:
        one.opened()
        one.ask("thread", A)
        assert one.ask("claim", A) == {"answer": 1}
        one.ask("run", A, 1)
        assert one.ask("write", A, 1, 1) == {"answer": None}
        with stopped(one.process.pid, tmp_path / "run") as pause:
            two.opened()
            one.send("write", A, 1, 2)  # it finds this when it wakes up
            assert two.ask("claim", A)["error"] == "claimed"
            pause.pass_lease()
            assert two.ask("claim", A) == {"answer": 2}
            two.ask("run", A, 2)
            for number in (2, 3):
                assert two.ask("write", A, 2, number) == {"answer": None}
        refused = one.hear()
        assert refused["error"] == "stale"
        assert f"process {two.process.pid}" in refused["message"]
        for number in (1, 3, 4):
            assert one.ask("write", A, 1, number)["error"] == "stale"
        assert one.ask("claim", A)["error"] == "claimed"
        async with await open_sqlite(tmp_path) as store:
            assert (await store.events(A, 0, 9)).events == [event(1), event(2), event(3)]
            assert [found.data for found in await store.items(A)] == [b'"under 1"', b'"under 2"', b'"under 2"']
            assert [found.status for found in await store.turns(A)] == ["interrupted", "inProgress"]
        assert two.ask("write", A, 2, 4) == {"answer": None}
    _assert_sound(tmp_path)


def _flood_and_kill(home: Path, thread_id: str, after: int) -> int:
    """Let a process write until it has reported `after` numbers, and kill it; the last that it reported."""
    with store_process(home, "flood", thread_id) as program:
        program.opened()
        reported = [program.read_line() for _ in range(after)]
        reported += program.kill()
    numbers = [int(line) for line in reported]
    assert numbers == list(range(1, len(numbers) + 1))
    return len(numbers)


async def test_what_was_reported_survives_any_kill(tmp_path: Path) -> None:
    chance = random.Random(os.urandom(8))
    for attempt in range(KILLS):
        thread_id = f"thread-{attempt}"
        reported = _flood_and_kill(tmp_path, thread_id, chance.randrange(1, 400))
        async with await open_sqlite(tmp_path) as store:
            items = [found.number for found in await store.items(thread_id)]
            assert len(items) >= reported
            # All or nothing: the three rows end with the same number, and none has a gap.
            assert items == list(range(1, len(items) + 1))
            assert [found.number for found in await store.history(thread_id)] == items
            assert [found.seq for found in (await store.events(thread_id, 0, 10**6)).events] == items
            assert [found.status for found in await store.turns(thread_id)] == ["interrupted"]
            assert (await store.claim(thread_id, 0)).fence == 2
        _assert_sound(tmp_path)


async def test_a_start_can_be_killed(tmp_path: Path) -> None:
    chance = random.Random(os.urandom(8))
    for attempt in range(10):
        home = tmp_path / str(attempt)
        with store_process(home, "obey") as program:
            assert program.hear() == {"state": "starting"}
            # Some work of our own instead of a sleep, so that the end falls into different places of the opening.
            sum(range(chance.randrange(1_000_000)))
            program.kill()
        async with await open_sqlite(home) as store:
            assert await store.load(A) is None
        _assert_sound(home)


async def test_readers_do_not_wait_for_a_process_that_writes(tmp_path: Path) -> None:
    with store_process(tmp_path, "flood", A) as program:
        program.opened()
        async with await open_sqlite(tmp_path) as store:
            seen = 0
            for _ in range(200):
                page = await store.events(A, seen, 10**6)
                assert [found.seq for found in page.events] == list(range(seen + 1, page.last_seq + 1))
                seen = page.last_seq
            program.kill()
            assert (await store.events(A, 0, 1)).last_seq >= seen
