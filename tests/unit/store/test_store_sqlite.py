"""The store on disk, where it differs from one in memory: other stores on the same home, and failures."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from treadle.store import LEASE_S, Counters, Loaded, Owners, SqliteStore, Store, StoreError, open_sqlite
from treadle.store.sqlite import failures, schema
from treadle.testing import A, B, commit, event, item, thread, turn

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with await open_sqlite(tmp_path) as store:
        await commit(store, thread())
        yield store


async def _refused_claim(store: Store, fence: int = 0) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await store.claim(A, fence)
    return caught.value


# --- two stores ------------------------------------------------------------------------------------------------------


async def test_a_refused_claim_names_the_process_that_holds_the_thread(store: SqliteStore, tmp_path: Path) -> None:
    async with await open_sqlite(tmp_path) as other:
        await store.claim(A, 0)
        error = await _refused_claim(other)
        assert error.kind == "claimed"
        assert str(os.getpid()) in error.message


async def test_a_claim_of_one_that_is_gone_interrupts_its_turn_for_good(store: SqliteStore, tmp_path: Path) -> None:
    other = await open_sqlite(tmp_path)
    await other.claim(A, 0)
    await commit(other, turn(1, status="inProgress"))
    await other.close()
    with closing(sqlite3.connect(store.location)) as connection:
        assert connection.execute("SELECT status FROM turns").fetchall() == [("inProgress",)]
        await store.claim(A, 0)
        assert connection.execute("SELECT status FROM turns").fetchall() == [("interrupted",)]


def _fall_silent(home: Path, seconds: float) -> None:
    """All stores of a home, for that long."""
    then = time.monotonic_ns() - int(seconds * 1e9)
    for lock in (home / "run").iterdir():
        os.utime(lock, ns=(then, then))


async def test_a_store_that_is_silent_for_too_long_can_lose_its_claim(store: SqliteStore, tmp_path: Path) -> None:
    async with await open_sqlite(tmp_path) as other:
        await store.claim(A, 0)
        await commit(store, turn(1, status="inProgress"), event(1))
        _fall_silent(tmp_path, LEASE_S - 10)
        assert (await _refused_claim(other)).kind == "claimed"
        _fall_silent(tmp_path, LEASE_S + 1)
        # It may only be slow: nobody wants the thread, so its turn goes on.
        assert [found.status for found in await other.turns(A)] == ["inProgress"]
        claim = await other.claim(A, 0)
        await other.commit(A, claim.fence, [turn(2), event(2)])
        with pytest.raises(StoreError) as caught:
            await store.commit(A, 1, [turn(1), event(2, frame=b'"late"')])
        assert caught.value.kind == "stale"
        assert f"another server (process {os.getpid()}) has taken over thread {A}" in caught.value.message
        assert [found.status for found in await store.turns(A)] == ["interrupted", "completed"]
        assert (await store.events(A, 0, 9)).events == [event(1), event(2)]


async def test_a_store_beats_while_it_has_nothing_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.store.sqlite.sqlite_store.BEAT_S", 0.001)
    monkeypatch.setattr("treadle.store.sqlite.owners.BEAT_S", 0.001)
    async with await open_sqlite(tmp_path):
        (lock,) = (tmp_path / "run").iterdir()
        _fall_silent(tmp_path, LEASE_S + 1)
        async with asyncio.timeout(60):
            while time.monotonic_ns() - lock.stat().st_mtime_ns > LEASE_S * 1e9:
                await asyncio.sleep(0.001)


async def test_a_turn_that_ended_while_it_was_looked_at_is_not_interrupted(store: SqliteStore, tmp_path: Path) -> None:
    """Its server ends between the reading of the turn and the look at the lock."""
    other = await open_sqlite(tmp_path)
    await other.claim(A, 0)
    await commit(other, turn(1, status="inProgress"))
    looked: list[str] = []

    def living(owner_id: str) -> int | None:
        looked.append(owner_id)
        with closing(schema.connect(store.location)) as connection:
            connection.execute("UPDATE turns SET status = 'completed'")
        return None

    store._living = living
    assert [found.status for found in await store.turns(A)] == ["completed"]
    assert len(looked) == 1
    await other.close()


# --- owners ----------------------------------------------------------------------------------------------------------


def test_an_owner_is_alive_until_it_leaves(tmp_path: Path) -> None:
    owners = Owners(str(tmp_path))
    owner = owners.enter()
    assert owners.living(owner.id) == os.getpid()
    assert Owners(str(tmp_path)).living(owner.id) == os.getpid()
    owners.sweep()
    assert owners.living(owner.id) == os.getpid()
    owner.leave()
    assert owners.living(owner.id) is None
    assert list((tmp_path / "run").iterdir()) == []


def test_locks_of_the_dead_are_removed_by_who_finds_them(tmp_path: Path) -> None:
    owners = Owners(str(tmp_path))
    for name in ("one.lock", "two.lock", "other.txt"):
        (tmp_path / "run" / name).write_text("1\n")
    assert owners.living("one") is None
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["other.txt", "two.lock"]
    owners.sweep()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["other.txt"]


async def test_a_store_that_starts_removes_the_locks_of_the_dead(store: SqliteStore, tmp_path: Path) -> None:
    (tmp_path / "run" / "dead.lock").write_text("1\n")
    async with await open_sqlite(tmp_path):
        assert len(list((tmp_path / "run").iterdir())) == 2
        assert not (tmp_path / "run" / "dead.lock").exists()


def test_only_one_at_a_time_gets_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.store.sqlite.owners._DEADLINE_S", 0.0)
    with Owners(str(tmp_path)).alone():
        with pytest.raises(StoreError) as caught, Owners(str(tmp_path)).alone():
            pass
        assert caught.value.kind == "busy"
    with Owners(str(tmp_path)).alone():
        pass


# --- waiting for others ----------------------------------------------------------------------------------------------


async def test_readers_do_not_wait_for_a_writer(store: SqliteStore) -> None:
    written = asyncio.Event()
    with closing(schema.connect(store.location)) as stranger:
        stranger.execute("BEGIN IMMEDIATE")
        stranger.execute("UPDATE threads SET name = 'not yet'")
        store.submit(B, 0, [thread(B)], lambda error: written.set())
        assert await store.load(A) == Loaded(thread(), Counters(), 0)
        assert await store.load(B) is None
        assert not written.is_set()
        stranger.execute("ROLLBACK")
    await written.wait()
    assert await store.load(B) is not None


async def test_a_writer_that_waits_too_long_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "BUSY_S", 0.01)
    async with await open_sqlite(tmp_path) as store:
        await commit(store, thread())
        errors: list[StoreError | None] = []
        with closing(schema.connect(store.location)) as stranger:
            stranger.execute("BEGIN IMMEDIATE")
            for number in range(1, 4):
                store.submit(A, 0, [event(number)], errors.append)
            with pytest.raises(StoreError) as caught:
                await commit(store, event(4))
            assert caught.value.kind == "busy"
            assert store.location in caught.value.message
            assert [error and error.kind for error in errors] == ["busy"] * 3
            stranger.execute("ROLLBACK")
        await commit(store, event(1))
        assert (await store.events(A, 0, 9)).events == [event(1)]


# --- failures --------------------------------------------------------------------------------------------------------


async def test_a_full_file_is_an_error_and_no_loss(store: SqliteStore) -> None:
    await commit(store, *(item(number, text="kept") for number in range(1, 50)))
    await _set_max_pages(store, 1)  # SQLite takes the size that it has
    errors: list[StoreError | None] = []
    blob = b'"%b"' % (b"x" * 100_000)
    store.submit(A, 0, [event(1, frame=b'"small"')], errors.append)
    store.submit(A, 0, [event(2, frame=blob)], errors.append)
    with pytest.raises(StoreError) as caught:
        await commit(store, thread(name="lost"), event(3, frame=blob))
    assert caught.value.kind == "full"
    assert store.location in caught.value.message
    assert "make room" in caught.value.message
    assert [error and error.kind for error in errors][1] == "full"
    assert len(await store.items(A)) == len(await store.search("kept", 100)) == 49
    await _set_max_pages(store, 2**30)
    await commit(store, thread(name="there"), event(3, frame=blob))
    loaded = await store.load(A)
    assert loaded is not None
    assert (loaded.record.name, loaded.counters.seq) == ("there", 3)


async def _set_max_pages(store: SqliteStore, pages: int) -> None:
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def work(connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()

    store._write(work, done.set_result)
    assert await done is None


def _with_code(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("it failed")
    error.sqlite_errorcode = code
    return error


def test_kinds_of_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "threads.db")

    def kind(error: Exception) -> str:
        return failures.failure(error, path).kind

    assert kind(_with_code(sqlite3.SQLITE_FULL)) == "full"
    assert kind(OSError(errno.ENOSPC, "no")) == "full"
    assert kind(OSError(errno.EACCES, "no")) == "failed"
    assert kind(_with_code(sqlite3.SQLITE_BUSY_RECOVERY)) == "busy"
    assert kind(_with_code(sqlite3.SQLITE_CORRUPT)) == "damaged"
    assert kind(_with_code(sqlite3.SQLITE_READONLY)) == "failed"
    assert kind(ValueError("odd")) == "failed"
    assert kind(StoreError("as it was", "claimed")) == "claimed"
    # An I/O error is a full disk when a file beside it cannot grow either.
    assert kind(_with_code(sqlite3.SQLITE_IOERR_SHMSIZE)) == "failed"
    assert list(tmp_path.iterdir()) == []

    def no_room(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.EDQUOT, "no")

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    assert kind(_with_code(sqlite3.SQLITE_IOERR_SHMSIZE)) == "full"
    assert list(tmp_path.iterdir()) == []


# --- opening and closing ---------------------------------------------------------------------------------------------


def _threads_of_stores() -> set[threading.Thread]:
    return {found for found in threading.enumerate() if found.name.startswith("treadle-store")}


async def test_close_leaves_no_threads_and_no_log(tmp_path: Path) -> None:
    before = _threads_of_stores()
    store = await open_sqlite(tmp_path)
    await commit(store, thread())
    assert len(_threads_of_stores() - before) == 3
    await store.close()
    assert _threads_of_stores() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "threads.db"]


async def test_a_close_that_was_cancelled_still_writes(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path)
    heard: list[StoreError | None] = []
    store.submit(A, 0, [thread()], heard.append)
    closing_ = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    closing_.cancel()
    await asyncio.wait([closing_])
    await store.close()
    assert heard == [None]
    assert list((tmp_path / "run").iterdir()) == []


async def test_an_opening_that_was_cancelled_leaves_nothing_alive(tmp_path: Path) -> None:
    before = _threads_of_stores()
    opening = asyncio.ensure_future(open_sqlite(tmp_path))
    await asyncio.sleep(0)
    started = _threads_of_stores() - before
    opening.cancel()
    await asyncio.wait([opening])
    assert opening.cancelled()
    for thread_ in started:
        thread_.join(60)
    assert not started & _threads_of_stores()
    assert list((tmp_path / "run").iterdir()) == []


async def test_a_store_can_be_closed_with_questions_under_way(store: SqliteStore) -> None:
    asked = [asyncio.ensure_future(store.load(A)) for _ in range(50)]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*asked) == [Loaded(thread(), Counters(), 0)] * 50


async def test_stats_count_what_waits(store: SqliteStore) -> None:
    entered, leave = threading.Event(), threading.Event()

    def work(connection: sqlite3.Connection) -> None:
        entered.set()
        leave.wait(60)

    store._write(work, lambda error: None)
    await asyncio.to_thread(entered.wait, 60)
    for number in range(1, 10):
        store.submit(A, 0, [event(number)], lambda error: None)
    assert store.stats().waiting_writes == 9
    leave.set()
    await store.commit(A, 0, [])
    assert (store.stats().waiting_writes, store.stats().waiting_reads) == (0, 0)


async def test_what_was_submitted_meanwhile_becomes_one_transaction(store: SqliteStore) -> None:
    """A group is seen as a whole: no reader finds a part of it."""
    entered, leave = threading.Event(), threading.Event()

    def work(connection: sqlite3.Connection) -> None:
        entered.set()
        leave.wait(60)

    begun: list[str] = []
    store._write(work, lambda error: None)
    await asyncio.to_thread(entered.wait, 60)
    for number in range(1, 10):
        store.submit(A, 0, [event(number)], lambda error: None)
    store._write(lambda connection: connection.set_trace_callback(begun.append), lambda error: None)
    for number in range(10, 20):
        store.submit(A, 0, [event(number)], lambda error: None)
    leave.set()
    await store.commit(A, 0, [])
    statements = [statement.split()[0] for statement in begun]
    assert statements.count("INSERT") == 10
    assert statements.index("COMMIT") > max(n for n, word in enumerate(statements) if word == "INSERT")


class _Heavy:
    """Something that can be told to be gone."""

    def __call__(self, connection: sqlite3.Connection) -> None:
        """Nothing to do."""


async def test_threads_that_wait_hold_nothing_of_their_last_job(store: SqliteStore) -> None:
    written, answered = _Heavy(), asyncio.Event()
    store._write(written, lambda error: answered.set())
    await answered.wait()
    read = await store._read(lambda connection: _Heavy())
    gone = [weakref.ref(written), weakref.ref(read)]
    del written, read
    async with asyncio.timeout(10):  # the thread lets go a moment after it has answered
        while any(each() is not None for each in gone):
            await asyncio.sleep(0.001)
