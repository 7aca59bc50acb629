"""Calls of the model, as hooks know them: under which name and with which input, what a hook may change of one, and
what its response is. A command is the tool `Bash`, and a patch has its text under `command`: hooks that were written
for other agents then know them.

What a hook is shown is read as the tool itself reads it, so that it cannot be shown one thing and the tool do another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from treadle.agent.thread.thread_hooks import ThreadHooks
from treadle.agent.tools.approval import COMMAND, PATCH, ToolUse, command_use, mcp_use
from treadle.agent.tools.built_in import (
    ApplyPatch,
    ApplyPatchArguments,
    ApplyPatchFreeform,
    ExecCommand,
    ExecCommandArguments,
    WriteStdin,
)
from treadle.agent.tools.mcp_tools import McpTool
from treadle.agent.tools.tool import Output, Tool, ToolCall
from treadle.protocol.app.items import CommandExecutionThreadItem, FileChangeThreadItem, McpToolCallThreadItem
from treadle.tools.specs import ToolInputError, parse_arguments

if TYPE_CHECKING:
    from treadle.protocol.app.items import KnownItem

_NOTHING: Final = object()


def hooked(tool: Tool, call: ToolCall) -> ToolUse | None:
    """The call as hooks know it; None for one that no hook sees: input for a command that runs already, and what cannot
    be read, which the tool will not run either."""
    try:
        match tool:
            case WriteStdin():
                return None
            case ExecCommand():
                return command_use(call.id, call.arguments(ExecCommandArguments).cmd)
            case ApplyPatch():
                return ToolUse(call.id, PATCH, {"command": call.arguments(ApplyPatchArguments).input})
            case ApplyPatchFreeform():
                return ToolUse(call.id, PATCH, {"command": call.text})
            case McpTool():
                return mcp_use(call.id, tool.server.config.name, tool.name, call.arguments(dict[str, Any]))
        return ToolUse(call.id, call.name, {"input": call.text} if call.free_text else parse_arguments(call.text, Any))
    except ToolInputError:
        return None


class HookedRun:
    """A call on its way through its hooks."""

    def __init__(self, hooks: ThreadHooks, tool: Tool, call: ToolCall) -> None:
        self._hooks = hooks
        self._tool = tool
        self._call = call
        self._hooked = hooked(tool, call)

    async def before(self) -> tuple[ToolCall, str | None]:
        """The call as it is to run, and why it is not to run at all."""
        if self._hooked is None or not self._hooks.has("PreToolUse"):
            return self._call, None
        turn = self._call.turn
        decision = await self._hooks.before_call(turn, self._hooked)
        self._hooks.add_contexts(turn, decision)
        if decision.refusal is not None:
            if self._hooked.name == COMMAND:
                command = self._hooked.input["command"]
                return self._call, f"Command blocked by PreToolUse hook: {decision.refusal}. Command: {command}"
            refusal = f"Tool call blocked by PreToolUse hook: {decision.refusal}. Tool: {self._hooked.name}"
            return self._call, refusal
        if decision.updated_input is not None:
            self._call = self._changed(decision.updated_input)
            self._hooked = hooked(self._tool, self._call)
        return self._call, None

    def _changed(self, given: Mapping[str, Any]) -> ToolCall:
        if not isinstance(self._tool, ExecCommand | ApplyPatch | ApplyPatchFreeform):
            return replace(self._call, text=msgspec.json.encode(given).decode())
        command = given.get("command")
        if not isinstance(command, str):
            raise ToolInputError("hook returned updatedInput without string field `command`")
        if isinstance(self._tool, ApplyPatchFreeform):
            return replace(self._call, text=command)
        member = "cmd" if isinstance(self._tool, ExecCommand) else "input"
        arguments = {**self._call.arguments(dict[str, Any]), member: command}
        return replace(self._call, text=msgspec.json.encode(arguments).decode())

    async def after(self, output: Output) -> Output:
        """The output for the model of a call that has run to its end."""
        if self._hooked is None or not self._hooks.has("PostToolUse"):
            return output
        response = self._response(output)
        if response is _NOTHING:
            return output
        turn = self._call.turn
        decision = await self._hooks.after_call(turn, self._hooked, response)
        self._hooks.add_contexts(turn, decision)
        return decision.stop or decision.refusal or output

    def _response(self, output: Output) -> Any:
        """The response of a call; `_NOTHING` of one that did not run, or runs still: its item says so."""
        if not isinstance(self._tool, ExecCommand | ApplyPatch | ApplyPatchFreeform | McpTool):
            return output
        items = self._call.turn.items
        item: KnownItem | None = next((item for item in reversed(items.all()) if item.id == self._call.id), None)
        match item:
            case CommandExecutionThreadItem(exit_code=int()) if items.find(item.id) is None:
                return item.aggregated_output or ""
            case FileChangeThreadItem(status="completed") if not isinstance(self._tool, ExecCommand):
                return output
            case McpToolCallThreadItem(result=result) if result is not None:
                response: dict[str, Any] = {"content": result.content}
                if result.structured_content is not None:
                    response["structuredContent"] = result.structured_content
                return response if item.status == "completed" else {**response, "isError": True}
        return _NOTHING
