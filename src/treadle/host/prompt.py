"""What the host tells the model at the start of a session, and the tools it offers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from treadle.arguments import wrong_type
from treadle.client.tools import Tool
from treadle.host.host_tools import host_tools

if TYPE_CHECKING:
    from treadle.host.conversations import ConversationStore
    from treadle.host.memory.memory_files import MemoryStore
    from treadle.host.skills.skill_store import SkillStore

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
    """The words: the user's, what is remembered, what can be done. What cannot be read is left out, and said."""
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
