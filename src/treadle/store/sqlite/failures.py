"""Errors of SQLite and of the file system, as a `StoreError` that a person can act on.

This module owns the mapping and the texts; nothing else looks at codes of SQLite.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
from typing import Final

from treadle.store.contract import StoreError
from treadle.store.rows import Unreadable

logger: logging.Logger = logging.getLogger(__name__)

# How Python's binding begins to say that a column is not UTF-8.
_NO_TEXT: Final = "Could not decode to UTF-8"
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# SQLite grows its files by less at a time.
_PROBE_SIZE: Final = 64 * 1024
# A full disk under another name, perhaps: SQLite knows ENOSPC only of the files that it writes page by page.
_ROOM_DOUBTFUL: Final = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})


def failure(error: Exception, path: str) -> StoreError:
    """The error as callers know it; `path` is the database."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, OSError):
        return _full(path) if error.errno in _NO_ROOM else StoreError(f"{path} cannot be used: {error}")
    if isinstance(error, sqlite3.Error):
        return _sqlite_failure(error, path)
    if isinstance(error, Unreadable):
        return damaged(str(error), path)
    if isinstance(error, UnicodeDecodeError):  # a message of SQLite that repeats what it found
        return damaged("a text in it is no text", path)
    if isinstance(error, UnicodeEncodeError):
        return StoreError("this cannot be stored: a text in it holds half a character (a lone surrogate)")
    if isinstance(error, OverflowError):
        return StoreError("this cannot be stored: a number in it is too large")
    logger.error("something unexpected while %s was used", path, exc_info=error)
    return StoreError(f"this cannot be stored: {error}; the log has more")


def _sqlite_failure(error: sqlite3.Error, path: str) -> StoreError:
    # Errors that Python's binding finds itself have no code.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or (code in _ROOM_DOUBTFUL and _no_room(path)):
        return _full(path)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(
            f"another process is holding {path} for too long: look for a server or a database tool that hangs, "
            "and try again",
            "busy",
        )
    if code == sqlite3.SQLITE_NOTADB:
        return StoreError(f"{path} is no database: move it away, and Treadle makes a new one")
    if code == sqlite3.SQLITE_CORRUPT:
        return damaged(str(error), path)
    if not code and str(error).startswith(_NO_TEXT):  # the rest of the message is what was found
        return damaged("a text in it is no text", path)
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(f"the disk under {path} fails ({error}): look at the system's log, and try again")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StoreError(f"{path} cannot be written ({error}): check who owns it and its folder")
    return StoreError(f"{path}: {error}")


def damaged(what: str, path: str) -> StoreError:
    """The error for a damaged database. `what` is the part, or how it shows."""
    return StoreError(
        f"{path} is damaged: {what}. What can still be read is there and other threads go on. To save it, end all "
        f"servers and run `sqlite3 {path} .recover | sqlite3 recovered.db`, then put recovered.db in its place; or put "
        "a copy back; or move it away, and Treadle makes a new one",
        "damaged",
    )


def _full(path: str) -> StoreError:
    return StoreError(
        f"no space left for {path}: make room on that disk and try again; what was stored before is safe", "full"
    )


def _no_room(path: str) -> bool:
    """Whether a file beside the database could not grow; quotas are nowhere else to be seen."""
    probe = f"{path}-{os.getpid()}.probe"
    try:
        fd = os.open(probe, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, _PROBE_SIZE)
        finally:
            os.close(fd)
            os.unlink(probe)
    except OSError as error:
        return error.errno in _NO_ROOM
    return False
