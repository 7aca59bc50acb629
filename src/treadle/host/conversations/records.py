"""What the store of conversations returns. Times are Unix milliseconds."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from treadle.host.runtime import Message

TurnState: TypeAlias = Literal["open", "done", "interrupted", "failed"]
"""What became of the turn that a user message began. `open` is one that runs."""


class SessionRecord(Struct, frozen=True, kw_only=True):
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
