"""Checks the arguments of `Codex`, `Thread` and the rest, so that a mistake is an error where it is made.

Words (`effort`, `personality`, …) are members of the enums in `treadle.types`, or strings equal to one. Words of a
newer server can be passed too, but must be marked as intended: `ReasoningEffort("word")` goes to the server as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from treadle.arguments import (
    count,
    flag,
    folder,
    function,
    mapping,
    one_of,
    path,
    text,
    texts,
    wrong_type,
)
from treadle.client.codex_config import CodexConfig
from treadle.errors import ArgumentValueError
from treadle.protocol.app.settings import ReasoningEffort

if TYPE_CHECKING:
    from treadle.client.approval_requests import ApprovalHandler, UserInputHandler
    from treadle.client.codex_config import CodexConfig


def checked(**given: Any) -> dict[str, Any]:
    """The arguments as they are sent; what was not passed, or is None, is left out. Raises `ArgumentError`."""
    return {name: _KINDS[name](name, value) for name, value in given.items() if value is not None}


def required(**given: Any) -> dict[str, Any]:
    """The same for arguments that cannot be None."""
    return {name: _KINDS[name](name, value) for name, value in given.items()}


def check_config(config: CodexConfig | None) -> None:
    """That it is one: a string or a dict in its place is a frequent mistake."""
    if config is None or isinstance(config, CodexConfig):
        return
    hint = ""
    if isinstance(config, str | os.PathLike):
        is_url = "://" in os.fspath(config)
        hint = f": pass CodexConfig({'url' if is_url else 'codex_bin'}=…)"
    elif isinstance(config, Mapping):
        hint = ": pass CodexConfig(**…)"
    raise wrong_type("config", "a CodexConfig", config, hint)


def check_handlers(approval_handler: ApprovalHandler | None, user_input_handler: UserInputHandler | None) -> None:
    """That they can be called."""
    if approval_handler is not None:
        function("approval_handler", approval_handler, "an ApprovalRequest")
    if user_input_handler is not None:
        function("user_input_handler", user_input_handler, "a UserInputRequest")


def folder_of(client: Any, cwd: str | os.PathLike[str] | None, *, of_thread: bool = True) -> str | None:
    """A working directory, as it is sent. It has to be there if the server sees the same files as we do.

    What a relative one is seen from is known for a thread and a server that we start; a turn's is seen from the
    thread's own.
    """
    if cwd is None:
        return None
    config: CodexConfig | None = getattr(client, "config", None)
    found = path("cwd", cwd)
    if config is None or not config.is_on_this_machine:
        return found
    if os.path.isabs(found) or (of_thread and config.url is None):
        return folder("cwd", found, base=config.cwd)
    return found


def paths(name: str, value: object) -> str | list[str]:
    """One path, or several."""
    if isinstance(value, list | tuple):
        return [path(f"{name}[{index}]", member) for index, member in enumerate(value)]
    if not isinstance(value, str | os.PathLike) and hasattr(value, "root"):
        return paths(name, value.root)  # as the official SDK wraps it; a `Path` has a `root` too
    return path(name, value)


# --- kinds -----------------------------------------------------------------------------------------------------------


def _word(module: str, class_name: str) -> Callable[[str, object], str]:
    """A word of the protocol. The module of its class is loaded when one is passed."""

    def check(name: str, value: object) -> str:
        known = getattr(import_module(f"treadle.protocol.app.{module}"), class_name)
        if isinstance(value, known):
            return str(value)
        plain = value.value if isinstance(value, Enum) else value
        return known(one_of(name, plain, known, _on_purpose(class_name, plain)))  # type: ignore[no-any-return]

    return check


def _effort(name: str, value: object) -> str:
    """As a string, what most models have; the class knows words that few have."""
    from treadle.config.model_catalogue import EFFORTS  # loaded when an effort is given

    if isinstance(value, ReasoningEffort):
        return value
    plain = value.value if isinstance(value, Enum) else value
    usual = [str(option.reasoning_effort) for option in EFFORTS]
    return ReasoningEffort(one_of(name, plain, usual, _on_purpose("ReasoningEffort", plain)))


def _on_purpose(class_name: str, word: object) -> str:
    return f"; if the server knows it, pass {class_name}({word!r}) of treadle.types"


def _free_word(name: str, value: object) -> str:
    """A word that a client may choose."""
    return text(name, value.value if isinstance(value, Enum) else value)


def _source_kinds(name: str, value: object) -> list[str]:
    check = _word("thread_methods", "ThreadSourceKind")
    if not isinstance(value, list | tuple):
        raise wrong_type(name, "a list of ThreadSourceKind", value)
    return [check(f"{name}[{index}]", member) for index, member in enumerate(value)]


def _name(name: str, value: object) -> str:
    """An id, or what else cannot be empty."""
    found = text(name, value)
    if not found:
        raise ArgumentValueError(name, f"{name} must not be empty")
    return found


_KINDS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "api_key": _name,
    "archived": flag,
    "base_instructions": text,
    "branch": _name,
    "commit": _name,
    "config": mapping,
    "cursor": text,
    "cwd": path,
    "developer_instructions": text,
    "effort": _effort,
    "ephemeral": flag,
    "include_hidden": flag,
    "include_turns": flag,
    "instructions": _name,
    "limit": count,
    "model": text,
    "model_provider": text,
    "model_providers": texts,
    "name": text,
    "output_schema": mapping,
    "permissions": text,
    "personality": _word("settings", "Personality"),
    "refresh_token": flag,
    "search_term": text,
    "section_id": text,
    "service_name": text,
    "service_tier": text,
    "session_start_source": _word("thread_methods", "ThreadStartSource"),
    "sort_direction": _word("thread_methods", "SortDirection"),
    "sort_key": _word("thread_methods", "ThreadSortKey"),
    "source": text,
    "source_kinds": _source_kinds,
    "summary": _word("settings", "ReasoningSummary"),
    "thread_id": _name,
    "thread_source": _free_word,
    "turn_service_tier": text,
    "use_state_db_only": flag,
}
