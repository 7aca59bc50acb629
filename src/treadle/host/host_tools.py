"""The instructions of the model at the start of a session (`compose`), and its tools in any runtime (`host_tools`):
memory, skills, and search in earlier conversations. Each call of a tool has a time limit (`limited`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from treadle.arguments import wrong_type
from treadle.client.own_thread import may_block, run_on_own_thread
from treadle.client.tools import Tool, ToolCallError
from treadle.errors import TreadleError

if TYPE_CHECKING:
    from treadle.host.conversations import ConversationStore
    from treadle.host.memory.memory_files import MemoryStore
    from treadle.host.skill_store import SkillStore

logger: logging.Logger = logging.getLogger(__name__)


class _Prompting(Protocol):
    def prompt(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """Composed once per session and then fixed: what is learned meanwhile goes into the next session."""

    instructions: str | None = None
    tools: tuple[Tool, ...] = ()
    notices: tuple[str, ...] = field(default=())


def compose(
    instructions: str | None, memory: MemoryStore | None, skills: SkillStore | None
) -> tuple[str | None, list[str]]:
    """The instructions of a session: the user's, the memory, the skills. What cannot be read is a notice instead."""
    notices: list[str] = []
    parts = [instructions or "", _part("memory", memory, notices), _part("skills", skills, notices)]
    return "\n\n".join(part for part in parts if part) or None, notices


def _part(name: str, store: _Prompting | None, notices: list[str]) -> str:
    try:
        words: object = "" if store is None else store.prompt()
        if isinstance(words, str):
            return words
        raise wrong_type("what `prompt` gives", "a str", words)
    except Exception as error:
        logger.warning("the %s cannot be read", name, exc_info=error)
        notices.append(f"The {name} cannot be read, so this session goes on without: {error}")
        return ""


def offered_tools(
    memory: MemoryStore | None,
    skills: SkillStore | None,
    store: ConversationStore | None,
    own: Iterable[Tool],
    wanted: Callable[[str], bool],
) -> tuple[Tool, ...]:
    """The host's tools and the user's own, of those that are wanted."""
    found = host_tools(memory=memory, skills=skills, search=None if store is None else _searching(store))
    return tuple(tool for tool in (*found.values(), *own) if wanted(tool.name))


def _searching(store: ConversationStore) -> Callable[[str, int], list[dict[str, str]]]:
    def search(words: str, limit: int, /) -> list[dict[str, str]]:
        return [
            {
                "session": hit.session_id,
                "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(hit.created_at / 1000)),
                "role": hit.role,
                "text": hit.snippet,
            }
            for hit in store.search(words, limit)
        ]

    return search


# --- the tools -------------------------------------------------------------------------------------------------------

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


# --- the time limit of a tool ----------------------------------------------------------------------------------------


def limited(tool: Tool, seconds: float | None) -> Tool:
    """The same tool with a time limit, presented as an async one; what it raises never ends the event loop."""
    return _LimitedTool(tool, seconds)


class _LimitedTool(Tool):
    """A plain function runs on a thread. If it takes longer it keeps running there, and its result is dropped."""

    __slots__ = ("_seconds", "_tool")

    def __init__(self, tool: Tool, seconds: float | None) -> None:
        self.name, self.description, self.input_schema = tool.name, tool.description, tool.input_schema
        self.function = self.call
        self._tool = tool
        self._seconds = seconds

    def arguments(self, given: Any) -> dict[str, Any]:
        return self._tool.arguments(given)

    async def call(self, given: Any) -> Any:
        """What the tool returns. Raises what it raises, and `ToolCallError` when the time is up."""
        tool, timeout = self._tool, asyncio.timeout(self._seconds)
        try:
            async with timeout:
                value = await run_on_own_thread(tool.call, given) if may_block(tool.function) else tool.call(given)
                return await value if hasattr(value, "__await__") else value
        except TimeoutError:
            if not timeout.expired():  # it is the function's own
                raise
            raise ToolCallError(f"`{tool.name}` did not answer within {self._seconds:g} s") from None
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ToolCallError(f"`{tool.name}` was cancelled") from error  # by itself
        except Exception:
            raise
        except BaseException as error:  # it would end the event loop
            raise ToolCallError(repr(error)) from error
