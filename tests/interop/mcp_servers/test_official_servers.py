"""Our MCP client on servers that others have made: with the official package, and published ones."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from interop.peers import installed
from kit.oauth_server import browse
from kit.ports import free_port
from mcp_stage import Stage, mcp_stage, text_of
from treadle.config import McpServerConfig
from treadle.mcp import (
    ElicitResult,
    McpCallError,
    McpError,
    McpHttp,
    McpProgress,
    McpServer,
    OAuthLogin,
    ServerTokens,
    TokenFile,
)

pytestmark = [pytest.mark.anyio, pytest.mark.interop]
PROGRAM = Path(__file__).with_name("official_server.py")
LOCKED = Path(__file__).with_name("official_login_server.py")
DEADLINE_S = 60.0


def _library(name: str) -> dict[str, str]:
    """The environment of a Python program that finds a peer, and nothing of this project."""
    return {"PYTHONPATH": str(installed(name).parent)}


@asynccontextmanager
async def official(stage: Stage, transport: str, **settings: object) -> AsyncIterator[McpServer]:
    environment = _library("mcp")
    if transport == "stdio":
        config = McpServerConfig(
            name="official",
            command=sys.executable,
            args=(str(PROGRAM), "stdio"),
            env=environment,
            **settings,  # type: ignore[arg-type]
        )
        yield stage.server(config)
        return
    async with _listening(PROGRAM, transport) as port:
        path = "sse" if transport == "sse" else "mcp"
        config = McpServerConfig(name="official", url=f"http://127.0.0.1:{port}/{path}", **settings)  # type: ignore[arg-type]
        server = stage.server(config)
        yield server
        await server.close()


@asynccontextmanager
async def _listening(program: Path, *words: str) -> AsyncIterator[int]:
    """The port of a server made with the package."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), *words, str(port), env={**os.environ, **_library("mcp")}
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    break
                except ConnectionRefusedError:
                    await asyncio.sleep(0.05)
            writer.close()
        yield port
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


transports = pytest.mark.parametrize("transport", ["stdio", "http", "http-json"])


@transports
async def test_all_that_a_server_can_do(tmp_path: Path, transport: str) -> None:
    async with mcp_stage(tmp_path) as stage, official(stage, transport) as server:
        await server.ready()
        assert server.info is not None
        assert (server.info.protocol_version, server.info.instructions) == ("2025-11-25", "Be kind.")
        assert server.info.server_info["name"] == "official"
        tools = {tool.name: tool for tool in server.tools}
        assert {"echo", "add", "fail", "picture", "ask", "more"} < set(tools)
        assert tools["echo"].annotations is not None
        assert tools["echo"].annotations.read_only_hint is True
        assert json.loads(bytes(tools["add"].input_schema))["required"] == ["a", "b"]
        assert b'"outputSchema"' in bytes(tools["add"].raw)

        assert text_of(await server.call_tool("echo", {"text": "hä"})) == "hä"
        assert (await server.call_tool("add", {"a": 1, "b": 2})).structured_content == {"sum": 3}
        wrong = await server.call_tool("add", {"a": "x"})
        assert wrong.is_error
        failed = await server.call_tool("fail", {"why": "because"})
        assert failed.is_error
        [picture] = (await server.call_tool("picture", {})).content
        assert (picture["type"], picture["mimeType"]) == ("image", "image/png")
        assert base64.b64decode(picture["data"]).startswith(b"\x89PNG")
        assert len(text_of(await server.call_tool("megabyte", {}))) == 1 << 20

        resources = (await server.list_page("resources")).resources
        assert [json.loads(bytes(each))["uri"] for each in resources] == ["note://one"]
        assert (await server.read_resource("note://one")).contents[0]["text"] == "the first note"
        with pytest.raises(McpError) as unknown:
            await server.read_resource("note://two")
        assert unknown.value.kind == "rpc"
        assert (await server.get_prompt("greet", {"who": "Ada"})).messages[0]["content"]["text"] == "Greet Ada."
        answers = await asyncio.gather(*(server.call_tool("echo", {"text": str(number)}) for number in range(50)))
        assert [text_of(answer) for answer in answers] == [str(number) for number in range(50)]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_what_a_server_says_and_asks_meanwhile(tmp_path: Path, transport: str) -> None:
    async with mcp_stage(tmp_path) as stage, official(stage, transport, sampling=True) as server:
        steps: list[McpProgress] = []
        assert text_of(await server.call_tool("count", {"steps": 3}, on_progress=steps.append)) == "counted"
        assert [(step.progress, step.message) for step in steps] == [(1, "step 1"), (2, "step 2"), (3, "step 3")]
        assert stage.logged == [("info", "official", "counted")]
        assert text_of(await server.call_tool("ask", {})) == "accept Ada"
        assert stage.asked[0].requested_schema["properties"]["name"]["type"] == "string"
        stage.answer = lambda _: ElicitResult(action="accept")
        assert text_of(await server.call_tool("ask_url", {})) == "accept"
        stage.answer = lambda _: ElicitResult(action="cancel")
        assert text_of(await server.call_tool("ask", {})) == "cancel"
        assert text_of(await server.call_tool("roots", {})) == tmp_path.as_uri()
        assert text_of(await server.call_tool("sample", {})) == "sampled"

        version = server.tools_version
        await server.call_tool("more", {})
        async with asyncio.timeout(DEADLINE_S):
            while not server.tools_changed:  # over HTTP it comes by the GET
                await asyncio.sleep(0.01)
        await server.refresh_tools()
        assert server.tools_version == version + 1
        assert "later" in {tool.name for tool in server.tools}


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_call_is_cancelled_there(tmp_path: Path, transport: str, capfd: pytest.CaptureFixture[str]) -> None:
    async with mcp_stage(tmp_path) as stage, official(stage, transport, tool_timeout_sec=1.0) as server:
        await server.ready()
        with pytest.raises(McpCallError, match="timed out awaiting tools/call after 1s"):
            await server.call_tool("sleep", {})
        if transport == "http":
            said = ""
            async with asyncio.timeout(DEADLINE_S):
                while "sleep ended with CancelledError" not in said:
                    said += capfd.readouterr().err
                    await asyncio.sleep(0.01)


