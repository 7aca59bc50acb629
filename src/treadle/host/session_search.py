"""The tool `session_search`: what was said in earlier conversations, for the model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, Protocol

from treadle.client.tools import Tool, ToolCallError
from treadle.errors import TreadleError
from treadle.host.conversations.records import MessageHit

NAME: Final = "session_search"
_MOST: Final = 20


class SearchesMessages(Protocol):
    """What can be searched."""

    def search(self, words: str, limit: int = 20) -> Sequence[MessageHit]: ...


def session_search(store: SearchesMessages) -> Tool:
    """The tool over this store.

    Args:
        store: Where the messages are.
    """

    def search_sessions(query: str, limit: int = 5) -> str:
        """Search earlier conversations with this user for words.

        Use it when the user refers to something that is not in this conversation ("as we did last week"), before
        asking them to repeat it. All the words have to be in a message; fewer words find more.

        Args:
            query: The words to look for.
            limit: How many messages to show, at most 20.
        """
        if not query.strip():
            raise ToolCallError("give some words to look for")
        try:
            hits = store.search(query, max(1, min(limit, _MOST)))
        except TreadleError as error:
            raise ToolCallError(f"the conversations cannot be searched: {error}") from error
        return "\n".join(map(_line, hits)) or "No message has all of these words. Try fewer, or others."

    return Tool(search_sessions, name=NAME)


def _line(hit: MessageHit) -> str:
    day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(hit.created_at / 1000))
    return f"- {day} UTC, {hit.role} in session {hit.session_id}: {' '.join(hit.snippet.split())}"
