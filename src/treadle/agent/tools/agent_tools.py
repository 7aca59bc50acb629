"""The tools for sub-agents, `multi_agent_v1`: their descriptions, what calls of them mean, and the items of the calls.
What is done to a sub-agent is `Children`, what a role may say `agent_roles`.

An item that was started always completes. Calls are made in the order in which the model has written them.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct, structs

from treadle.agent.agent_roles import Roles, find_roles
from treadle.agent.event import new_id
from treadle.agent.thread.thread_children import ChildStatus
from treadle.agent.tools.new_child import discard_worktree, new_child
from treadle.agent.tools.tool import Tool, ToolCall
from treadle.agent.turn.pending_input import check_input, text_of
from treadle.errors import ExecError, RpcError
from treadle.execution.bounded_reads import FileSnapshot, KnownReads
from treadle.execution.project_files import ProjectFiles
from treadle.protocol.app.item_parts import (
    DynamicToolNamespaceTool,
    ImageUserInput,
    LocalImageUserInput,
    MentionUserInput,
    NamespaceDynamicToolSpec,
    SkillUserInput,
    TextUserInput,
    UserInput,
)
from treadle.protocol.app.items import CollabAgentToolCallThreadItem
from treadle.tools.specs import ToolInputError, dynamic_spec, flag, text

if TYPE_CHECKING:
    from treadle.agent.thread.thread import Thread
    from treadle.agent.thread.thread_state import Settings
    from treadle.agent.turn.turn import Turn
    from treadle.config import Config

NAMESPACE: Final = "multi_agent_v1"
_Effect: TypeAlias = Literal["spawnAgent", "sendInput", "wait", "closeAgent", "resumeAgent"]
DEFAULT_WAIT_MS: Final = 30_000
MIN_WAIT_MS: Final = 10_000
MAX_WAIT_MS: Final = 3_600_000
MAX_TARGETS: Final = 256


# --- what a model reads -----------------------------------------------------------------------------------------------


_SPAWN: Final = (
    "Starts a sub-agent: it works by itself on the task that you give it, beside you, and you are notified when it is "
    "done. Only do so when the user, AGENTS.md or a skill asks for sub-agents, delegation or parallel work.\n"
    "- Give it a task that is well defined and whole: it knows nothing but what you write, unless `fork_context`.\n"
    "- Do yourself what you need next; do not do again what you have handed on. Wait only when you cannot go on "
    "without the result.\n"
    "- Sub-agents work in your folder, unless `isolation`: no two that change files there should run at a time, and "
    "each should know which files are its own."
)
_ITEMS: Final = {
    "type": "array",
    "description": "The same in parts.",
    "items": {
        "type": "object",
        "properties": {
            "type": text("text, image, local_image, skill or mention."),
            "text": text("Of a text."),
            "image_url": text("Of an image."),
            "path": text("Of a local_image, skill or mention."),
            "name": text("Of a skill or mention."),
        },
        "additionalProperties": False,
    },
}


def _function(
    name: str, description: str, properties: Mapping[str, object], *required: str
) -> DynamicToolNamespaceTool:
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    return DynamicToolNamespaceTool(name=name, description=description, input_schema=schema)


def namespace(roles: Roles, engines: Sequence[str] = ()) -> Raw:
    """All the tools, as a member of `tools` in a request of the Responses API; with the engines that may be started."""
    with_engine = text("Another agent program that does it instead of a model, if the user asks for it.", words=engines)
    described = "\n".join(f"- {role.name}: {role.description}" for role in roles.by_name.values())
    close = _function(
        "close_agent",
        "Closes a sub-agent that is no longer needed, with its own, and returns how it was.",
        {"target": text("Its id, from spawn_agent.")},
        "target",
    )
    resume = _function(
        "resume_agent",
        "Opens a sub-agent again that was closed, so that it can be sent input.",
        {"id": text("Its id.")},
        "id",
    )
    send = _function(
        "send_input",
        "Gives a sub-agent more to do, or to know. It still has what it has seen and done.",
        {
            "target": text("Its id, from spawn_agent."),
            "message": text("What you say to it."),
            "items": _ITEMS,
            "interrupt": flag("Whether it should stop what it does now. Default: false."),
        },
        "target",
    )
    spawn = _function(
        "spawn_agent",
        _SPAWN,
        {
            "message": text("The task."),
            "items": _ITEMS,
            "agent_type": text(f"Its role. Default: `default`.\n{described}"),
            "model": text("Another model than yours, if the user asks for one."),
            "model_provider": text("The provider of that model, by its name in the settings, if it is not yours."),
            "reasoning_effort": text("Another effort than yours, if the user asks for one."),
            "fork_context": flag("Whether it sees what you and the user have said so far. Default: false."),
            "isolation": text(
                "`worktree` gives it a git worktree with a new branch, below the project.", words=("worktree",)
            ),
            "wake": flag("Whether you go on by yourself when it is done, also if you are idle. Default: false."),
            **({"engine": with_engine} if engines else {}),
        },
    )
    wait = _function(
        "wait_agent",
        "Waits until the first of some sub-agents is done, and returns what it says; nothing when that takes longer.",
        {
            "targets": {"type": "array", "items": {"type": "string"}, "description": "Their ids."},
            "timeout_ms": {
                "type": "number",
                "description": f"Most milliseconds to wait, {MIN_WAIT_MS} to {MAX_WAIT_MS}. Default: "
                f"{DEFAULT_WAIT_MS}. Rather wait for minutes than often.",
            },
        },
        "targets",
    )
    return dynamic_spec(
        NamespaceDynamicToolSpec(
            name=NAMESPACE,
            description="Sub-agents: start them, talk to them, wait for them.",
            tools=(close, resume, send, spawn, wait),
        )
    )


def may_have_agents(thread: Thread, config: Config) -> bool:
    depth = 0 if thread.state.agent is None else thread.state.agent.depth
    return config.features.multi_agent and config.agents.enabled and depth < config.agents.max_depth


# --- roles ------------------------------------------------------------------------------------------------------------


class KnownRoles(Struct, frozen=True):
    """The roles of a place, and the specification of the tools with these roles."""

    roles: Roles
    spec: Raw
    config: Config


_known: Final[KnownReads[tuple[object, ...], KnownRoles]] = KnownReads()


async def roles_for(settings: Settings, config: Config) -> KnownRoles:
    """The roles that the sub-agents of a thread may have. Their files are read again when they have changed."""
    # The configuration lives as long as what is stored by it; the sandbox and its roots decide the confinement.
    there = settings.is_local  # else the thread is in no project of this machine
    place = (settings.cwd, settings.sandbox, settings.workspace_roots, there, id(config))

    def read() -> KnownRoles:
        home = str(config.home)
        cwd = settings.cwd if there else home
        snapshot = FileSnapshot(cwd, home)
        project = ProjectFiles(cwd, home, settings.confinement, snapshot)
        roles = find_roles(project, config, of_project=there)
        return _known.store(place, KnownRoles(roles, namespace(roles, installed(config)), config), snapshot)

    try:
        return await _known.find(place, read)
    except TimeoutError:
        roles = Roles({}, (f"agent roles were not looked for: the file system of {settings.cwd} does not answer",))
        return KnownRoles(roles, namespace(roles), config)


def installed(config: Config) -> list[str]:
    """The engines that the settings allow and that are here. Blocking."""
    if not config.agents.engines:
        return []
    from treadle.runners.engine import UnknownEngine  # few have allowed one
    from treadle.runners.engine_registry import find_engine

    found = []
    for name in config.agents.engines:
        with contextlib.suppress(UnknownEngine):
            if shutil.which(find_engine(name).program) is not None:
                found.append(name)
    return found


async def offered_spec(turn: Turn, settings: Settings, config: Config) -> Raw | None:
    """The specification of these tools for the model of a turn; None when its thread may have no sub-agents."""
    if not may_have_agents(turn.thread, config):
        return None
    found = await roles_for(settings, config)
    for warning in found.roles.warnings:
        turn.thread.warn_once(turn, warning)
    return found.spec


# --- calls ------------------------------------------------------------------------------------------------------------


class Part(Struct, frozen=True, kw_only=True):
    type: str = "text"
    text: str = ""
    image_url: str = ""
    path: str = ""
    name: str = ""


class SpawnArguments(Struct, frozen=True, kw_only=True):
    message: str | None = None
    items: tuple[Part, ...] | None = None
    agent_type: str | None = None
    model: str | None = None
    model_provider: str | None = None
    reasoning_effort: str | None = None
    fork_context: bool = False
    isolation: Literal["worktree"] | None = None
    wake: bool = False
    engine: str | None = None


class SendArguments(Struct, frozen=True, kw_only=True):
    target: str
    message: str | None = None
    items: tuple[Part, ...] | None = None
    interrupt: bool = False


class WaitArguments(Struct, frozen=True, kw_only=True):
    targets: tuple[str, ...]
    timeout_ms: float = DEFAULT_WAIT_MS


class CloseArguments(Struct, frozen=True, kw_only=True):
    target: str


class ResumeArguments(Struct, frozen=True, kw_only=True):
    id: str


class AgentTools(Tool):
    """The tools of the namespace, as one tool."""

    name = NAMESPACE
    spec: Raw = Raw(b"")
    exclusive = True
    domain = "agents"

    def answers(self, call: ToolCall) -> bool:
        return not call.free_text and _tool(call) is not None

    async def run(self, call: ToolCall) -> str:
        name = _tool(call)
        assert name is not None
        return await _RUN[name](call)


AGENT_TOOLS: Final = AgentTools()


def _tool(call: ToolCall) -> str | None:
    """The function that a call means, however its two parts were joined."""
    if call.name in _RUN and call.namespace in (None, NAMESPACE):
        return call.name
    if not any(name in call.name for name in _RUN):
        return None
    from treadle.mcp.tool_specs import ToolNames  # loaded with the first call of another form

    found = ToolNames({NAMESPACE: _RUN}, prefix="").find(call.namespace, call.name)
    return None if found is None else found[1]


class _Call:
    """The item of a call. When what is done in `with` raises, it completes as failed, with these `states`."""

    def __init__(self, call: ToolCall, tool: _Effect, receivers: Sequence[str] = (), **more: Any) -> None:
        self._turn = call.turn
        self._item = CollabAgentToolCallThreadItem(
            id=call.id,
            agents_states={},
            receiver_thread_ids=tuple(receivers),
            sender_thread_id=call.turn.thread.id,
            status="inProgress",
            tool=tool,
            **more,
        )
        self._turn.items.start(self._item)
        self.states: Mapping[str, ChildStatus] = {}

    def __enter__(self) -> _Call:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self.complete(self.states, failed=True)

    def complete(self, states: Mapping[str, ChildStatus], *, failed: bool = False, **more: Any) -> None:
        """Complete the item; the state of the thread is stored in the same write."""
        item = structs.replace(
            self._item,
            status="failed" if failed else "completed",
            agents_states={child_id: status.on_wire for child_id, status in states.items()},
            **more,
        )
        self._turn.items.complete(item, self._turn.thread.save())

    def not_found(self, child_id: str) -> str:
        self.complete({child_id: ChildStatus("notFound")}, failed=True)
        return f"agent with id {child_id[:200]} not found"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _input(message: str | None, items: tuple[Part, ...] | None) -> tuple[UserInput, ...]:
    if message is not None and items is not None:
        raise ToolInputError("Provide either message or items, but not both")
    if message is None and items is None:
        raise ToolInputError("Provide one of: message or items")
    parts = (TextUserInput(text=message),) if message is not None else tuple(map(_part, items or ()))
    if not parts or (message is not None and not message.strip()):
        raise ToolInputError("Empty message can't be sent to an agent")
    try:
        check_input(parts)
    except RpcError as error:
        raise ToolInputError(error.message) from None
    return parts


def _part(part: Part) -> UserInput:
    match part.type:
        case "text":
            return TextUserInput(text=part.text)
        case "image":
            return ImageUserInput(url=part.image_url)
        case "local_image":
            return LocalImageUserInput(path=part.path)
        case "skill":
            return SkillUserInput(name=part.name, path=part.path)
        case "mention":
            return MentionUserInput(name=part.name, path=part.path)
    raise ToolInputError(f"items: there is no type `{part.type[:40]}`")


async def _spawn(call: ToolCall) -> str:
    given, turn, thread = call.arguments(SpawnArguments), call.turn, call.turn.thread
    task = _input(given.message, given.items)
    with _Call(
        call,
        "spawnAgent",
        prompt=text_of(task),
        model=given.model or "",
        reasoning_effort=given.reasoning_effort or turn.settings.effort,
    ) as item:
        try:
            child_id = new_id()
            async with thread.children.room(turn, child_id):
                known = await roles_for(thread.settings, thread.services.config_for(thread.settings))
                new, extra = await new_child(turn, child_id, given, known.roles, text_of(task))
                try:
                    await thread.children.start(new, task, turn, wake=given.wake)
                except BaseException:
                    discard_worktree(thread, new.place.branch)
                    raise
        except (RpcError, ExecError) as error:
            raise ToolInputError(f"collab spawn failed: {error.message}") from None
    item.complete(
        {new.id: ChildStatus("pendingInit")},
        receiver_thread_ids=(new.id,),
        model=new.settings.model,
        reasoning_effort=new.settings.effort,
    )
    return _json({"agent_id": new.id, "nickname": new.place.nickname, **extra})


async def _send(call: ToolCall) -> str:
    given, children = call.arguments(SendArguments), call.turn.thread.children
    said = _input(given.message, given.items)
    with _Call(call, "sendInput", (given.target,), prompt=text_of(said)) as item:
        item.states = {given.target: ChildStatus("errored")}
        before = await children.status(given.target)
        item.states = {given.target: before}
        if before.word == "notFound":
            return item.not_found(given.target)
        try:
            submission = await children.send(given.target, said, call.turn, interrupt=given.interrupt)
        except (RpcError, ExecError) as error:
            raise ToolInputError(f"collab tool failed: {error.message}") from None
    item.complete(item.states)
    return _json({"submission_id": submission})


async def _wait(call: ToolCall) -> str:
    given, children = call.arguments(WaitArguments), call.turn.thread.children
    targets = tuple(dict.fromkeys(given.targets))
    if not targets:
        raise ToolInputError("agent ids must be non-empty")
    if len(targets) > MAX_TARGETS:
        raise ToolInputError(f"at most {MAX_TARGETS} agents can be waited for")
    with _Call(call, "wait", targets) as item:
        timeout_ms = min(max(given.timeout_ms, MIN_WAIT_MS), MAX_WAIT_MS)
        ends = await children.wait(targets, timeout_ms / 1000)
    children.returned(call.id, ends)
    found = {child_id: each.status for child_id, each in ends.items()}
    failed = any(status.word in ("notFound", "errored") for status in found.values())
    item.complete(found, failed=failed)
    ended = {child_id: status.for_model for child_id, status in found.items()}
    return _json({"status": ended, "timed_out": not found})


async def _close(call: ToolCall) -> str:
    given, children = call.arguments(CloseArguments), call.turn.thread.children
    with _Call(call, "closeAgent", (given.target,)) as item:
        if (await children.status(given.target)).word == "notFound":
            return item.not_found(given.target)
        before = await children.close(given.target, call.turn)
    item.complete({given.target: before})
    return _json({"previous_status": before.for_model})


async def _resume(call: ToolCall) -> str:
    given, children = call.arguments(ResumeArguments), call.turn.thread.children
    with _Call(call, "resumeAgent", (given.id,)) as item:
        status = await children.status(given.id)
        if status.word == "notFound":
            try:
                if not await children.reopen(given.id, call.turn):
                    return item.not_found(given.id)
            except RpcError as error:
                raise ToolInputError(f"collab resume failed: {error.message}") from None
            status = ChildStatus("pendingInit")
    item.complete({given.id: status})
    return _json({"status": status.for_model})


_RUN: Final[dict[str, Callable[[ToolCall], Awaitable[str]]]] = {
    "spawn_agent": _spawn,
    "send_input": _send,
    "wait_agent": _wait,
    "close_agent": _close,
    "resume_agent": _resume,
}
