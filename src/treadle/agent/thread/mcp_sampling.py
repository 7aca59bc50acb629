"""Sampling: an MCP server asks for text of the thread's model, which the settings let it (`sampling = true`), and the
user each time. It owns what the model is asked then: what the server says and nothing of the conversation, no tools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from treadle.agent.thread.thread_mcp import may_elicit
from treadle.config import model_facts
from treadle.errors import INTERNAL_ERROR, INVALID_PARAMS, RpcError
from treadle.llm import Completed, ItemDone, MessageItem, ModelError, ModelRequest
from treadle.mcp.mcp_messages import SamplingParams, SamplingResult
from treadle.protocol.app.approvals import McpServerElicitationRequestParams

if TYPE_CHECKING:
    from treadle.agent.thread.thread import Thread
    from treadle.agent.thread.thread_mcp import ThreadServer

# As the protocol has it for a user who says no.
USER_REJECTED: Final = -1
MAX_TOKENS: Final = 32_000
MAX_SHOWN: Final = 2_000  # characters of what is asked


async def sample_for_server(thread: Thread, server: ThreadServer, params: SamplingParams) -> SamplingResult:
    """Raises `RpcError`."""
    messages = [sampling_message(message) for message in params.messages]
    if params.system_prompt:
        messages.insert(0, {"type": "message", "role": "developer", "content": [_text(params.system_prompt, "user")]})
    if not may_elicit(thread.settings) or not await _is_allowed(thread, server, messages):
        raise RpcError(USER_REJECTED, "User rejected sampling request")
    settings = thread.settings
    config = thread.services.config_for(settings)
    limit = model_facts(settings.model, config).output_limit
    request = ModelRequest(
        model=settings.model,
        input=messages,
        reasoning_effort=settings.effort,
        reasoning_summary=None,
        max_output_tokens=max(1, min(params.max_tokens, limit or MAX_TOKENS)),
        headers={"user-agent": thread.services.user_agent, "session-id": thread.id, "thread-id": thread.id},
        fair_key=thread.session_id,
    )
    said: list[str] = []
    try:
        async with thread.services.model_for(settings).stream(request) as events:
            async for event in events:
                match event:
                    case ItemDone(item=MessageItem() as message):
                        said.append(message.text)
                    case Completed() if thread.turn is not None:
                        # It costs something, and is no part of the conversation.
                        price = model_facts(settings.model, config).price
                        thread.turn.report.review_cost(event.usage, price, settings.model)
    except ModelError as error:
        raise RpcError(INTERNAL_ERROR, f"the model could not be asked: {error.message}") from None
    content = {"type": "text", "text": "\n".join(said)}
    return SamplingResult(role="assistant", content=content, model=settings.model, stop_reason="endTurn")


async def _is_allowed(thread: Thread, server: ThreadServer, messages: list[dict[str, Any]]) -> bool:
    texts = "\n".join(part.get("text", "") for message in messages for part in message["content"])
    answer = await server.ask(
        McpServerElicitationRequestParams(
            thread_id=thread.id,
            turn_id=server.turn_id,
            server_name=server.config.name,
            mode="form",
            meta={"codex_approval_kind": "mcp_sampling"},
            message=f"Allow the {server.config.name} MCP server to ask the model?\n\n{texts[:MAX_SHOWN]}",
            requested_schema={"type": "object", "properties": {}},
        )
    )
    return answer is not None and answer.action == "accept"


def sampling_message(given: Any) -> dict[str, Any]:
    role = given.get("role") if isinstance(given, dict) else None
    if role not in ("user", "assistant"):
        raise RpcError(INVALID_PARAMS, "each message needs the role `user` or `assistant`")
    blocks = given.get("content")
    content = [_block(block, role) for block in (blocks if isinstance(blocks, list) else [blocks])]
    return {"type": "message", "role": role, "content": content}


def _block(block: Any, role: str) -> dict[str, Any]:
    match block:
        case {"type": "text", "text": str(text)}:
            return _text(text, role)
        case {"type": "image", "data": str(data), "mimeType": str(media_type)} if role == "user":
            return {"type": "input_image", "image_url": f"data:{media_type};base64,{data}", "detail": "high"}
    raise RpcError(INVALID_PARAMS, "only text, and images of the user, can be sampled with")


def _text(text: str, role: str) -> dict[str, Any]:
    return {"type": "output_text" if role == "assistant" else "input_text", "text": text}
