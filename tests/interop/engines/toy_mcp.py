"""An MCP server with one tool, `echo`, which fails for the text `bad`. Run as a program, over its standard streams."""

from __future__ import annotations

import json
import sys
from typing import Any


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            about = {"serverInfo": {"name": "toy", "version": "1"}, "capabilities": {"tools": {}}}
            return {"protocolVersion": params["protocolVersion"], **about}
        case "tools/list":
            schema = {"type": "object", "properties": {"text": {"type": "string"}}}
            return {"tools": [{"name": "echo", "description": "Says it again.", "inputSchema": schema}]}
        case "tools/call":
            text = params["arguments"]["text"]
            return {"content": [{"type": "text", "text": f"echo: {text}"}], "isError": text == "bad"}
        case _:
            raise LookupError(method)


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        try:
            outcome = {"result": answer(message["method"], message.get("params") or {})}
        except LookupError as error:
            outcome = {"error": {"code": -32601, "message": f"no such method: {error}"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)


if __name__ == "__main__":
    main()
