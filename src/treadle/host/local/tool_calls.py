"""`LocalCalls`: runs the tools that a model calls: the host's own, concurrently, each with a time limit.

The model is told about every error. Every call gets an output, even if the turn is interrupted: a provider rejects a
history in which one is missing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, structs

from treadle.agent.model_history import ABORTED
from treadle.client.tools import Content, Tool
from treadle.host.limited_tools import run_limited
from treadle.host.runtime import ItemCompleted, ItemStarted
from treadle.host.turn_events import TurnEvents
from treadle.llm import CustomToolCallItem, FunctionCallItem
from treadle.protocol.app.dynamic_tools import (
    InputAudioDynamicToolCallOutputContentItem,
    InputImageDynamicToolCallOutputContentItem,
    InputTextDynamicToolCallOutputContentItem,
)
from treadle.protocol.app.items import DynamicToolCallThreadItem
from treadle.rpc.nesting import TOO_DEEP, is_too_deep

logger: Final = logging.getLogger(__name__)

Call: TypeAlias = FunctionCallItem | CustomToolCallItem

AT_ONCE: Final = 16
"""Tools that run side by side; the others of a response wait."""
STOPPING_S: Final = 2.0
"""For tools that were cancelled to end; those that do not are left behind."""


class LocalCalls:
    """The calls of one response.

    Args:
        tools: What can be called, by name.
        events: Where it is told.
        limit_s: For one call; None has no limit.
    """

    def __init__(self, tools: Mapping[str, Tool], events: TurnEvents, limit_s: float | None) -> None:
        self._tools = tools
        self._events = events
        self._limit_s = limit_s
        self._places = asyncio.Semaphore(AT_ONCE)
        self._open: dict[str, DynamicToolCallThreadItem] = {}
        self.outputs: dict[str, Raw] = {}
        """By the call that they answer; those that are missing were ended in the middle."""

    async def run(self, calls: Sequence[Call]) -> None:
        """Run all of them to their end. When it is cancelled, so are they."""
        tasks = [asyncio.create_task(self._run(call), name=f"tool {call.name}") for call in calls]
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            try:
                _, left = await asyncio.wait(tasks, timeout=STOPPING_S)
            finally:
                self._give_up()
            if left:
                logger.warning("%d tools did not end when they were cancelled", len(left))
            raise
        for task in tasks:
            task.result()

    def _give_up(self) -> None:
        for item in tuple(self._open.values()):
            self._close(item, _told(ABORTED), success=False)

    async def _run(self, call: Call) -> None:
        async with self._places:
            arguments, problem = _arguments(call)
            item = DynamicToolCallThreadItem(
                id=call.call_id, arguments=arguments, status="inProgress", tool=call.name, namespace=call.namespace
            )
            self._open[call.call_id] = item
            await self._events.tell(ItemStarted(item))
            began = time.monotonic()
            tool = self._tools.get(call.name) if call.namespace is None else None
            if tool is None:
                there = ", ".join(self._tools) or "none"
                problem = f"there is no tool {call.name!r} here; there are: {there}"
            if tool is None or problem is not None:
                content, success = _told(problem or ""), False
            else:
                content, success = await self._perform(tool, arguments)
            self.outputs[call.call_id] = output(call, [_for_model(part) for part in content])
            took = structs.replace(item, duration_ms=int((time.monotonic() - began) * 1000))
            self._close(took, content, success=success)

    def _close(self, item: DynamicToolCallThreadItem, content: Content, *, success: bool) -> None:
        if self._open.pop(item.id, None) is not None:
            status = "completed" if success else "failed"
            done = structs.replace(item, status=status, success=success, content_items=content)
            self._events.note(ItemCompleted(done))

    async def _perform(self, tool: Tool, arguments: Any) -> tuple[Content, bool]:
        try:
            return tool.content(await run_limited(tool, arguments, self._limit_s)), True
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return _told(f"`{tool.name}` was cancelled"), False
        except Exception as error:
            logger.debug("the tool %s failed", tool.name, exc_info=error)
            return tool.failure(error), False


def _arguments(call: Call) -> tuple[Any, str | None]:
    """What the tool is called with, and what is wrong with it."""
    if isinstance(call, CustomToolCallItem):
        return call.input, f"`{call.name}` takes an object with its parameters, and no free text"
    text = call.arguments or "{}"
    if is_too_deep(text.encode("utf-8", "replace")):
        return text, f"the arguments cannot be read: {TOO_DEEP}"
    try:
        return msgspec.json.decode(text), None
    except msgspec.DecodeError as error:
        return text, f"the arguments are no JSON: {error}"


def output(call: Call, content: list[dict[str, Any]] | str) -> Raw:
    """The answer to a call, for the history."""
    kind = "custom_tool_call_output" if isinstance(call, CustomToolCallItem) else "function_call_output"
    return Raw(msgspec.json.encode({"type": kind, "call_id": call.call_id, "output": content}))


def _told(text: str) -> Content:
    return (InputTextDynamicToolCallOutputContentItem(text=text),)


def _for_model(part: Any) -> dict[str, Any]:
    match part:
        case InputImageDynamicToolCallOutputContentItem():
            return {"type": "input_image", "image_url": part.image_url}
        case InputAudioDynamicToolCallOutputContentItem():
            return {"type": "input_audio", "audio_url": part.audio_url}
    return {"type": "input_text", "text": part.text}
