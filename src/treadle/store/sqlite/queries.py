"""Reading the tables: a function per question of `Store`; rows become records here.

It owns the SQL of reading. Pages are ranges of a key, so that the first and the last page of a long thread cost the
same. It relies on items being numbered in the order of their turns.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any, Final

import msgspec

from treadle.store.contract import (
    Compaction,
    Counters,
    EventPage,
    HistoryRecord,
    ItemRecord,
    Loaded,
    MessageText,
    QueuedRecord,
    SearchHit,
    ThreadPage,
    ThreadQuery,
    TurnRecord,
    UnusedThread,
)
from treadle.store.rows import (
    ITEM_COLUMNS,
    THREAD_COLUMNS,
    TURN_COLUMNS,
    clean,
    item_record,
    like_letter,
    sound,
    split,
    thread_record,
    turn_record,
)
from treadle.store.sqlite.owners import Living

_LAST: Final = 2**63 - 1
# Long enough to recognise the place, short enough for a list.
_SNIPPET_TOKENS: Final = 16


@contextmanager
def _snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Several statements that see the same state, also where the caller has a transaction already."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


def _range(after: int | None, descending: bool) -> tuple[int, int]:
    """The first and the last number that can be on a page."""
    if after is None:
        return 0, _LAST
    return (0, after - 1) if descending else (after + 1, _LAST)


def _limit(limit: int | None) -> int:
    return -1 if limit is None else max(limit, 0)


def _order(descending: bool) -> str:
    return "DESC" if descending else "ASC"


# --- one thread ------------------------------------------------------------------------------------------------------

_LOAD: Final = f"""
SELECT fence,
    max(pruned_seq, coalesce((SELECT max(last_seq) FROM events WHERE thread_id = threads.id), 0)),
    coalesce((SELECT max(number) FROM turns WHERE thread_id = threads.id), 0),
    coalesce((SELECT max(number) FROM items WHERE thread_id = threads.id), 0),
    coalesce((SELECT max(number) FROM history WHERE thread_id = threads.id), 0),
    EXISTS (SELECT 1 FROM queue WHERE thread_id = threads.id),
    {THREAD_COLUMNS}
FROM threads WHERE id = ?
"""


def load(connection: sqlite3.Connection, thread_id: str) -> Loaded | None:
    row = connection.execute(_LOAD, (thread_id,)).fetchone()
    if row is None:
        return None
    return Loaded(thread_record(row[6:]), Counters(*row[1:5]), row[0], row[5] == 1)


def epoch_of(connection: sqlite3.Connection) -> str:
    (found,) = connection.execute("SELECT id FROM epoch").fetchone()
    return str(found)


def owner_of(connection: sqlite3.Connection, thread_id: str) -> str | None:
    """The id of the store that holds a thread."""
    row = connection.execute("SELECT owner FROM threads WHERE id = ? AND held = 1", (thread_id,)).fetchone()
    return None if row is None else str(row[0])


def history(connection: sqlite3.Connection, thread_id: str) -> list[HistoryRecord]:
    rows = connection.execute(
        "SELECT thread_id, number, turn, data FROM history WHERE thread_id = :thread AND number >= coalesce("
        "(SELECT start FROM compactions WHERE thread_id = :thread ORDER BY turn DESC LIMIT 1), 0) ORDER BY number",
        {"thread": thread_id},
    )
    return [HistoryRecord(row[0], row[1], row[2], sound(row[3], "the model's history", row[0])) for row in rows]


def whole_history(connection: sqlite3.Connection, thread_id: str, after: int, limit: int) -> list[HistoryRecord]:
    rows = connection.execute(
        "SELECT thread_id, number, turn, data FROM history WHERE thread_id = ? AND number > ? ORDER BY number LIMIT ?",
        (thread_id, after, _limit(limit)),
    )
    return [HistoryRecord(row[0], row[1], row[2], sound(row[3], "the model's history", row[0])) for row in rows]


def compactions(connection: sqlite3.Connection, thread_id: str) -> list[Compaction]:
    rows = connection.execute(
        "SELECT thread_id, turn, start FROM compactions WHERE thread_id = ? ORDER BY turn", (thread_id,)
    )
    return [Compaction(*row) for row in rows]


def thread_ids(connection: sqlite3.Connection, after: str, limit: int) -> list[str]:
    rows = connection.execute("SELECT id FROM threads WHERE id > ? ORDER BY id LIMIT ?", (after, _limit(limit)))
    return [row[0] for row in rows]


def queue(connection: sqlite3.Connection, thread_id: str) -> list[QueuedRecord]:
    rows = connection.execute(
        "SELECT thread_id, id, position, data FROM queue WHERE thread_id = ? ORDER BY position, id", (thread_id,)
    )
    return [QueuedRecord(row[0], row[1], row[2], sound(row[3], "the queue", row[0])) for row in rows]


# Still one range of the key: the numbers that the turns begin and end with narrow it.
_ITEMS_OF_TURNS: Final = """
turn BETWEEN :first AND :last AND number BETWEEN
    max(:low, (SELECT number FROM items WHERE thread_id = :thread AND turn >= :first ORDER BY turn, number LIMIT 1)) AND
    min(:high,
        (SELECT number FROM items WHERE thread_id = :thread AND turn <= :last ORDER BY turn DESC, number DESC LIMIT 1))
