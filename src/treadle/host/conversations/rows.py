"""The rows of conversations, read and written inside a transaction of the caller.

Every write to a conversation names its owner, so that an owner whose lease was taken over can no longer write.
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any, Final

import msgspec

from treadle.host.chat_messages import text_of
from treadle.host.conversations.records import MessageRecord, SessionRecord, StoredConversation, TurnState
from treadle.host.runtime import Message
from treadle.store.contract import StoreError
from treadle.store.sqlite.failures import Unreadable

_TITLE_CHARS: Final = 120
# What a tool printed may be megabytes; who searches looks for words of people.
_SEARCHED_CHARS: Final = 20_000
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


def owner(connection: Connection, session_id: str) -> str | None:
    """Who wrote to it last."""
    row = connection.execute("SELECT owner FROM sessions WHERE id = ?", (session_id,)).fetchone()
    return None if row is None else row[0]


def claim(connection: Connection, session_id: str, me: str, now: int) -> StoredConversation:
    """Make it ours. A turn that is still open belonged to a process that is gone."""
    connection.execute(
        "INSERT INTO sessions (id, created_at, updated_at, owner) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET owner = excluded.owner",
        (session_id, now, now, me),
    )
    left_open = connection.execute(
        "UPDATE messages SET state = 'interrupted' WHERE session_id = ? AND state = 'open'", (session_id,)
    ).rowcount
    runtime, thread_id, before_thread = connection.execute(
        "SELECT runtime, thread_id, before_thread FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()
    found = messages(connection, session_id)
    return StoredConversation(
        messages=[record.message for record in found],
        runtime=runtime,
        thread_id=thread_id,
        before_thread=before_thread,
        cut_off=left_open > 0,
    )


def begin_turn(connection: Connection, session_id: str, me: str, added: Sequence[Message], now: int) -> None:
    _touch(connection, session_id, me, now)
    # One whose end could not be stored, and is among these.
    connection.execute("UPDATE messages SET state = 'done' WHERE session_id = ? AND state = 'open'", (session_id,))
    _add(connection, session_id, added[:-1], "done", now)
    _add(connection, session_id, added[-1:], "open", now)
    title = " ".join(text_of(added[-1]).split())[:_TITLE_CHARS]
    connection.execute("UPDATE sessions SET title = ? WHERE id = ? AND title = ''", (title, session_id))


def reopen_turn(connection: Connection, session_id: str, me: str, now: int) -> None:
    _touch(connection, session_id, me, now)
    connection.execute(
        "UPDATE messages SET state = 'open' WHERE session_id = ? AND number = "
        "(SELECT max(number) FROM messages WHERE session_id = ?)",
        (session_id, session_id),
    )


def end_turn(
    connection: Connection,
    session_id: str,
    me: str,
    added: Sequence[Message],
    state: TurnState,
    thread: tuple[str | None, str | None, int],
    now: int,
) -> None:
    _touch(connection, session_id, me, now)
    connection.execute("UPDATE messages SET state = ? WHERE session_id = ? AND state = 'open'", (state, session_id))
    _add(connection, session_id, added, "done", now)
    connection.execute(
        "UPDATE sessions SET runtime = ?, thread_id = ?, before_thread = ? WHERE id = ?", (*thread, session_id)
    )


def release(connection: Connection, session_id: str, me: str) -> None:
    connection.execute("UPDATE sessions SET owner = NULL WHERE id = ? AND owner = ?", (session_id, me))
    connection.execute(
        "DELETE FROM sessions WHERE id = ? AND owner IS NULL "
        "AND NOT EXISTS (SELECT 1 FROM messages WHERE session_id = sessions.id)",
        (session_id,),
    )


def sessions(connection: Connection, limit: int) -> list[SessionRecord]:
    found = connection.execute(
        "SELECT id, created_at, updated_at, title, runtime, thread_id, "
        "(SELECT count(*) FROM messages WHERE session_id = sessions.id) AS messages FROM sessions "
        "WHERE messages > 0 ORDER BY updated_at DESC, id DESC LIMIT ?",
        (max(0, limit),),
    )
    names = [column[0] for column in found.description]
    return [SessionRecord(**dict(zip(names, row, strict=True))) for row in found]


def messages(connection: Connection, session_id: str) -> list[MessageRecord]:
    found = connection.execute(
        "SELECT number, data, state, created_at FROM messages WHERE session_id = ? ORDER BY number", (session_id,)
    )
    return [
        MessageRecord(number=number, message=_message(data, number, session_id), state=state, created_at=created_at)
        for number, data, state, created_at in found
    ]


def _message(data: Any, number: int, session_id: str) -> Message:
    try:
        return _decode(data)
    except (msgspec.MsgspecError, TypeError):
        raise Unreadable(f"message {number} of the conversation {session_id} cannot be read") from None


def _touch(connection: Connection, session_id: str, me: str, now: int) -> None:
    changed = connection.execute(
        "UPDATE sessions SET updated_at = ? WHERE id = ? AND owner = ?", (now, session_id, me)
    ).rowcount
    if not changed:
        raise StoreError(
            f"the conversation {session_id} is held by another agent now, or was deleted: what came later is not "
            "stored here. Make a new agent to go on with what is stored",
            "claimed",
        )


def _add(connection: Connection, session_id: str, added: Sequence[Message], state: TurnState, now: int) -> None:
    (last,) = connection.execute(
        "SELECT coalesce(max(number), 0) FROM messages WHERE session_id = ?", (session_id,)
    ).fetchone()
    connection.executemany(
        "INSERT INTO messages (session_id, number, role, text, data, state, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (
                session_id,
                number,
                str(message.get("role", "")),
                text_of(message)[:_SEARCHED_CHARS],
                msgspec.json.encode(message),
                state,
                now,
            )
            for number, message in enumerate(added, last + 1)
        ],
    )
