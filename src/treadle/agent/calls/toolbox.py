"""`Toolbox`: runs the calls of a turn, side by side where that is harmless, and gives the model their outputs.

Calls start as soon as the model has written them. A patch waits for the calls before it, and calls after a patch wait
for it: commands would otherwise see files half changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from treadle.agent.calls import commands, patches, small
from treadle.agent.sampling import Call
from treadle.agent.turn import Turn
from treadle.errors import ExecError
from treadle.llm import CustomToolCallItem
from treadle.store.contract import StoreError
from treadle.tools.tool_arguments import ExecCommandArguments, parse
from treadle.tools.tool_errors import ToolInputError

logger: logging.Logger = logging.getLogger(__name__)

Output = str | list[dict[str, Any]]


class Toolbox:
    """`group` owns the tasks; `drain` waits for those that were started."""

    def __init__(self, turn: Turn, group: asyncio.TaskGroup) -> None:
        self._turn = turn
        self._group = group
        self._running: list[asyncio.Task[None]] = []
        self._last_alone: asyncio.Task[None] | None = None
        self.called: bool = False  # since the last drain

    def start(self, call: Call) -> None:
        self.called = self._turn.called = True
        alone = call.name == "apply_patch"
        before = list(self._running) if alone else [task for task in (self._last_alone,) if task is not None]
        task = self._group.create_task(self._run(call, before), name=f"call {call.call_id}")
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

    async def _run(self, call: Call, before: list[asyncio.Task[None]]) -> None:
        if before:
            await asyncio.wait(before)
        try:
            output = await self._perform(call)
        except ToolInputError as error:
            output = error.message
        except ExecError as error:
            output = f"it could not be done: {error.message}"
        except StoreError:
            raise
        except Exception as error:
            logger.exception("call %s of %s failed", call.call_id, call.name)
            output = f"internal error in the tool: {type(error).__name__}: {error}"
        self._answer(call, output)

    def _answer(self, call: Call, output: Output) -> None:
        kind = "custom_tool_call_output" if isinstance(call, CustomToolCallItem) else "function_call_output"
        item = {"type": kind, "call_id": call.call_id, "output": output}
        self._turn.calls.pop(call.call_id, None)
        thread = self._turn.thread
        thread.journal.write(*thread.remember([item], self._turn.number))

    def _perform(self, call: Call) -> Awaitable[Output]:
        if isinstance(call, CustomToolCallItem):
            return self._custom(call)
        turn, call_id, text = self._turn, call.call_id, call.arguments
        if small.has_client_tool(turn, call.name, call.namespace):
            return small.client_tool(turn, call_id, call.name, call.namespace, text)
        match call.name:
            case "exec_command":
                return self._command(call_id, text)
            case "write_stdin":
                return commands.write_stdin(turn, text)
            case "apply_patch":
                return patches.apply_patch_function(turn, call_id, text)
            case "update_plan":
                return small.update_plan(turn, text)
            case "view_image":
                return small.view_image(turn, call_id, text)
            case "get_goal":
                return small.get_goal(turn)
            case "create_goal":
                return small.create_goal(turn, text)
            case "update_goal":
                return small.update_goal(turn, text)
        return _unsupported(f"unsupported call: {call.name}")

    def _custom(self, call: CustomToolCallItem) -> Awaitable[Output]:
        if call.name == "apply_patch":
            return patches.apply_patch(self._turn, call.call_id, call.input)
        return _unsupported(f"unsupported custom tool call: {call.name}")

    def _command(self, call_id: str, text: str) -> Awaitable[Output]:
        arguments = parse(text, ExecCommandArguments)
        found = patches.patch_in_command(arguments.cmd)
        if found is None:
            return commands.Command(self._turn, call_id, arguments).run()
        return patches.apply_patch(self._turn, call_id, found[0], _directory(self._turn, arguments, found[1]))


def _directory(turn: Turn, arguments: ExecCommandArguments, cd: str | None) -> str:
    from posixpath import join, normpath

    return normpath(join(turn.thread.settings.cwd, arguments.workdir or "", cd or ""))


async def _unsupported(text: str) -> str:
    return text
