"""The Chat Completions API over Server-Sent Events, in the dialects of its many servers. All of it is pure."""

from __future__ import annotations

from typing import Final

from treadle.llm.chat.body import encode_body
from treadle.llm.chat.failure import chat_failure, other_way
from treadle.llm.chat.translate import ChatTranslator
from treadle.llm.wire_api import WireApi

__all__ = ["WIRE_API", "ChatTranslator", "encode_body"]

WIRE_API: Final = WireApi(
    name="chat",
    path="/chat/completions",
    encode=encode_body,
    translator=ChatTranslator,
    failure=chat_failure,
    other_way=other_way,
    may_end=lambda translator: translator.may_end,
)
