"""The database of threads: whether it opens, is whole, and can be written; and who keeps it from that."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from treadle.cli.checkup.check import Check
from treadle.store.contract import StoreError
from treadle.store.sqlite import schema
from treadle.store.sqlite.failures import failure
from treadle.store.sqlite.file_store import FILE_NAME

# Who writes has it for milliseconds.
_BUSY_S: Final = 1.0
# A database of gigabytes takes longer than anybody waits for; what was read until then counts.
_READING_S: Final = 5.0
_STEPS: Final = 100_000


def check_database(home: Path) -> Check:
    path = home / FILE_NAME
    if not path.exists():
        return Check("no threads yet: their database is made with the first one")
    began = time.monotonic()
    try:
        connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
        try:
            return _examined(connection, path, began)
        finally:
            connection.close()
    except (sqlite3.Error, StoreError) as error:
        told = failure(error, str(path))
        if told.kind == "busy":
            return _held(path)
        mend = f"look at it: ls -l {path}; or move it away, and Treadle makes a new one: mv {path} {path}.old"
        return Check("the database of threads cannot be used", "failed", mend, [str(told)])


def _examined(connection: sqlite3.Connection, path: Path, began: float) -> Check:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    known = len(schema.migrations())
    if int(connection.execute("PRAGMA application_id").fetchone()[0]) != schema.APPLICATION_ID:
        mend = f"mv {path} {path}.other, and Treadle makes a new one"
        return Check(f"{path} is the database of another program", "failed", mend)
    if version > known:
        what = f"{path} was written by a newer Treadle (format {version}, known here is {known})"
        return Check(what, "failed", "install the newer version again: pip install --upgrade treadle")
    connection.execute("BEGIN IMMEDIATE")  # whether anybody holds it; nothing is written
    connection.execute("ROLLBACK")
    problems, complete = _damage(connection, began + _READING_S)
    if problems:
        mend = f"end all servers, then: sqlite3 {path} .recover | sqlite3 recovered.db"
        return Check(f"{path} is damaged", "failed", mend, problems)
    threads = int(connection.execute("SELECT count(*) FROM threads").fetchone()[0])
    counted = "1 thread" if threads == 1 else f"{threads} threads"
    size = path.stat().st_size / (1 << 20)
    whole = "whole" if complete else f"whole as far as {_READING_S:.0f} s of reading show"
    return Check(f"database {path}: {counted}, {size:.1f} MB, {whole}", seconds=time.monotonic() - began)


def _damage(connection: sqlite3.Connection, deadline: float) -> tuple[list[str], bool]:
    """What is damaged, and whether all of it was looked at."""
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    try:
        found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")]
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_INTERRUPT:
            raise
        return [], False
    finally:
        connection.set_progress_handler(None, 0)
    return [line for line in found if line != "ok"], True


def _held(path: Path) -> Check:
    holders = [f"process {pid}: {words}" for pid, words in open_by(path)]
    advice = "end the one that hangs (kill PID), or wait for it" if holders else f"fuser -v {path} names who has it"
    return Check(f"{path} is locked by another process", "failed", advice, holders)


def open_by(path: Path) -> Iterator[tuple[int, str]]:
    """The processes that have a file open, as far as this user may see it, with their command lines."""
    wanted = os.path.realpath(path)
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid() and wanted in _open_files(name):
            yield int(name), _command_line(name)


def _open_files(pid: str) -> set[str]:
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            return {os.readlink(entry.path) for entry in entries}
    except OSError:  # it has ended, or is another user's
        return set()


def _command_line(pid: str) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "(it has ended)"
    return b" ".join(words[:4]).decode("utf-8", "replace")[:80]
