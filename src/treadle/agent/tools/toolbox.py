"""`Toolbox`: runs the calls of a turn, side by side where that is harmless, and gives the model their outputs.

It also owns which tools a model has: some are switched off by the settings, some are not for the mode that the thread
is in. That is asked before a model is offered a tool, and again before a call runs: a model may call a tool that it was
not offered. Calls start as soon as the model has written them. One of an exclusive tool, such as a patch, waits for the
calls before it, and calls after it wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from treadle.agent.thread.model_history import output_item
from treadle.agent.thread.thread import Thread
from treadle.agent.tools import built_in
from treadle.agent.tools.agent_tools import AGENT_TOOLS, may_have_agents
from treadle.agent.tools.client_tools import client_tools
from treadle.agent.tools.tool import Output, Tool, ToolCall
from treadle.agent.tools.web_tools import hosted_search
from treadle.agent.turn.sampling import KINDS, ModelCall
from treadle.agent.turn.turn import SideConversation, Turn
from treadle.config import Config
from treadle.errors import ExecError
from treadle.llm import CustomToolCallItem, ToolSearchCallItem
from treadle.logs.trace import IDS
from treadle.store.contract import StoreError
from treadle.tools.command.command_output import cut_to, tokens
from treadle.tools.specs import WEB_TOOLS, ToolInputError, with_environment_id

if TYPE_CHECKING:
    from treadle.agent.thread.thread_state import Settings


# --- which tools a model has ------------------------------------------------------------------------------------------


NO_ENVIRONMENT: Final = "this thread has no environment, so nothing can be run, read or changed; go on without"


def left(tools: Iterable[Tool], config: Config) -> list[Tool]:
    """The tools that the settings leave. A call of another one is a call of a tool that does not exist."""
    off = {name for name, switch in config.tools.items() if not getattr(switch, "enabled", switch)}
    return [
        tool
        for tool in tools
        if (tool.feature is None or getattr(config.features, tool.feature))
        and tool.name not in off
        and tool.settings_name not in off
        and tool.is_configured(config)
    ]


def offered(tools: Iterable[Tool], mode: str, config: Config) -> list[Tool]:
    """The tools that a model is offered. Without an environment too: a thread can be given one later."""
    return [tool for tool in left(tools, config) if _suits_mode(tool, mode, config)]


def tool_refusal(tool: Tool, settings: Settings, config: Config) -> str | None:
    """The answer to a model that calls a tool which it cannot use now; None when it can."""
    if not _suits_mode(tool, settings.mode, config):
        return f"{tool.name} cannot be used in {settings.mode} mode"
    return NO_ENVIRONMENT if tool.needs_environment and settings.environment is None else None


def _suits_mode(tool: Tool, mode: str, config: Config) -> bool:
    if tool.any_mode_feature is not None and getattr(config.features, tool.any_mode_feature):
        return True
    return tool.mode is None or tool.mode == mode


def specifications(thread: Thread, side: SideConversation | None = None) -> tuple[Raw, ...]:
    """The specifications of the tools of a thread, or of a side conversation in it, for the model."""
    model, settings = thread.model_facts, thread.settings
    if side is not None:
        model, settings = side.model_facts(thread), side.settings(thread)
    config, clients = thread.services.config_for(settings), client_tools(thread)
    ours = offered(built_in.BUILT_IN, settings.mode, config)
    # A client that brings a search means its own; a provider that searches leaves nothing to do for tools of ours.
    brought = {tool.name for tool in clients} & WEB_TOOLS
    hosted = None if brought or side is not None else hosted_search(config, settings.model_provider)
    others = brought if hosted is None else WEB_TOOLS
    tools = chain((tool for tool in ours if tool.name not in others), clients)
    suitable = [tool for tool in tools if tool.suits(model) and (side is None or side.has(tool.name))]
    specs = [tool.spec for tool in suitable]
    if settings.others:
        several = zip(suitable, specs, strict=True)
        specs = [with_environment_id(spec) if tool.chooses_environment else spec for tool, spec in several]
    return tuple(specs if hosted is None else [*specs, hosted])


# --- running calls ----------------------------------------------------------------------------------------------------


logger: logging.Logger = logging.getLogger(__name__)
MAX_LOGGED: Final = 80  # of what a model says
NOT_RUN: Final = "not run: the limit of tool calls in this turn is reached"


class Toolbox:
    """`group` owns the tasks; `drain` waits for those that were started."""

    def __init__(self, turn: Turn, group: asyncio.TaskGroup) -> None:
        self._turn = turn
        self._group = group
        self._running: dict[asyncio.Task[None], str] = {}  # with the domain of each call
        self._last_alone: dict[str, asyncio.Task[None]] = {}  # by domain
        self.called: bool = False  # since the last drain
        self.closed: bool = False  # the turn is at its limit: calls are answered, and not run

    def start(self, item: ModelCall) -> None:
        turn = self._turn
        self.called = turn.called = True
        kind = KINDS[type(item)]
        if isinstance(item, ToolSearchCallItem):
            call = ToolCall(turn, item.call_id, "tool_search", item.arguments, kind=kind)
        elif isinstance(item, CustomToolCallItem):
            call = ToolCall(turn, item.call_id, item.name, item.input, kind=kind)
        else:
            call = ToolCall(turn, item.call_id, item.name, item.arguments, item.namespace)
        # The client's tools come first: a client that takes one of our names means its own.
        ours = chain(client_tools(turn.thread), left(built_in.BUILT_IN, self._config()))
        tools = () if isinstance(item, ToolSearchCallItem) else ours
        side = turn.side
        tool = next((tool for tool in tools if tool.answers(call) and (side is None or side.has(tool.name))), None)
        if tool is None and side is None and AGENT_TOOLS.answers(call) and may_have_agents(turn.thread, self._config()):
            tool = AGENT_TOOLS
        if tool is None and side is None and (mcp := turn.thread.mcp) is not None:
            tool = mcp.toolset().find(call)
        alone, domain = tool is not None and tool.exclusive, "" if tool is None else tool.domain
        if alone:
            before = [task for task, other in self._running.items() if other == domain]
        else:
            before = [self._last_alone[domain]] if domain in self._last_alone else []
        task = self._group.create_task(self._run(tool, call, before), name=f"call {call.id}")
        self._running[task] = domain
        if alone:
            self._last_alone[domain] = task

    async def drain(self) -> None:
        """Wait for all calls; the model can be asked again then."""
        while self._running:
            await asyncio.wait(self._running)
            self._running = {task: domain for task, domain in self._running.items() if not task.done()}
        self._last_alone.clear()
        self.called = False

    def _config(self) -> Config:
        return self._turn.thread.services.config_for(self._turn.settings)

    async def _run(self, tool: Tool | None, call: ToolCall, before: list[asyncio.Task[None]]) -> None:
        if before:
            await asyncio.wait(before)
        IDS.set({**IDS.get(), "call": call.id[:MAX_LOGGED]})  # for this task
        logger.info("tool called", {"tool": call.name[:MAX_LOGGED]})
        began = time.monotonic()
        output: Output
        returned: Output | None = None  # before hooks
        try:
            if self.closed:
                output = NOT_RUN
            elif tool is None:
                output = (
                    f"unsupported {'custom tool call' if call.free_text else 'call'}: {call.namespace or ''}{call.name}"
                )
            else:
                refused = tool_refusal(tool, self._turn.settings, self._config())
                run = None
                if refused is None and (hooks := self._turn.thread.hooks) is not None:
                    from treadle.agent.tools.hooked_calls import HookedRun  # loaded with the first hook

                    run = HookedRun(hooks, tool, call)
                    call, refused = await run.before()
                if refused is None and (tool is AGENT_TOOLS or tool.may_write(call)):
                    await self._turn.before_write()
                output = returned = await tool.run(call) if refused is None else refused
                if refused is None and run is not None:
                    output = await run.after(output)
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
        is_report = tool is AGENT_TOOLS and output is returned
        limit = self._config().tool_output_token_limit
        if limit is not None:
            output = _within(output, limit)
        item = output_item(call.kind, call.id, output)
        self._turn.calls.pop(call.id, None)
        thread = self._turn.thread
        writes = self._turn.add_history([item], thread.origin_of(call.kind))
        if is_report:
            writes += thread.children.output_written(call.id, self._turn)
        thread.journal.write(*writes)


def _within(output: Output, limit: int) -> Output:
    """The texts of an output, cut to so many tokens together."""
    if isinstance(output, str):
        return cut_to(output, limit)
    parts: list[dict[str, Any]] = []
    for part in output:
        if part["type"] == "input_text":
            part = {**part, "text": cut_to(part["text"], limit)}
            limit = max(limit - tokens(len(part["text"].encode("utf-8", "replace"))), 0)
        parts.append(part)
    return parts
