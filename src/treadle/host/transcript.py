"""`Transcript`: the messages of an agent, and which of them are stored. Only used on the agent's loop.

The user's message is on disk before its turn starts; the rest follows at once when it has ended. What could not be
stored then is stored before the next turn.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from treadle.arguments import path, wrong_type
from treadle.config.home_files import home_name
from treadle.host.chat_messages import sendable
from treadle.host.conversations import ConversationStore, TurnState
from treadle.host.loop_thread import LoopThread
from treadle.host.runtime import Message
from treadle.store.contract import StoreError

if TYPE_CHECKING:
    from treadle.host.memory.memory_files import MemoryStore
    from treadle.host.skill_store import SkillStore

logger: logging.Logger = logging.getLogger(__name__)
CLOSE_S: Final = 10.0
"""For a write that is under way: SQLite itself waits no longer for another process."""


class Transcript:
    """A conversation.

    Args:
        session_id: Its id in the store.
        open_store: Gives the store; None when nothing is stored.
        owns_store: Whether to close the store at the end.
    """

    def __init__(
        self, session_id: str, open_store: Callable[[], ConversationStore] | None, *, owns_store: bool
    ) -> None:
        self.session_id = session_id
        self.messages: list[Message] = []
        self.notices: list[str] = []
        self._thread: tuple[str | None, str | None] = (None, None)
        self.before_thread: int = 0
        """How many messages there were before the thread began."""
        self._turn_at = 0
        self._open_store = open_store
        self._owns_store = owns_store
        self._store: ConversationStore | None = None
        self._loaded = False
        self._cut_off = False
        self._stored = 0
        self._resumes = False
        self._replaced = False
        self._writer = LoopThread("treadle transcript")

    @property
    def store(self) -> ConversationStore | None:
        """Where it is stored; None when it is not, and before the first turn."""
        return self._store

    async def load(self) -> bool:
        """Take what is stored, the first time. True if it was the first. Raises `StoreError`."""
        if self._loaded:
            return False
        if self._open_store is not None:
            await self._apart(self._claim, self._open_store)
        self._loaded = True
        return True

    def _claim(self, open_store: Callable[[], ConversationStore]) -> None:
        store = self._store = open_store()
        found = store.claim(self.session_id)
        self.messages[:0] = found.messages
        self._stored = len(found.messages)
        self._thread = (found.runtime, found.thread_id)
        self.before_thread = found.before_thread
        self._resumes = found.thread_id is not None
        self._cut_off = found.cut_off
        if found.cut_off:
            self.notices.append("The last turn was cut off when the program ended; its message is stored.")

    async def begin(self, message: Message) -> None:
        """Store the user's message, before its turn runs. Raises `StoreError`."""
        again, self._cut_off = self._cut_off and self.messages[-1] == message, False
        if self._store is not None:
            await self._apart(self._store_beginning, self._store, message, again)
        if not again:
            self.messages.append(message)
        self._turn_at = len(self.messages) - 1

    def _store_beginning(self, store: ConversationStore, message: Message, again: bool) -> None:
        if again:
            store.reopen_turn(self.session_id)
            return
        added = [*map(sendable, self.messages[self._stored :]), message]
        store.begin_turn(self.session_id, added)
        # Here, and not where it is awaited: the write goes on when nobody waits for it any more.
        self._stored += len(added)

    def thread_to_resume(self, runtime: str) -> str | None:
        """The thread of this runtime that a new session goes on with: only the one that was stored, and only until a
        thread has been opened. The thread of a runtime that was replaced is not resumed."""
        before, thread_id = self._thread
        if self._replaced:
            self.notices.append("The thread of before is not used any more; a new one is sent what was said.")
        if not self._resumes or thread_id is None:
            return None
        if before != runtime:
            self.notices.append(f"This conversation was with {before} before; {runtime} is sent what was said.")
            return None
        return thread_id

    async def end(
        self,
        added: Sequence[Message],
        state: TurnState,
        runtime: str | None,
        thread_id: str | None,
        *,
        opened: bool,
        replaced: bool,
    ) -> None:
        """Store what came of the turn, with its thread. A store that fails is a notice."""
        self.messages += [sendable(message) for message in added]
        if opened:
            self._resumes, self._replaced = False, replaced
        if thread_id is not None and not replaced:
            if self._thread != (runtime, thread_id):
                self.before_thread = self._turn_at
            self._thread = (runtime, thread_id)
        elif not self._resumes:
            self._thread = (runtime, None)
        if self._store is None:
            return
        try:
            await self._apart(self._store_end, self._store, state)
        except StoreError as error:
            logger.warning("a turn could not be stored: %s", error)
            self.notices.append(f"This turn is not stored yet: {error}")

    def _store_end(self, store: ConversationStore, state: TurnState) -> None:
        added = self.messages[self._stored :]
        runtime, thread_id = self._thread
        store.end_turn(
            self.session_id,
            added,
            state=state,
            runtime=runtime,
            thread_id=thread_id,
            before_thread=self.before_thread,
        )
        self._stored += len(added)

    async def _apart(self, function: Callable[..., None], *arguments: object) -> None:
        """What blocks, away from the agent's loop: on one thread, because to start one takes longer than to write."""

        async def call() -> None:
            function(*arguments)

        await asyncio.shield(asyncio.wrap_future(self._writer.submit(call)))

    def take_notices(self) -> list[str]:
        notices, self.notices = self.notices, []
        return notices

    def close(self) -> None:
        """Release the conversation. It blocks for a moment, and may be called again."""
        store, self._store = self._store, None
        self._writer.end(CLOSE_S)
        if store is None:
            return
        try:
            store.release(self.session_id)
        except StoreError as error:
            logger.warning("the conversation %s could not be released: %s", self.session_id, error)
        if self._owns_store:
            store.close()


# --- where an agent stores its data ----------------------------------------------------------------------------------

T = TypeVar("T")


def choose_store(
    name: str, value: object, default: str, make: Callable[[str], T], methods: Sequence[str]
) -> Callable[[], T] | None:
    """What gives the store when it is first needed; None for none. Nothing is touched here.

    Args:
        name: The parameter.
        value: None or False, True for `default` in the home, a path, or an object with these methods.
        default: A file or folder in the home.
        make: Makes the store at a path.
        methods: What an object needs to be one.
    """
    if value is None or value is False:
        return None
    if value is True:
        return cache(lambda: make(os.path.join(home_name(os.environ), default)))
    if isinstance(value, str | os.PathLike):
        place = os.path.abspath(path(name, value))
        return cache(lambda: make(place))
    if not isinstance(value, type) and all(callable(getattr(value, method, None)) for method in methods):
        given: Any = value
        return lambda: given
    raise wrong_type(name, "True, a path or a store", value)


def memory_at(path: str) -> MemoryStore:
    from treadle.host.memory.memory_files import MemoryStore  # only for an agent that has one

    return MemoryStore(path)


def skills_at(path: str) -> SkillStore:
    from treadle.host.skill_store import SkillStore  # likewise

    return SkillStore(path)


def conversations_at(path: str) -> ConversationStore:
    return ConversationStore(path)
