"""The body of a request to the Responses API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from treadle.llm.model import JsonObject, ModelRequest
from treadle.llm.output_items import OPAQUE_MEMBER, is_opaque
from treadle.llm.wire_api import Asking

_INCLUDE: Final = ("reasoning.encrypted_content",)


class _Reasoning(Struct, omit_defaults=True):
    effort: str | None = None
    summary: str | None = None


class _Format(Struct):
    schema: JsonObject
    type: str = "json_schema"
    strict: bool = True
    name: str = "codex_output_schema"


class _Text(Struct):
    format: _Format


class _Body(Struct, omit_defaults=True, kw_only=True):
    """Members at their default are omitted; the others are always sent."""

    model: str
    instructions: str | None = None
    input: Sequence[JsonObject]
    tools: Sequence[JsonObject]
    tool_choice: str
    parallel_tool_calls: bool
    reasoning: _Reasoning | None = None
    store: bool
    stream: bool
    include: tuple[str, ...]
    max_output_tokens: int | None = None
    prompt_cache_key: str | None = None
    text: _Text | None = None
    client_metadata: Mapping[str, str] | None = None
    service_tier: str | None = None


_encoder = msgspec.json.Encoder()


def encode_body(request: ModelRequest, asking: Asking) -> bytes:
    """JSON for `POST …/responses`. Nothing is stored by the provider: every request carries the whole history."""
    encoded = _encoder.encode(_body(request, request.input))
    if OPAQUE_MEMBER not in encoded:  # one look at all of it, because there may be thousands of items
        return encoded
    return _encoder.encode(_body(request, [item for item in request.input if not is_opaque(item)]))


def _body(request: ModelRequest, items: Sequence[JsonObject]) -> _Body:
    schema = request.output_schema
    return _Body(
        model=request.model,
        instructions=request.instructions,
        input=items,
        tools=request.tools,
        tool_choice="auto",
        parallel_tool_calls=request.parallel_tool_calls,
        reasoning=_reasoning(request),
        store=False,
        stream=True,
        include=_INCLUDE,
        max_output_tokens=request.max_output_tokens,
        prompt_cache_key=request.prompt_cache_key,
        text=None if schema is None else _Text(_Format(schema)),
        client_metadata=request.client_metadata,
        service_tier=request.service_tier,
    )


def _reasoning(request: ModelRequest) -> _Reasoning | None:
    # "none" as a summary means that none is wanted, which the API says by silence.
    summary = None if request.reasoning_summary == "none" else request.reasoning_summary
    if request.reasoning_effort is None and summary is None:
        return None
    return _Reasoning(request.reasoning_effort, summary)
