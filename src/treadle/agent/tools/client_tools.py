"""Tools that a client brings, one by one or in namespaces: what they do is asked of the client, call by call."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw, structs

from treadle.agent.tools.approval import answer_to
from treadle.agent.tools.tool import Output, Tool, ToolCall
from treadle.errors import RpcError
from treadle.protocol.app.base import decode
from treadle.protocol.app.item_parts import (
    DynamicToolCallOutputContentItem,
    DynamicToolCallParams,
    DynamicToolCallResponse,
    DynamicToolSpec,
    FunctionDynamicToolSpec,
    InputAudioDynamicToolCallOutputContentItem,
    InputImageDynamicToolCallOutputContentItem,
    InputTextDynamicToolCallOutputContentItem,
    NamespaceDynamicToolSpec,
)
from treadle.protocol.app.items import DynamicToolCallThreadItem
from treadle.tools.specs import dynamic_spec, parse_arguments

if TYPE_CHECKING:
    from treadle.agent.thread.thread import Thread

# Made once per thread: their specifications can be long, and every turn sends them.
_made: WeakKeyDictionary[Thread, tuple[tuple[DynamicToolSpec, ...], tuple[Tool, ...]]] = WeakKeyDictionary()


def client_tools(thread: Thread) -> tuple[Tool, ...]:
    given = thread.settings.dynamic_tools
    if not given:
        return ()
    made = _made.get(thread)
    if made is None or made[0] is not given:
        tools: list[Tool] = [
            ClientNamespace(each) if isinstance(each, NamespaceDynamicToolSpec) else ClientTool(each) for each in given
        ]
        made = _made[thread] = (given, tuple(tools))
    return made[1]


class ClientTool(Tool):
    def __init__(self, given: FunctionDynamicToolSpec) -> None:
        self.name: str = given.name
        self.spec: Raw = dynamic_spec(given)

    def answers(self, call: ToolCall) -> bool:
        return super().answers(call) and call.namespace is None

    async def run(self, call: ToolCall) -> Output:
        return await _ask_client(call)


class ClientNamespace(Tool):
    """Several tools with one specification."""

    def __init__(self, given: NamespaceDynamicToolSpec) -> None:
        self.name: str = given.name
        self.spec: Raw = dynamic_spec(given)
        self._names = frozenset(tool.name for tool in given.tools)

    def answers(self, call: ToolCall) -> bool:
        return call.namespace == self.name and call.name in self._names and not call.free_text

    async def run(self, call: ToolCall) -> Output:
        return await _ask_client(call)


async def _ask_client(call: ToolCall) -> Output:
    turn, thread = call.turn, call.turn.thread
    arguments: Any = parse_arguments(call.text, Any)
    item = DynamicToolCallThreadItem(
        id=call.id, arguments=arguments, status="inProgress", tool=call.name, namespace=call.namespace
    )
    began = time.monotonic()
    turn.items.start(item)
    ask = thread.requests.open("item/tool/call")
    ask.params = DynamicToolCallParams(
        thread_id=thread.id,
        turn_id=turn.id,
        arguments=arguments,
        call_id=call.id,
        tool=call.name,
        namespace=call.namespace,
    )
    given = await answer_to(thread, ask)
    answer: DynamicToolCallResponse | None = None  # when it cannot be read, or there is nobody to give it
    if not isinstance(given, RpcError):
        with suppress(msgspec.DecodeError):
            answer = decode(given, DynamicToolCallResponse)
    success = answer is not None and answer.success
    done = structs.replace(
        item,
        duration_ms=int((time.monotonic() - began) * 1000),
        success=success,
        status="completed" if success else "failed",
        content_items=None if answer is None else answer.content_items,
    )
    turn.items.complete(done)
    return "dynamic tool request failed" if answer is None else [_for_model(part) for part in answer.content_items]


def _for_model(part: DynamicToolCallOutputContentItem) -> dict[str, Any]:
    match part:
        case InputTextDynamicToolCallOutputContentItem():
            return {"type": "input_text", "text": part.text}
        case InputImageDynamicToolCallOutputContentItem():
            return {"type": "input_image", "image_url": part.image_url}
        case InputAudioDynamicToolCallOutputContentItem():
            return {"type": "input_audio", "audio_url": part.audio_url}
