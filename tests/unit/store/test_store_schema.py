"""The file: how it is made, brought up to date and refused, and that no page needs a scan."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kit.old_threads import add_old_threads
from treadle.host import ConversationStore
from treadle.store import (
    Counters,
    CutTurns,
    DeleteThread,
    DropItem,
    EventPage,
    ItemRecord,
    Owners,
    PruneEvents,
    StoreError,
    ThreadCursor,
    ThreadQuery,
    apply,
    claim,
    open_sqlite,
)
from treadle.store.sqlite import queries, schema
from treadle.testing import A, B, commit, event, events_of, history, item, queued, thread, turn

pytestmark = pytest.mark.anyio


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _content(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()


async def _refusal(home: Path) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await open_sqlite(home)
    return caught.value


async def test_a_home_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "a" / "home"
    async with await open_sqlite(home) as store:
        await commit(store, thread())
        assert store.location == str(home / "threads.db")
        assert (_mode(home), _mode(home / "run")) == (0o700, 0o700)
        files = [home / "threads.db", home / "threads.db-wal", *(home / "run").iterdir()]
        assert [_mode(file) for file in files] == [0o600] * 3
    assert list((home / "run").iterdir()) == []


async def test_a_home_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    async with await open_sqlite(tmp_path):
        pass
    assert _mode(tmp_path) == 0o755


async def test_settings_of_the_file(tmp_path: Path) -> None:
    async with await open_sqlite(tmp_path):
        with closing(sqlite3.connect(tmp_path / "threads.db")) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert connection.execute("PRAGMA user_version").fetchone() == (len(schema.migrations()),)
            assert connection.execute("PRAGMA application_id").fetchone() == (schema.APPLICATION_ID,)


# --- migrations ------------------------------------------------------------------------------------------------------


def _add_old_events(connection: sqlite3.Connection, thread_id: str, last: int, first: int = 1) -> None:
    """As they were kept before several could share a row."""
    rows = [(thread_id, number, b"{}") for number in range(first, last + 1)]
    connection.executemany("INSERT INTO events (thread_id, seq, frame) VALUES (?, ?, ?)", rows)


def _version_1(path: Path) -> None:
    """A file as the first version left it: no search yet."""
    with closing(schema.connect(str(path))) as connection:
        schema.migrate(connection, str(path), upto=1)
        old = item(1, text="found after all these years")
        add_old_threads(connection, "nobody", thread())
        apply(connection, [turn(1), old, item(2), history(1)], "nobody")
        _add_old_events(connection, A, 1)
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'messages'").fetchall()


async def test_an_older_file_is_brought_up_to_date(tmp_path: Path) -> None:
    _version_1(tmp_path / "threads.db")
    async with await open_sqlite(tmp_path) as store:
        assert [found.number for found in await store.items(A)] == [1, 2]
        assert [hit.item_id for hit in await store.search("years")] == ["item-1"]
        await store.claim(A, -1)
        await commit(store, item(1, text="new words"), item(2, text="more"))
        assert (await store.search("years"), len(await store.search("more"))) == ([], 1)
    async with await open_sqlite(tmp_path / "new"):
        pass
    assert _content(tmp_path / "threads.db") == _content(tmp_path / "new" / "threads.db")


async def test_a_file_without_fences_on_its_writes_is_brought_up_to_date(tmp_path: Path) -> None:
    """As the version before left it: a thread that was never claimed, one with claims, a turn that was cut off."""
    path = str(tmp_path / "threads.db")
    with closing(schema.connect(path)) as connection:
        schema.migrate(connection, path, upto=2)
        add_old_threads(connection, "nobody", thread())
        apply(connection, [item(1)], "nobody")
        connection.execute("UPDATE threads SET owner = NULL")
        add_old_threads(connection, "7-gone", thread(B))
        apply(connection, [turn(1, B, status="inProgress"), item(1, B, text="loom")], "7-gone")
        for thread_id in (A, B):
            _add_old_events(connection, thread_id, 1)
        connection.execute("UPDATE threads SET held = 1, fence = 5 WHERE id = ?", (B,))
    async with await open_sqlite(tmp_path) as store:
        assert await store.item(A, "item-1") == item(1)
        assert await store.item(B, "item-1") == item(1, B, text="loom")
        assert [found.status for found in await store.turns(B)] == ["interrupted"]
        for thread_id, fence in ((A, 0), (B, 5)):
            with pytest.raises(StoreError) as caught:
                await store.commit(thread_id, fence, [event(2, thread_id)])
            assert caught.value.kind == "stale"
            claim = await store.claim(thread_id, fence)
            assert claim.fence == fence + 1
            assert claim.news is not None
            await store.commit(thread_id, claim.fence, [event(2, thread_id)])
            assert (await store.events(thread_id, 0, 9)).events == [event(1, thread_id), event(2, thread_id)]


async def test_events_of_an_older_file_are_read_and_pruned_like_new_ones(tmp_path: Path) -> None:
    path = str(tmp_path / "threads.db")
    with closing(schema.connect(path)) as connection:
        schema.migrate(connection, path, upto=3)
        add_old_threads(connection, "nobody", thread(), thread(B))
        connection.execute("UPDATE threads SET pruned_seq = 4 WHERE id = ?", (A,))
        _add_old_events(connection, A, 8, first=5)
        _add_old_events(connection, B, 3)
    async with await open_sqlite(tmp_path) as store:
        assert await events_of(store, A, 0, 2) == EventPage([event(5), event(6)], 5, 8)
        assert await events_of(store, B, 1, 9) == EventPage([event(2, B), event(3, B)], 1, 3)
        claim = await store.claim(A, -1)
        assert claim.news is not None
        assert claim.news.counters == Counters(seq=8)
        for used in (4, 5, 8):
            with pytest.raises(StoreError, match="in use"):
                await commit(store, event(used))
        await commit(store, event(9), event(10), event(11))
        assert await events_of(store, A, 7, 3) == EventPage([event(8), event(9), event(10)], 5, 11)
        await commit(store, PruneEvents(A, 6))
        assert (await events_of(store, A, 0, 0)).first_seq == 7
        await commit(store, PruneEvents(A, 10))
        assert await events_of(store, A, 0, 9) == EventPage([event(11)], 11, 11)
        assert (await events_of(store, B, 0, 9)).events == [event(number, B) for number in (1, 2, 3)]
        await store.claim(B, -1)
        await commit(store, DeleteThread(B))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT thread_id, first_seq, last_seq FROM events").fetchall() == [(A, 9, 11)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


async def test_threads_of_an_older_file_get_a_queue(tmp_path: Path) -> None:
    path = str(tmp_path / "threads.db")
    with closing(schema.connect(path)) as connection:
        schema.migrate(connection, path, upto=4)
        add_old_threads(connection, "nobody", thread())
        apply(connection, [turn(1), item(1), history(1), event(1)], "nobody")
    async with await open_sqlite(tmp_path) as store:
        claim = await store.claim(A, -1)
        assert claim.news is not None
        assert (claim.news.queued, claim.news.counters) == (False, Counters(seq=1, turn=1, item=1, history=1))
        await commit(store, queued("x", 1))
    async with await open_sqlite(tmp_path) as store:
        assert await store.queue(A) == [queued("x", 1)]
        assert await store.items(A) == [item(1)]


async def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "threads.db"
    _version_1(path)
    before = _content(path)
    scripts = schema.migrations()
    broken = [scripts[0], "CREATE TABLE half (a);\nINSERT INTO half VALUES (1);\nINSERT INTO nowhere VALUES (1);\n"]
    with monkeypatch.context() as patched:
        patched.setattr(schema, "migrations", lambda _: broken)
        assert "nowhere" in (await _refusal(tmp_path)).message
    assert _content(path) == before
    async with await open_sqlite(tmp_path) as store:
        assert len(await store.search("years")) == 1


async def test_an_older_file_that_is_in_use_is_left_as_its_users_know_it(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    _version_1(path)
    before = _content(path)
    owners = Owners(str(tmp_path))
    with owners.alone():
        user = owners.enter()
    error = await _refusal(tmp_path)
    assert error.kind == "busy"
    assert error.message.startswith(f"{path} is in use by an older Treadle (process {os.getpid()})")
    assert _content(path) == before
    user.leave()
    async with await open_sqlite(tmp_path) as store:
        assert len(await store.search("years")) == 1


async def test_a_host_with_conversations_in_the_same_home_does_not_use_the_threads(tmp_path: Path) -> None:
    """Its own app-server has to bring them up to date."""
    _version_1(tmp_path / "threads.db")
    with closing(ConversationStore(tmp_path / "conversations.db")) as conversations:
        conversations.claim("a")
        async with await open_sqlite(tmp_path) as store:
            assert len(await store.search("years")) == 1
        with closing(ConversationStore(conversations.path)) as other, pytest.raises(StoreError, match="holds the conv"):
            other.claim("a")


async def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    async with await open_sqlite(tmp_path) as store:
        await commit(store, thread())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    error = await _refusal(tmp_path)
    assert "newer" in error.message
    assert "99" in error.message
    assert str(path) in error.message
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT id FROM threads").fetchall() == [(A,)]
    assert list((tmp_path / "run").iterdir()) == []


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    path.write_bytes(b"Dear diary, " * 1000)
    error = await _refusal(tmp_path)
    assert "no database" in error.message
    assert str(path) in error.message
    assert path.read_bytes() == b"Dear diary, " * 1000


async def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE threads (colour)")
    before = path.read_bytes()
    assert "another program" in (await _refusal(tmp_path)).message
    assert path.read_bytes() == before


async def test_an_empty_file_is_a_start_that_was_cut_off(tmp_path: Path) -> None:
    (tmp_path / "threads.db").touch()
    async with await open_sqlite(tmp_path) as store:
        await commit(store, thread())
        assert await store.load(A) is not None


async def test_a_home_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = await _refusal(tmp_path / "file" / "home")
    assert error.kind == "failed"
    assert str(tmp_path / "file") in error.message


# --- how questions are answered --------------------------------------------------------------------------------------


class _Plans:
    """A connection that notes how SQLite answers what is asked through it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.steps: list[str] = []
        self.in_transaction = True

    def execute(self, query: str, operands: Any = ()) -> sqlite3.Cursor:
        rows = self._connection.execute("EXPLAIN QUERY PLAN " + query, operands)
        self.steps += [row[3] for row in rows]
        return self._connection.execute(query, operands)


