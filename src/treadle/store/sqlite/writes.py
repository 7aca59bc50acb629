"""What each write does to the tables, inside a transaction that somebody else began.

It owns the SQL of writing, of claims and of the fence that every call of a writer is checked against. It knows nothing
of threads of the process, queues or files.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

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
from treadle.store.merging import merged
from treadle.store.owners import Living, process_of
from treadle.store.sqlite.event_rows import EventRow, join
from treadle.store.sqlite.inserts import Insert, fields
from treadle.store.sqlite.queries import load

_LAST: Final = 2**63 - 1
_Apply: TypeAlias = Callable[[sqlite3.Connection, Any], None]


class Batch(NamedTuple):
    """What one call of `submit` writes."""

    thread_id: str
    fence: int
    writes: tuple[Write, ...]
    after_seq: int | None = None

    def joined(self, later: Batch) -> Batch | None:
        """Both as one, when the later one says that it follows this one, and does not read from a thread that was
        written to in between."""
        last_seq = next((write.seq for write in reversed(self.writes) if type(write) is EventRecord), self.after_seq)
        if later.fence != self.fence or later.after_seq is None or later.after_seq != last_seq:
            return None
        if any(type(write) is CopyTurns for write in later.writes):
            return None
        return self._replace(writes=self.writes + later.writes)


_State: TypeAlias = tuple[int, str | None, int]
_STATE: Final = """fence, owner,
    max(pruned_seq, coalesce((SELECT max(last_seq) FROM events WHERE thread_id = threads.id), 0))"""
_STATE_OF_ONE: Final = f"SELECT {_STATE} FROM threads WHERE id = ?"
_STATES: Final = f"""
SELECT json_group_array(json_array(id, json_array({_STATE})))
FROM threads WHERE id IN (SELECT value FROM json_each(?))
"""
_decode_states: Final = msgspec.json.Decoder(list[tuple[str, _State]]).decode


def _states(connection: sqlite3.Connection, ids: Sequence[str]) -> Mapping[str, _State]:
    """Fence, owner and last number of an event of each thread that there is."""
    if len(ids) == 1:
        row = connection.execute(_STATE_OF_ONE, ids).fetchone()
        return {} if row is None else {ids[0]: row}
    # Of many, one row of JSON: before each row the event loop may take the interpreter's lock.
    (found,) = connection.execute(_STATES, (msgspec.json.encode(ids).decode(),)).fetchone()
    return dict(_decode_states(found))


def check(connection: sqlite3.Connection, batches: Sequence[Batch], owner: str) -> None:
    """Whether these writes may be made, each batch to another thread. What is true here stays so until the transaction
    ends: nobody else writes."""
    states = _states(connection, [batch.thread_id for batch in batches])
    for batch in batches:
        state = states.get(batch.thread_id)
        if state is None:
            if batch.fence != 0 or not batch.writes or type(batch.writes[0]) is not ThreadRecord:
                raise no_thread(batch.thread_id)
        elif state[:2] != (batch.fence, owner):
            raise _stale(batch.thread_id, state[1])
        last_seq = 0 if state is None else state[2]
        if batch.after_seq not in (None, last_seq):
            raise StoreError(
                f"event {batch.after_seq} of thread {batch.thread_id} was not kept, nor is what follows it"
            )
        _check_writes(batch, last_seq)


def _check_writes(batch: Batch, last_seq: int) -> None:
    for write in batch.writes:
        if _TARGETS.get(type(write), _thread_id)(write) != batch.thread_id:
            raise StoreError(f"a {type(write).__name__} of another thread is among the writes of {batch.thread_id}")
        if isinstance(write, EventRecord):
            # The table cannot tell: only the last number of a row is a key in it, and those that were pruned are gone.
            if write.seq <= last_seq:
                raise _number_in_use(EventRecord)
            last_seq = write.seq
        elif isinstance(write, DeleteThread):
            last_seq = 0


_thread_id: Final = attrgetter("thread_id")
# The thread that is written to, where it has another name.
_TARGETS: Final[dict[type, Callable[[Write], str]]] = {
    ThreadRecord: attrgetter("id"),
    CopyTurns: attrgetter("target_id"),
}


def _stale(thread_id: str, owner: str | None) -> StoreError:
    who = "another server" if owner is None else f"another server (process {process_of(owner)})"
    return StoreError(
        f"{who} has taken over thread {thread_id}, and nothing more is written to it from here: resume the thread to "
        "go on from where it is now",
        "stale",
    )


def apply(connection: sqlite3.Connection, writes: Iterable[Write], owner: str) -> None:
    """Make writes that were checked. Whatever is raised, the transaction has to be rolled back."""
    for run in merged(writes):
        act = _ACTS.get(type(run[0]))
        if act is not None:
            for write in run:
                act(connection, write)
            continue
        try:
            _put(connection, run, owner)
        except sqlite3.IntegrityError as error:
            raise _refusal(connection, run, error) from None


def no_thread(thread_id: str) -> StoreError:
    return StoreError(f"there is no thread {thread_id}: it was deleted or never stored", "missing")


# --- records ---------------------------------------------------------------------------------------------------------


_THREADS: Final = Insert("threads", fields(ThreadRecord), ("id",), kept=("owner",))
_EVENTS: Final = Insert("events", EventRow._fields)
_RECORDS: Final[dict[type, Insert]] = {
    TurnRecord: Insert("turns", fields(TurnRecord), ("thread_id", "number")),
    ItemRecord: Insert("items", fields(ItemRecord), ("thread_id", "number")),
    HistoryRecord: Insert("history", fields(HistoryRecord)),
    Compaction: Insert("compactions", fields(Compaction), ("thread_id", "turn")),
    QueuedRecord: Insert("queue", fields(QueuedRecord), ("thread_id", "id")),
}


def _put(connection: sqlite3.Connection, run: Sequence[Any], owner: str) -> None:
    kind = type(run[0])
    if kind is ThreadRecord:
        # Whoever makes a thread may go on writing it.
        _THREADS.write(connection, [(*astuple(write), owner) for write in run])
    elif kind is EventRecord:
        _EVENTS.write(connection, list(join(run)))
    else:
        _RECORDS[kind].write(connection, [astuple(write) for write in run])


def _refusal(connection: sqlite3.Connection, run: Sequence[Any], error: sqlite3.IntegrityError) -> Exception:
    """What is wrong with records that break a rule of their table."""
    if error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
        return _number_in_use(type(run[0]))
    if error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
        return no_thread(next(write.thread_id for write in run if not _exists(connection, write.thread_id)))
    return error


def _number_in_use(kind: type) -> StoreError:
    return StoreError(f"a {kind.__name__} has a number that is in use already, and these are never replaced")


def _exists(connection: sqlite3.Connection, thread_id: str) -> bool:
    return connection.execute("SELECT 1 FROM threads WHERE id = ?", (thread_id,)).fetchone() is not None


# --- acts ------------------------------------------------------------------------------------------------------------


def _drop_item(connection: sqlite3.Connection, write: DropItem) -> None:
    connection.execute("DELETE FROM items WHERE thread_id = ? AND number = ?", (write.thread_id, write.number))


def _drop_queued(connection: sqlite3.Connection, write: DropQueued) -> None:
    connection.execute("DELETE FROM queue WHERE thread_id = ? AND id = ?", (write.thread_id, write.id))


def _cut_turns(connection: sqlite3.Connection, write: CutTurns) -> None:
    place = (write.thread_id, write.turn)
    connection.execute("DELETE FROM turns WHERE thread_id = ? AND number >= ?", place)
    for table in ("items", "history", "compactions"):
        connection.execute(f"DELETE FROM {table} WHERE thread_id = ? AND turn >= ?", place)


def _copy_turns(connection: sqlite3.Connection, write: CopyTurns) -> None:
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


def _prune_events(connection: sqlite3.Connection, write: PruneEvents) -> None:
    place = {"thread": write.thread_id, "seq": write.seq}
    # A row that is only partly pruned stays: who reads it leaves out what is.
    connection.execute(
        "UPDATE threads SET pruned_seq = max(pruned_seq, min(:seq, coalesce("
        "(SELECT max(last_seq) FROM events WHERE thread_id = :thread), 0))) WHERE id = :thread",
        place,
    )
    connection.execute("DELETE FROM events WHERE thread_id = :thread AND last_seq <= :seq", place)


def _delete_thread(connection: sqlite3.Connection, write: DeleteThread) -> None:
    connection.execute("DELETE FROM threads WHERE id = ?", (write.thread_id,))


def _release(connection: sqlite3.Connection, write: Release) -> None:
    connection.execute("UPDATE threads SET held = 0 WHERE id = ?", (write.thread_id,))


_ACTS: Final[dict[type, _Apply]] = {
    DropItem: _drop_item,
    DropQueued: _drop_queued,
    CutTurns: _cut_turns,
    CopyTurns: _copy_turns,
    PruneEvents: _prune_events,
    DeleteThread: _delete_thread,
    Release: _release,
}


# --- claims ----------------------------------------------------------------------------------------------------------


def claim(connection: sqlite3.Connection, thread_id: str, known_fence: int, owner: str, holding: Living) -> Claim:
    """`Store.claim`, in the transaction that makes it exclusive."""
    row = connection.execute("SELECT owner, held, fence FROM threads WHERE id = ?", (thread_id,)).fetchone()
    if row is None:
        raise no_thread(thread_id)
    last_owner, held, fence = row
    ours = last_owner == owner
    if held and not ours:
        pid = holding(last_owner)
        if pid is not None:
            raise StoreError(
                f"another server (process {pid}) is working on thread {thread_id}: end that one, or use it instead",
                "claimed",
            )
    connection.execute("UPDATE threads SET owner = ?, held = 1, fence = ? WHERE id = ?", (owner, fence + 1, thread_id))
    if not (held and ours):
        connection.execute(
            "UPDATE turns INDEXED BY turns_in_progress SET status = 'interrupted' "
            "WHERE thread_id = ? AND status = 'inProgress'",
            (thread_id,),
        )
    # An equal fence is not enough: who read it while another store held the thread has not seen what that one wrote.
    return Claim(fence + 1, None if fence == known_fence and ours else load(connection, thread_id))
