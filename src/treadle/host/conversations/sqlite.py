"""`ConversationStore`: conversations in one SQLite file, for this process and any other on the same machine.

It owns the connection, which any thread may use, one at a time, and the leases: a conversation is written by one agent
at a time, and one whose process is gone is free. Files are opened by the first call that needs them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from sqlite3 import Connection, Error
from typing import Final, TypeVar

from treadle.host.conversations import rows
from treadle.host.conversations.message_search import has_fts5, prepare_index, search
from treadle.host.conversations.records import MessageHit, MessageRecord, SessionRecord, StoredConversation, TurnState
from treadle.host.runtime import Message
from treadle.store.contract import StoreError
from treadle.store.owners import Owner, Owners
from treadle.store.sqlite.failures import failure
from treadle.store.sqlite.schema import Format, open_database

T = TypeVar("T")
# "Trdc": tells a file of conversations from one of threads.
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
            if session_id in self._held:
                raise _claimed(session_id, os.getpid())
            found = self._write(lambda connection: self._claim(connection, session_id))
            self._held.add(session_id)
            return found

    def begin_turn(self, session_id: str, messages: Sequence[Message]) -> None:
        """Keep messages, of which the last is the user's and begins a turn.

        Args:
            session_id: Which conversation; it has to be held.
            messages: All that is not stored yet.
        """
        self._write(lambda connection: rows.begin_turn(connection, session_id, self._me, messages, _now()))

    def reopen_turn(self, session_id: str) -> None:
        """The message of the turn that was cut off is sent once more.

        Args:
            session_id: Which conversation; it has to be held.
        """
        self._write(lambda connection: rows.reopen_turn(connection, session_id, self._me, _now()))

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
        """Keep what came of a turn, all of it or nothing.

        Args:
            session_id: Which conversation; it has to be held.
            messages: What came after the user's message.
            state: How the turn ended.
            runtime: What ran it.
            thread_id: The thread to resume; None when it is not to be.
            before_thread: How many messages there were before that thread began.
        """
        thread = (runtime, thread_id, before_thread)
        self._write(lambda connection: rows.end_turn(connection, session_id, self._me, messages, state, thread, _now()))

    def release(self, session_id: str) -> None:
        """Let go of a conversation. One without messages is forgotten.

        Args:
            session_id: Which one.
        """
        with self._lock:
            if session_id in self._held:
                self._held.discard(session_id)
                self._write(lambda connection: rows.release(connection, session_id, self._me))

    # --- all of them -------------------------------------------------------------------------------------------------

    def sessions(self, limit: int = 50) -> list[SessionRecord]:
        """The conversations, the one that was written last first.

        Args:
            limit: How many at most.
        """
        return self._read(lambda connection: rows.sessions(connection, limit))

    def messages(self, session_id: str) -> list[MessageRecord]:
        """The messages of a conversation; none if there is no such one.

        Args:
            session_id: Which one.
        """
        return self._read(lambda connection: rows.messages(connection, session_id))

    def search(self, words: str, limit: int = 20) -> list[MessageHit]:
        """The messages that have all these words, best first.

        Args:
            words: What to look for: up to 16 words; more do not count. Capitals and accents do not matter.
            limit: How many at most; never more than 200.
        """
        return self._read(lambda connection: search(connection, words, limit, indexed=self._indexed))

    def delete(self, session_id: str) -> bool:
        """Delete a conversation; False if there is none of that id. Not while an agent holds it.

        Args:
            session_id: Which one.
        """
        with self._lock:
            if session_id in self._held:
                raise _claimed(session_id, os.getpid())
            return self._write(lambda connection: self._delete(connection, session_id))

    def close(self) -> None:
        """Let go of everything. It may be called again; other calls fail from then on."""
        with self._lock:
            if self._closed:
                return
            with suppress(StoreError):
                for session_id in tuple(self._held):
                    self.release(session_id)
            self._closed = True
            self._let_go()

    # --- the connection ----------------------------------------------------------------------------------------------

    @property
    def _me(self) -> str:
        return "" if self._owner is None else self._owner.id

    def _claim(self, connection: Connection, session_id: str) -> StoredConversation:
        self._check_free(connection, session_id)
        return rows.claim(connection, session_id, self._me, _now())

    def _delete(self, connection: Connection, session_id: str) -> bool:
        self._check_free(connection, session_id)
        return connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount > 0

    def _check_free(self, connection: Connection, session_id: str) -> None:
        owner = rows.owner(connection, session_id)
        if owner is not None and owner != self._me and self._owners is not None:
            process_id = self._owners.living(owner)
            if process_id is not None:
                raise _claimed(session_id, process_id)

    def _read(self, query: Callable[[Connection], T]) -> T:
        with self._lock, self._told():
            return query(self._opened())

    def _write(self, work: Callable[[Connection], T]) -> T:
        with self._lock, self._told():
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE")
            try:
                done = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                # After some errors SQLite has done it by itself.
                if connection.in_transaction:
                    with suppress(Error):
                        connection.execute("ROLLBACK")
                raise
            return done

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise failure(error, self.path) from error

    def _opened(self) -> Connection:
        if self._closed:
            raise StoreError("the store is closed: open it again to use it")
        if self._connection is None:
            try:
                self._open()
            except BaseException:
                self._let_go()
                raise
        assert self._connection is not None
        return self._connection

    def _open(self) -> None:
        folder = os.path.dirname(self.path)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._owners = Owners(folder)
        with self._owners.alone():
            self._owners.sweep()
            connection = self._connection = open_database(self.path, FORMAT, one_thread=False)
            self._indexed = has_fts5(connection)
            prepare_index(connection, indexed=self._indexed)
            self._owner = self._owners.enter()

    def _let_go(self) -> None:
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
