"""A start that brings an older file up to date is killed at each of its statements: nothing is half done or lost."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kit.old_threads import add_old_threads
from treadle.host import ConversationStore
from treadle.store import FILE_NAME, apply, open_sqlite
from treadle.store.sqlite import schema
from treadle.testing import A, B, event, history, item, thread, turn

pytestmark = pytest.mark.anyio

LATEST = len(schema.migrations())
DEADLINE = 100
# Opens copies of a home, each in a child of its own: one is killed before its first statement, one before its second,
# and so on until one comes to its end. Prints how many were killed.
PROGRAM = """
import asyncio, itertools, os, shutil, signal, sys
from treadle.host.conversations import ConversationStore
from treadle.store.sqlite import schema
from treadle.store.sqlite.sqlite_store import open_sqlite

kind, original, copies = sys.argv[1:]
connect = schema.connect

async def open_threads(home):
    await (await open_sqlite(home)).close()

def open_conversations(home):
    store = ConversationStore(home + "/conversations.db")
    store.sessions()
    store.close()

def child(home, last):
    step = itertools.count(1)

    def watched(*given, **named):
        connection = connect(*given, **named)
        connection.set_trace_callback(lambda _: next(step) == last and os.kill(os.getpid(), signal.SIGKILL))
        return connection

    schema.connect = watched
    asyncio.run(open_threads(home)) if kind == "threads" else open_conversations(home)
    os._exit(0)

for last in itertools.count(1):
    home = f"{copies}/{last}"
    shutil.copytree(original, home)
    pid = os.fork()
    if pid == 0:
        try:
            child(home, last)
        finally:
            os._exit(1)
    status = os.waitpid(pid, 0)[1]
    if not os.WIFSIGNALED(status):
        assert os.waitstatus_to_exitcode(status) == 0
        print(last - 1)
        break
"""


def _kill_at_each_statement(kind: str, original: Path, copies: Path) -> int:
    copies.mkdir()
    command = [sys.executable, "-c", PROGRAM, kind, str(original), str(copies)]
    return int(subprocess.run(command, check=True, timeout=DEADLINE, capture_output=True).stdout)


def _older_home(home: Path, version: int) -> Path:
    """One with something in every table of the first version, brought up to another."""
    home.mkdir()
    path = str(home / FILE_NAME)
    with closing(schema.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        schema.migrate(connection, path, upto=1)
        texts = [item(number, text=f"word{number}") for number in range(1, 40)]
        add_old_threads(connection, "nobody", thread(), thread(B))
        apply(connection, [turn(1), *texts, item(40), history(1)], "nobody")
        rows = [(thread_id, number, b"{}") for thread_id in (A, B) for number in range(1, 20)]
        connection.executemany("INSERT INTO events (thread_id, seq, frame) VALUES (?, ?, ?)", rows)
        schema.migrate(connection, path, upto=version)
    return home


def _rows(path: Path) -> dict[str, Any]:
    """All that is in the file, by table; the index of the search as what it is made of."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found: dict[str, Any] = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
        found.pop("epoch", None)  # another one in every home
        found["version"] = connection.execute("PRAGMA user_version").fetchone()
        return found


@pytest.mark.parametrize("version", range(1, LATEST))
async def test_threads_of_an_older_version(version: int, tmp_path: Path) -> None:
    original = _older_home(tmp_path / "original", version)
    # As each version after it has it, without a kill.
    whole = {
        number: _rows(_older_home(tmp_path / f"whole-{number}", number) / FILE_NAME)
        for number in range(version, LATEST + 1)
    }
    killed = _kill_at_each_statement("threads", original, tmp_path / "copies")
    assert killed > 3 * (LATEST - version)
    seen = set()
    for step in range(1, killed + 2):
        home = tmp_path / "copies" / str(step)
        (now,) = _rows(home / FILE_NAME)["version"]
        seen.add(now)
        assert _rows(home / FILE_NAME) == whole[now], step
        async with await open_sqlite(home) as store:
            assert len(await store.items(A)) == 40
            assert [hit.item_id for hit in await store.search("word39")] == ["item-39"]
            assert (await store.events(B, 0, 99)).events == [event(number, B) for number in range(1, 20)]
        assert _rows(home / FILE_NAME) == whole[LATEST], step
    assert seen == set(range(version, LATEST + 1))


async def test_conversations_that_are_begun(tmp_path: Path) -> None:
    original = tmp_path / "original"
    original.mkdir()
    killed = _kill_at_each_statement("conversations", original, tmp_path / "copies")
    assert killed > 3
    for step in range(1, killed + 2):
        path = tmp_path / "copies" / str(step) / "conversations.db"
        with closing(ConversationStore(path)) as store:
            store.claim("a")
            store.begin_turn("a", [{"role": "user", "content": "hello"}])
            assert [hit.session_id for hit in store.search("hello")] == ["a"]
