"""Writes of many threads that are committed together: they share statements, and one's failure is not another's."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from treadle.store import Batch, CopyTurns, Counters, DropItem, Insert, StoreError, Transactions, Write
from treadle.store.sqlite import queries, schema
from treadle.testing import event, history, item, thread, turn

OWNER = "us"
THREADS = tuple(f"thread-{number:03}" for number in range(100))


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(schema.open_memory()) as connection:
        queries.search(connection, "word", 1)  # the first use of the index after a migration looks at its settings
        yield connection


def commit(connection: sqlite3.Connection, *batches: Batch) -> list[StoreError | None]:
    return Transactions(connection, schema.MEMORY, OWNER).run(batches)


def made(thread_id: str) -> Batch:
    return Batch(thread_id, 0, (thread(thread_id),))


def first_turn(thread_id: str, fence: int = 0) -> Batch:
    writes: tuple[Write, ...] = (
        turn(1, thread_id, status="inProgress"),
        event(1, thread_id, frame=b'"begun"'),
        item(1, thread_id, open=True),
        event(2, thread_id),
        item(1, thread_id, text=f"word of {thread_id}"),
        item(2, thread_id, open=True),
        history(1, thread_id),
        DropItem(thread_id, 2),
        turn(1, thread_id),
        event(3, thread_id, frame=b'"over"'),
        thread(thread_id, name=thread_id),
    )
    return Batch(thread_id, fence, writes)


def content(connection: sqlite3.Connection, thread_id: str) -> list[Any]:
    return [
        queries.load(connection, thread_id),
        queries.items(connection, thread_id, None, None, None, False),
        queries.history(connection, thread_id),
        queries.events(connection, thread_id, 0, 9),
    ]


def test_together_they_leave_what_each_leaves_alone(connection: sqlite3.Connection) -> None:
    with closing(schema.open_memory()) as other:
        assert set(commit(connection, *map(made, THREADS))) == {None}
        assert set(commit(connection, *map(first_turn, THREADS))) == {None}
        for thread_id in THREADS:
            assert commit(other, made(thread_id)) + commit(other, first_turn(thread_id)) == [None, None]
        for thread_id in THREADS:
            assert content(connection, thread_id) == content(other, thread_id)
            loaded = queries.load(connection, thread_id)
            assert loaded is not None
            assert loaded.counters == Counters(seq=3, turn=1, item=1, history=1)
        assert len(queries.search(connection, "word", 1000)) == len(THREADS)


def test_they_share_a_transaction_and_its_statements(connection: sqlite3.Connection) -> None:
    commit(connection, *map(made, THREADS))
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    assert set(commit(connection, *map(first_turn, THREADS))) == {None}
    connection.set_trace_callback(None)
    words = [statement.split()[0] for statement in statements]
    assert (words.count("BEGIN"), words.count("COMMIT")) == (1, 1)
    # Threads, turns, items, history and events: 100 of each are 6 times 16 and once 4. What is dropped is one by one.
    assert words.count("SELECT") == 1
    assert words.count("DELETE") == len(THREADS)
    for table in ("threads", "turns", "history", "events"):
        assert sum(statement.startswith(f"INSERT INTO {table} ") for statement in statements) == 7


@pytest.mark.parametrize("bad", [0, 57, 99])
def test_one_that_is_too_late_fails_alone(connection: sqlite3.Connection, bad: int) -> None:
    commit(connection, *map(made, THREADS))
    late = THREADS[bad]
    errors = commit(connection, *(first_turn(thread_id, 7 * (thread_id == late)) for thread_id in THREADS))
    assert [error and error.kind for error in errors] == ["stale" if name == late else None for name in THREADS]
    assert queries.events(connection, late, 0, 9).events == []
    assert len(queries.events(connection, THREADS[bad - 1], 0, 9).events) == 3


def test_one_that_is_gone_and_a_number_that_is_in_use_fail_alone(connection: sqlite3.Connection) -> None:
    commit(connection, *map(made, THREADS[:3]))
    commit(connection, first_turn(THREADS[1]))
    errors = commit(connection, *map(first_turn, THREADS[:4]))
    assert [error and error.kind for error in errors] == [None, "failed", None, "missing"]
    assert "in use" in str(errors[1])


def _two_calls(name: str) -> tuple[Batch, Batch]:
    """A turn that begins, and the end that follows it."""
    begun = (turn(1, name, status="inProgress"), event(1, name), item(1, name))
    over = (turn(1, name), item(2, name), event(2, name), event(3, name))
    return Batch(name, 0, begun, 0), Batch(name, 0, over, 1)


def test_calls_of_a_thread_that_follow_each_other_are_written_as_one(connection: sqlite3.Connection) -> None:
    one, two = THREADS[:2]
    commit(connection, made(one), made(two))
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    assert commit(connection, *_two_calls(one), *_two_calls(two)) == [None] * 4
    connection.set_trace_callback(None)
    words = [statement.split()[0] for statement in statements]
    assert words.count("SELECT") == 1
    rows = connection.execute("SELECT thread_id, first_seq, last_seq FROM events ORDER BY thread_id").fetchall()
    assert rows == [(one, 1, 3), (two, 1, 3)]
    with closing(schema.open_memory()) as other:
        for batch in (made(one), *_two_calls(one)):
            assert commit(other, batch) == [None]
        assert content(connection, one) == content(other, one)


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (Batch(THREADS[0], 0, (event(2, THREADS[0]), history(1, THREADS[0])), 1), [None, "failed"]),
        (Batch(THREADS[0], 0, (event(5, THREADS[0]),), 4), [None, "failed"]),
        (Batch(THREADS[0], 3, (event(2, THREADS[0]),), 1), [None, "stale"]),
        (Batch(THREADS[0], 0, (event(2, THREADS[0]),)), [None, None]),
    ],
    ids=["a number in use", "not after the first", "another claim", "who knows after what"],
)
def test_the_second_of_two_calls_fails_alone(
    connection: sqlite3.Connection, second: Batch, expected: list[str | None]
) -> None:
    name = THREADS[0]
    commit(connection, made(name), Batch(name, 0, (history(1, name),)))
    errors = commit(connection, _two_calls(name)[0], second)
    assert [error and error.kind for error in errors] == expected
    kept = [found.seq for found in queries.events(connection, name, 0, 9).events]
    assert kept == [1] + [2] * (expected[1] is None)


def test_a_copy_sees_what_was_written_before_it(connection: sqlite3.Connection) -> None:
    source, target = THREADS[:2]
    commit(connection, made(source), made(target))
    named = Batch(target, 0, (event(1, target),), 0)
    written = Batch(source, 0, (turn(1, source),), 0)
    copied = Batch(target, 0, (CopyTurns(source, target),), 1)
    assert commit(connection, named, written, copied) == [None] * 3
    loaded = queries.load(connection, target)
    assert loaded is not None
    assert loaded.counters.turn == 1


@pytest.mark.parametrize(
    "numbers", [(1, 1), (2, 1), (1, 2, 2), (1, 2, 3, 2), (0,)], ids=lambda numbers: "-".join(map(str, numbers))
)
def test_a_number_is_used_once_within_a_call(connection: sqlite3.Connection, numbers: tuple[int, ...]) -> None:
    name = THREADS[0]
    commit(connection, made(name))
    (error,) = commit(connection, Batch(name, 0, tuple(event(number, name) for number in numbers)))
    assert error is not None
    assert "in use" in error.message
    assert queries.events(connection, name, 0, 9).events == []


@pytest.mark.parametrize("count", range(41))
def test_any_number_of_rows_is_written_once_each(count: int) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE words (key PRIMARY KEY, word, made)")
        insert = Insert("words", ("key", "word"), ("key",), initial=("made",))
        insert.write(connection, [(number, "warp", "first") for number in range(count)])
        insert.write(connection, [(number, "weft", "second") for number in range(count)])
        rows = connection.execute("SELECT * FROM words ORDER BY key").fetchall()
    assert rows == [(number, "weft", "first") for number in range(count)]
