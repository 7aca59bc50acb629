"""Reading: a function per question of `Store`, each one statement, so that what it answers is of one moment."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from treadle.store.contract import (
    Compaction,
    Counters,
    EventPage,
    EventRecord,
    HistoryRecord,
    ItemRecord,
    Loaded,
    MessageText,
    QueuedRecord,
    SearchHit,
    StoreServer,
    ThreadPage,
    ThreadQuery,
    TurnRecord,
    UnusedThread,
)
from treadle.store.postgres.message_words import all_words, phrase, snippet
from treadle.store.rows import (
    ITEM_COLUMNS,
    THREAD_COLUMNS,
    TURN_COLUMNS,
    clean,
    item_record,
    like_letter,
    sound,
    split,
    text_in,
    text_out,
    thread_record,
    turn_record,
)

_LAST: Final = 2**63 - 1
# What a page of events may hold in memory before it is cut to what was asked for: a row has up to 256.
_EVENT_ROWS: Final = 1_000


def _range(after: int | None, descending: bool) -> tuple[int, int]:
    """The first and the last number that can be on a page."""
    if after is None:
        return 0, _LAST
    return (0, after - 1) if descending else (after + 1, _LAST)


def _limit(limit: int | None) -> int | None:
    return None if limit is None else max(limit, 0)


def _order(descending: bool) -> str:
    return "DESC" if descending else "ASC"


# --- one thread ------------------------------------------------------------------------------------------------------

_LOAD: Final = f"""
SELECT fence,
    greatest(pruned_seq, (SELECT max(last_seq) FROM events WHERE thread_id = threads.id), 0),
    coalesce((SELECT max(number) FROM turns WHERE thread_id = threads.id), 0),
    coalesce((SELECT max(number) FROM items WHERE thread_id = threads.id), 0),
    coalesce((SELECT max(number) FROM history WHERE thread_id = threads.id), 0),
    EXISTS (SELECT 1 FROM queue WHERE thread_id = threads.id),
    {THREAD_COLUMNS}
FROM threads WHERE id = $1
"""


async def load(connection: Any, thread_id: str) -> Loaded | None:
    row = await connection.fetchrow(_LOAD, thread_id)
    return None if row is None else Loaded(_thread(row[6:]), Counters(*row[1:5]), row[0], row[5])


def _thread(row: Any) -> Any:
    record = thread_record(row)
    return msgspec.structs.replace(record, name=text_out(record.name), preview=text_out(record.preview))


_HISTORY: Final = """
SELECT thread_id, number, turn, data FROM history WHERE thread_id = $1 AND number >= coalesce(
    (SELECT start FROM compactions WHERE thread_id = $1 ORDER BY turn DESC LIMIT 1), 0) ORDER BY number
"""


async def history(connection: Any, thread_id: str) -> list[HistoryRecord]:
    rows = await connection.fetch(_HISTORY, thread_id)
    return [HistoryRecord(row[0], row[1], row[2], sound(row[3], "the model's history", row[0])) for row in rows]


async def whole_history(connection: Any, thread_id: str, after: int, limit: int) -> list[HistoryRecord]:
    rows = await connection.fetch(
        "SELECT thread_id, number, turn, data FROM history WHERE thread_id = $1 AND number > $2 "
        "ORDER BY number LIMIT $3",
        *(thread_id, after, _limit(limit)),
    )
    return [HistoryRecord(row[0], row[1], row[2], sound(row[3], "the model's history", row[0])) for row in rows]


async def compactions(connection: Any, thread_id: str) -> list[Compaction]:
    rows = await connection.fetch(
        "SELECT thread_id, turn, start FROM compactions WHERE thread_id = $1 ORDER BY turn", thread_id
    )
    return [Compaction(*row) for row in rows]


async def thread_ids(connection: Any, after: str, limit: int) -> list[str]:
    rows = await connection.fetch("SELECT id FROM threads WHERE id > $1 ORDER BY id LIMIT $2", after, _limit(limit))
    return [row[0] for row in rows]


async def queue(connection: Any, thread_id: str) -> list[QueuedRecord]:
    rows = await connection.fetch(
        "SELECT thread_id, id, position, data FROM queue WHERE thread_id = $1 ORDER BY position, id", thread_id
    )
    return [QueuedRecord(row[0], row[1], row[2], sound(row[3], "the queue", row[0])) for row in rows]


async def items(
    connection: Any,
    thread_id: str,
    turns: tuple[int, int] | None,
    after: int | None,
    limit: int | None,
    descending: bool,
) -> list[ItemRecord]:
    first, last = turns or (0, _LAST)
    rows = await connection.fetch(
        f"SELECT {ITEM_COLUMNS} FROM items WHERE thread_id = $1 AND turn BETWEEN $2 AND $3 "
        f"AND number BETWEEN $4 AND $5 ORDER BY number {_order(descending)} LIMIT $6",
        *(thread_id, first, last, *_range(after, descending), _limit(limit)),
    )
    return [_item(row) for row in rows]


async def item(connection: Any, thread_id: str, item_id: str) -> ItemRecord | None:
    row = await connection.fetchrow(
        f"SELECT {ITEM_COLUMNS} FROM items WHERE thread_id = $1 AND id = $2 ORDER BY number LIMIT 1", thread_id, item_id
    )
    return None if row is None else _item(row)


def _item(row: Any) -> ItemRecord:
    record = item_record(row)
    return record if record.text is None else msgspec.structs.replace(record, text=text_out(record.text))


_EVENTS: Final = """
SELECT pruned_seq,
    coalesce((SELECT greatest(first_seq, pruned_seq + 1) FROM events e WHERE e.thread_id = threads.id
        ORDER BY last_seq LIMIT 1), 0),
    coalesce((SELECT max(last_seq) FROM events e WHERE e.thread_id = threads.id), 0),
    current_epoch(), page.first_seq, page.last_seq, page.frames
