"""Servers that do harm, as processes and over HTTP: what they do is bounded, named, and costs nobody else anything."""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kit.processes import processes_with
from mcp_stage import Stage, http_probe, mcp_stage, text_of
from treadle.config import McpServerConfig
from treadle.mcp import MAX_ASKED, ElicitParams, ElicitResult, McpCallError, McpError, McpProgress, McpServer

pytestmark = pytest.mark.anyio
DEADLINE_S = 60.0
MIB = 1 << 20


@asynccontextmanager
async def a_server(stage: Stage, transport: str) -> AsyncIterator[McpServer]:
    if transport == "stdio":
        yield stage.probe()
        return
    async with http_probe(stage) as probe:
        yield probe.server()


both = pytest.mark.parametrize("transport", ["stdio", "http"])


@both
async def test_results_that_are_too_much_fail_alone(tmp_path: Path, transport: str) -> None:
    async with mcp_stage(tmp_path) as stage, a_server(stage, transport) as server:
        assert len(text_of(await server.call_tool("big", {"text": str(5 * MIB)}))) == 5 * MIB
        for process in stage.processes:
            assert process.log.stats().retained_bytes < MIB // 2
        if transport == "stdio":
            before = _peak()
            for tool, problem in (("wide", "more than 262144 JSON values"), ("deep", "nested too deep")):
                with pytest.raises(McpCallError, match=problem) as failed:
                    await server.call_tool(tool, {"text": "2000000"})
                assert failed.value.kind == "protocol"
            assert _peak() - before < 100 * MIB
        assert text_of(await server.call_tool("echo", {"text": "on"})) == "on"
        assert server.state == "connected"


@both
async def test_a_message_that_is_too_large_is_named(tmp_path: Path, transport: str) -> None:
    async with mcp_stage(tmp_path) as stage, a_server(stage, transport) as server:
        await server.ready()
        before = _peak()
        with pytest.raises(McpCallError) as failed:
            await server.call_tool("big", {"text": str(120 * MIB)})
        # The probe makes and sends it as a whole, which is its own memory.
        assert _peak() - before < 80 * MIB
        if transport == "stdio":
            assert "a line is over the limit of 16777216 bytes; the server was stopped" in str(failed.value)
            assert failed.value.kind == "closed"
        else:
            assert "larger than 16777216 bytes" in str(failed.value)
        assert text_of(await server.call_tool("echo", {"text": "on"})) == "on"