"""


def items(
    connection: sqlite3.Connection,
    thread_id: str,
    turns: tuple[int, int] | None,
    after: int | None,
    limit: int | None,
    descending: bool,
) -> list[ItemRecord]:
    low, high = _range(after, descending)
    first, last = turns or (0, 0)
    place = {"thread": thread_id, "low": low, "high": high, "first": first, "last": last, "limit": _limit(limit)}
    span = "number BETWEEN :low AND :high" if turns is None else _ITEMS_OF_TURNS
    rows = connection.execute(
        f"SELECT {ITEM_COLUMNS} FROM items INDEXED BY sqlite_autoindex_items_1 WHERE thread_id = :thread AND {span} "
        f"ORDER BY number {_order(descending)} LIMIT :limit",
        place,
    )
    return [item_record(row) for row in rows]


def item(connection: sqlite3.Connection, thread_id: str, item_id: str) -> ItemRecord | None:
    # Left to itself, SQLite walks through all the items, because they are in the right order.
    row = connection.execute(
        f"SELECT {ITEM_COLUMNS} FROM items INDEXED BY items_by_id "
        "WHERE thread_id = ? AND id = ? ORDER BY number LIMIT 1",
        (thread_id, item_id),
    ).fetchone()
    return None if row is None else item_record(row)


_EVENT_NUMBERS: Final = """
SELECT pruned_seq,
    coalesce(
        (SELECT max(first_seq, pruned_seq + 1) FROM events WHERE thread_id = threads.id ORDER BY last_seq LIMIT 1), 0),
    coalesce((SELECT max(last_seq) FROM events WHERE thread_id = threads.id), 0)
