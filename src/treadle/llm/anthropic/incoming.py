"""The events of the Messages API that we use. The names are the API's, shortened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Raw, Struct

from treadle.llm.anthropic.failure import ApiError

# --- deltas: nearly all of the traffic -------------------------------------------------------------------------------


class TextPiece(Struct, gc=False, tag_field="type", tag="text_delta"):
    text: str


class InputPiece(Struct, gc=False, tag_field="type", tag="input_json_delta"):
    partial_json: str


class ThinkingPiece(Struct, gc=False, tag_field="type", tag="thinking_delta"):
    thinking: str


class SignaturePiece(Struct, gc=False, tag_field="type", tag="signature_delta"):
    signature: str


class BlockDelta(Struct, tag_field="type", tag="content_block_delta"):
    index: int
    delta: TextPiece | InputPiece | ThinkingPiece | SignaturePiece


# --- all others ------------------------------------------------------------------------------------------------------


class OutputDetails(Struct):
    thinking_tokens: int | None = None


class Usage(Struct):
    """Cumulative from the beginning of the response, in every event that has it."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: OutputDetails | None = None


class Message(Struct):
    id: str = ""
    usage: Usage | None = None


class StopDetails(Struct):
    category: str | None = None
    explanation: str | None = None


class Delta(Struct):
    stop_reason: str | None = None
    stop_details: StopDetails | None = None


class Event(Struct):
    type: str
    index: int = -1
    message: Message | None = None
    content_block: Raw = Raw()
    delta: Raw = Raw()
    usage: Usage | None = None
    error: ApiError | None = None


class BlockStart(Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    id: str = ""
    name: str = ""
    input: Raw = Raw()


read_block_delta: Final[Callable[[str | Raw], BlockDelta]] = msgspec.json.Decoder(BlockDelta).decode
read_event: Final[Callable[[str | Raw], Event]] = msgspec.json.Decoder(Event).decode
read_delta: Final[Callable[[str | Raw], Delta]] = msgspec.json.Decoder(Delta).decode
read_block_start: Final[Callable[[str | Raw], BlockStart]] = msgspec.json.Decoder(BlockStart).decode
