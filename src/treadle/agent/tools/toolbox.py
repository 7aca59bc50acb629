"""`Toolbox`: runs the calls of a turn, side by side where that is harmless, and gives the model their outputs.

Calls start as soon as the model has written them. One of an exclusive tool, such as a patch, waits for the calls before
it, and calls after it wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from itertools import chain
from typing import Final

from msgspec import Raw

from treadle.agent.aside import Aside
from treadle.agent.sampling import Call
from treadle.agent.thread import Thread
from treadle.agent.tools import built_in
from treadle.agent.tools.client_tools import client_tools
from treadle.agent.tools.tool import Output, Tool, ToolCall
from treadle.agent.tools.tool_choice import left, offered, refusal
from treadle.agent.turn import Turn
from treadle.config import Config
from treadle.errors import ExecError
from treadle.llm import CustomToolCallItem
from treadle.logs.trace import IDS
from treadle.store.contract import StoreError
from treadle.tools.tool_arguments import ToolInputError

logger: logging.Logger = logging.getLogger(__name__)

MAX_LOGGED: Final = 80  # of what a model says


def specifications(thread: Thread, aside: Aside | None = None) -> tuple[Raw, ...]:
    """What the model of a thread, or of an aside in it, is told of its tools."""
    model, settings = thread.model_facts, thread.settings
    if aside is not None:
        model, settings = aside.model_facts(thread), aside.settings(thread)
    ours = offered(built_in.BUILT_IN, settings.mode, thread.services.config_for(settings))
    tools = chain(ours, client_tools(thread))
    return tuple(tool.spec for tool in tools if tool.suits(model) and (aside is None or aside.has(tool.name)))


class Toolbox:
    """`group` owns the tasks; `drain` waits for those that were started."""

    def __init__(self, turn: Turn, group: asyncio.TaskGroup) -> None:
        self._turn = turn
        self._group = group
        self._running: list[asyncio.Task[None]] = []
        self._last_alone: asyncio.Task[None] | None = None
        self.called: bool = False  # since the last drain

    def start(self, item: Call) -> None:
        self.called = self._turn.called = True
        call = _read(self._turn, item)
        tool = self._find(call)
        alone = tool is not None and tool.exclusive
        before = list(self._running) if alone else [task for task in (self._last_alone,) if task is not None]
        task = self._group.create_task(self._run(tool, call, before), name=f"call {call.id}")
        self._running.append(task)
        if alone:
            self._last_alone = task

    async def drain(self) -> None:
        """Wait for all calls; the model can be asked again then."""
        while self._running:
            await asyncio.wait(self._running)
            self._running = [task for task in self._running if not task.done()]
        self._last_alone = None
        self.called = False

    def _find(self, call: ToolCall) -> Tool | None:
        """The client's tools come first: a client that takes one of our names means its own."""
        tools = chain(client_tools(self._turn.thread), left(built_in.BUILT_IN, self._config()))
        aside = self._turn.aside
        return next((tool for tool in tools if tool.answers(call) and (aside is None or aside.has(tool.name))), None)

    def _config(self) -> Config:
        return self._turn.thread.services.config_for(self._turn.settings)

    async def _run(self, tool: Tool | None, call: ToolCall, before: list[asyncio.Task[None]]) -> None:
        if before:
            await asyncio.wait(before)
        IDS.set({**IDS.get(), "call": call.id[:MAX_LOGGED]})  # for this task
        logger.info("tool called", {"tool": call.name[:MAX_LOGGED]})
        began = time.monotonic()
        try:
            output = _unsupported(call) if tool is None else await self._use(tool, call)
        except ToolInputError as error:
            outcome, output = "wrong input", error.message
        except ExecError as error:
            outcome, output = "failed", f"it could not be done: {error.message}"
        except StoreError:
            raise
        except Exception as error:
            logger.exception("call %s of %s failed", call.id, call.name)
            outcome, output = "internal error", f"internal error in the tool: {type(error).__name__}: {error}"
        else:
            outcome = "done"
        took_ms = int((time.monotonic() - began) * 1000)
        logger.info("tool ended", {"tool": call.name[:MAX_LOGGED], "outcome": outcome, "duration_ms": took_ms})
        self._answer(call, output)

    async def _use(self, tool: Tool, call: ToolCall) -> Output:
        refused = refusal(tool, self._turn.settings, self._config())
        return await tool.run(call) if refused is None else refused

    def _answer(self, call: ToolCall, output: Output) -> None:
        kind = "custom_tool_call_output" if call.free_text else "function_call_output"
        item = {"type": kind, "call_id": call.id, "output": output}
        self._turn.calls.pop(call.id, None)
        self._turn.thread.journal.write(*self._turn.remember([item]))


def _read(turn: Turn, item: Call) -> ToolCall:
    if isinstance(item, CustomToolCallItem):
        return ToolCall(turn, item.call_id, item.name, item.input, free_text=True)
    return ToolCall(turn, item.call_id, item.name, item.arguments, item.namespace)


def _unsupported(call: ToolCall) -> str:
    return f"unsupported {'custom tool call' if call.free_text else 'call'}: {call.name}"