FROM threads WHERE id = ?
"""


def events(connection: sqlite3.Connection, thread_id: str, after_seq: int, limit: int, epoch: str = "") -> EventPage:
    with _snapshot(connection):
        numbers = connection.execute(_EVENT_NUMBERS, (thread_id,)).fetchone()
        pruned, first, last = numbers or (0, 0, 0)
        after_seq = max(after_seq, pruned)
        rows = connection.execute(
            "SELECT thread_id, first_seq, last_seq, frames FROM events WHERE thread_id = ? AND last_seq > ? "
            "ORDER BY last_seq LIMIT ?",
            (thread_id, after_seq, _limit(limit)),
        )
        # Not all at once: how many rows are enough is seen from what is in them.
        with closing(rows):
            after = (event for row in rows for event in split(*row) if event.seq > after_seq)
            found = list(islice(after, max(limit, 0)))
    for event in found:
        sound(event.frame, f"event {event.seq}", thread_id)
    return EventPage(found, first, last, epoch)


# --- turns -----------------------------------------------------------------------------------------------------------


def turns(
    connection: sqlite3.Connection,
    owner: str,
    living: Living,
    thread_id: str,
    after: int | None,
    limit: int | None,
    descending: bool,
) -> list[TurnRecord]:
    query = (
        f"SELECT {TURN_COLUMNS} FROM turns WHERE thread_id = ? AND number BETWEEN ? AND ? "
        f"ORDER BY number {_order(descending)} LIMIT ?"
    )
    place = (thread_id, *_range(after, descending), _limit(limit))
    return _turns(connection, owner, living, query, place)


def turn(connection: sqlite3.Connection, owner: str, living: Living, thread_id: str, turn_id: str) -> TurnRecord | None:
    # Left to itself, SQLite walks back through all the turns, because they are in the right order.
    query = (
        f"SELECT {TURN_COLUMNS} FROM turns INDEXED BY turns_by_id "
        "WHERE thread_id = ? AND id = ? ORDER BY number DESC LIMIT 1"
    )
    found = _turns(connection, owner, living, query, (thread_id, turn_id))
    return found[0] if found else None


def _turns(
    connection: sqlite3.Connection, owner: str, living: Living, query: str, operands: tuple[Any, ...]
) -> list[TurnRecord]:
    """Turns as they are, but `interrupted` where nobody is left to run them."""
    dead: str | None = None
    while True:
        with _snapshot(connection):
            rows = connection.execute(query, operands).fetchall()
            records = [turn_record(row) for row in rows]
            if all(record.status != "inProgress" for record in records):
                return records
            holder = connection.execute(
                "SELECT owner FROM threads WHERE id = ? AND held = 1", (operands[0],)
            ).fetchone()
        if holder is None or holder[0] == dead:
            return [
                record if record.status != "inProgress" else msgspec.structs.replace(record, status="interrupted")
                for record in records
            ]
        if holder[0] == owner or living(holder[0]) is not None:
            return records
        # The holder is gone, but may have ended the turn between the reading and its own end: read again to be sure.
        dead = holder[0]


# --- lists and search ------------------------------------------------------------------------------------------------


def threads(connection: sqlite3.Connection, query: ThreadQuery) -> ThreadPage:
    if query.phrase is not None:
        return _threads_with_phrase(connection, query, query.phrase)
    conditions, operands = _conditions(query)
    order = _order(query.descending)
    rows = connection.execute(
        f"SELECT {THREAD_COLUMNS} FROM threads WHERE {' AND '.join(conditions)} "
        f"ORDER BY {query.sort_key} {order}, id {order} LIMIT ?",
        (*operands, _limit(query.limit) + 1),
    ).fetchall()
    return ThreadPage([thread_record(row) for row in rows[: query.limit]], len(rows) > query.limit)


# A thread, and all that work for it, down to the last. One whose parent is gone stands for itself.
_TREES: Final = """
WITH RECURSIVE tree (root, id) AS (
    SELECT id, id FROM threads AS one
    WHERE {roots} AND NOT EXISTS (SELECT 1 FROM threads WHERE id = one.parent_thread_id)
    UNION ALL SELECT tree.root, child.id FROM tree JOIN threads AS child ON child.parent_thread_id = tree.id
)
"""
_UNUSED: Final = f"""{_TREES.format(roots="recency_at < :before")}
SELECT root, coalesce(top.name, top.preview), max(max(each.recency_at, each.updated_at)) AS used_at, count(*) - 1
FROM tree JOIN threads AS each ON each.id = tree.id JOIN threads AS top ON top.id = root
GROUP BY root HAVING used_at < :before ORDER BY used_at, root
"""
_TREE: Final = f"""{_TREES.format(roots="id = :thread_id")}
SELECT threads.id, owner, held, max(recency_at, updated_at) FROM tree JOIN threads ON threads.id = tree.id
"""


def unused(connection: sqlite3.Connection, before: int) -> list[UnusedThread]:
    return [UnusedThread(*row) for row in connection.execute(_UNUSED, {"before": before})]


def tree(connection: sqlite3.Connection, thread_id: str) -> list[tuple[str, str | None, int, int]]:
    """A thread and all that work for it: the id, the last owner, whether it is held, and the last use of each."""
    return connection.execute(_TREE, {"thread_id": thread_id}).fetchall()


# Where fewer messages have the phrase than this, their threads are looked up; where more, the threads are gone through
# in the order of the list, which has most of its page soon.
_FEW_MESSAGES: Final = 1_000
# Of each thread the first message: keys grow.
_THREADS_OF_MESSAGES: Final = f"""
SELECT {THREAD_COLUMNS}, first FROM threads JOIN (
    SELECT items.thread_id, min(items.key) AS first FROM messages JOIN items ON items.key = messages.rowid
    WHERE messages MATCH ? GROUP BY items.thread_id
) AS hits ON hits.thread_id = threads.id
"""
# The keys of a thread are in the index with its numbers: no item is read.
_MESSAGES_OF_THREADS: Final = f"""
SELECT {THREAD_COLUMNS}, (
    SELECT key FROM items INDEXED BY sqlite_autoindex_items_1 WHERE thread_id = threads.id
    AND key IN (SELECT rowid FROM messages WHERE messages MATCH ?) ORDER BY number LIMIT 1
) AS first FROM threads
"""


def _threads_with_phrase(connection: sqlite3.Connection, query: ThreadQuery, phrase: str) -> ThreadPage:
    cleaned = clean(phrase).strip()
    if not cleaned:
        return ThreadPage([], False)
    # Words in their order, the last of which may be unfinished. One letter alone would begin almost every word.
    match = _quoted(cleaned) if len(cleaned) == 1 else f"{_quoted(cleaned)} *"
    conditions, operands = _conditions(query)
    order = _order(query.descending)
    with _snapshot(connection):
        many = connection.execute(
            "SELECT 1 FROM messages WHERE messages MATCH ? LIMIT 1 OFFSET ?", (match, _FEW_MESSAGES)
        ).fetchone()
        found = _THREADS_OF_MESSAGES if many is None else _MESSAGES_OF_THREADS
        # Not all at once: whether a thread has the phrase is seen when it is its turn.
        with closing(
            connection.execute(
                f"{found} WHERE {' AND '.join(conditions)} ORDER BY {query.sort_key} {order}, id {order}",
                (match, *operands),
            )
        ) as threads:
            rows = list(islice((row for row in threads if row[-1] is not None), max(query.limit, 0) + 1))
        page = rows[: query.limit]
        texts = [connection.execute("SELECT text FROM items WHERE key = ?", row[-1:]).fetchone()[0] for row in page]
    return ThreadPage([thread_record(row) for row in page], len(rows) > query.limit, texts)


def _conditions(query: ThreadQuery) -> tuple[list[str], list[Any]]:
    conditions = ["listed = 1", "archived = ?"]
    operands: list[Any] = [query.archived]
    if query.after is not None:
        conditions.append(f"({query.sort_key}, id) {'<' if query.descending else '>'} (?, ?)")
        operands += (query.after.time, query.after.id)
    for column, values in (
        ("cwd", query.cwds),
        ("model_provider", query.model_providers),
        ("source", query.sources),
        ("originator", query.originators),
    ):
        if values:
            conditions.append(f"{column} IN (SELECT value FROM json_each(?))")
            operands.append(_json(values))
    if query.parent is not None:
        conditions.append("parent_thread_id = ?")
        operands.append(query.parent)
    if query.excluded_ids:
        conditions.append("id NOT IN (SELECT value FROM json_each(?))")
        operands.append(_json(query.excluded_ids))
    if query.search:
        conditions.append("(instr(name, ?) > 0 OR instr(preview, ?) > 0)")
        operands += (query.search, query.search)
    if query.words is not None and query.words.strip():
        conditions.append(
            "id IN (SELECT thread_id FROM items WHERE key IN (SELECT rowid FROM messages WHERE messages MATCH ?))"
        )
        operands.append(_match(query.words))
    return conditions, operands


# By `bm25`, not by `rank`: that sorts all that was found, also where only a few are wanted.
_BEST: Final = """
SELECT rowid FROM messages WHERE messages MATCH ? AND rowid NOT IN (
    SELECT key FROM items INDEXED BY sqlite_autoindex_items_1
    WHERE thread_id IN (SELECT id FROM threads WHERE archived = 1)
) ORDER BY bm25(messages), rowid LIMIT ?
"""
_HIT: Final = f"""
SELECT items.thread_id, items.id, snippet(messages, 0, '[', ']', '…', {_SNIPPET_TOKENS})
FROM messages JOIN items ON items.key = messages.rowid WHERE messages MATCH ? AND messages.rowid = ?
"""


def search(connection: sqlite3.Connection, words: str, limit: int) -> list[SearchHit]:
    match = _match(words)
    if not match:
        return []
    with _snapshot(connection):
        keys = connection.execute(_BEST, (match, _limit(limit))).fetchall()
        rows = [connection.execute(_HIT, (match, *key)).fetchone() for key in keys]
    return [SearchHit(*row) for row in rows if row is not None]  # None where the index is damaged


def _match(words: str) -> str:
    """A query of FTS5 that means nothing but these words: each is a quoted string."""
    return " ".join(_quoted(word) for word in clean(words).split())


def _quoted(words: str) -> str:
    return '"' + words.replace('"', '""') + '"'


# The index in which items are in order. Left to itself, SQLite may sort them.
_IN_ORDER: Final = "FROM items INDEXED BY sqlite_autoindex_items_1"
_MESSAGES: Final = f"""
SELECT items.number, items.id, turns.number, turns.id, items.text {_IN_ORDER}
JOIN turns ON turns.thread_id = items.thread_id AND turns.number = items.turn
WHERE items.thread_id = ? AND items.number BETWEEN ? AND ? AND items.text LIKE ? ESCAPE '!' ORDER BY items.number
"""
# Line ends, because a letter at the end of a text is written as at the end of a line.
_BLOCK: Final = f"""
SELECT CAST(group_concat(text, char(10)) AS BLOB) FROM (
    SELECT text {_IN_ORDER} WHERE thread_id = ? AND number BETWEEN ? AND ? ORDER BY number
)
"""
# As many as a page may have: each may be a mebibyte.
_BLOCK_ITEMS: Final = 100
# A pattern may have 50,000 bytes. What is longer is found by its beginning first.
_LIKE_CHARS: Final = 1_000
# So many known letters in a row are in few messages.
_TELLING: Final = re.compile(r"[^_]{3}")
# The bytes of most letters with two cases, in UTF-8, differ in the last bit of the first and in one of the second. To
# look through a block without these takes half the time of writing it in lower case.
_FOLD: Final = (
    bytes(range(0x80)).lower()
    + bytes(byte & 0xDF for byte in range(0x80, 0xC0))
    + bytes(byte & 0xFE for byte in range(0xC0, 0xE0))
    + bytes(range(0xE0, 0x100))
)
# `i` and `k` are also the lower case of letters that have other bytes, and so are those left out between the others.
_FOLDED: Final = re.compile("[\0-hjl-\x7fà-äæ-öø-þα-ηι-ρτ-ψа-я]+")


def messages(connection: sqlite3.Connection, thread_id: str, part: str, first: int, limit: int) -> list[MessageText]:
    wanted = part.lower()
    letters = [like_letter(letter) for letter in clean(part)[:_LIKE_CHARS]]
    pattern = "".join(letters)
    if "_" in letters and not _TELLING.search(pattern):
        found = _messages_in_blocks(connection, thread_id, wanted, first)
    else:
        found = _messages_like(connection, thread_id, pattern, first)
    with _snapshot(connection), closing(found) as rows:
        return [MessageText(*row) for row in islice((row for row in rows if wanted in row[-1].lower()), limit)]


def _messages_like(
    connection: sqlite3.Connection, thread_id: str, pattern: str, first: int, last: int = _LAST
) -> Generator[tuple[Any, ...], None, None]:
    with closing(connection.execute(_MESSAGES, (thread_id, first, last, f"%{pattern}%"))) as rows:
        yield from rows


def _messages_in_blocks(
    connection: sqlite3.Connection, thread_id: str, wanted: str, first: int
) -> Generator[tuple[Any, ...], None, None]:
    """Messages of each block that has the part somewhere: to look at all one by one takes several times as long."""
    folded = wanted.encode().translate(_FOLD) if _FOLDED.fullmatch(wanted) else b""
    (last,) = connection.execute("SELECT max(number) FROM items WHERE thread_id = ?", (thread_id,)).fetchone()
    for low in range(first, (last or 0) + 1, _BLOCK_ITEMS):
        high = low + _BLOCK_ITEMS - 1
        (block,) = connection.execute(_BLOCK, (thread_id, low, high)).fetchone()
        if block and folded in block.translate(_FOLD) and wanted in block.decode("utf-8", "replace").lower():
            yield from _messages_like(connection, thread_id, "", low, high)


def _json(values: tuple[str, ...]) -> str:
    return msgspec.json.encode(values).decode()