@pytest.fixture
def plans() -> Iterator[Any]:
    with closing(schema.open_memory()) as connection:
        records: list[ItemRecord] = [item(number) for number in range(1, 20)]
        apply(connection, [thread(), turn(1), *records, history(1), event(1)], "us")
        yield _Plans(connection)


def _nobody(owner_id: str) -> None:
    return None


def _assert_by_key(plans: _Plans) -> None:
    assert plans.steps
    for step in plans.steps:
        assert not step.startswith("SCAN") or step == "SCAN CONSTANT ROW", plans.steps
        assert "TEMP B-TREE" not in step, plans.steps


@pytest.mark.parametrize("descending", [True, False])
def test_pages_of_a_thread_are_ranges_of_a_key(plans: Any, descending: bool) -> None:
    queries.items(plans, A, None, 3, 5, descending)
    queries.items(plans, A, (2, 3), 3, 5, descending)
    queries.turns(plans, "us", _nobody, A, 3, 5, descending)
    queries.turn(plans, "us", _nobody, A, "turn-1")
    queries.item(plans, A, "item-3")
    queries.events(plans, A, 3, 5)
    queries.history(plans, A)
    queries.load(plans, A)
    queries.messages(plans, A, "loom", 3, 5)
    _assert_by_key(plans)


