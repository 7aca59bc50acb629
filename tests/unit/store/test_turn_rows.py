"""How many rows a turn writes: a record is written once in a commit, and events of one commit share a row."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from bench.app_server.row_counter import RowFile, counting, rows_of

from treadle.testing import AppServerHarness

pytestmark = pytest.mark.anyio

# The turn at its begin and at its end, two messages, each with what the model sees of it, the thread, and the events
# of two commits are 9.
MOST_ROWS = 10
# Where a busy machine needs more commits, each can hold the answer once more, the thread and events.
ROWS_OF_ANOTHER_COMMIT = 3


class Written:
    """What all connections have written."""

    def __init__(self) -> None:
        self._connect = counting(self.add)  # made before its place is taken
        self.clear()

    def clear(self) -> None:
        self.rows = 0
        self.commits = 0

    def add(self, rows: int) -> None:
        self.rows += rows

    def connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = self._connect(*arguments, **options)
        connection.set_trace_callback(self._trace)
        return connection

    def _trace(self, statement: str) -> None:
        self.commits += statement == "BEGIN IMMEDIATE"


async def test_a_plain_turn_writes_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Written()
    monkeypatch.setattr(sqlite3, "connect", written.connect)
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_assistant_message("Hello.")
        harness.model.enqueue_assistant_message("Hello again.")
        async with harness.connect() as client:
            thread = (await client.request("thread/start", {}))["thread"]
            await client.run_turn(thread["id"], "hi")  # the first has more to keep: a claim, a preview
            written.clear()
            await client.run_turn(thread["id"], "hi")
            assert written.commits >= 1
            assert written.rows <= MOST_ROWS + ROWS_OF_ANOTHER_COMMIT * max(0, written.commits - 2)


def test_rows_that_sqlite_writes_by_itself_are_not_counted(tmp_path: Path) -> None:
    written: list[int] = []
    connection = counting(written.append)(":memory:")
    connection.execute("CREATE TABLE words (word)")
    connection.execute("CREATE TABLE copies (word)")
    connection.execute(
        "CREATE TRIGGER copy AFTER INSERT ON words BEGIN INSERT INTO copies VALUES (new.word); "
        "INSERT INTO copies VALUES (new.word); END"
    )
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO words VALUES (?)", [("warp",), ("weft",), ("heddle",)])
    connection.execute("UPDATE words SET word = 'x' WHERE word = 'warp'")
    connection.execute("DELETE FROM words WHERE word = 'nowhere'")
    connection.execute("SELECT * FROM words").fetchall()
    connection.execute("COMMIT")
    connection.close()
    assert sum(written) == 4


def test_the_number_is_read_from_the_home_of_the_server(tmp_path: Path) -> None:
    rows = RowFile(tmp_path)
    assert rows_of(tmp_path) == 0
    for _ in range(3):
        rows.add(5)
    assert rows_of(tmp_path) == 15
