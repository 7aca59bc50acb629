"""A chunk of the Chat Completions stream as JSON, limited to the members that we use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from treadle.llm.model import TokenUsage


class FunctionPiece(Struct, gc=False):
    name: str | None = None
    arguments: Any = None  # a text, but some servers send the object


class CallPiece(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: FunctionPiece | None = None


# --- the fast path: deltas of an open item are nearly all of the traffic, so as little as possible is decoded ---------


class FastDelta(Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[CallPiece] | None = None
    reasoning: Any = None


class FastChoice(Struct, gc=False):
    delta: FastDelta | None = None
    finish_reason: str | None = None
    index: int | None = None


class FastChunk(Struct, gc=False):
    choices: list[FastChoice] | None = None


# --- all others -------------------------------------------------------------------------------------------------------


class Detail(Struct):
    """An element of `reasoning_details`, or of content in parts."""

    type: str = ""
    text: str | None = None
    summary: str | None = None
    thinking: Any = None


class Delta(Struct):
    content: str | list[Detail] | None = None
    tool_calls: list[CallPiece] | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    reasoning_details: list[Detail] | None = None
    refusal: str | None = None


class Choice(Struct):
    """`message` comes from a server that does not stream: everything at once."""

    delta: Delta | None = None
    finish_reason: str | None = None
    index: int | None = None
    message: Delta | None = None
    usage: Any = None


class _Groq(Struct):
    usage: Any = None
    error: Any = None


class Chunk(Struct):
    choices: list[Choice] | None = None
    id: str | None = None
    usage: Any = None
    error: Any = None
    x_groq: _Groq | None = None


decode_fast: Callable[[str], FastChunk] = msgspec.json.Decoder(FastChunk).decode
decode_chunk: Callable[[str], Chunk] = msgspec.json.Decoder(Chunk).decode


def text_in(value: object) -> str:
    """The text of a thought in whatever form it comes."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(text_in, value))
    return text_in(value.get("text") or value.get("content")) if isinstance(value, dict) else ""


def thought_in(delta: Delta) -> str:
    """Servers that say it twice, under two names, mean it once."""
    plain = delta.reasoning_content or text_in(delta.reasoning)
    if plain or not delta.reasoning_details:
        return plain
    return "".join(detail.text or detail.summary or "" for detail in delta.reasoning_details)


# --- usage ------------------------------------------------------------------------------------------------------------


class _InputDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek
    cached_tokens: int | None = None  # Moonshot
    reasoning_tokens: int | None = None


def usage_in(chunk: Chunk) -> object:
    """Wherever it is."""
    in_choices = next((choice.usage for choice in chunk.choices or () if choice.usage), None)
    return chunk.usage or (chunk.x_groq and chunk.x_groq.usage) or in_choices


def read_usage(found: object) -> TokenUsage | None:
    """None where the numbers cannot be read: that is no reason to lose an answer."""
    try:
        usage = msgspec.convert(found, _Usage, strict=False)
    except msgspec.ValidationError:
        return None
    read = usage.prompt_tokens_details or _InputDetails()
    written = usage.completion_tokens_details or _OutputDetails()
    cached = read.cached_tokens or usage.prompt_cache_hit_tokens or usage.cached_tokens or 0
    asked, answered = usage.prompt_tokens or 0, usage.completion_tokens or 0
    return TokenUsage(
        input_tokens=asked,
        cached_input_tokens=cached,
        cache_write_input_tokens=read.cache_write_tokens or 0,
        output_tokens=answered,
        reasoning_output_tokens=written.reasoning_tokens or usage.reasoning_tokens or 0,
        total_tokens=asked + answered if usage.total_tokens is None else usage.total_tokens,
    )
