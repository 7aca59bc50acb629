"""The database as a file: opening it, and bringing it to the version that this program knows.

This module owns the settings of a connection and the order of the migrations, `migrations/<version>_<what>.sql`. It
knows nothing of what is in the tables: the host's conversations are another `Format` of the same make. The caller sees
to it that only one process at a time migrates.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from treadle.store.contract import StoreError

MEMORY: Final = ":memory:"
# How long a write waits for another process. Ours hold the file for milliseconds, so a longer wait is for something
# that hangs.
BUSY_S: Final = 10.0
# "Trdl": distinguishes our files from those of other programs that happen to have the same name.
APPLICATION_ID: Final = 0x5472646C
# What a burst of writes may leave of the log on disk.
_WAL_LIMIT: Final = 64 * 1024 * 1024


class Format(NamedTuple):
    """A kind of database: the number that distinguishes its files from others, and the folder of its migrations."""

    application_id: int
    migrations: str


THREADS: Final = Format(APPLICATION_ID, os.path.join(os.path.dirname(__file__), "migrations"))


def connect(path: str, *, one_thread: bool = True) -> sqlite3.Connection:
    """A connection that can write; transactions are the caller's, and so is a lock where several threads use it."""
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=one_thread)
    try:
        # With WAL, NORMAL loses nothing when a process dies; a power cut may take the last moments, never the file.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(path: str) -> sqlite3.Connection:
    """A connection that only reads.

    The file is opened for writing all the same: a reader that comes first after a crash has to bring the log in order.
    """
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    try:
        connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def open_database(
    path: str, form: Format = THREADS, *, one_thread: bool = True, users: Sequence[int] = ()
) -> sqlite3.Connection:
    """The database at `path`, made or migrated as needed; `users` are the other processes that have it open.

    Raises `StoreError` when it is not ours, too new, or has to be migrated while others use it.
    """
    # Made here, so that the file never has a mode that others can read; SQLite gives its log the same mode. A file that
    # exists is left alone: to open and close it would take away the locks of another store in this process.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    connection = connect(path, one_thread=one_thread)
    try:
        tables = _number(connection, "SELECT count(*) FROM sqlite_master")
        if tables and _number(connection, "PRAGMA application_id") != form.application_id:
            raise StoreError(f"{path} is the database of another program: move it away, or use another home")
        if users and 0 < _number(connection, "PRAGMA user_version") < len(migrations(form)):
            # The others know the tables as they are, and would fail at every write from then on.
            raise StoreError(
                f"{path} is in use by an older Treadle (process {', '.join(map(str, users))}), and this one has to "
                "bring it up to date first: end the older one and try again",
                "busy",
            )
        if not tables:
            # So that what is deleted can be given back, a little at a time. A commit costs the same, within 3 %.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        migrate(connection, path, form=form)
    except BaseException:
        connection.close()
        raise
    return connection


def open_memory() -> sqlite3.Connection:
    """An empty database of the same make that is nowhere on disk."""
    connection = connect(MEMORY)
    migrate(connection, MEMORY)
    return connection


def migrations(form: Format = THREADS) -> list[str]:
    """The scripts, from version 1 on."""
    scripts = []
    for name in sorted(os.listdir(form.migrations)):
        if name.endswith(".sql"):
            with open(os.path.join(form.migrations, name), encoding="utf-8") as file:
                scripts.append(file.read())
    return scripts


def migrate(connection: sqlite3.Connection, path: str, upto: int | None = None, form: Format = THREADS) -> None:
    """Run the scripts that this database has not seen (up to version `upto`), each in a transaction of its own."""
    scripts = migrations(form)
    version = _number(connection, "PRAGMA user_version")
    if version > len(scripts):
        raise StoreError(
            f"{path} was written by a newer Treadle (its format is {version}, this program knows {len(scripts)}): "
            "install the newer version again, or use another home"
        )
    for number, script in enumerate(scripts[version:upto], version + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {form.application_id}")
            connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _statements(script: str) -> Iterator[str]:
    """The script cut into statements: `executescript` would end the transaction that it runs in."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _number(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])
