"""`host_tools`: what a host offers its model in any runtime: memory, skills, and search in earlier conversations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from treadle.client.tools import Tool, ToolCallError
from treadle.errors import TreadleError

if TYPE_CHECKING:
    from treadle.host.memory.memory_files import MemoryStore
    from treadle.host.skills.skill_store import SkillStore

MAX_FOUND: Final = 20


class SearchesMessages(Protocol):
    """Finds messages of earlier conversations; what it gives must have a form as JSON."""

    def __call__(self, query: str, limit: int, /) -> Sequence[object]: ...


def host_tools(
    *, memory: MemoryStore | None = None, skills: SkillStore | None = None, search: SearchesMessages | None = None
) -> dict[str, Tool]:
    """The tools by name: those for which there is something behind them. They may be called from any thread.

    Args:
        memory: For `memory`.
        skills: For `skills_list`, `skill_view` and `skill_manage`.
        search: For `session_search`.
    """
    found = [] if memory is None else [memory.tool()]
    found += [] if skills is None else skills.tools()
    found += [] if search is None else [_session_search(search)]
    return {tool.name: tool for tool in found}


def tool_names(*, memory: bool, skills: bool, search: bool) -> set[str]:
    """What these would be called, before anything is opened.

    Args:
        memory: Whether there will be a memory.
        skills: Whether there will be skills.
        search: Whether there will be something to search.
    """
    names = {"memory"} if memory else set()
    names |= {"skills_list", "skill_view", "skill_manage"} if skills else set()
    return names | ({"session_search"} if search else set())


def _session_search(search: SearchesMessages) -> Tool:
    def session_search(query: str, limit: int = 5) -> Sequence[object]:
        """Look for messages of earlier conversations with this user.

        Use it before asking the user for something that they may have told you already. Give few words that are likely
        to have been used; they all have to be in a message.

        Args:
            query: The words.
            limit: How many messages, from 1 to 20.
        """
        if not query.strip():
            raise ToolCallError("`query` cannot be blank: give words to look for")
        if not 1 <= limit <= MAX_FOUND:
            raise ToolCallError(f"`limit` must be from 1 to {MAX_FOUND}, not {limit}")
        try:
            return list(search(query, limit))
        except TreadleError as error:
            raise ToolCallError(f"it cannot be searched now: {error}") from error

    return Tool(session_search)
