"""Writing: a group of callers' jobs becomes one transaction of few statements.

    jobs of several callers ─▶ `Transactions.run`   one BEGIN … COMMIT; when it fails, each job in its own
                                 │  `rounds`         what can be written together (see `treadle.store.batches`)
                                 ├▶ `check`          fence, owner, numbers of events
                                 └▶ `apply`          `Insert` writes up to 16 rows with a statement

It owns the SQL of writing, of claims and of the fence that every call of a writer is checked against, and the rule that
one caller's failure is not another's. It knows nothing of threads of the process, queues or files.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, astuple

from treadle.store.batches import (
    Batch,
    EventRow,
    claimed,
    has_turns,
    join,
    merged,
    no_thread,
    not_stored,
    number_in_use,
    rounds,
    stale,
)
from treadle.store.contract import (
    Claim,
    Compaction,
    CopyTurns,
    CutTurns,
    DeleteThread,
    DropItem,
    DropQueued,
    EventRecord,
    HistoryRecord,
    ItemRecord,
    PruneEvents,
    QueuedRecord,
    Release,
    StoreError,
    ThreadRecord,
    TurnRecord,
    Write,
)
from treadle.store.sqlite.failures import failure
from treadle.store.sqlite.owners import Living, server_of
from treadle.store.sqlite.queries import load, tree

_LAST: Final = 2**63 - 1


# --- transactions ----------------------------------------------------------------------------------------------------


# The job of one caller: plain writes, or a function that has the transaction to itself.
Work: TypeAlias = Batch | Callable[[sqlite3.Connection], None]


class Transactions:
    """Writing through one connection, for one owner."""

    def __init__(self, connection: sqlite3.Connection, path: str, owner_id: str) -> None:
        self._connection = connection
        self._path = path
        self._owner_id = owner_id

    def run(self, works: Sequence[Work]) -> list[StoreError | None]:
        """Do all the works; the outcome of each."""
        error = self._attempt(works)
        if error is None or len(works) == 1 or error.kind == "busy":
            return [error] * len(works)
        return [self._attempt((work,)) for work in works]

    def _attempt(self, works: Sequence[Work]) -> StoreError | None:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            # Writes of several callers are made together: many of one kind in a row are much cheaper than one by one.
            for each in rounds(works) if len(works) > 1 else works:
                if callable(each):
                    each(connection)
                    continue
                batches = (each,) if isinstance(each, Batch) else each
                check(connection, batches, self._owner_id)
                apply(connection, [write for batch in batches for write in batch.writes], self._owner_id)
            connection.execute("COMMIT")
        except Exception as error:
            problem = failure(error, self._path)
            # After some errors SQLite has rolled back by itself; a failure here leaves nothing written either.
            if connection.in_transaction:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            return problem
        return None


# --- what may be written ---------------------------------------------------------------------------------------------

_State: TypeAlias = tuple[int, str | None, int]
# Fence, owner and the last number of an event of a thread.
_STATE: Final = """fence, owner,
    max(pruned_seq, coalesce((SELECT max(last_seq) FROM events WHERE thread_id = threads.id), 0))"""
_STATE_OF_ONE: Final = f"SELECT {_STATE} FROM threads WHERE id = ?"
_STATES: Final = f"""
SELECT json_group_array(json_array(id, json_array({_STATE})))
FROM threads WHERE id IN (SELECT value FROM json_each(?))
"""
_decode_states: Final = msgspec.json.Decoder(list[tuple[str, _State]]).decode


def check(connection: sqlite3.Connection, batches: Sequence[Batch], owner: str) -> None:
    """Whether these writes may be made, each batch to another thread. What is true here stays so until the transaction
    ends: nobody else writes."""
    ids = [batch.thread_id for batch in batches]
    states: dict[str, _State]
    if len(ids) == 1:
        row = connection.execute(_STATE_OF_ONE, ids).fetchone()
        states = {} if row is None else {ids[0]: row}
    else:
        # Of many, one row of JSON: before each row the event loop may take the interpreter's lock.
        (found,) = connection.execute(_STATES, (msgspec.json.encode(ids).decode(),)).fetchone()
        states = dict(_decode_states(found))
    for batch in batches:
        state = states.get(batch.thread_id)
        if state is None:
            if not batch.makes_thread:
                raise no_thread(batch.thread_id)
        elif state[:2] != (batch.fence, owner):
            raise stale(batch.thread_id, server_of(state[1]))
        last_seq = 0 if state is None else state[2]
        if batch.after_seq not in (None, last_seq):
            raise not_stored(batch.thread_id, batch.after_seq)
        batch.check(last_seq)


# --- making the writes -----------------------------------------------------------------------------------------------

# A statement costs more than its rows: the interpreter's lock is released around it, and where the event loop is busy
# it takes a while to come back. So one for 16 rows is better than 16, and a few lengths are enough: each is prepared
# once.
_LENGTHS: Final = (16, 4, 1)


class Insert:
    """The statements that write rows of one table, several rows at a time.

    Args:
        table: The table.
        columns: The columns of a row, in its order.
        keys: The columns whose row is replaced when there is one; without, it is an error of SQLite.
        initial: Columns that are only written with a new row.
    """

    def __init__(
        self, table: str, columns: Iterable[str], keys: Sequence[str] = (), initial: Sequence[str] = ()
    ) -> None:
        columns = (*columns, *initial)
        head = f"INSERT INTO {table} ({', '.join(columns)}) VALUES "
        row = f"({', '.join('?' * len(columns))})"
        tail = ""
        if keys:
            # Not `INSERT OR REPLACE`: that deletes the old row, with the claim of a thread and all that refers to it.
            changes = [f"{name} = excluded.{name}" for name in columns if name not in (*keys, *initial)]
            tail = f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {', '.join(changes)}"
        self._statements = [(length, head + ", ".join([row] * length) + tail) for length in _LENGTHS]

    def write(self, connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        written = 0
        for length, statement in self._statements:
            while len(rows) - written >= length:
                values = tuple(chain.from_iterable(rows[written : written + length]))
                connection.execute(statement, values)
                written += length


# The columns of a record are named as its fields.
_INSERTS: Final[dict[type, Insert]] = {
    ThreadRecord: Insert("threads", ThreadRecord.__struct_fields__, ("id",), initial=("owner",)),
    TurnRecord: Insert("turns", TurnRecord.__struct_fields__, ("thread_id", "number")),
    ItemRecord: Insert("items", ItemRecord.__struct_fields__, ("thread_id", "number")),
    HistoryRecord: Insert("history", HistoryRecord.__struct_fields__),
    Compaction: Insert("compactions", Compaction.__struct_fields__, ("thread_id", "turn")),
    QueuedRecord: Insert("queue", QueuedRecord.__struct_fields__, ("thread_id", "id")),
    EventRecord: Insert("events", EventRow._fields),
}
# The writes that are not records, as statements with the write's fields as parameters.
_STATEMENTS: Final[dict[type, tuple[str, ...]]] = {
    DropItem: ("DELETE FROM items WHERE thread_id = :thread_id AND number = :number",),
    DropQueued: ("DELETE FROM queue WHERE thread_id = :thread_id AND id = :id",),
    CutTurns: (
        "DELETE FROM turns WHERE thread_id = :thread_id AND number >= :turn",
        "DELETE FROM items WHERE thread_id = :thread_id AND turn >= :turn",
        "DELETE FROM history WHERE thread_id = :thread_id AND turn >= :turn",
        "DELETE FROM compactions WHERE thread_id = :thread_id AND turn >= :turn",
    ),
    PruneEvents: (
        # A row that is only partly pruned stays: reading it leaves out what is pruned.
        "UPDATE threads SET pruned_seq = max(pruned_seq, min(:seq, coalesce("
        "(SELECT max(last_seq) FROM events WHERE thread_id = :thread_id), 0))) WHERE id = :thread_id",
        "DELETE FROM events WHERE thread_id = :thread_id AND last_seq <= :seq",
    ),
    DeleteThread: ("DELETE FROM threads WHERE id = :thread_id",),
    Release: ("UPDATE threads SET held = 0 WHERE id = :thread_id",),
}


def apply(connection: sqlite3.Connection, writes: Iterable[Write], owner: str) -> None:
    """Make writes that were checked. Whatever is raised, the transaction has to be rolled back."""
    for run in merged(writes):
        kind = type(first := run[0])
        if isinstance(first, CopyTurns):
            for thread_id in (first.source_id, first.target_id):
                if not _exists(connection, thread_id):
                    raise no_thread(thread_id)
            if connection.execute("SELECT 1 FROM turns WHERE thread_id = ?", (first.target_id,)).fetchone():
                raise has_turns(first.target_id)
            last = _LAST if first.last_turn is None else first.last_turn
            for copy in _COPIES:
                connection.execute(copy, (first.target_id, first.source_id, last))
        elif (statements := _STATEMENTS.get(kind)) is not None:
            for write in run:
                for statement in statements:
                    connection.execute(statement, asdict(write))
        else:
            _put(connection, kind, run, owner)


def _put(connection: sqlite3.Connection, kind: type, run: Sequence[Any], owner: str) -> None:
    """Write records of one kind as rows. Raises what is wrong with those that break a rule of their table."""
    if kind is ThreadRecord:
        # The store that makes a thread may go on writing it.
        rows = [(*astuple(record), owner) for record in run]
    elif kind is EventRecord:
        rows = list(join(run))
    else:
        rows = [astuple(record) for record in run]
    try:
        _INSERTS[kind].write(connection, rows)
    except sqlite3.IntegrityError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
            raise number_in_use(kind) from None
        if error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
            missing = (record.thread_id for record in run if not _exists(connection, record.thread_id))
            raise no_thread(next(missing)) from None
        raise


def _exists(connection: sqlite3.Connection, thread_id: str) -> bool:
    return connection.execute("SELECT 1 FROM threads WHERE id = ?", (thread_id,)).fetchone() is not None


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


# --- threads that nobody uses ----------------------------------------------------------------------------------------


def delete_unused(
    connection: sqlite3.Connection, thread_id: str, before: int, holding: Living, is_loaded: Callable[[str], bool]
) -> bool:
    """`Store.delete_unused`, in a transaction."""
    found = tree(connection, thread_id)
    for each, owner, held, used_at in found:
        if used_at >= before or is_loaded(each) or (held and owner is not None and holding(owner) is not None):
            return False
    connection.executemany("DELETE FROM threads WHERE id = ?", [(each,) for each, *_ in found])
    return bool(found)


# Pages that are given back in a transaction: some milliseconds, for which others wait.
_PAGES: Final = 256


def give_back(connection: sqlite3.Connection) -> bool:
    """Give some free pages back to the disk; whether there are more. A file of an old version keeps them until a full
    vacuum."""
    connection.execute(f"PRAGMA incremental_vacuum({_PAGES})").fetchall()  # a page for each row that is asked for
    (is_incremental,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    return bool(is_incremental and connection.execute("PRAGMA freelist_count").fetchone()[0])


# --- claims ----------------------------------------------------------------------------------------------------------


def claim(connection: sqlite3.Connection, thread_id: str, known_fence: int, owner: str, holding: Living) -> Claim:
    """`Store.claim`, in the transaction that makes it exclusive."""
    row = connection.execute("SELECT owner, held, fence FROM threads WHERE id = ?", (thread_id,)).fetchone()
    if row is None:
        raise no_thread(thread_id)
    last_owner, held, fence = row
    ours = last_owner == owner
    if held and not ours and holding(last_owner) is not None:
        raise claimed(thread_id, server_of(last_owner))
    connection.execute("UPDATE threads SET owner = ?, held = 1, fence = ? WHERE id = ?", (owner, fence + 1, thread_id))
    if not (held and ours and fence == known_fence):  # else the caller has not lost track of its own turns
        connection.execute(
            "UPDATE turns INDEXED BY turns_in_progress SET status = 'interrupted' "
            "WHERE thread_id = ? AND status = 'inProgress'",
            (thread_id,),
        )
    # An equal fence is not enough: who read it while another store held the thread has not seen what that one wrote.
    return Claim(fence + 1, None if fence == known_fence and ours else load(connection, thread_id))