FROM threads LEFT JOIN LATERAL (
    SELECT first_seq, last_seq, frames FROM events e WHERE e.thread_id = threads.id
    AND last_seq > greatest($2, pruned_seq) ORDER BY last_seq LIMIT $3
) page ON true WHERE id = $1 ORDER BY page.last_seq
"""


async def events(connection: Any, thread_id: str, after_seq: int, limit: int, epoch: str) -> EventPage:
    # Most rows have a few events, and some have many: a page of these is asked for in parts.
    found: list[EventRecord] = []
    first, last, wanted = 0, 0, max(limit, 0)
    at = after_seq
    while True:
        rows = await connection.fetch(_EVENTS, thread_id, at, min(wanted - len(found), _EVENT_ROWS) // 4 + 1)
        if rows:
            pruned, first, last, epoch = rows[0][:4]
            at = max(at, pruned)
        got = [event for row in rows if row[4] is not None for event in split(thread_id, row[4], row[5], row[6])]
        found += [event for event in got if event.seq > at]
        if not got or len(found) >= wanted:
            break
        at = got[-1].seq
    for event in found[:wanted]:
        sound(event.frame, f"event {event.seq}", thread_id)
    return EventPage(found[:wanted], first, last, epoch)


# --- turns -----------------------------------------------------------------------------------------------------------

# A turn as it is, and whether nobody is left to run it.
_TURN: Final = f"""
SELECT {TURN_COLUMNS}, status = 'inProgress' AND NOT EXISTS (
    SELECT 1 FROM threads WHERE threads.id = turns.thread_id AND held AND (owner = $2 OR is_alive(owner))
) FROM turns WHERE thread_id = $1
"""


async def turns(
    connection: Any, owner: str, thread_id: str, after: int | None, limit: int | None, descending: bool
) -> list[TurnRecord]:
    query = f"{_TURN} AND number BETWEEN $3 AND $4 ORDER BY number {_order(descending)} LIMIT $5"
    return await _turns(connection, query, thread_id, owner, *_range(after, descending), _limit(limit))


async def turn(connection: Any, owner: str, thread_id: str, turn_id: str) -> TurnRecord | None:
    found = await _turns(connection, f"{_TURN} AND id = $3 ORDER BY number DESC LIMIT 1", thread_id, owner, turn_id)
    return found[0] if found else None


async def _turns(connection: Any, query: str, *operands: object) -> list[TurnRecord]:
    rows = await connection.fetch(query, *operands)
    if any(row[-1] for row in rows):
        # Locks are seen as they are now, and rows as they were when the statement began: who is gone by now may have
        # ended the turn in between.
        rows = await connection.fetch(query, *operands)
    records = [turn_record(row) for row in rows]
    return [
        msgspec.structs.replace(record, status="interrupted") if row[-1] else record
        for row, record in zip(rows, records, strict=True)
    ]


# --- lists and search ------------------------------------------------------------------------------------------------


class _Operands(list[object]):
    def put(self, value: object) -> str:
        self.append(value)
        return f"${len(self)}"


def _conditions(query: ThreadQuery, put: _Operands) -> str:
    conditions = ["listed", f"archived = {put.put(query.archived)}"]
    if query.after is not None:
        than = "<" if query.descending else ">"
        place = f"({put.put(query.after.time)}, {put.put(query.after.id)})"
        conditions.append(f"({query.sort_key}, id) {than} {place}")
    for column, values in (
        ("cwd", query.cwds),
        ("model_provider", query.model_providers),
        ("source", query.sources),
        ("originator", query.originators),
    ):
        if values:
            conditions.append(f"{column} = ANY ({put.put(values)}::text[])")
    if query.parent is not None:
        conditions.append(f"parent_thread_id = {put.put(query.parent)}")
    if query.excluded_ids:
        conditions.append(f"id <> ALL ({put.put(query.excluded_ids)}::text[])")
    if query.search:
        part = f"{put.put(text_in(clean(query.search)))}::text"
        conditions.append(f"(position({part} in name) > 0 OR position({part} in preview) > 0)")
    if query.words is not None and query.words.strip():
        conditions.append(f"id IN ({_WITH_WORDS.format(put.put(all_words(clean(query.words))))})")
    return " AND ".join(conditions)


_WITH_WORDS: Final = "SELECT thread_id FROM items WHERE words @@ {}::text::tsquery"


async def threads(connection: Any, query: ThreadQuery) -> ThreadPage:
    operands, order = _Operands(), _order(query.descending)
    conditions, column = _conditions(query, operands), "NULL"
    if query.phrase is not None:
        wanted = phrase(clean(query.phrase))
        if not wanted:
            return ThreadPage([], False)
        words = operands.put(wanted)
        conditions += f" AND id IN ({_WITH_WORDS.format(words)})"
        # Of each thread the first message that has it.
        column = (
            f"(SELECT text FROM items WHERE thread_id = page.id AND words @@ {words}::text::tsquery "
            "ORDER BY number LIMIT 1)"
        )
    limit = operands.put(max(query.limit, 0) + 1)
    rows = await connection.fetch(
        f"SELECT {THREAD_COLUMNS}, {column} FROM (SELECT * FROM threads WHERE {conditions} "
        f"ORDER BY {query.sort_key} {order}, id {order} LIMIT {limit}) page "
        f"ORDER BY {query.sort_key} {order}, id {order}",
        *operands,
    )
    page = rows[: max(query.limit, 0)]
    texts = [text_out(row[-1]) or "" for row in page] if query.phrase is not None else []
    return ThreadPage([_thread(row[:-1]) for row in page], len(rows) > len(page), texts)


_UNUSED: Final = """
WITH RECURSIVE tree (root, id) AS (
    SELECT id, id FROM threads one WHERE recency_at < $1
        AND NOT EXISTS (SELECT 1 FROM threads WHERE threads.id = one.parent_thread_id)
    UNION ALL SELECT tree.root, child.id FROM tree JOIN threads child ON child.parent_thread_id = tree.id
)
SELECT root, coalesce(top.name, top.preview), max(greatest(each.recency_at, each.updated_at)) AS used_at, count(*) - 1
FROM tree JOIN threads each ON each.id = tree.id JOIN threads top ON top.id = root
GROUP BY root, top.name, top.preview HAVING max(greatest(each.recency_at, each.updated_at)) < $1 ORDER BY used_at, root
"""


async def unused(connection: Any, before: int) -> list[UnusedThread]:
    rows = await connection.fetch(_UNUSED, before)
    return [UnusedThread(row[0], text_out(row[1]) or "", row[2], row[3]) for row in rows]


_SEARCH: Final = """
SELECT thread_id, items.id, text FROM items JOIN threads ON threads.id = thread_id
WHERE words @@ $1::text::tsquery AND NOT archived
ORDER BY ts_rank(words, $1::text::tsquery, 2) DESC, thread_id, number LIMIT $2
"""


async def search(connection: Any, words: str, limit: int) -> list[SearchHit]:
    words = clean(words)
    query = all_words(words)
    if not query:
        return []
    rows = await connection.fetch(_SEARCH, query, max(limit, 0))
    return [SearchHit(row[0], row[1], snippet(text_out(row[2]) or "", words)) for row in rows]


_MESSAGES: Final = """
SELECT items.number, items.id, turns.number, turns.id, items.text FROM items
JOIN turns ON turns.thread_id = items.thread_id AND turns.number = items.turn
WHERE items.thread_id = $1 AND items.number >= $2 AND items.text ILIKE $3 ESCAPE '!' ORDER BY items.number LIMIT $4
"""
_MESSAGES_AT_A_TIME: Final = 200


async def messages(connection: Any, thread_id: str, part: str, first: int, limit: int) -> list[MessageText]:
    # The database knows the cases of ASCII alone, so it finds too many: each is looked at again here.
    wanted, pattern = part.lower(), "".join(map(like_letter, clean(part)))
    found: list[MessageText] = []
    while len(found) < limit:
        rows = await connection.fetch(_MESSAGES, thread_id, first, f"%{pattern}%", _MESSAGES_AT_A_TIME)
        each = [MessageText(row[0], row[1], row[2], row[3], text_out(row[4]) or "") for row in rows]
        found += [message for message in each if wanted in message.text.lower()]
        if len(rows) < _MESSAGES_AT_A_TIME:
            break
        first = rows[-1][0] + 1
    return found[:limit]


# --- servers ---------------------------------------------------------------------------------------------------------

_SERVERS: Final = "SELECT id, server, extract(epoch FROM clock_timestamp() - beat)::float8, is_alive(id) FROM stores"


async def servers(connection: Any) -> list[StoreServer]:
    return [StoreServer(*row) for row in await connection.fetch(f"{_SERVERS} ORDER BY id")]


async def owner_of(connection: Any, thread_id: str) -> StoreServer | None:
    row = await connection.fetchrow(
        f"{_SERVERS} WHERE id = (SELECT owner FROM threads WHERE threads.id = $1 AND held)", thread_id
    )
    return None if row is None else StoreServer(*row)
