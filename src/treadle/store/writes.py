"""What each write does to the tables, inside a transaction that somebody else began.

It owns the SQL of writing and claiming. It knows nothing of threads of the process, queues or files.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import astuple

from treadle.store.model import (
    Compaction,
    CopyTurns,
    CutTurns,
    DeleteThread,
    DropItem,
    EventRecord,
    HistoryRecord,
    ItemRecord,
    Loaded,
    PruneEvents,
    Release,
    StoreError,
    ThreadRecord,
    TurnRecord,
    Write,
)
from treadle.store.owners import Living
from treadle.store.queries import load

_LAST: Final = 2**63 - 1
_Apply: TypeAlias = Callable[[sqlite3.Connection, Any, str], None]


def apply(connection: sqlite3.Connection, writes: Iterable[Write], owner: str) -> None:
    """Make the writes, in their order. Whatever is raised, the transaction has to be rolled back."""
    for kind, run in groupby(writes, type):
        statement = _RECORDS.get(kind)
        if statement is not None:
            _put(connection, statement, list(run))
            continue
        act = _ACTS[kind]
        for write in run:
            act(connection, write, owner)


def no_thread(thread_id: str) -> StoreError:
    return StoreError(f"there is no thread {thread_id}: it was deleted or never stored", "missing")


# --- records ---------------------------------------------------------------------------------------------------------


def _upsert(table: str, record: type[Struct], *keys: str) -> str:
    """Not `INSERT OR REPLACE`: that deletes the old row, with the claim of a thread and all that refers to it."""
    fields = record.__struct_fields__
    values = ", ".join("?" * len(fields))
    changes = ", ".join(f"{name} = excluded.{name}" for name in fields if name not in keys)
    return (
        f"INSERT INTO {table} ({', '.join(fields)}) VALUES ({values}) "
        f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changes}"
    )


_RECORDS: Final[dict[type, str]] = {
    ThreadRecord: _upsert("threads", ThreadRecord, "id"),
    TurnRecord: _upsert("turns", TurnRecord, "thread_id", "number"),
    ItemRecord: _upsert("items", ItemRecord, "thread_id", "number"),
    HistoryRecord: _upsert("history", HistoryRecord, "thread_id", "number"),
    EventRecord: _upsert("events", EventRecord, "thread_id", "seq"),
    Compaction: _upsert("compactions", Compaction, "thread_id", "turn"),
}


def _put(connection: sqlite3.Connection, statement: str, run: Sequence[Any]) -> None:
    try:
        if len(run) == 1:
            connection.execute(statement, astuple(run[0]))
        else:
            connection.executemany(statement, map(astuple, run))
    except sqlite3.IntegrityError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
            raise
        lost = next(write.thread_id for write in run if not _exists(connection, write.thread_id))
        raise no_thread(lost) from None


def _exists(connection: sqlite3.Connection, thread_id: str) -> bool:
    return connection.execute("SELECT 1 FROM threads WHERE id = ?", (thread_id,)).fetchone() is not None


# --- acts ------------------------------------------------------------------------------------------------------------


def _drop_item(connection: sqlite3.Connection, write: DropItem, owner: str) -> None:
    connection.execute("DELETE FROM items WHERE thread_id = ? AND number = ?", (write.thread_id, write.number))


def _cut_turns(connection: sqlite3.Connection, write: CutTurns, owner: str) -> None:
    place = (write.thread_id, write.turn)
    connection.execute("DELETE FROM turns WHERE thread_id = ? AND number >= ?", place)
    for table in ("items", "history", "compactions"):
        connection.execute(f"DELETE FROM {table} WHERE thread_id = ? AND turn >= ?", place)


def _copy_turns(connection: sqlite3.Connection, write: CopyTurns, owner: str) -> None:
    for thread_id in (write.source_id, write.target_id):
        if not _exists(connection, thread_id):
            raise no_thread(thread_id)
    if connection.execute("SELECT 1 FROM turns WHERE thread_id = ?", (write.target_id,)).fetchone():
        raise StoreError(f"thread {write.target_id} has turns already, so none can be copied into it")
    last = _LAST if write.last_turn is None else write.last_turn
    for statement in _COPIES:
        connection.execute(statement, (write.target_id, write.source_id, last))


def _copy(table: str, record: type[Struct], turn: str = "turn", **changed: str) -> str:
    columns = [name for name in record.__struct_fields__ if name != "thread_id"]
    values = ", ".join(changed.get(name, name) for name in columns)
    return (
        f"INSERT INTO {table} (thread_id, {', '.join(columns)}) "
        f"SELECT ?, {values} FROM {table} WHERE thread_id = ? AND {turn} <= ?"
    )


_COPIES: Final = (
    # What runs in the source does not run in the copy.
    _copy("turns", TurnRecord, "number", status="iif(status = 'inProgress', 'interrupted', status)"),
    _copy("items", ItemRecord),
    _copy("history", HistoryRecord),
    _copy("compactions", Compaction),
)


def _prune_events(connection: sqlite3.Connection, write: PruneEvents, owner: str) -> None:
    place = {"thread": write.thread_id, "seq": write.seq}
    connection.execute(
        "UPDATE threads SET pruned_seq = max(pruned_seq, coalesce("
        "(SELECT max(seq) FROM events WHERE thread_id = :thread AND seq <= :seq), 0)) WHERE id = :thread",
        place,
    )
    connection.execute("DELETE FROM events WHERE thread_id = :thread AND seq <= :seq", place)


def _delete_thread(connection: sqlite3.Connection, write: DeleteThread, owner: str) -> None:
    connection.execute("DELETE FROM threads WHERE id = ?", (write.thread_id,))


def _release(connection: sqlite3.Connection, write: Release, owner: str) -> None:
    connection.execute("UPDATE threads SET held = 0 WHERE id = ? AND owner = ?", (write.thread_id, owner))


_ACTS: Final[dict[type, _Apply]] = {
    DropItem: _drop_item,
    CutTurns: _cut_turns,
    CopyTurns: _copy_turns,
    PruneEvents: _prune_events,
    DeleteThread: _delete_thread,
    Release: _release,
}


# --- claims ----------------------------------------------------------------------------------------------------------


def claim(connection: sqlite3.Connection, thread_id: str, fence: int, owner: str, living: Living) -> Loaded | None:
    """`Store.claim`, in the transaction that makes it exclusive."""
    row = connection.execute("SELECT owner, held, fence FROM threads WHERE id = ?", (thread_id,)).fetchone()
    if row is None:
        raise no_thread(thread_id)
    last_owner, held, found = row
    ours = last_owner == owner
    if held and not ours:
        pid = living(last_owner)
        if pid is not None:
            raise StoreError(
                f"another server (process {pid}) is working on thread {thread_id}: end that one, or use it instead",
                "claimed",
            )
    connection.execute("UPDATE threads SET owner = ?, held = 1, fence = fence + 1 WHERE id = ?", (owner, thread_id))
    if not (held and ours):
        connection.execute(
            "UPDATE turns INDEXED BY turns_in_progress SET status = 'interrupted' "
            "WHERE thread_id = ? AND status = 'inProgress'",
            (thread_id,),
        )
    # An equal fence is not enough: who read it while another store held the thread has not seen what that one wrote.
    if found == fence and (ours or last_owner is None):
        return None
    return load(connection, thread_id)
