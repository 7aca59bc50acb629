"""Tools that the client runs (experimental in Codex): what they are, the call, and the answer."""

from __future__ import annotations

from typing import Any

from treadle.protocol.app.base import Variant, Wire


class FunctionDynamicToolNamespaceTool(Variant, frozen=True, kw_only=True, tag="function"):
    description: str
    input_schema: Any
    name: str
    defer_loading: bool = False


DynamicToolNamespaceTool = FunctionDynamicToolNamespaceTool


class FunctionDynamicToolSpec(Variant, frozen=True, kw_only=True, tag="function"):
    description: str
    input_schema: Any
    name: str
    defer_loading: bool = False


class NamespaceDynamicToolSpec(Variant, frozen=True, kw_only=True, tag="namespace"):
    description: str
    name: str
    tools: tuple[DynamicToolNamespaceTool, ...]


DynamicToolSpec = FunctionDynamicToolSpec | NamespaceDynamicToolSpec


class InputTextDynamicToolCallOutputContentItem(Variant, frozen=True, kw_only=True, tag="inputText"):
    text: str


class InputImageDynamicToolCallOutputContentItem(Variant, frozen=True, kw_only=True, tag="inputImage"):
    image_url: str


class InputAudioDynamicToolCallOutputContentItem(Variant, frozen=True, kw_only=True, tag="inputAudio"):
    audio_url: str


DynamicToolCallOutputContentItem = (
    InputTextDynamicToolCallOutputContentItem
    | InputImageDynamicToolCallOutputContentItem
    | InputAudioDynamicToolCallOutputContentItem
)


class DynamicToolCallParams(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    arguments: Any
    call_id: str
    tool: str
    namespace: str | None = None


class DynamicToolCallResponse(Wire, frozen=True, kw_only=True):
    content_items: tuple[DynamicToolCallOutputContentItem, ...]
    success: bool
