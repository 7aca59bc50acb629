"""The body of a request to the Chat Completions API."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, Struct

from treadle.llm.chat.chat_tools import FunctionTool, ToolNames, as_raw
from treadle.llm.chat.messages import Message, messages_of
from treadle.llm.chat.unsupported import JSON_OBJECT, NO_EFFORT, NO_FORMAT, NO_PARALLEL, NO_STREAM_OPTIONS, OTHER_LIMIT
from treadle.llm.model import ModelRequest
from treadle.llm.provider import OPENAI_HOST
from treadle.llm.wire_api import Asking

_SCHEMA_TOLD: Final = (
    "Your last message has to be one JSON value, with nothing before or behind it and no code fence around it. It has "
    "to follow this JSON Schema:\n"
)


class _Schema(Struct):
    schema: Raw
    name: str = "codex_output_schema"
    strict: bool = True


class _Format(Struct, omit_defaults=True):
    type: str
    json_schema: _Schema | None = None


class _StreamOptions(Struct):
    include_usage: bool = True


class _Body(Struct, omit_defaults=True, kw_only=True):
    """Members at their default are omitted: the less we send, the less a limited server can reject."""

    model: str
    messages: list[Message]
    stream: bool
    stream_options: _StreamOptions | None = None
    tools: list[FunctionTool] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    response_format: _Format | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    store: bool | None = None
    prompt_cache_key: str | None = None


_encoder = msgspec.json.Encoder()


def encode_body(request: ModelRequest, asking: Asking) -> bytes:
    """JSON for `POST …/chat/completions`."""
    quirks = asking.quirks
    names = ToolNames(request.tools)
    at_openai = urlsplit(asking.provider.base_url).hostname == OPENAI_HOST
    limit = request.max_output_tokens
    new_name = at_openai is not (OTHER_LIMIT in quirks)
    schema = None if request.output_schema is None else Raw(as_raw(request.output_schema))
    told = "" if schema is None or not quirks & {JSON_OBJECT, NO_FORMAT} else _SCHEMA_TOLD + bytes(schema).decode()
    body = _Body(
        model=request.model,
        messages=messages_of(request, names, quirks, told),
        stream=True,
        stream_options=None if NO_STREAM_OPTIONS in quirks else _StreamOptions(),
        tools=names.functions or None,
        # To call several at once is the default everywhere.
        parallel_tool_calls=None
        if request.parallel_tool_calls or not names.functions or NO_PARALLEL in quirks
        else False,
        reasoning_effort=None if NO_EFFORT in quirks else request.reasoning_effort,
        response_format=_format(schema, quirks),
        max_tokens=None if new_name else limit,
        max_completion_tokens=limit if new_name else None,
        store=False if at_openai else None,
        prompt_cache_key=request.prompt_cache_key if at_openai else None,
    )
    return _encoder.encode(body)


def _format(schema: Raw | None, quirks: frozenset[str]) -> _Format | None:
    if schema is None or NO_FORMAT in quirks:
        return None
    return _Format("json_object") if JSON_OBJECT in quirks else _Format("json_schema", _Schema(schema))
