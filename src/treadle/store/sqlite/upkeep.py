"""Upkeep of a home by its operator: a backup while servers use it, and a database made smaller.

A backup is a folder that can be used as a home. It is written beside its place under another name, and renamed when all
of it is on the disk: what has that place is whole. Databases are copied by SQLite's backup, which takes one moment of
the database and keeps nobody from writing. Keys and tokens stay where they are, unless they are asked for. Blocking.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from contextlib import closing, suppress
from typing import Final

from treadle.store.contract import StoreError
from treadle.store.sqlite import schema
from treadle.store.sqlite.failures import damaged, failure
from treadle.store.sqlite.owners import Owners
from treadle.store.sqlite.sqlite_store import FILE_NAME

_DATABASES: Final = (FILE_NAME, "conversations.db")
# What threads were made with, and what people and agents wrote beside them. Other programs may use the home, too.
_FILES: Final = ("config.toml", "hooks.json", "projects.toml", "AGENTS.md", "AGENTS.override.md")
_FOLDERS: Final = ("skills", "agents", "prompts", "memory", "runs")
_KEYS: Final = ("auth.json", "keys.json", "mcp_tokens")


def back_up(home: str, place: str, *, keys: bool = False) -> int:
    """Make a backup of a home at `place`, where nothing may be yet; its size in bytes. Raises `StoreError`."""
    place = os.path.abspath(place)
    if not os.path.isfile(os.path.join(home, FILE_NAME)):
        raise StoreError(f"there is no {FILE_NAME} in {home}: nothing to back up", "missing")
    if os.path.lexists(place):
        raise StoreError(f"{place} is there already: a backup is a new folder, so give it another name")
    if f"{os.path.realpath(os.path.dirname(place))}/".startswith(f"{os.path.realpath(home)}/"):
        raise StoreError(f"{place} is in {home}, which it would be lost with: give it another place")
    partial = os.path.join(os.path.dirname(place), f".{os.path.basename(place)}.{os.urandom(4).hex()}.partial")
    try:
        os.mkdir(partial, 0o700)
        try:
            for name in _DATABASES:
                if os.path.isfile(os.path.join(home, name)):
                    _copy_database(os.path.join(home, name), os.path.join(partial, name))
            for name in (*_FILES, *_FOLDERS, *(_KEYS if keys else ())):
                _copy(os.path.join(home, name), os.path.join(partial, name))
            size = _sync(partial)
            os.rename(partial, place)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        _sync_folder(os.path.dirname(place))
    except OSError as error:
        raise StoreError(f"{place} cannot be written: {error.strerror or error}") from None
    return size


def _copy_database(source: str, target: str) -> None:
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    try:
        with closing(schema.connect_reader(source)) as reader, closing(sqlite3.connect(target)) as copy:
            reader.backup(copy)  # in one step, which reads one moment of it
            problem = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
            if problem == "ok" and os.path.basename(target) == FILE_NAME:
                # What is written after this moment is not in it: cursors of now mean nothing there.
                copy.execute("UPDATE epoch SET id = lower(hex(randomblob(8)))")
                copy.commit()
    except sqlite3.Error as error:
        if failure(error, target).kind == "full":  # the copy: nothing is written to the other
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        raise failure(error, source) from None
    if problem != "ok":
        raise damaged(problem, source)


def _copy(source: str, target: str) -> None:
    """A file or a folder, links as links, and nothing else: a socket or a pipe cannot be copied."""
    with suppress(FileNotFoundError):  # there is none, or it was removed just now
        if os.path.isdir(source) and not os.path.islink(source):
            os.mkdir(target, 0o700)
            for name in os.listdir(source):
                _copy(os.path.join(source, name), os.path.join(target, name))
        elif os.path.islink(source) or os.path.isfile(source):
            shutil.copy2(source, target, follow_symlinks=False)


def _sync(folder: str) -> int:
    """Make all files private and see that they are on the disk; their size."""
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            file = os.path.join(path, name)
            if not os.path.islink(file):
                fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    status = os.fstat(fd)
                    os.fchmod(fd, status.st_mode & 0o700)
                    os.fsync(fd)
                    size += status.st_size
                finally:
                    os.close(fd)
        _sync_folder(path)
    return size


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def vacuum(home: str) -> tuple[int, int]:
    """Write the database of a home anew without what was deleted; its size before and after. Raises `StoreError`, also
    when a server uses it: nobody could write for as long as that takes. No server can be started meanwhile."""
    path = os.path.join(home, FILE_NAME)
    if not os.path.isfile(path):
        raise StoreError(f"there is no {FILE_NAME} in {home}: nothing to vacuum", "missing")
    owners = Owners(home)
    with owners.alone():
        users = owners.sweep()
        if users:
            raise StoreError(
                f"{path} is in use (process {', '.join(map(str, users))}), and nobody could write to it meanwhile: end "
                "that first; `treadle store prune` gives back what it deletes while servers run",
                "busy",
            )
        try:
            with closing(schema.open_database(path)) as connection:
                before = os.path.getsize(path)
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # which files of old versions have not
                connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                return before, os.path.getsize(path)
        except (sqlite3.Error, OSError) as error:
            raise failure(error, path) from None