async def test_a_line_without_an_end_ends_the_server(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.probe()
        await server.ready()
        with pytest.raises(McpCallError, match="a line is over the limit of 16777216 bytes"):
            await server.call_tool("endless", {})
        async with asyncio.timeout(DEADLINE_S):
            while processes_with(str(tmp_path)):
                await asyncio.sleep(0.01)


async def test_garbage_between_messages_is_overlooked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.probe()
        with caplog.at_level(logging.WARNING, "treadle.mcp"):
            assert text_of(await server.call_tool("garbage", {})) == "ok"
        assert text_of(await server.call_tool("surrogate", {})) == "a?b\ufffdc"
        assert server.state == "connected"
        assert any(isinstance(each.args, dict) and each.args.get("line") == "no json" for each in caplog.records)


async def test_a_server_that_never_stops_sending_does_not_hold_up_others(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        flooding, other = stage.probe(name="flood"), stage.probe(name="other")
        await asyncio.gather(flooding.ready(), other.ready())
        steps: list[McpProgress] = []
        flood = asyncio.ensure_future(flooding.call_tool("flood", {"text": "1000000000"}, on_progress=steps.append))
        before = _peak()
        async with asyncio.timeout(DEADLINE_S):
            while not stage.logged:
                await asyncio.sleep(0)
            for number in range(50):
                assert text_of(await other.call_tool("echo", {"text": str(number)})) == str(number)
        assert not flood.done()
        assert len(stage.logged) < 5000
        assert _peak() - before < 100 * MIB
        async with asyncio.timeout(DEADLINE_S):
            await flooding.close()
            with pytest.raises(McpCallError):
                await flood


async def test_a_server_that_asks_without_end_is_refused(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        decided = asyncio.Event()

        async def answer() -> ElicitResult:
            await decided.wait()
            return ElicitResult(action="decline")

        def asking(_: ElicitParams) -> Awaitable[ElicitResult]:
            return answer()

        stage.answer = asking
        server = stage.probe()
        assert text_of(await server.call_tool("ask_much", {"text": "5000"})) == "ok"
        assert len(stage.asked) == MAX_ASKED
        decided.set()
        assert text_of(await server.call_tool("echo", {"text": "on"})) == "on"


async def test_a_server_that_reads_nothing_costs_its_time_and_can_be_closed(tmp_path: Path) -> None:
    """It shakes hands and then reads no more, so that what is written to it piles up."""
    deaf = (
        "import json, sys, time\n"
        "say = lambda i, r: print(json.dumps({'jsonrpc': '2.0', 'id': i, 'result': r}), flush=True)\n"
        "say(json.loads(sys.stdin.readline())['id'],"
        " {'protocolVersion': '2025-11-25', 'capabilities': {'tools': {}}, 'serverInfo': {}})\n"
        "sys.stdin.readline()\n"
        "say(json.loads(sys.stdin.readline())['id'], {'tools': []})\n"
        "time.sleep(1000)\n"
    )
    async with mcp_stage(tmp_path) as stage:
        config = McpServerConfig(
            name="deaf", command=sys.executable, args=("-u", "-c", deaf, str(tmp_path)), tool_timeout_sec=0.3
        )
        server = stage.server(config)
        await server.ready()
        calls = [server.call_tool("x", {"text": "x" * MIB}) for _ in range(5)]
        for each in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(each, McpCallError)
            assert each.kind == "timeout"
        async with asyncio.timeout(DEADLINE_S):
            await server.close()
            while processes_with(str(tmp_path)):
                await asyncio.sleep(0.01)


async def test_standard_error_is_logged_cleaned_and_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.probe(env={"MY_TOKEN": "hidden-value-1"})
        with caplog.at_level(logging.INFO, "treadle.mcp"):
            await server.call_tool("stderr", {"text": "it says hidden-value-1 here"})
            await server.call_tool("stderr", {"text": "\n".join(f"line {number}" for number in range(5000))})
            await server.call_tool("stderr", {"text": "x" * MIB})
            await server.call_tool("stderr", {"text": "the last"})
            await server.close()
        lines = [
            str(each.args["line"]) for each in caplog.records if isinstance(each.args, dict) and "line" in each.args
        ]
        assert lines[0] == "it says [redacted] here"
        assert 100 < len(lines) < 1000
        assert max(map(len, lines)) < 5000


# --- over HTTP, byte for byte ----------------------------------------------------------------------------------------

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[str]:
    """A server on loopback; `serve` has the request's head read already."""
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()
        for task in tasks:
            task.cancel()


_OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


async def _trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        for letter in b"HTTP/1.1 200 OK\r\n" + b"X-Slow: " + b"y" * 1000:
            writer.write(bytes([letter]))
            await writer.drain()
            await asyncio.sleep(0.01)


async def _without_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_OK + b"data: ")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def _flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_OK)
    while True:
        writer.write(b'data: {"jsonrpc":"2.0","method":"notifications/x"}\n\n' * 1000)
        await writer.drain()


async def _large_document(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999999999\r\n\r\n")
    while True:
        writer.write(b" " * 65536)
        await writer.drain()


async def _nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.example ESMTP\r\n")
    await writer.drain()
    await asyncio.Event().wait()


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    return


@pytest.mark.parametrize(
    ("serve", "problem"),
    [
        (_trickle, "timed out after 1 seconds"),
        (_without_end, "a server-sent event is larger than 16777216 bytes"),
        (_flood, "timed out after 1 seconds"),
        (_large_document, "the response is larger than 16777216 bytes"),
        (_nonsense, "answers is no HTTP"),
        (_hang_up, "closed the connection before it answered"),
    ],
)
async def test_an_http_server_that_does_harm_is_no_start(tmp_path: Path, serve: Serve, problem: str) -> None:
    async with mcp_stage(tmp_path) as stage, listening(serve) as url:
        timeout = 1.0 if "timed out" in problem else 30.0
        server = stage.server(McpServerConfig(name="harm", url=url, startup_timeout_sec=timeout))
        other = stage.probe(name="other")
        await other.ready()
        before = _peak()
        starting = asyncio.ensure_future(server.ready())
        assert text_of(await other.call_tool("echo", {"text": "on"})) == "on"
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(McpError, match=problem):
                await starting
            await server.close()
        assert _peak() - before < 150 * MIB


def _peak() -> int:
    """The most memory that this process has ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