def test_the_queue_is_read_by_its_thread(plans: Any) -> None:
    queries.queue(plans, A)
    assert plans.steps[0] == "SEARCH queue USING PRIMARY KEY (thread_id=?)"


def test_messages_with_a_phrase_are_found_by_their_words(plans: Any) -> None:
    """No table is read through: what the words lead to is looked up, however many other messages there are."""
    queries.threads(plans, ThreadQuery(phrase="loom"))
    scans = [step for step in plans.steps if step.startswith("SCAN")]
    assert {scan.partition(" VIRTUAL TABLE")[0] for scan in scans} <= {"SCAN messages", "SCAN hits"}, plans.steps
    assert any("items USING INTEGER PRIMARY KEY" in step for step in plans.steps), plans.steps


def test_where_many_messages_have_a_phrase_only_those_of_the_page_are_read(
    plans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "_FEW_MESSAGES", 0)
    apply(plans._connection, [item(20, text="loom")], "us")
    assert queries.threads(plans, ThreadQuery(phrase="loom")).texts == ["loom"]
    assert any("items USING COVERING INDEX" in step for step in plans.steps), plans.steps
    assert not any("FOR ORDER BY" in step for step in plans.steps), plans.steps
    assert plans.steps[-1] == "SEARCH items USING INTEGER PRIMARY KEY (rowid=?)"
    assert plans.steps.count(plans.steps[-1]) == 1


