"""A client of an MCP server, made with the official `mcp` package, in an interpreter that has it. Its arguments are the
URL of the server, or the command that starts it.

It calls the tools of Treadle, and prints what it got as one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import warnings
from importlib import import_module
from typing import Any

warnings.simplefilter("ignore")  # what the newest version of the protocol does without
mcp = import_module("mcp")
types = import_module("mcp_types")


async def main(command: list[str]) -> None:
    asked: list[Any] = []
    logged: list[Any] = []
    steps: list[Any] = []

    async def elicit(_: Any, params: Any) -> Any:
        asked.append(params.message)
        return types.ElicitResult(action="accept" if len(asked) == 1 else "decline", content={})

    async def log(params: Any) -> None:
        logged.append(params.data["method"])

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        steps.append([progress, message])

    server = command[0]
    if not server.startswith("http"):
        server = mcp.StdioServerParameters(command=server, args=command[1:], env=dict(os.environ))
    async with mcp.Client(server, elicitation_callback=elicit, logging_callback=log) as client:
        tools = (await client.list_tools()).tools

        async def call(name: str, arguments: dict[str, Any]) -> Any:
            result = await client.call_tool(name, arguments, progress_callback=progress)
            return {"text": result.content[0].text, "data": result.structured_content, "error": result.is_error}

        first = await call("codex", {"prompt": "one", "approval-policy": "untrusted"})
        second = await call("codex-reply", {"threadId": first["data"]["threadId"], "prompt": "two"})
        report = {
            "version": client.protocol_version,
            "server": client.server_info.name,
            "tools": [tool.name for tool in tools],
            "calls": [first, second],
            "wrong": await call("codex", {"prompt": 5}),
            "many": [found["text"] for found in await asyncio.gather(*(call("codex", {"prompt": "x"}) for _ in "123"))],
            "threads": (await call("treadle_threads", {}))["data"]["threads"],
            "asked": asked,
            "logged": logged,
            "steps": steps,
        }
    print(json.dumps(report))


asyncio.run(main(sys.argv[1:]))
