"""What can be asked of the tables; rows become records here.

It owns the SQL of reading. Pages are ranges of a key, so that the first and the last page of a long thread cost the
same. It relies on items being numbered in the order of their turns.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any, Final

import msgspec

from treadle.store.contract import (
    Counters,
    EventPage,
    EventRecord,
    HistoryRecord,
    ItemRecord,
    Loaded,
    MessageText,
    QueuedRecord,
    SearchHit,
    ThreadPage,
    ThreadQuery,
    ThreadRecord,
    TurnRecord,
)
from treadle.store.owners import Living
from treadle.store.sqlite.event_rows import split
from treadle.store.sqlite.failures import Unreadable

_LAST: Final = 2**63 - 1
_THREAD: Final = ", ".join(ThreadRecord.__struct_fields__)
_TURN: Final = ", ".join(TurnRecord.__struct_fields__)
_ITEM: Final = ", ".join(ItemRecord.__struct_fields__)
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
    {_THREAD}
FROM threads WHERE id = ?
"""


def load(connection: sqlite3.Connection, thread_id: str) -> Loaded | None:
    row = connection.execute(_LOAD, (thread_id,)).fetchone()
    if row is None:
        return None
    return Loaded(_thread(row[6:]), Counters(*row[1:5]), row[0], row[5] == 1)


def history(connection: sqlite3.Connection, thread_id: str) -> list[HistoryRecord]:
    rows = connection.execute(
        "SELECT thread_id, number, turn, data FROM history WHERE thread_id = :thread AND number >= coalesce("
        "(SELECT start FROM compactions WHERE thread_id = :thread ORDER BY turn DESC LIMIT 1), 0) ORDER BY number",
        {"thread": thread_id},
    )
    return [HistoryRecord(row[0], row[1], row[2], _sound(row[3], "the model's history", row[0])) for row in rows]


def queue(connection: sqlite3.Connection, thread_id: str) -> list[QueuedRecord]:
    rows = connection.execute(
        "SELECT thread_id, id, position, data FROM queue WHERE thread_id = ? ORDER BY position, id", (thread_id,)
    )
    return [QueuedRecord(row[0], row[1], row[2], _sound(row[3], "the queue", row[0])) for row in rows]


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
        f"SELECT {_ITEM} FROM items INDEXED BY sqlite_autoindex_items_1 WHERE thread_id = :thread AND {span} "
        f"ORDER BY number {_order(descending)} LIMIT :limit",
        place,
    )
    return [_item(row) for row in rows]


def item(connection: sqlite3.Connection, thread_id: str, item_id: str) -> ItemRecord | None:
    # Left to itself, SQLite walks through all the items, because they are in the right order.
    row = connection.execute(
        f"SELECT {_ITEM} FROM items INDEXED BY items_by_id WHERE thread_id = ? AND id = ? ORDER BY number LIMIT 1",
        (thread_id, item_id),
    ).fetchone()
    return None if row is None else _item(row)


_EVENT_NUMBERS: Final = """
SELECT pruned_seq,
    coalesce(
        (SELECT max(first_seq, pruned_seq + 1) FROM events WHERE thread_id = threads.id ORDER BY last_seq LIMIT 1), 0),
    coalesce((SELECT max(last_seq) FROM events WHERE thread_id = threads.id), 0)
FROM threads WHERE id = ?
"""


def events(connection: sqlite3.Connection, thread_id: str, after_seq: int, limit: int) -> EventPage:
    with _snapshot(connection):
        numbers = connection.execute(_EVENT_NUMBERS, (thread_id,)).fetchone()
        pruned, first, last = numbers or (0, 0, 0)
        found = _events_after(connection, thread_id, max(after_seq, pruned), limit)
    for event in found:
        _sound(event.frame, f"event {event.seq}", thread_id)
    return EventPage(found, first, last)


