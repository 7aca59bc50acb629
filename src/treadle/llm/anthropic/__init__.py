"""Anthropic's Messages API over Server-Sent Events. All of it is pure."""

from __future__ import annotations

import os
from typing import Final

from treadle.llm.anthropic.body import encode_body
from treadle.llm.anthropic.failure import http_failure, other_way
from treadle.llm.anthropic.translate import AnthropicTranslator
from treadle.llm.wire_api import WireApi, bearer

__all__ = ["WIRE_API", "AnthropicTranslator", "encode_body"]


def key_header(key: str) -> tuple[str, str]:
    """Keys have a header of their own; tokens of a login go where tokens go everywhere."""
    return bearer(key) if key.startswith("sk-ant-oat") else ("x-api-key", key)


WIRE_API: Final = WireApi(
    name="anthropic",
    path="/messages",
    encode=encode_body,
    translator=lambda request: AnthropicTranslator(request, os.urandom(4).hex()),
    failure=http_failure,
    headers={"anthropic-version": "2023-06-01"},
    key_header=key_header,
    other_way=other_way,
    models_query={"limit": "1000"},  # else it gives twenty
    searches=frozenset({"live"}),
)