@pytest.mark.parametrize("key", ["created_at", "updated_at", "recency_at"])
@pytest.mark.parametrize("descending", [True, False])
def test_lists_of_threads_follow_an_index(plans: Any, key: Any, descending: bool) -> None:
    cursor = ThreadCursor(5, A)
    queries.threads(plans, ThreadQuery(sort_key=key, descending=descending))
    queries.threads(plans, ThreadQuery(sort_key=key, descending=descending, after=cursor, archived=True, search="x"))
    _assert_by_key(plans)
    assert all(f"threads_by_{key}" in step for step in plans.steps)


def test_a_scan_would_be_seen(plans: Any) -> None:
    plans.execute("SELECT * FROM items WHERE data = ? ORDER BY id", (b"",))
    with pytest.raises(AssertionError):
        _assert_by_key(plans)


class _Work:
    """Counts the steps of SQLite's machine: work, measured without a clock."""

    def __init__(self, turns: int) -> None:
        self.connection = schema.open_memory()
        self._steps = 0
        writes: list[Any] = [thread()]
        for number in range(1, turns + 1):
            both = (2 * number - 1, 2 * number)
            writes.append(turn(number))
            writes += [row for n in both for row in (item(n, turn=number), history(n, turn=number), event(n))]
        apply(self.connection, writes, "us")
        self.connection.set_progress_handler(self._step, 1)

    def _step(self) -> int:
        self._steps += 1
        return 0

    def of(self, query: Any, *operands: Any) -> int:
        self._steps = 0
        query(self.connection, *operands)
        return self._steps


@pytest.fixture(scope="module")
def short_and_long() -> Iterator[tuple[_Work, _Work]]:
    short, long = _Work(5), _Work(2_000)
    with closing(short.connection), closing(long.connection):
        yield short, long


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("place", ["begin", "middle", "end"])
def test_a_page_of_a_long_thread_is_no_more_work(
    short_and_long: tuple[_Work, _Work], place: str, descending: bool
) -> None:
    short, long = short_and_long
    turns_of_short, turns_of_long = {"begin": (2, 2), "middle": (3, 1000), "end": (4, 1999)}[place]

    def pages(work: _Work, middle: int) -> list[int]:
        return [
            work.of(queries.items, A, None, 2 * middle, 2, descending),
            work.of(queries.items, A, (middle, middle), None, None, descending),
            work.of(queries.items, A, (middle, middle), 2 * middle - 1, None, descending),
            work.of(queries.turns, "us", _nobody, A, middle, 1, descending),
            work.of(queries.turn, "us", _nobody, A, f"turn-{middle}"),
            work.of(queries.item, A, f"item-{2 * middle}"),
            work.of(queries.events, A, 2 * middle, 2),
            work.of(queries.load, A),
        ]

    few, many = pages(short, turns_of_short), pages(long, turns_of_long)
    assert all(steps > 0 for steps in few)
    assert all(steps <= 2 * reference for steps, reference in zip(many, few, strict=True)), (few, many)


def test_a_small_change_of_a_long_thread_is_no_more_work(short_and_long: tuple[_Work, _Work]) -> None:
    short, long = short_and_long

    def changes(work: _Work, last: int) -> list[int]:
        steps = []
        for write in (
            CutTurns(A, last),
            PruneEvents(A, 1),
            DropItem(A, 1),
            turn(last + 1),
            item(2 * last + 1, turn=last),
            event(2 * last + 1),
        ):
            work.connection.execute("BEGIN")
            steps.append(work.of(apply, [write], "us"))
            work.connection.execute("ROLLBACK")
        work.connection.execute("BEGIN")
        steps.append(work.of(claim, A, 0, "us", _nobody))
        work.connection.execute("ROLLBACK")
        return steps

    few, many = changes(short, 5), changes(long, 2_000)
    assert all(steps > 0 for steps in few)
    assert all(steps <= 2 * reference for steps, reference in zip(many, few, strict=True)), (few, many)


def test_the_records_alone_do_not_load_sqlite() -> None:
    code = (
        "import sys, treadle.store as s\n"
        "print('sqlite3' in sys.modules, bool(s.ephemeral_store()), 'sqlite3' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True", "True"]
