"""Where an agent keeps its data: nowhere, in the home, at a path, or in an object of the caller."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from treadle.arguments import path, wrong_type
from treadle.config.home_directory import home_name
from treadle.host.conversations import ConversationStore

if TYPE_CHECKING:
    from treadle.host.conversations import ConversationStore
    from treadle.host.memory.memory_files import MemoryStore
    from treadle.host.skills.skill_store import SkillStore

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


# --- loaded when they are needed -------------------------------------------------------------------------------------


def memory_at(path: str) -> MemoryStore:
    from treadle.host.memory.memory_files import MemoryStore  # loaded when it is used

    return MemoryStore(path)


def skills_at(path: str) -> SkillStore:
    from treadle.host.skills.skill_store import SkillStore  # loaded when it is used

    return SkillStore(path)


def conversations_at(path: str) -> ConversationStore:
    return ConversationStore(path)
