"""The Responses API over Server-Sent Events. All of it is pure."""

from __future__ import annotations

from typing import Final

from treadle.llm.failure import http_failure
from treadle.llm.responses.body import encode_body
from treadle.llm.responses.translate import Translator, make_translator
from treadle.llm.wire_api import WireApi

__all__ = ["WIRE_API", "Translator", "encode_body"]

WIRE_API: Final = WireApi(
    name="responses",
    path="/responses",
    encode=encode_body,
    translator=make_translator,
    failure=http_failure,
)
