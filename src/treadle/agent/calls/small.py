"""The small tools: update_plan, view_image, the goal tools, and tools that the client runs."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec import structs

from treadle.agent.approval_policy import wait_for
from treadle.agent.thread_goal import set_goal, tell_goal
from treadle.agent.turn import Turn
from treadle.errors import RpcError
from treadle.protocol.app.base import decode, encode
from treadle.protocol.app.dynamic_tools import (
    DynamicToolCallOutputContentItem,
    DynamicToolCallParams,
    DynamicToolCallResponse,
    InputAudioDynamicToolCallOutputContentItem,
    InputImageDynamicToolCallOutputContentItem,
    InputTextDynamicToolCallOutputContentItem,
    NamespaceDynamicToolSpec,
)
from treadle.protocol.app.items import DynamicToolCallThreadItem, ImageViewThreadItem
from treadle.protocol.app.thread_notifications import TurnPlanUpdatedNotification
from treadle.rpc.nesting import TOO_DEEP, is_too_deep
from treadle.tools.tool_arguments import CreateGoalArguments, UpdateGoalArguments, ViewImageArguments, parse

Content = list[dict[str, Any]]


async def update_plan(turn: Turn, text: str) -> str:
    from treadle.tools.plan import read_plan

    plan = read_plan(text)
    params = TurnPlanUpdatedNotification(
        thread_id=turn.thread.id, turn_id=turn.id, plan=plan.steps, explanation=plan.explanation
    )
    turn.thread.journal.emit("turn/plan/updated", params)
    return "Plan updated"


async def view_image(turn: Turn, call_id: str, text: str) -> Content:
    from treadle.agent.calls.patches import file_policy
    from treadle.execution.files.local_files import LocalFiles
    from treadle.tools.view_image import load_image

    arguments = parse(text, ViewImageArguments)
    files = LocalFiles(await file_policy(turn.thread))
    image = await load_image(files, arguments.path, turn.thread.settings.cwd)
    turn.show_item(ImageViewThreadItem(id=call_id, path=image.path))
    return [{"type": "input_image", "image_url": image.data_url}]


async def get_goal(turn: Turn) -> str:
    goal = turn.thread.state.goal
    return "no goal is set" if goal is None else encode(goal).decode()


async def create_goal(turn: Turn, text: str) -> str:
    arguments = parse(text, CreateGoalArguments)
    try:
        set_goal(turn.thread, objective=arguments.objective, status="active", token_budget=arguments.token_budget)
    except RpcError as error:
        return error.message
    tell_goal(turn.thread, turn.id)
    return "goal set"


async def update_goal(turn: Turn, text: str) -> str:
    arguments = parse(text, UpdateGoalArguments)
    if turn.thread.state.goal is None:
        return "no goal is set"
    set_goal(turn.thread, status=arguments.status)
    tell_goal(turn.thread, turn.id)
    return f"goal is {arguments.status}"


def has_client_tool(turn: Turn, name: str, namespace: str | None) -> bool:
    for spec in turn.thread.settings.dynamic_tools:
        if isinstance(spec, NamespaceDynamicToolSpec):
            if spec.name == namespace and any(tool.name == name for tool in spec.tools):
                return True
        elif namespace is None and spec.name == name:
            return True
    return False


async def client_tool(turn: Turn, call_id: str, name: str, namespace: str | None, text: str) -> str | Content:
    if is_too_deep(text.encode("utf-8", "replace")):
        return f"failed to parse function arguments: {TOO_DEEP}"
    try:
        arguments = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError as error:
        return f"failed to parse function arguments: {error}"
    item = DynamicToolCallThreadItem(
        id=call_id, arguments=arguments, status="inProgress", tool=name, namespace=namespace
    )
    began = time.monotonic()
    turn.start_item(item)
    ask = turn.thread.open_ask("item/tool/call")
    ask.params = DynamicToolCallParams(
        thread_id=turn.thread.id,
        turn_id=turn.id,
        arguments=arguments,
        call_id=call_id,
        tool=name,
        namespace=namespace,
    )
    answer = _read(await wait_for(turn.thread, ask))
    done = structs.replace(
        item, duration_ms=int((time.monotonic() - began) * 1000), success=answer is not None and answer.success
    )
    done = structs.replace(done, status="completed" if done.success else "failed")
    if answer is not None:
        done = structs.replace(done, content_items=answer.content_items)
    turn.complete_item(done)
    return "dynamic tool request failed" if answer is None else [_for_model(part) for part in answer.content_items]


def _read(answer: msgspec.Raw | RpcError) -> DynamicToolCallResponse | None:
    if isinstance(answer, RpcError):
        return None
    try:
        return decode(answer, DynamicToolCallResponse)
    except msgspec.DecodeError:
        return None


def _for_model(part: DynamicToolCallOutputContentItem) -> dict[str, Any]:
    match part:
        case InputTextDynamicToolCallOutputContentItem():
            return {"type": "input_text", "text": part.text}
        case InputImageDynamicToolCallOutputContentItem():
            return {"type": "input_image", "image_url": part.image_url}
        case InputAudioDynamicToolCallOutputContentItem():
            return {"type": "input_audio", "audio_url": part.audio_url}