async def test_a_stream_that_the_server_closes_is_taken_up_again(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, official(stage, "http") as server:
        assert text_of(await server.call_tool("hang_up", {})) == "here again"


async def test_a_server_that_dies_comes_back(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, official(stage, "stdio") as server:
        with pytest.raises(McpCallError, match=r"the server ended \(exit code 3\)"):
            await server.call_tool("die", {})
        assert text_of(await server.call_tool("echo", {"text": "back"})) == "back"


async def test_the_old_transport_is_named(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, official(stage, "sse") as server:
        with pytest.raises(McpError, match=r"/sse speaks the old HTTP\+SSE transport, which is not supported"):
            await server.ready()


async def test_the_published_server_for_time(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        config = McpServerConfig(
            name="time",
            command=sys.executable,
            args=("-m", "mcp_server_time", "--local-timezone", "Europe/Berlin"),
            env=_library("mcp-time"),
        )
        server = stage.server(config)
        await server.ready()
        assert {tool.name for tool in server.tools} == {"get_current_time", "convert_time"}
        arguments = {"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "UTC"}
        result = await server.call_tool("convert_time", arguments)
        assert json.loads(text_of(result))["target"]["timezone"] == "UTC"


async def test_the_published_server_for_git(tmp_path: Path) -> None:
    place = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    async with mcp_stage(tmp_path) as stage:
        config = McpServerConfig(
            name="git",
            command=sys.executable,
            args=("-m", "mcp_server_git", "--repository", str(place)),
            env=_library("mcp-git"),
        )
        server = stage.server(config)
        result = await server.call_tool("git_status", {"repo_path": str(place)})
        assert "nothing to commit" in text_of(result)


async def test_the_published_server_with_everything(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.server(McpServerConfig(name="everything", command=str(installed("mcp-everything"))))
        await server.ready()
        names = {tool.name for tool in server.tools}
        assert {"echo", "get-tiny-image", "trigger-long-running-operation"} <= names
        assert text_of(await server.call_tool("echo", {"message": "hi"})) == "Echo: hi"
        steps: list[McpProgress] = []
        arguments = {"duration": 0.2, "steps": 2}
        await server.call_tool("trigger-long-running-operation", arguments, on_progress=steps.append)
        assert [step.progress for step in steps] == [1, 2]
        assert "image" in {part["type"] for part in (await server.call_tool("get-tiny-image", {})).content}
        assert (await server.list_page("resources")).resources
        assert (await server.list_page("prompts")).prompts


async def test_the_published_server_for_files_keeps_to_our_roots(tmp_path: Path) -> None:
    work, other = tmp_path / "work", tmp_path / "other"
    for folder in (work, other):
        folder.mkdir()
        (folder / "a.txt").write_text(f"the text of {folder.name}")
    async with mcp_stage(work) as stage:
        command = str(installed("mcp-filesystem"))
        server = stage.server(McpServerConfig(name="files", command=command, args=(str(other),)))
        async with asyncio.timeout(DEADLINE_S):
            while str(work) not in text_of(await server.call_tool("list_allowed_directories", {})):
                await asyncio.sleep(0.01)
        result = await server.call_tool("read_text_file", {"path": str(work / "a.txt")})
        assert "the text of work" in text_of(result)
        assert (await server.call_tool("read_text_file", {"path": str(other / "a.txt")})).is_error


# --- logins -----------------------------------------------------------------------------------------------------------


async def test_a_login_to_a_server_of_the_package_and_its_renewal(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage, _listening(LOCKED) as port:
        config = McpServerConfig(name="locked", url=f"http://127.0.0.1:{port}/mcp")
        http = McpHttp()
        file = TokenFile(tmp_path, config.name, config.url or "")
        server = stage.server(config, tokens=ServerTokens(file, http), http=http)
        with pytest.raises(McpError, match="not logged in"):
            await server.ready()
        login = OAuthLogin(config, file)
        try:
            assert (await asyncio.to_thread(browse, await login.begin()))[0] == 200
            await login.wait(DEADLINE_S)
        finally:
            await login.close()
        first = file.read()
        assert first is not None
        assert (first.scope, first.resource) == ("notes", config.url)
        await server.stop()
        assert text_of(await server.call_tool("whisper", {})) == "for those who are logged in"
        second = file.read()
        assert second is not None
        assert second.access_token != first.access_token, "it was about to expire"
        await server.close()
        await http.close()
