"""What a runtime may ask the person behind the host, and the possible answers: the same for every runtime."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

from msgspec import Struct

Choice: TypeAlias = Literal["once", "session", "deny"]


class Ask(Struct, frozen=True, kw_only=True):
    """Something that is not done without a yes.

    Args:
        kind: What it is about.
        title: What is to be done, in one line: the command itself, or which files a patch changes.
        description: Where and why, for people.
        command: The command, if it is one.
        cwd: Where it would run.
        paths: The files that would change.
        tool: The tool that an engine wants to use, by the engine's name for it.
        thread_id: The thread.
        turn_id: The turn.
        detail: The runtime's own request, as it came.
    """

    kind: Literal["command", "patch", "permissions", "network", "tool"]
    title: str
    description: str = ""
    command: str | None = None
    cwd: str | None = None
    paths: tuple[str, ...] = ()
    tool: str | None = None
    thread_id: str | None = None
    turn_id: str | None = None
    detail: Any = None


Approvals: TypeAlias = Callable[[Ask], "Choice | bool | Awaitable[Choice | bool | None] | None"]
"""A user's callback. True is `once`; False, None, an exception and silence are `deny`."""

AskPerson: TypeAlias = Callable[[Ask], Awaitable[Choice]]
"""What a session gives its runtime: it decides, in time, and never raises but when it is cancelled."""
