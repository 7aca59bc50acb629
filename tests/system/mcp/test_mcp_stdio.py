"""MCP servers that are processes: started with their environment, asked, and ended with all that they have started."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from kit.processes import processes_with
from mcp_stage import PROBE, mcp_stage, text_of
from treadle.config import EnvVar, McpServerConfig
from treadle.mcp import ElicitResult, McpCallError, McpError, McpProgress, mcp_server

pytestmark = pytest.mark.anyio
DEADLINE_S = 60.0


async def test_a_server_is_started_lists_its_tools_and_runs_one(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.probe()
        assert (server.state, server.tools) == ("notStarted", ())
        await server.ready()
        assert server.state == "connected"
        assert [(status.status, status.error) for status in stage.statuses] == [("starting", None), ("ready", None)]
        assert server.info is not None
        assert server.info.instructions == "Use the probe tools wisely."
        assert server.info.server_info["title"] == "Probe server"
        echo = next(tool for tool in server.tools if tool.name == "echo")
        assert echo.annotations is not None
        assert echo.annotations.read_only_hint is True
        assert json.loads(bytes(echo.input_schema))["properties"]["text"]["type"] == "string"
        assert text_of(await server.call_tool("echo", {"text": "hä?"})) == "hä?"
        sent = stage.recorded("cli2srv")
        assert [message["method"] for message in sent] == [
            "initialize",
            "notifications/initialized",
            "tools/list",
            "tools/call",
        ]
        assert all(message["jsonrpc"] == "2.0" for message in sent)
        assert sent[0]["params"]["protocolVersion"] == "2025-11-25"
        capabilities = {"elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}}
        assert sent[0]["params"]["capabilities"] == capabilities
        assert sent[0]["params"]["clientInfo"]["name"] == "treadle-tests"


async def test_the_environment_of_a_server_is_what_is_configured_and_little_else(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    passed_on = {name: f"the {name}" for name in mcp_server.PASSED_ON if name != "PATH"}
    environ = {
        **passed_on,
        "PATH": os.environ["PATH"],
        "OPENAI_API_KEY": "sk-never",
        "CODEX_HOME": "/nowhere",
        "PASSED": "1",
        "ALSO": "2",
    }
    async with mcp_stage(tmp_path) as stage:
        server = stage.probe(
            environ=environ,
            env={"FOO": "bar", "TERM": "mine"},
            env_vars=("PASSED", EnvVar(name="ALSO"), "NOT_SET"),
            cwd="below",
        )
        facts = json.loads(text_of(await server.call_tool("environment", {})))
        # What Python adds where the locale is none.
        facts["env"].pop("LC_CTYPE", None)
        wanted = {**passed_on, "PATH": os.environ["PATH"], "FOO": "bar", "TERM": "mine", "PASSED": "1", "ALSO": "2"}
        assert facts["env"] == wanted
        assert facts["cwd"] == str(tmp_path / "below")


async def test_errors_of_a_call_are_told_as_codex_tells_them(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.probe()
        with pytest.raises(McpCallError) as failed:
            await server.call_tool("rpcerror", {})
        assert (failed.value.kind, failed.value.code, failed.value.data) == ("rpc", -32602, {"x": 1})
        assert str(failed.value) == (
            "tool call error: tool call failed for `probe/rpcerror`\n\nCaused by:\n"
            '    Mcp error: -32602: bad arguments here({"x":1})'
        )
        result = await server.call_tool("iserror", {})
        assert result.is_error
        assert (await server.call_tool("structured", {})).structured_content == {"n": 1}


async def test_resources_and_prompts(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.probe()
        [resource] = (await server.list_page("resources")).resources
        assert json.loads(bytes(resource))["uri"] == "probe://one"
        [template] = (await server.list_page("resources/templates")).resource_templates
        assert json.loads(bytes(template))["uriTemplate"] == "probe://{name}"
        assert (await server.read_resource("probe://one")).contents[0]["text"] == "the first"
        with pytest.raises(McpError) as failed:
            await server.read_resource("probe://two")
        assert (failed.value.code, failed.value.data) == (-32002, {"uri": "probe://two"})
        prompt, *_ = (await server.list_page("prompts")).prompts
        assert json.loads(bytes(prompt))["name"] == "greet"
        assert (await server.get_prompt("greet", {"who": "Ada"})).messages[0]["content"]["text"] == "Greet Ada."


async def test_tools_come_in_pages_and_are_filtered(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.probe("--pages", "7", "--tools", "100")
        await server.ready()
        assert {f"many_{number}" for number in range(100)} < {tool.name for tool in server.tools}
        asked = [message for message in stage.recorded("cli2srv") if message["method"] == "tools/list"]
        assert [message["params"].get("cursor") for message in asked] == [None, *"123456"]

        chosen = stage.probe(enabled_tools=("echo", "die", "no-such"), disabled_tools=("die",))
        await chosen.ready()
        assert [tool.name for tool in chosen.tools] == ["echo"]


async def test_a_changed_list_of_tools_is_asked_for_again(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.probe()
        await server.ready()
        version = server.tools_version
        await server.refresh_tools()
        await server.call_tool("more", {"text": "later"})
        assert (server.tools_changed, server.tools_version) == (True, version)
        await server.refresh_tools()
        assert server.tools_version == version + 1
        assert server.tools[-1].name == "later"
        await server.refresh_tools()
        assert len([each for each in stage.recorded("cli2srv") if each["method"] == "tools/list"]) == 2


async def test_progress_reaches_the_caller_and_only_where_it_is_wanted(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.probe()
        steps: list[McpProgress] = []
        meta = {"threadId": "t1"}
        await server.call_tool("progress", {"text": "3"}, meta=meta, on_progress=steps.append)
        assert [(step.progress, step.total, step.message) for step in steps] == [
            (1, 3, "step 1"),
            (2, 3, "step 2"),
            (3, 3, "step 3"),
        ]
        await server.call_tool("progress", {}, meta=meta)
        first, second = [each["params"] for each in stage.recorded("cli2srv") if each["method"] == "tools/call"]
        assert first["_meta"]["threadId"] == "t1"
        assert "progressToken" in first["_meta"]
        assert second["_meta"] == meta


# --- time and cancellation -------------------------------------------------------------------------------------------


async def test_a_call_whose_time_is_up_is_cancelled_there(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.probe(tool_timeout_sec=0.3)
        with pytest.raises(McpCallError, match=r"timed out awaiting tools/call after 0\.3s$") as failed:
            await server.call_tool("sleep", {})
        assert failed.value.kind == "timeout"
        assert server.state == "connected"
        async with asyncio.timeout(DEADLINE_S):
            while (sent := stage.recorded("cli2srv"))[-1]["method"] != "notifications/cancelled":
                await asyncio.sleep(0.01)
        *_, called, cancelled = sent
        assert cancelled["params"]["requestId"] == called["id"]


async def test_a_caller_who_is_cancelled_takes_the_call_back(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.probe()
        await server.ready()
        call = asyncio.ensure_future(server.call_tool("sleep", {}))
        while not any(each["method"] == "tools/call" for each in stage.recorded("cli2srv")):
            await server.call_tool("echo", {})
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.call_tool("echo", {})
        sent = stage.recorded("cli2srv")
        called = next(each for each in sent if each["method"] == "tools/call" and each["params"]["name"] == "sleep")
        cancelled = next(each for each in sent if each["method"] == "notifications/cancelled")
        assert cancelled["params"]["requestId"] == called["id"]


# --- what a server asks for ------------------------------------------------------------------------------------------


async def test_a_server_asks_the_user_by_form_and_by_url(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.probe()
        assert json.loads(text_of(await server.call_tool("ask", {"text": "Who?"}))) == {
            "action": "accept",
            "content": {"name": "Ada"},
        }
        stage.answer = lambda _: ElicitResult(action="decline")
        assert json.loads(text_of(await server.call_tool("ask_url", {}))) == {"action": "decline"}
        form, url = stage.asked
        assert (form.mode, form.message, form.requested_schema["required"]) == ("form", "Who?", ["name"])
        assert (url.mode, url.url, url.elicitation_id) == ("url", "https://example.com/x", "e1")


async def test_roots_log_and_sampling(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.probe()
        roots = json.loads(text_of(await server.call_tool("roots", {})))
        assert roots == {"roots": [{"uri": tmp_path.as_uri(), "name": "work"}]}
        await server.call_tool("log", {"text": "look"})
        assert stage.logged == [("warning", "probe", "look")]
        refused = json.loads(text_of(await server.call_tool("sample", {})))
        assert refused["code"] == -32601

        sampling = stage.probe(sampling=True)
        sampled = json.loads(text_of(await sampling.call_tool("sample", {})))
        assert sampled["content"] == {"type": "text", "text": "sampled"}
        offered = [each["params"]["capabilities"] for each in stage.recorded("cli2srv") if each.get("id") == 1]
        assert ["sampling" in each for each in offered] == [False, True]


# --- starts that fail ------------------------------------------------------------------------------------------------


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.server(McpServerConfig(name="nocmd", command="no-such-program-here"))
        with pytest.raises(McpError) as failed:
            await server.ready()
        assert str(failed.value).startswith("MCP client for `nocmd` failed to start: MCP startup failed: No such file")
        assert server.state == "failed"
        assert stage.statuses[-1].error == server.error == str(failed.value)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ("--fault", "exit"),
            "MCP client for `probe` failed to start: MCP startup failed: handshaking with MCP server failed: connection"
            " closed: the server ended (exit code 7); the last it wrote is: it cannot start today",
        ),
        (
            ("--fault", "hang"),
            "MCP client for `probe` timed out after 1.5 seconds. Add or adjust `startup_timeout_sec` in your"
            " config.toml:\n[mcp_servers.probe]\nstartup_timeout_sec = XX",
        ),
        (
            ("--version", "2030-01-01"),
            "MCP client for `probe` failed to start: MCP startup failed: handshaking with MCP server failed: it speaks"
            " version '2030-01-01' of MCP; known here are 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05",
        ),
    ],
)
async def test_a_start_that_fails_says_why_and_leaves_nothing(
    tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    async with mcp_stage(tmp_path) as stage:
        timeout = 1.5 if "hang" in arguments[1] else 30.0
        server = stage.probe(*arguments, startup_timeout_sec=timeout)
        with pytest.raises(McpError) as failed:
            await server.ready()
        assert str(failed.value) == problem
        assert [status.status for status in stage.statuses] == ["starting", "failed"]
        await _gone(tmp_path)
        # Not tried again at once: the turns of a thread are not held up by it each time.
        with pytest.raises(McpError) as failed:
            await server.ready()
        assert str(failed.value) == problem
        assert len(stage.statuses) == 2


async def test_a_start_belongs_to_all_who_wait_for_it(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.probe()
        first, *others = [asyncio.ensure_future(server.ready()) for _ in range(5)]
        await asyncio.wait([first, *others], timeout=0)
        first.cancel()
        await asyncio.gather(*others)
        assert first.cancelled()
        assert len(stage.recorded("proc")) == 1


async def test_a_start_can_be_stopped(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.probe("--fault", "hang")
        starting = asyncio.ensure_future(server.ready())
        while not stage.recorded("cli2srv"):
            await asyncio.sleep(0.01)
        await server.stop()
        with pytest.raises(McpError, match="the start of the MCP server `probe` was stopped"):
            await starting
        assert server.state == "cancelled"
        assert [status.status for status in stage.statuses] == ["starting", "cancelled"]
        await _gone(tmp_path)


async def test_a_disabled_server_is_not_started(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.server(McpServerConfig(name="off", enabled=False, problem="config.toml:3: no"))
        assert (server.state, server.error) == ("disabled", "config.toml:3: no")
        with pytest.raises(McpError, match=r"config\.toml:3: no"):
            await server.ready()
        assert stage.statuses == []


# --- death and the end -----------------------------------------------------------------------------------------------


async def test_a_server_that_dies_is_started_again_for_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_server, "PAUSES_S", (0.0, 0.0))
    async with mcp_stage(tmp_path) as stage:
        server = stage.probe()
        for number in range(3):
            call = asyncio.ensure_future(server.call_tool("sleep", {}))
            with pytest.raises(McpCallError) as failed:
                await server.call_tool("die", {"text": str(40 + number)})
            assert failed.value.kind == "closed"
            assert str(failed.value) == (
                "tool call error: tool call failed for `probe/die`\n\nCaused by:\n"
                f"    the server ended (exit code {40 + number}); the server is started again for the next call"
            )
            with pytest.raises(McpCallError, match=f"exit code {40 + number}"):
                await call
            assert server.state == "failed"
        assert len({each["pid"] for each in stage.recorded("proc")}) == 3
        with pytest.raises(
            McpError, match=r"it was started 3 times in a minute and ended each time \(the server ended"
        ):
            await server.call_tool("echo", {})
        assert len(stage.recorded("proc")) == 3


async def test_a_server_that_was_stopped_comes_back_by_itself(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.probe()
        await server.ready()
        version, tools = server.tools_version, server.tools
        await server.stop()
        await _gone(tmp_path)
        assert (server.state, server.tools) == ("notStarted", tools)
        assert text_of(await server.call_tool("echo", {"text": "back"})) == "back"
        assert (server.state, server.tools_version) == ("connected", version)
        await server.close()
        await _gone(tmp_path)
        with pytest.raises(McpError):
            await server.ready()


@pytest.mark.parametrize("how", ["close", "die", "environment"])
async def test_nothing_is_left_of_a_server_that_ignores_everything_below_a_shell(tmp_path: Path, how: str) -> None:
    """It ignores the end of its input and SIGTERM, and has a child in a session of its own that does so too."""
    child = "import signal, sys, time; signal.signal(15, signal.SIG_IGN); print('', flush=True); time.sleep(1000)"
    background = f"setsid {shlex.join([sys.executable, '-c', child, str(tmp_path)])} </dev/null >/dev/null 2>&1 &"
    probe = shlex.join([*PROBE, "--fault", "stubborn", "--record", str(tmp_path / "mcp.jsonl")])
    async with mcp_stage(tmp_path) as stage:
        config = McpServerConfig(name="stubborn", command="/bin/sh", args=("-c", f"{background} {probe}; true"))
        server = stage.server(config)
        await server.ready()
        while len(processes_with(str(tmp_path))) < 3:  # shell, probe, child
            await asyncio.sleep(0.01)
        if how == "die":
            with pytest.raises(McpCallError):
                await server.call_tool("die", {})
            await _gone(tmp_path)
        elif how == "close":
            await server.close()
            await _gone(tmp_path)
    await _gone(tmp_path)


async def test_a_server_that_closes_its_output_is_ended(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        quiet = f"exec 1>&-; exec 2>&-; echo {tmp_path} >/dev/null; sleep 1000"
        server = stage.server(
            McpServerConfig(name="quiet", command="/bin/sh", args=("-c", quiet), startup_timeout_sec=1.0)
        )
        with pytest.raises(McpError, match="timed out after 1 seconds"):
            await server.ready()
        await _gone(tmp_path)


async def test_a_server_that_is_killed_is_noticed_at_once(tmp_path: Path) -> None:
    async with mcp_stage(tmp_path) as stage:
        server = stage.probe()
        await server.ready()
        [facts] = stage.recorded("proc")
        os.kill(facts["pid"], signal.SIGKILL)
        async with asyncio.timeout(DEADLINE_S):
            while server.state != "failed":
                await asyncio.sleep(0.01)
        assert server.error == "the server ended (exit code 137)"
        assert text_of(await server.call_tool("echo", {"text": "new"})) == "new"


async def _gone(folder: Path) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while processes_with(str(folder)):
            await asyncio.sleep(0.01)


async def test_nothing_outlives_us_when_we_are_killed(tmp_path: Path) -> None:
    owner = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from mcp_stage import mcp_stage\n"
        "async def main():\n"
        "    async with mcp_stage(Path(sys.argv[1])) as stage:\n"
        "        await stage.probe('--fault', 'stubborn').ready()\n"
        "        print('ready', flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", owner, str(tmp_path), env=environment, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    assert len(processes_with(str(tmp_path))) == 2
    process.kill()
    await process.wait()
    await _gone(tmp_path)
