"""`ConformanceTools`: the tools that the published conformance tests of MCP want of a server, on our conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from treadle.errors import RpcError
from treadle.mcp import McpCall, McpClientInfo

_PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_WAV: Final = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
_TEXT: Final = {"type": "text", "text": "This is a simple text response for testing."}
_IMAGE: Final = {"type": "image", "data": _PNG, "mimeType": "image/png"}
_RESOURCE: Final = {
    "type": "resource",
    "resource": {"uri": "test://embedded-resource", "mimeType": "text/plain", "text": "This is embedded."},
}
_RESULTS: Final[Mapping[str, Any]] = {
    "test_simple_text": [_TEXT],
    "test_image_content": [_IMAGE],
    "test_audio_content": [{"type": "audio", "data": _WAV, "mimeType": "audio/wav"}],
    "test_embedded_resource": [_RESOURCE],
    "test_multiple_content_types": [_TEXT, _IMAGE, _RESOURCE],
}
_DEFAULTS: Final = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
_TITLED: Final = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
_OPTIONS: Final = ["option1", "option2", "option3"]
_ENUMS: Final = {
    "untitledSingle": {"type": "string", "enum": _OPTIONS},
    "titledSingle": {"type": "string", "oneOf": _TITLED},
    "legacyEnum": {"type": "string", "enum": _OPTIONS, "enumNames": ["Option One", "Option Two", "Option Three"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
    "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
}
_FORMS: Final = {
    "test_elicitation": {"username": {"type": "string"}, "email": {"type": "string"}},
    "test_elicitation_sep1034_defaults": _DEFAULTS,
    "test_elicitation_sep1330_enums": _ENUMS,
}
_SCHEMA: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
_NAMES: Final = (
    *_RESULTS,
    *_FORMS,
    "test_tool_with_logging",
    "test_error_handling",
    "test_tool_with_progress",
    "json_schema_2020_12_tool",
)


class ConformanceTools:
    info = McpClientInfo(name="conformance", version="1")
    instructions = ""

    def offered(self, *, can_ask: bool) -> Mapping[str, Mapping[str, Any]]:
        return {
            name: {
                "name": name,
                "description": name,
                "inputSchema": _SCHEMA if name == "json_schema_2020_12_tool" else {"type": "object"},
            }
            for name in _NAMES
        }

    async def call(self, name: str, arguments: Raw, call: McpCall) -> Mapping[str, Any]:
        if name in _RESULTS:
            return {"content": _RESULTS[name]}
        if name == "test_error_handling":
            text = "This tool intentionally returns an error for testing"
            return {"isError": True, "content": [{"type": "text", "text": text}]}
        if name == "test_tool_with_logging":
            for step in ("Tool execution started", "Tool processing data", "Tool execution completed"):
                call.report("info", {"text": step}, None)
        if name == "test_tool_with_progress":
            for number in range(3):
                call.report("debug", {}, f"step {number}")
        if name in _FORMS:
            try:
                schema = {"type": "object", "properties": _FORMS[name], "required": []}
                answer = await call.ask({"message": "Please say.", "requestedSchema": schema})
            except RpcError as error:
                return {"isError": True, "content": [{"type": "text", "text": error.message}]}
            text = f"User response: {msgspec.json.encode(answer).decode()}"
            return {"content": [{"type": "text", "text": text}]}
        return {"content": [_TEXT]}
