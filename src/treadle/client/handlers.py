"""`Handlers`: what answers requests of the server. `server_requests`, loaded when needed, calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from treadle.client.approval_requests import ApprovalHandler, UserInputHandler
    from treadle.client.tools import Tool

MAX_THREADS: Final = 65_536
MAX_HANDLERS: Final = 64
"""Handlers that run at a time."""
MAX_HANDLER_THREADS: Final = 256
"""The same with those that run on although their question was withdrawn: a thread cannot be ended."""

RawHandler: TypeAlias = "Callable[[str, dict[str, Any] | None], dict[str, Any]]"


class Handlers:
    """`raw` is the low-level handler of the official client and takes precedence over all others; tools are keyed by
    thread.
    """

    def __init__(self, raw: RawHandler | None = None) -> None:
        self.raw = raw
        self.approval: ApprovalHandler | None = None
        self.user_input: UserInputHandler | None = None
        self.tools: dict[str, Mapping[str, Tool]] = {}

    def add_tools(self, thread_id: str, tools: Mapping[str, Tool]) -> None:
        """For the thread's calls from now on. Of very many threads the oldest are forgotten."""
        self.tools.pop(thread_id, None)
        self.tools[thread_id] = tools
        if len(self.tools) > MAX_THREADS:
            del self.tools[next(iter(self.tools))]
