"""`ConversationStore`: conversations in one SQLite file, for this process and any other on the same machine.

It owns the connection, which any thread may use, one at a time, and the leases: a conversation is written by one agent
at a time, and one whose process is gone is free. Files are opened by the first call that needs them. Below the store
stand the rows, which are read and written inside its transactions, and the full-text search over all messages.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from sqlite3 import Connection, Error
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from treadle.host.chat_messages import text_of
from treadle.host.runtime import Message
from treadle.store.contract import StoreError
from treadle.store.rows import Unreadable
from treadle.store.sqlite.failures import failure
from treadle.store.sqlite.owners import Owner, Owners
from treadle.store.sqlite.schema import Format, open_database

# Times in these records are Unix milliseconds.

TurnState: TypeAlias = Literal["open", "done", "interrupted", "failed"]
"""What became of the turn that a user message began. `open` is one that runs."""


class ConversationRecord(Struct, frozen=True, kw_only=True):
    """A conversation without its messages.

    Args:
        id: Its id.
        created_at: When it began.
        updated_at: When something was last written.
        title: The beginning of its first message.
        messages: How many there are.
        runtime: What ran its last turn.
        thread_id: The thread there that can be resumed; None when there is none.
    """

    id: str
    created_at: int
    updated_at: int
    title: str
    messages: int
    runtime: str | None = None
    thread_id: str | None = None


class MessageRecord(Struct, frozen=True, kw_only=True):
    """A message as stored. For a user message, `state` says what became of its turn."""

    number: int
    message: Message
    state: TurnState
    created_at: int


class StoredConversation(Struct, frozen=True, kw_only=True):
    """A conversation when it is claimed. `cut_off`: its last turn did not finish. The first `before_thread` messages
    are older than the thread.
    """

    messages: list[Message]
    runtime: str | None = None
    thread_id: str | None = None
    before_thread: int = 0
    cut_off: bool = False


class MessageHit(Struct, frozen=True, kw_only=True):
    """A search result; matching words are in brackets in `snippet`."""

    session_id: str
    number: int
    role: str
    snippet: str
    created_at: int


# "Trdc": marks a file of conversations, as opposed to one of threads.
FORMAT: Final = Format(0x54726463, os.path.join(os.path.dirname(__file__), "migrations"))


class ConversationStore:
    """Conversations on disk. It may be shared by agents, and be used from any thread.

    Its calls raise `StoreError`, whose `kind` says what is the matter, such as `claimed` or `full`.

    Args:
        path: The file; it and its folder are made when they are first needed. Beside it there is a folder `run`, with
            a lock of every process that uses the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: str = os.path.abspath(os.fspath(path))
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._owners: Owners | None = None
        self._owner: Owner | None = None
        self._indexed = False
        self._closed = False
        self._held: set[str] = set()

    def __repr__(self) -> str:
        return f"ConversationStore({self.path!r})"

    # --- one conversation, by the agent that holds it -----------------------------------------------------------------

    def claim(self, session_id: str) -> StoredConversation:
        """Hold a conversation, which begins now if there is none of that id; give what there is of it.

        Args:
            session_id: Which one.
        """
        with self._lock:
            with self._writing() as connection:
                self._check_free(connection, session_id)
                now = _now()
                connection.execute(
                    "INSERT INTO sessions (id, created_at, updated_at, owner) VALUES (?, ?, ?, ?) "
                    "ON CONFLICT (id) DO UPDATE SET owner = excluded.owner",
                    (session_id, now, now, self._me),
                )
                # A turn that is still open belonged to a process that is gone.
                left_open = connection.execute(
                    "UPDATE messages SET state = 'interrupted' WHERE session_id = ? AND state = 'open'", (session_id,)
                ).rowcount
                runtime, thread_id, before_thread = connection.execute(
                    "SELECT runtime, thread_id, before_thread FROM sessions WHERE id = ?", (session_id,)
                ).fetchone()
                found = StoredConversation(
                    messages=[record.message for record in _messages(connection, session_id)],
                    runtime=runtime,
                    thread_id=thread_id,
                    before_thread=before_thread,
                    cut_off=left_open > 0,
                )
            self._held.add(session_id)
        return found

    def begin_turn(self, session_id: str, messages: Sequence[Message]) -> None:
        """Store messages, of which the last is the user's and begins a turn.

        Args:
            session_id: Which conversation; it has to be held.
            messages: All that is not stored yet.
        """
        with self._writing_to(session_id) as connection:
            # A turn whose end could not be stored is among these messages.
            connection.execute(
                "UPDATE messages SET state = 'done' WHERE session_id = ? AND state = 'open'", (session_id,)
            )
            _add(connection, session_id, messages[:-1], "done")
            _add(connection, session_id, messages[-1:], "open")
            title = " ".join(text_of(messages[-1]).split())[:_TITLE_CHARS]
            connection.execute("UPDATE sessions SET title = ? WHERE id = ? AND title = ''", (title, session_id))

    def reopen_turn(self, session_id: str) -> None:
        """The message of the turn that was cut off is sent once more.

        Args:
            session_id: Which conversation; it has to be held.
        """
        with self._writing_to(session_id) as connection:
            connection.execute(
                "UPDATE messages SET state = 'open' WHERE session_id = ? AND number = "
                "(SELECT max(number) FROM messages WHERE session_id = ?)",
                (session_id, session_id),
            )

    def end_turn(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        state: TurnState = "done",
        runtime: str | None = None,
        thread_id: str | None = None,
        before_thread: int = 0,
    ) -> None:
        """Store what came of a turn, all of it or nothing.

        Args:
            session_id: Which conversation; it has to be held.
            messages: What came after the user's message.
            state: How the turn ended.
            runtime: What ran it.
            thread_id: The thread to resume; None when it is not to be.
            before_thread: How many messages there were before that thread began.
        """
        with self._writing_to(session_id) as connection:
            connection.execute(
                "UPDATE messages SET state = ? WHERE session_id = ? AND state = 'open'", (state, session_id)
            )
            _add(connection, session_id, messages, "done")
            connection.execute(
                "UPDATE sessions SET runtime = ?, thread_id = ?, before_thread = ? WHERE id = ?",
                (runtime, thread_id, before_thread, session_id),
            )

    def release(self, session_id: str) -> None:
        """Release a conversation. One without messages is deleted.

        Args:
            session_id: Which one.
        """
        with self._lock:
            if session_id not in self._held:
                return
            self._held.discard(session_id)
            with self._writing() as connection:
                connection.execute(
                    "UPDATE sessions SET owner = NULL WHERE id = ? AND owner = ?", (session_id, self._me)
                )
                connection.execute(
                    "DELETE FROM sessions WHERE id = ? AND owner IS NULL "
                    "AND NOT EXISTS (SELECT 1 FROM messages WHERE session_id = sessions.id)",
                    (session_id,),
                )

    # --- all of them -------------------------------------------------------------------------------------------------

    def sessions(self, limit: int = 50) -> list[ConversationRecord]:
        """The conversations, the one that was written last first.

        Args:
            limit: How many at most.
        """
        with self._reading() as connection:
            found = connection.execute(
                "SELECT id, created_at, updated_at, title, runtime, thread_id, "
                "(SELECT count(*) FROM messages WHERE session_id = sessions.id) AS messages FROM sessions "
                "WHERE messages > 0 ORDER BY updated_at DESC, id DESC LIMIT ?",
                (max(0, limit),),
            )
            names = [column[0] for column in found.description]
            return [ConversationRecord(**dict(zip(names, row, strict=True))) for row in found]

    def messages(self, session_id: str) -> list[MessageRecord]:
        """The messages of a conversation; none if there is no such one.

        Args:
            session_id: Which one.
        """
        with self._reading() as connection:
            return _messages(connection, session_id)

    def search(self, words: str, limit: int = 20) -> list[MessageHit]:
        """The messages that have all these words, best first.

        Args:
            words: What to look for: up to 16 words; more do not count. Capitals and accents do not matter.
            limit: How many at most; never more than 200.
        """
        with self._reading() as connection:
            # The messages with all these words, best first; without an index, the newest first.
            said = words[:MAX_QUERY].replace("\0", " ").encode("utf-8", "replace").decode().split()
            found = list(dict.fromkeys(said))[:MAX_WORDS]
            limit = max(0, min(limit, MAX_HITS))
            if not found or not limit:
                return []
            if self._indexed:
                # Each word is a quoted string, so that it means nothing but itself.
                match = " ".join('"' + word.replace('"', '""') + '"' for word in found)
                rows = connection.execute(
                    f"SELECT {_COLUMNS}, snippet(message_words, 0, '[', ']', '…', {_SNIPPET_TOKENS}), "
                    "messages.created_at FROM message_words JOIN messages ON messages.key = message_words.rowid "
                    "WHERE message_words MATCH ? ORDER BY message_words.rank, messages.key DESC LIMIT ?",
                    (match, limit),
                )
                return [_hit(*row) for row in rows]
            likes = " AND ".join("text LIKE ? ESCAPE '\\'" for _ in found)
            patterns = ["%" + _SPECIAL.sub(r"\\\1", word) + "%" for word in found]
            rows = connection.execute(
                f"SELECT {_COLUMNS}, text, created_at FROM messages WHERE {likes} ORDER BY key DESC LIMIT ?",
                (*patterns, limit),
            )
            return [
                _hit(session_id, number, role, _snippet(text, found), at) for session_id, number, role, text, at in rows
            ]

    def delete(self, session_id: str) -> bool:
        """Delete a conversation; False if there is none of that id. Not while an agent holds it.

        Args:
            session_id: Which one.
        """
        with self._writing() as connection:
            self._check_free(connection, session_id)
            return connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount > 0

    def close(self) -> None:
        """Release everything. It may be called again; other calls fail from then on."""
        with self._lock:
            if self._closed:
                return
            with suppress(StoreError):
                for session_id in tuple(self._held):
                    self.release(session_id)
            self._closed = True
            self._disconnect()

    # --- the connection ----------------------------------------------------------------------------------------------

    @property
    def _me(self) -> str:
        return "" if self._owner is None else self._owner.id

    def _check_free(self, connection: Connection, session_id: str) -> None:
        if session_id in self._held:
            raise _claimed(session_id, os.getpid())
        row = connection.execute("SELECT owner FROM sessions WHERE id = ?", (session_id,)).fetchone()
        owner = None if row is None else row[0]
        if owner is not None and owner != self._me and self._owners is not None:
            process_id = self._owners.living(owner)
            if process_id is not None:
                raise _claimed(session_id, process_id)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """The connection, for one thread at a time. Errors become `StoreError`s."""
        with self._lock:
            try:
                if self._closed:
                    raise StoreError("the store is closed: open it again to use it")
                if self._connection is None:
                    try:
                        self._connection = self._connect()
                    except BaseException:
                        self._disconnect()
                        raise
                yield self._connection
            except Exception as error:
                raise failure(error, self.path) from error

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """The same in a transaction, which is all or nothing."""
        with self._reading() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                # After some errors SQLite has done it by itself.
                if connection.in_transaction:
                    with suppress(Error):
                        connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _writing_to(self, session_id: str) -> Iterator[Connection]:
        """The same for a conversation that is held. Every write names its owner, so that an owner whose lease was taken
        over can no longer write."""
        with self._writing() as connection:
            changed = connection.execute(
                "UPDATE sessions SET updated_at = ? WHERE id = ? AND owner = ?", (_now(), session_id, self._me)
            ).rowcount
            if not changed:
                raise StoreError(
                    f"the conversation {session_id} is held by another agent now, or was deleted: what came later is "
                    "not stored here. Make a new agent to go on with what is stored",
                    "claimed",
                )
            yield connection

    def _connect(self) -> Connection:
        folder = os.path.dirname(self.path)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._owners = Owners(folder, "conversations")
        with self._owners.alone():
            users = self._owners.sweep()
            connection = self._connection = open_database(self.path, FORMAT, one_thread=False, users=users)
            self._indexed = _has_fts5(connection)
            _prepare_index(connection, indexed=self._indexed)
            self._owner = self._owners.enter()
        return connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        owner, self._owner = self._owner, None
        if connection is not None:
            connection.close()
        if owner is not None:
            owner.leave()


