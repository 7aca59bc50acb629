"""A server made with the official `mcp` package, in an interpreter that has it: `official_server.py http 8000`."""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from importlib import import_module
from typing import Annotated, Any

warnings.simplefilter("ignore")  # what the newest version of the protocol does without
server_module = import_module("mcp.server.mcpserver")
types = import_module("mcp_types")
pydantic = import_module("pydantic")

Context = server_module.Context
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d4944415478da6364f8ff1f0003030200efbf"
    "a7db0000000049454e44ae426082"
)
server = server_module.MCPServer("official", title="Official", version="9", instructions="Be kind.")
Name = pydantic.create_model("Name", name=(str, ...))


@server.tool(annotations=types.ToolAnnotations(read_only_hint=True, title="Echo"))  # type: ignore[untyped-decorator]
def echo(text: Annotated[str, "what to say"]) -> str:
    """Says it again."""
    return text


@server.tool()  # type: ignore[untyped-decorator]
def add(a: int, b: int) -> dict[str, int]:
    """Adds."""
    return {"sum": a + b}


@server.tool()  # type: ignore[untyped-decorator]
def fail(why: str) -> str:
    raise ValueError(why)


@server.tool()  # type: ignore[untyped-decorator]
def picture() -> Any:
    return server_module.Image(data=PIXEL, format="png")


@server.tool()  # type: ignore[untyped-decorator]
def megabyte() -> str:
    return "x" * (1 << 20)


@server.tool()  # type: ignore[untyped-decorator]
def die() -> str:
    os._exit(3)


async def count(steps: int, ctx: Any) -> str:
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    await ctx.log("info", "counted", logger_name="official")
    return "counted"


async def sleep(ctx: Any) -> str:
    try:
        await asyncio.Event().wait()
    except BaseException as error:
        print(f"sleep ended with {type(error).__name__}", file=sys.stderr, flush=True)
        raise
    return ""


async def ask(ctx: Any) -> str:
    answer = await ctx.elicit("Who are you?", Name)
    return f"{answer.action} {answer.data.name if answer.action == 'accept' else ''}".strip()


async def ask_url(ctx: Any) -> str:
    return str((await ctx.elicit_url("Look", "https://example.com/x", "e1")).action)


async def roots(ctx: Any) -> str:
    return " ".join(str(root.uri) for root in (await ctx.request_context.session.list_roots()).roots)


async def sample(ctx: Any) -> str:
    content = types.TextContent(type="text", text="hi")
    message = types.SamplingMessage(role="user", content=content)
    found = await ctx.request_context.session.create_message([message], max_tokens=10)
    return str(found.content.text)


async def more(ctx: Any) -> str:
    server.add_tool(echo, name="later")
    await ctx.request_context.session.send_tool_list_changed()
    return "more"


async def hang_up(ctx: Any) -> str:
    """Closes the stream of this call, which the client has to take up again."""
    await ctx.request_context.close_sse_stream()
    return "here again"


for function in (count, sleep, ask, ask_url, roots, sample, more, hang_up):
    function.__annotations__["ctx"] = Context
    server.add_tool(function, structured_output=False)


@server.resource("note://one")  # type: ignore[untyped-decorator]
def note() -> str:
    return "the first note"


@server.prompt()  # type: ignore[untyped-decorator]
def greet(who: str) -> str:
    return f"Greet {who}."


class Events:
    """What was sent, so that a stream can be taken up again."""

    def __init__(self) -> None:
        self._events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events) - 1)

    async def replay_events_after(self, last_event_id: str, send: Any) -> str | None:
        stream_id = self._events[int(last_event_id)][0]
        message_type = import_module("mcp.server.streamable_http").EventMessage
        for number, (stream, message) in enumerate(self._events):
            if number > int(last_event_id) and stream == stream_id and message is not None:
                await send(message_type(message, str(number)))
        return stream_id


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        options: dict[str, Any] = {"event_store": Events(), "retry_interval": 10} if sys.argv[1] == "http" else {}
        json_response = sys.argv[1] == "http-json"
        if sys.argv[1] == "sse":
            asyncio.run(server.run_sse_async(port=int(sys.argv[2])))
        else:
            run = server.run_streamable_http_async(port=int(sys.argv[2]), json_response=json_response, **options)
            asyncio.run(run)
