"""The MCP server that the recorded program had, as far as the recordings show it: its tools, and what each one answers.

    python tests/interop/replay/recorded_server.py [few|fail|hang|hanglist|paged|echo]

It speaks as `kit/mcp_probe.py` does, which it is made of.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # it runs as a program, without our packages

from kit.mcp_probe import Probe, RpcFailure, text_result, write_raw

Json: TypeAlias = dict[str, Any]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TEXT_SCHEMA = {"type": "object", "properties": {"text": {"type": "string", "description": "what to say"}}}
WEIRD_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "title": "Args",
    "properties": {
        "a": {"$ref": "#/$defs/A"},
        "b": {"anyOf": [{"type": "string", "format": "date-time", "minLength": 3}, {"type": "null"}], "default": None},
        "c": {"type": ["string", "number"], "examples": ["x"]},
        "d": {"const": "k"},
        "e": {"enum": ["p", "q"]},
        "f": {"type": "array"},
        "g": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "h": True,
        "i": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        "j": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["a"],
    "$defs": {"A": {"type": "object", "properties": {"z": {"type": "string", "pattern": "^x"}}}},
    "additionalProperties": False,
}
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "minLength": 1},
        "age": {"type": "integer"},
        "ok": {"type": "boolean", "default": True},
        "c": {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]},
    },
    "required": ["name"],
}
MEMO = {"uri": "memo://one", "name": "one", "description": "first", "mimeType": "text/plain"}
LINK = {"type": "resource_link", "uri": "memo://one", "name": "one"}
# What it says of them beside the schema; other tools are described by their names.
SAID: dict[str, Json] = {
    "echo": {"description": "Echo text", "annotations": {"readOnlyHint": True, "title": "Echo it"}},
    "structured": {"outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
    "slow": {"description": "Slow with progress"},
    "write_it": {"description": "writes", "annotations": {"readOnlyHint": False, "destructiveHint": True}},
    "safe_write": {
        "description": "adds",
        "annotations": {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False},
    },
    "open_world": {"description": "open", "annotations": {"destructiveHint": False, "openWorldHint": True}},
    "noann": {"description": "no annotations"},
    "odd.name-x/y z": {"description": "odd name"},
    "weird": {"description": "weird schema", "inputSchema": WEIRD_SCHEMA},
    "noschema": {"description": "no props", "inputSchema": {"type": "object"}},
}


def _blocks(*blocks: Json, **more: Any) -> Json:
    return {"content": list(blocks), **more}


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


class RecordedServer(Probe):
    def __init__(self, mode: str) -> None:
        super().__init__(argparse.Namespace(record=None), self._write)
        self._mode = mode
        self._tools: dict[str, Callable[[Json, Json], Json]] = {
            "echo": lambda given, meta: text_result(f"echo: {given.get('text', '')}"),
            "image": lambda given, meta: _blocks(
                _text("an image"), {"type": "image", "data": PNG, "mimeType": "image/png"}
            ),
            "structured": lambda given, meta: text_result('{"n": 4}', structuredContent={"n": 4}, _meta={"k": "v"}),
            "iserror": lambda given, meta: text_result("it went wrong", isError=True),
            "reslink": lambda given, meta: _blocks({**LINK, "description": "first memo", "mimeType": "text/plain"}),
            "embedded": lambda given, meta: _blocks(
                {"type": "resource", "resource": {"uri": "memo://one", "mimeType": "text/plain", "text": "memo text"}}
            ),
            "big": lambda given, meta: text_result(_lines(int(given["text"]))),
            "slow": self._slow,
            "die": lambda given, meta: os._exit(1),
            "rpcerror": self._refuse,
            "elicit_form": lambda given, meta: self._asking(
                "elicited", "elicitation/create", {"message": "Your name?", "requestedSchema": FORM}
            ),
            "elicit_url": lambda given, meta: self._asking(
                "elicited",
                "elicitation/create",
                {"mode": "url", "message": "Please visit", "url": "http://127.0.0.1:9/login", "elicitationId": "e1"},
            ),
            "sample": lambda given, meta: self._asking(
                "sampled",
                "sampling/createMessage",
                {"messages": [{"role": "user", "content": _text("hi")}], "maxTokens": 10},
            ),
            "logmsg": self._log,
            "roots": lambda given, meta: self._asking("roots", "roots/list", {}),
            "changed": self._change,
            "audio": lambda given, meta: _blocks({"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}),
            "mixed": lambda given, meta: _blocks(_text("a"), _text("b"), LINK, structuredContent={"x": [1, 2]}),
            "empty": lambda given, meta: _blocks(),
        }
        for name in ("write_it", "safe_write", "open_world", "noann", "odd.name-x/y z", "weird", "noschema"):
            self._tools[name] = self._called(name)

    @staticmethod
    def _write(message: Json) -> None:
        write_raw(json.dumps(message).encode() + b"\n")

    def _result(self, request_id: Any, method: str, params: Json, cancelled: threading.Event) -> Json | None:
        match method:
            case "initialize":
                return None if self._mode == "hang" else self._welcome(params)
            case "tools/list":
                return None if self._mode == "hanglist" else self._list(params)
            case "tools/call":
                if self._mode == "echo":
                    is_echo = params["name"] == "echo"
                    said = f"ECHO:{params['arguments']['text']}" if is_echo else "nope"
                    return text_result(said, isError=not is_echo)
                return self._tools[params["name"]](params.get("arguments") or {}, params.get("_meta") or {})
            case "resources/list":
                return {"resources": [MEMO, {"uri": "memo://two", "name": "two"}]}
            case "resources/templates/list":
                return {"resourceTemplates": [{"uriTemplate": "memo://{x}", "name": "memo"}]}
            case "resources/read" if params["uri"] == "memo://one":
                text = {"uri": "memo://one", "mimeType": "text/plain", "text": "memo one"}
                return {
                    "contents": [text, {"uri": "memo://one", "mimeType": "application/octet-stream", "blob": "AAEC"}]
                }
            case "resources/read":
                raise RpcFailure(-32002, "Resource not found")
        return super()._result(request_id, method, params, cancelled)

    def _welcome(self, params: Json) -> Json:
        version = params["protocolVersion"]
        if self._mode == "echo":
            return {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "echo", "version": "1"},
            }
        return {
            "protocolVersion": version,
            "capabilities": {
                "tools": {"listChanged": True},
                "resources": {"subscribe": True},
                "prompts": {},
                "logging": {},
            },
            "serverInfo": {"name": "probe", "title": "Probe server", "version": "1.0"},
            "instructions": "Use the probe tools wisely.",
        }

    def _list(self, params: Json) -> Json:
        if self._mode == "echo":
            text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
            echo = {"name": "echo", "description": "echo text", "inputSchema": text}
            fail = {"name": "fail", "description": "fails", "inputSchema": {"type": "object", "properties": {}}}
            return {"tools": [{**echo, "annotations": {"readOnlyHint": True}}, fail]}
        tools = [
            {"name": name, "description": f"{name} tool", "inputSchema": TEXT_SCHEMA, **SAID.get(name, {})}
            for name in self._tools
        ]
        if self._mode == "few":
            return {"tools": tools[:1]}
        if self._mode == "paged":
            at = int(params.get("cursor", 0))
            more = {"nextCursor": str(at + 10)} if at + 10 < len(tools) else {}
            return {"tools": tools[at : at + 10], **more}
        return {"tools": tools}

    # --- tools ---

    def _called(self, name: str) -> Callable[[Json, Json], Json]:
        return lambda given, meta: text_result(f"{name} called {json.dumps(given)}")

    def _refuse(self, given: Json, meta: Json) -> Json:
        raise RpcFailure(-32602, "bad arguments here", {"x": 1})

    def _asking(self, word: str, method: str, params: Json) -> Json:
        answer = self.request(method, params)
        return text_result(f"{word} {json.dumps(answer.get('result', {'error': answer.get('error')}))}")

    def _slow(self, given: Json, meta: Json) -> Json:
        """For half as many seconds; it says how far it is."""
        end = time.monotonic() + float(given["text"]) / 2
        step = 0
        while time.monotonic() < end:
            time.sleep(0.15)
            step += 1
            progress = {"progressToken": meta["progressToken"], "progress": step, "total": 10}
            self.notify("notifications/progress", {**progress, "message": f"step {step}"})
        return text_result("slow done")

    def _log(self, given: Json, meta: Json) -> Json:
        for level in ("debug", "info", "warning", "error"):
            self.notify("notifications/message", {"level": level, "logger": "probe", "data": f"log {level}"})
        return text_result("logged")

    def _change(self, given: Json, meta: Json) -> Json:
        self.notify("notifications/tools/list_changed")
        return text_result("changed")


def _lines(size: int) -> str:
    return "".join(f"line {number:07}\n" for number in range(size // 13))


def main() -> None:
    mode = sys.argv[1] if len(sys.argv) > 1 else ""
    if mode == "fail":
        sys.exit(1)
    server = RecordedServer(mode)
    for line in sys.stdin.buffer:
        server.receive(json.loads(line))


if __name__ == "__main__":
    main()