def _claimed(session_id: str, process_id: int) -> StoreError:
    who = "another agent of this program" if process_id == os.getpid() else f"the process {process_id}"
    return StoreError(
        f"{who} holds the conversation {session_id}: close it there first, or go on with another session_id", "claimed"
    )


def _now() -> int:
    return time.time_ns() // 1_000_000


# --- rows, inside a transaction of the store -------------------------------------------------------------------------

_TITLE_CHARS: Final = 120
# What a tool printed may be megabytes; who searches looks for words of people.
_SEARCHED_CHARS: Final = 20_000
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


def _messages(connection: Connection, session_id: str) -> list[MessageRecord]:
    records: list[MessageRecord] = []
    for number, data, state, created_at in connection.execute(
        "SELECT number, data, state, created_at FROM messages WHERE session_id = ? ORDER BY number", (session_id,)
    ):
        try:
            message = _decode(data)
        except (msgspec.MsgspecError, TypeError):
            raise Unreadable(f"message {number} of the conversation {session_id} cannot be read") from None
        records.append(MessageRecord(number=number, message=message, state=state, created_at=created_at))
    return records


def _add(connection: Connection, session_id: str, added: Sequence[Message], state: TurnState) -> None:
    now = _now()
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


# --- search: with an index if this SQLite has FTS5, else by scanning -------------------------------------------------

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


def _has_fts5(connection: Connection) -> bool:
    rows = connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'")
    return rows.fetchone() is not None


def _prepare_index(connection: Connection, *, indexed: bool) -> None:
    """Create the index with its triggers; or, without FTS5, drop the triggers, which would make every write fail."""
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


def _snippet(text: str, words: list[str]) -> str:
    pattern = re.compile("|".join(map(re.escape, words)), re.IGNORECASE)
    first = pattern.search(text)
    start = max(0, (first.start() if first else 0) - _SNIPPET_CHARS // 4)
    cut = text[start : start + _SNIPPET_CHARS]
    shown = pattern.sub(lambda word: f"[{word[0]}]", cut)
    return ("…" if start else "") + shown + ("…" if start + len(cut) < len(text) else "")


def _hit(session_id: str, number: int, role: str, snippet: str, created_at: int) -> MessageHit:
    return MessageHit(session_id=session_id, number=number, role=role, snippet=snippet, created_at=created_at)
