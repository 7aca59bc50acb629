"""Errors of PostgreSQL and of its driver, as a `StoreError` that a person can act on.

This module owns the mapping and the texts; nothing else looks at codes of PostgreSQL.
"""

from __future__ import annotations

import logging
from typing import Final

from treadle.store.batches import claimed, has_turns, no_thread, not_stored, number_in_use, stale
from treadle.store.contract import EventRecord, HistoryRecord, StoreError, damaged
from treadle.store.rows import Unreadable

logger: logging.Logger = logging.getLogger(__name__)

# Classes and codes of errors of a connection that is gone, or of a server that is going or coming. What was asked
# may be asked again on another connection.
_LOST: Final = ("08", "57P01", "57P02", "57P03", "57P05")
_FULL: Final = frozenset({"53100", "53200", "54000"})
_BUSY: Final = frozenset({"55P03", "57014", "40P01", "40001", "53300"})
_DENIED: Final = ("28", "42501")


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone, and with it the answer."""
    import asyncpg

    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "").startswith(_LOST)
    # `InterfaceError`: a connection that was closed. A deadline that has passed says nothing of what was done.
    return isinstance(error, OSError | TimeoutError | asyncpg.InterfaceError | EOFError) and not isinstance(
        error, asyncpg.DataError
    )


def postgres_failure(error: BaseException, location: str) -> StoreError:
    """The error as callers know it."""
    import asyncpg

    if isinstance(error, StoreError):
        return error
    if isinstance(error, asyncpg.PostgresError):
        return _refused(error, location)
    if isinstance(error, Unreadable):
        return damaged(str(error), location)
    if isinstance(error, UnicodeEncodeError):
        return StoreError("this cannot be stored: a text in it holds half a character (a lone surrogate)")
    if is_lost(error):
        return unreachable(location, error)
    if not isinstance(error, asyncpg.DataError | TypeError | AttributeError | ValueError | KeyError):
        logger.error("something unexpected while %s was used", location, exc_info=error)
    return StoreError(f"this cannot be stored: {error}")


def _refused(error: object, location: str) -> StoreError:
    code = str(getattr(error, "sqlstate", ""))
    thread_id, hint = str(getattr(error, "detail", "")), getattr(error, "hint", None) or "another server"
    match code:
        case "TR001":
            return no_thread(thread_id)
        case "TR002":
            return stale(thread_id, hint)
        case "TR003":
            return not_stored(thread_id, int(hint))
        case "TR004":
            return number_in_use(EventRecord)
        case "TR005":
            return has_turns(thread_id)
        case "TR006":
            return StoreError(
                f"{location} has forgotten this server: it was away for too long, or the database was put back. "
                "Start the server again",
                "unknown",
            )
        case "TR007":
            return claimed(thread_id, hint)
        case "23505":
            return number_in_use(HistoryRecord)
    if code.startswith(_LOST):
        return unreachable(location, error)
    if code in _FULL:
        return StoreError(
            f"no space left for {location}: make room on the disk of the database and try again; what was stored "
            "before is safe",
            "full",
        )
    if code in _BUSY:
        return StoreError(
            f"{location} does not answer in time ({error}): look into pg_stat_activity for what holds it up, and try "
            "again",
            "busy",
        )
    if code.startswith(_DENIED):
        return StoreError(f"{location} refuses: {error}. See PGPASSWORD, ~/.pgpass, and the rights of the role")
    if code in ("XX001", "XX002"):
        return damaged(str(error), location)
    if code.startswith(("22", "23")):
        return StoreError(f"this cannot be stored: {error}")
    return StoreError(f"{location}: {error}")


def slow(location: str, seconds: float) -> StoreError:
    return StoreError(f"{location} has not answered for {seconds:.0f} s: look into pg_stat_activity for why", "busy")


def unreachable(location: str, error: object) -> StoreError:
    return StoreError(
        f"{location} cannot be reached ({error or type(error).__name__}): see whether the database runs, and try again",
        "unreachable",
    )


def unknown(location: str) -> StoreError:
    """The error for a write whose answer was lost, and that could not be asked for again."""
    return StoreError(
        f"{location} was lost in the middle of a write, and whether it is stored is not known: resume the thread when "
        "the database is back, and go on from where it is then",
        "unknown",
    )