def _events_after(connection: sqlite3.Connection, thread_id: str, after_seq: int, limit: int) -> list[EventRecord]:
    found: list[EventRecord] = []
    # Not all at once: how many rows are enough is seen from what is in them.
    with closing(
        connection.execute(
            "SELECT thread_id, first_seq, last_seq, frames FROM events WHERE thread_id = ? AND last_seq > ? "
            "ORDER BY last_seq LIMIT ?",
            (thread_id, after_seq, _limit(limit)),
        )
    ) as rows:
        for row in rows:
            found += (event for event in split(*row) if event.seq > after_seq)
            if len(found) >= limit:
                break
    return found[:limit]


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
        f"SELECT {_TURN} FROM turns WHERE thread_id = ? AND number BETWEEN ? AND ? "
        f"ORDER BY number {_order(descending)} LIMIT ?"
    )
    place = (thread_id, *_range(after, descending), _limit(limit))
    return _turns(connection, owner, living, query, place)


def turn(connection: sqlite3.Connection, owner: str, living: Living, thread_id: str, turn_id: str) -> TurnRecord | None:
    # Left to itself, SQLite walks back through all the turns, because they are in the right order.
    query = (
        f"SELECT {_TURN} FROM turns INDEXED BY turns_by_id WHERE thread_id = ? AND id = ? ORDER BY number DESC LIMIT 1"
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
            records = [_turn(row) for row in rows]
            if all(record.status != "inProgress" for record in records):
                return records
            holder = connection.execute(
                "SELECT owner FROM threads WHERE id = ? AND held = 1", (operands[0],)
            ).fetchone()
        if holder is None or holder[0] == dead:
            return [_interrupted(record) for record in records]
        if holder[0] == owner or living(holder[0]) is not None:
            return records
        # It is gone now, but may have ended the turn between the reading and its own end: read again to be sure.
        dead = holder[0]


def _interrupted(record: TurnRecord) -> TurnRecord:
    if record.status != "inProgress":
        return record
    return msgspec.structs.replace(record, status="interrupted")


# --- lists and search ------------------------------------------------------------------------------------------------


def threads(connection: sqlite3.Connection, query: ThreadQuery) -> ThreadPage:
    if query.phrase is not None:
        return _threads_with(connection, query, query.phrase)
    conditions, operands = _conditions(query)
    order = _order(query.descending)
    rows = connection.execute(
        f"SELECT {_THREAD} FROM threads WHERE {' AND '.join(conditions)} "
        f"ORDER BY {query.sort_key} {order}, id {order} LIMIT ?",
        (*operands, _limit(query.limit) + 1),
    ).fetchall()
    return ThreadPage([_thread(row) for row in rows[: query.limit]], len(rows) > query.limit)


# Of each thread the first message: keys grow.
_WITH_PHRASE: Final = f"""
SELECT {_THREAD}, (SELECT text FROM items WHERE items.key = hits.key) FROM threads JOIN (
    SELECT items.thread_id, min(items.key) AS key FROM messages JOIN items ON items.key = messages.rowid
    WHERE messages MATCH ? GROUP BY items.thread_id
) AS hits ON hits.thread_id = threads.id
"""


def _threads_with(connection: sqlite3.Connection, query: ThreadQuery, phrase: str) -> ThreadPage:
    match = _match_phrase(phrase)
    if not match:
        return ThreadPage([], False)
    conditions, operands = _conditions(query)
    order = _order(query.descending)
    rows = connection.execute(
        f"{_WITH_PHRASE} WHERE {' AND '.join(conditions)} ORDER BY {query.sort_key} {order}, id {order} LIMIT ?",
        (match, *operands, _limit(query.limit) + 1),
    ).fetchall()
    page = rows[: query.limit]
    return ThreadPage([_thread(row) for row in page], len(rows) > query.limit, [row[-1] for row in page])


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


def search(connection: sqlite3.Connection, words: str, limit: int) -> list[SearchHit]:
    match = _match(words)
    if not match:
        return []
    rows = connection.execute(
        f"SELECT items.thread_id, items.id, snippet(messages, 0, '[', ']', '…', {_SNIPPET_TOKENS}) "
        "FROM messages JOIN items ON items.key = messages.rowid JOIN threads ON threads.id = items.thread_id "
        "WHERE messages MATCH ? AND threads.archived = 0 ORDER BY messages.rank LIMIT ?",
        (match, _limit(limit)),
    )
    return [SearchHit(*row) for row in rows]


def _match(words: str) -> str:
    """A query of FTS5 that means nothing but these words: each is a quoted string."""
    return " ".join(_quoted(word) for word in _clean(words).split())


def _match_phrase(phrase: str) -> str:
    """The same for words in their order. One letter alone would mean almost every word."""
    cleaned = _clean(phrase).strip()
    if not cleaned:
        return ""
    return _quoted(cleaned) if len(cleaned) == 1 else f"{_quoted(cleaned)} *"


def _quoted(words: str) -> str:
    return '"' + words.replace('"', '""') + '"'


def _clean(text: str) -> str:
    """What SQLite can be given: a NUL would end it, and half a character is none."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


# A pattern may have 50,000 bytes. What is longer is found by its beginning first.
_LIKE_CHARS: Final = 1_000
# The index in which items are in order. Left to itself, SQLite may sort them.
_MESSAGES: Final = """
SELECT items.number, items.id, turns.number, turns.id, items.text
FROM items INDEXED BY sqlite_autoindex_items_1
JOIN turns ON turns.thread_id = items.thread_id AND turns.number = items.turn
WHERE items.thread_id = ? AND items.number >= ? AND items.text LIKE ? ESCAPE '!' ORDER BY items.number
"""


def messages(connection: sqlite3.Connection, thread_id: str, part: str, first: int, limit: int) -> list[MessageText]:
    wanted = part.lower()
    with closing(connection.execute(_MESSAGES, (thread_id, first, f"%{_like(_clean(part))}%"))) as rows:
        return [MessageText(*row) for row in islice((row for row in rows if wanted in row[-1].lower()), limit)]


def _like(part: str) -> str:
    """A pattern that finds this part in whatever case, and sometimes more: SQLite knows the cases of ASCII alone."""
    letters = [_like_letter(letter) for letter in part[:_LIKE_CHARS]]
    known = [index for index, letter in enumerate(letters) if letter != "_"]
    # Any letter at the ends is found anywhere, which takes time and says nothing.
    return "".join(letters[known[0] : known[-1] + 1]) if known else ""


def _like_letter(letter: str) -> str:
    if letter.isascii():
        return f"!{letter}" if letter in "%_!" else letter
    return "_" if letter.lower() != letter.upper() else letter


def _json(values: tuple[str, ...]) -> str:
    return msgspec.json.encode(values).decode()


_json_only: Final = msgspec.json.Decoder(msgspec.Raw).decode


def _sound(data: Any, what: str, thread_id: str) -> bytes:
    """JSON that was written as such: it goes out as it is, and would break the whole message that it is in."""
    try:
        if isinstance(data, bytes):
            data.decode()
            _json_only(data)
            return data
    except (UnicodeDecodeError, msgspec.DecodeError):
        pass
    raise Unreadable(f"{what} of thread {thread_id} cannot be read")


# --- rows ------------------------------------------------------------------------------------------------------------


def _thread(row: tuple[Any, ...]) -> ThreadRecord:
    return ThreadRecord(
        id=row[0],
        created_at=row[1],
        updated_at=row[2],
        recency_at=row[3],
        cwd=row[4],
        model=row[5],
        model_provider=row[6],
        source=row[7],
        state=row[8],
        originator=row[9],
        name=row[10],
        preview=row[11],
        forked_from_id=row[12],
        archived=row[13] == 1,
        listed=row[14] == 1,
    )


def _turn(row: tuple[Any, ...]) -> TurnRecord:
    return TurnRecord(
        thread_id=row[0],
        number=row[1],
        id=row[2],
        status=row[3],
        started_at=row[4],
        completed_at=row[5],
        duration_ms=row[6],
        error=None if row[7] is None else _sound(row[7], f"turn {row[1]}", row[0]),
        usage=None if row[8] is None else _sound(row[8], f"turn {row[1]}", row[0]),
    )


def _item(row: tuple[Any, ...]) -> ItemRecord:
    return ItemRecord(
        thread_id=row[0],
        number=row[1],
        turn=row[2],
        id=row[3],
        type=row[4],
        data=_sound(row[5], f"item {row[1]}", row[0]),
        text=row[6],
        open=row[7] == 1,
        started_at_ms=row[8],
        completed_at_ms=row[9],
    )
