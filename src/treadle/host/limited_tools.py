"""`limited`: a tool of the host that answers in time, whatever its function does."""

from __future__ import annotations

import asyncio
from typing import Any

from treadle.client.own_thread import may_block, run_on_own_thread
from treadle.client.tools import Tool, ToolCallError


def limited(tool: Tool, seconds: float | None) -> Tool:
    """The same tool with a time limit. A plain function that takes longer keeps running on its thread, and its result
    is dropped.
    """
    return tool if seconds is None else _LimitedTool(tool, seconds)


class _LimitedTool(Tool):
    """Presented as an async tool; it runs a plain function on a thread itself."""

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
        timeout = asyncio.timeout(self._seconds)
        try:
            async with timeout:
                tool = self._tool
                value = await run_on_own_thread(tool.call, given) if may_block(tool.function) else tool.call(given)
                return await value if hasattr(value, "__await__") else value
        except TimeoutError:
            if not timeout.expired():  # it is the function's own
                raise
            raise ToolCallError(f"`{self.name}` did not answer within {self._seconds:g} s") from None
