"""The time limit of a tool of the host: `run_limited` for one call, `limited` for a tool that somebody else calls."""

from __future__ import annotations

import asyncio
from typing import Any

from treadle.client.own_thread import may_block, run_on_own_thread
from treadle.client.tools import Tool, ToolCallError


async def run_limited(tool: Tool, given: Any, seconds: float | None) -> Any:
    """What the tool returns. Raises what it raises, and `ToolCallError` when the time is up.

    A plain function runs on a thread. If it takes longer it keeps running there, and its result is dropped.
    """
    timeout = asyncio.timeout(seconds)
    try:
        async with timeout:
            value = await run_on_own_thread(tool.call, given) if may_block(tool.function) else tool.call(given)
            return await value if hasattr(value, "__await__") else value
    except TimeoutError:
        if not timeout.expired():  # it is the function's own
            raise
        raise ToolCallError(f"`{tool.name}` did not answer within {seconds:g} s") from None


def limited(tool: Tool, seconds: float | None) -> Tool:
    """The same tool with a time limit."""
    return tool if seconds is None else _LimitedTool(tool, seconds)


class _LimitedTool(Tool):
    """Presented as an async tool."""

    __slots__ = ("_seconds", "_tool")

    def __init__(self, tool: Tool, seconds: float) -> None:
        self.name, self.description, self.input_schema = tool.name, tool.description, tool.input_schema
        self.function = self._run
        self._tool = tool
        self._seconds = seconds

    def arguments(self, given: Any) -> dict[str, Any]:
        return self._tool.arguments(given)

    def call(self, given: Any) -> Any:
        return self._run(given)

    async def _run(self, given: Any) -> Any:
        return await run_limited(self._tool, given, self._seconds)
