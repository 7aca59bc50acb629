"""Full-text search over messages: with an index if this SQLite has FTS5, else by scanning."""

from __future__ import annotations

import re
import sqlite3
from typing import Final

from treadle.host.conversations.records import MessageHit

_SNIPPET_TOKENS: Final = 24
_SNIPPET_CHARS: Final = 160
MAX_HITS: Final = 200
# The time of a search grows with the words, and nobody else can use the store meanwhile.
MAX_QUERY: Final = 2000
MAX_WORDS: Final = 16
_TRIGGERS: Final = ("messages_inserted", "messages_deleted")
_INDEX: Final = (
    """CREATE VIRTUAL TABLE IF NOT EXISTS message_words USING fts5 (
        text, content = 'messages', content_rowid = 'key', tokenize = 'unicode61 remove_diacritics 2')""",
    """CREATE TRIGGER messages_inserted AFTER INSERT ON messages BEGIN
        INSERT INTO message_words (rowid, text) VALUES (new.key, new.text);
    END""",
    """CREATE TRIGGER messages_deleted AFTER DELETE ON messages BEGIN
        INSERT INTO message_words (message_words, rowid, text) VALUES ('delete', old.key, old.text);
    END""",
    # For what was written while there was no index.
    "INSERT INTO message_words (message_words) VALUES ('rebuild')",
)
_SPECIAL: Final = re.compile(r"([%_\\])")
_COLUMNS: Final = "messages.session_id, messages.number, messages.role"


def has_fts5(connection: sqlite3.Connection) -> bool:
    rows = connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'")
    return rows.fetchone() is not None


def prepare_index(connection: sqlite3.Connection, *, indexed: bool) -> None:
    """Have the index kept in step from now on; or, without FTS5, see to it that its triggers do not stop writing."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")}
    if indexed == names.issuperset(_TRIGGERS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for name in _TRIGGERS:
            connection.execute(f"DROP TRIGGER IF EXISTS {name}")
        for statement in _INDEX if indexed else ():
            connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def search(connection: sqlite3.Connection, words: str, limit: int, *, indexed: bool) -> list[MessageHit]:
    """The messages with all these words, best first; without an index, the newest first."""
    said = words[:MAX_QUERY].replace("\0", " ").encode("utf-8", "replace").decode().split()
    found = list(dict.fromkeys(said))[:MAX_WORDS]
    limit = max(0, min(limit, MAX_HITS))
    if not found or not limit:
        return []
    return _by_index(connection, found, limit) if indexed else _by_scan(connection, found, limit)


def _by_index(connection: sqlite3.Connection, words: list[str], limit: int) -> list[MessageHit]:
    # Each word is a quoted string, so that it means nothing but itself.
    match = " ".join('"' + word.replace('"', '""') + '"' for word in words)
    rows = connection.execute(
        f"SELECT {_COLUMNS}, snippet(message_words, 0, '[', ']', '…', {_SNIPPET_TOKENS}), messages.created_at "
        "FROM message_words JOIN messages ON messages.key = message_words.rowid "
        "WHERE message_words MATCH ? ORDER BY message_words.rank, messages.key DESC LIMIT ?",
        (match, limit),
    )
    return [_hit(*row) for row in rows]


def _by_scan(connection: sqlite3.Connection, words: list[str], limit: int) -> list[MessageHit]:
    likes = " AND ".join("text LIKE ? ESCAPE '\\'" for _ in words)
    patterns = ["%" + _SPECIAL.sub(r"\\\1", word) + "%" for word in words]
    rows = connection.execute(
        f"SELECT {_COLUMNS}, text, created_at FROM messages WHERE {likes} ORDER BY key DESC LIMIT ?",
        (*patterns, limit),
    )
    return [_hit(session_id, number, role, _snippet(text, words), at) for session_id, number, role, text, at in rows]


def _snippet(text: str, words: list[str]) -> str:
    pattern = re.compile("|".join(map(re.escape, words)), re.IGNORECASE)
    first = pattern.search(text)
    start = max(0, (first.start() if first else 0) - _SNIPPET_CHARS // 4)
    cut = text[start : start + _SNIPPET_CHARS]
    shown = pattern.sub(lambda word: f"[{word[0]}]", cut)
    return ("…" if start else "") + shown + ("…" if start + len(cut) < len(text) else "")


def _hit(session_id: str, number: int, role: str, snippet: str, created_at: int) -> MessageHit:
    return MessageHit(session_id=session_id, number=number, role=role, snippet=snippet, created_at=created_at)
