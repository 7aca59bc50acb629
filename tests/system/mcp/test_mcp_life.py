"""When MCP servers are started and stopped, and what clients and turns have of that."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kit.agents_model import AgentsModel, do, spawn, wait
from kit.app_program import stdio_server
from kit.processes import DEADLINE_S, state_of
from system.agent.order import check_thread
from system.agent.scene import Json, Scene
from system.mcp.mcp_scene import (
    STATUS,
    call,
    heard,
    items,
    mcp_scene,
    probe_table,
    processes,
    run_calls,
    statuses,
    tool_names,
)
from treadle.agent import REST_S
from treadle.errors import RpcError
from treadle.mcp import McpError
from treadle.testing import AppServerHarness

pytestmark = pytest.mark.anyio


def is_alive(pid: int) -> bool:
    return state_of(pid) not in ("", "Z")


async def gone(*pids: int) -> None:
    """Wait until none of these processes is there."""
    for pid in pids:
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(process, ended.set)
        try:
            await asyncio.wait_for(ended.wait(), DEADLINE_S)
        finally:
            loop.remove_reader(process)
            os.close(process)


async def talk(stage: Scene, thread: str) -> Json:
    """A turn without calls."""
    stage.model.enqueue_assistant_message("hi")
    return await stage.run(thread)


# --- the start --------------------------------------------------------------------------------------------------------


async def test_a_server_is_started_for_the_first_turn_and_the_turn_waits_for_it(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        thread = await stage.start()
        assert (processes(tmp_path), statuses(stage)) == ([], [])
        await talk(stage, thread)
        assert len(processes(tmp_path)) == 1
        assert "mcp__probe__echo" in tool_names(stage, 0)
        await talk(stage, thread)
        assert len(processes(tmp_path)) == 1
        names = [message["method"] for message in stage.client.messages]
        assert names.index("turn/started") < names.index(STATUS) < names.index("item/agentMessage/delta")
        await check_thread(stage, thread)


async def test_a_turn_goes_on_without_a_server_that_cannot_start(tmp_path: Path) -> None:
    tables = (
        probe_table(tmp_path, "good"),
        probe_table(tmp_path, "bad", "--fault", "exit"),
        '[mcp_servers.missing]\ncommand = "/nowhere/at/all"\n',
        probe_table(tmp_path, "hangs", "--fault", "hang", startup_timeout_sec=0.3),
        probe_table(tmp_path, "hangs_later", "--fault", "hang-list", startup_timeout_sec=4),  # Python has to start, too
        '[mcp_servers.wrong]\ncommand = "x"\nurl = "http://127.0.0.1:9/"\n',
        probe_table(tmp_path, "off", enabled=False),
    )
    async with mcp_scene(tmp_path, *tables) as stage:
        thread = await stage.start()
        outputs = await run_calls(stage, thread, call("echo", "there", "c1", server="good"))
        assert outputs["c1"].endswith("there")
        last: dict[str, Json] = {each["params"]["name"]: each["params"] for each in stage.client.told(STATUS)}
        assert {name: each["status"] for name, each in last.items()} == {
            "good": "ready",
            "bad": "failed",
            "missing": "failed",
            "hangs": "failed",
            "hangs_later": "failed",
            "wrong": "failed",
        }
        started = "MCP client for `{}` failed to start: MCP startup failed: "
        assert last["bad"]["error"].startswith(
            started.format("bad") + "handshaking with MCP server failed: connection closed"
        )
        assert "No such file or directory" in last["missing"]["error"]
        assert last["hangs"]["error"].startswith("MCP client for `hangs` timed out after 0.3 seconds. Add or adjust")
        assert last["hangs_later"]["error"].endswith("timed out awaiting tools/list after 4s")
        assert "config.toml" in last["wrong"]["error"]
        assert {name for name in tool_names(stage) if name.startswith("mcp__")} == {
            name for name in tool_names(stage) if name.startswith("mcp__good__")
        }
        await check_thread(stage, thread)


async def test_a_turn_can_be_interrupted_while_it_waits_for_a_start(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, probe_table(tmp_path, "probe", "--fault", "hang")) as stage:
        thread = await stage.start()
        turn = await stage.begin(thread)
        await stage.client.wait_for(STATUS)
        await stage.interrupt(thread, turn)
        assert (await stage.end(turn))["status"] == "interrupted"
        assert [item["type"] for item in await stage.items(thread)] == ["userMessage"]
        assert stage.model.requests() == []


async def test_nobody_waits_twice_for_a_server_that_has_failed(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, probe_table(tmp_path, "probe", "--fault", "hang", startup_timeout_sec=0.3)) as stage:
        thread = await stage.start()
        await talk(stage, thread)
        assert statuses(stage) == [("probe", "starting"), ("probe", "failed")]
        await talk(stage, thread)
        # It would be tried again in the background, after a pause.
        assert statuses(stage) == [("probe", "starting"), ("probe", "failed")]


async def test_changed_settings_reach_the_next_turn_and_leave_the_rest_alone(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, probe_table(tmp_path, "stays"), probe_table(tmp_path, "goes")) as stage:
        thread = await stage.start()
        await talk(stage, thread)
        (stays,), (goes,) = processes(tmp_path, "stays"), processes(tmp_path, "goes")
        path = stage.harness.home / "config.toml"
        path.write_text(path.read_text().replace(probe_table(tmp_path, "goes"), probe_table(tmp_path, "comes")))
        await talk(stage, thread)
        assert processes(tmp_path, "stays") == [stays]
        assert len(processes(tmp_path, "comes")) == 1
        names = {name.split("__")[1] for name in tool_names(stage) if name.startswith("mcp__")}
        assert names == {"stays", "comes"}
        await gone(goes)


# --- required ---------------------------------------------------------------------------------------------------------

BROKEN = (
    "error creating thread: Fatal error: Failed to initialize session: required MCP servers failed to initialize: "
    "probe: handshaking with MCP server failed: connection closed"
)


async def test_a_thread_that_cannot_have_what_it_requires_is_none(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, probe_table(tmp_path, "probe", "--fault", "exit", required=True)) as stage:
        with pytest.raises(RpcError) as refused:
            await stage.start()
        assert refused.value.code == -32603
        assert refused.value.message.startswith(BROKEN)
        assert stage.client.told("thread/started") == []
        assert (await stage.client.request("thread/loaded/list", {}))["data"] == []


async def test_a_required_server_is_there_with_the_thread(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, probe_table(tmp_path, required=True)) as stage:
        thread = await stage.start()
        assert len(processes(tmp_path)) == 1
        await stage.client.wait_for(STATUS, lambda params: params["status"] == "ready")
        assert statuses(stage) == [("probe", "starting"), ("probe", "ready")]
        names = [message["method"] for message in stage.client.messages]
        assert names.index("thread/started") < names.index(STATUS)
        await run_calls(stage, thread, call("echo"))
        assert len(processes(tmp_path)) == 1


@pytest.mark.parametrize("method", ["thread/fork", "thread/resume"])
async def test_neither_is_a_copy_or_a_thread_that_comes_back(tmp_path: Path, method: str) -> None:
    good, bad = probe_table(tmp_path, required=True), probe_table(tmp_path, "probe", "--fault", "exit", required=True)
    async with mcp_scene(tmp_path, good) as stage:
        thread = await stage.start()
        await talk(stage, thread)
        if method == "thread/resume":
            await stage.client.request("thread/archive", {"threadId": thread})
            await stage.client.request("thread/unarchive", {"threadId": thread})
        path = stage.harness.home / "config.toml"
        path.write_text(path.read_text().replace(good, bad))
        before = (await stage.client.request("thread/list", {}))["data"]
        with pytest.raises(RpcError, match="required MCP servers failed to initialize: probe"):
            await stage.client.request(method, {"threadId": thread})
        assert [each["id"] for each in (await stage.client.request("thread/list", {}))["data"]] == [
            each["id"] for each in before
        ]
        path.write_text(path.read_text().replace(bad, good))
        assert (await stage.client.request(method, {"threadId": thread}))["thread"]


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["thread/archive", "thread/delete"])
async def test_a_thread_that_goes_takes_its_servers_with_it(tmp_path: Path, method: str) -> None:
    async with mcp_scene(tmp_path) as stage:
        thread, other = await stage.start(), await stage.start()
        await talk(stage, thread)
        await talk(stage, other)
        first, second = processes(tmp_path)
        await stage.client.request(method, {"threadId": thread})
        await gone(first)
        assert is_alive(second)
    assert not is_alive(second)


async def test_a_stubborn_server_ends_with_the_app_server(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, probe_table(tmp_path, "probe", "--fault", "stubborn")) as stage:
        await talk(stage, await stage.start())
        (pid,) = processes(tmp_path)
    await gone(pid)


async def test_a_thread_at_rest_stops_its_servers_and_they_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert REST_S >= 300
    monkeypatch.setattr("treadle.agent.thread.thread_mcp.REST_S", 0.05)
    async with mcp_scene(tmp_path) as stage:
        thread = await stage.start()
        await talk(stage, thread)
        await gone(*processes(tmp_path))
        outputs = await run_calls(stage, thread, call("echo", "back", "c1"))
        assert outputs["c1"].endswith("back")
        assert len(processes(tmp_path)) == 2
        assert statuses(stage) == [("probe", "starting"), ("probe", "ready")] * 2
        await check_thread(stage, thread)


async def test_a_long_turn_is_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.agent.thread.thread_mcp.REST_S", 0.05)
    async with mcp_scene(tmp_path) as stage:
        await run_calls(stage, await stage.start(), call("sleep", "0.3", "c1"))
        assert items(stage)[0]["status"] == "completed"
        assert len(processes(tmp_path)) == 1


async def test_after_a_call_of_a_client_a_thread_rests_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.agent.thread.thread_mcp.REST_S", 0.05)
    async with mcp_scene(tmp_path) as stage:
        params = {"threadId": await stage.start(), "server": "probe", "tool": "sleep", "arguments": {"text": "0.2"}}
        answer = await stage.client.request("mcpServer/tool/call", params)
        assert answer["content"][0]["text"] == "slept"
        await gone(*processes(tmp_path))


async def test_a_thread_that_ends_in_the_middle_of_a_clients_call_leaves_nothing(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        thread = await stage.start()
        params = {"threadId": thread, "server": "probe", "tool": "sleep", "arguments": {}}
        call_under_way = asyncio.ensure_future(stage.client.request("mcpServer/tool/call", params))
        await stage.client.wait_for(STATUS, lambda status: status["status"] == "ready")
        await stage.client.request("thread/archive", {"threadId": thread})
        with pytest.raises(RpcError):
            await call_under_way
        await gone(*processes(tmp_path))
        assert len(processes(tmp_path)) == 1


async def test_nothing_starts_a_server_for_a_thread_that_has_ended(tmp_path: Path) -> None:
    """Whoever was about to, when the thread was closed."""
    async with mcp_scene(tmp_path) as stage:
        thread = await stage.start()
        await talk(stage, thread)
        handle = stage.server.threads.find(thread)
        mcp = handle._thread.mcp
        assert mcp is not None
        server = mcp.servers["probe"]
        await stage.client.request("thread/archive", {"threadId": thread})
        await server.start()
        with pytest.raises(McpError, match="the thread has ended"):
            async with server.calling(None):
                pass
        path = stage.harness.home / "config.toml"
        path.write_text(path.read_text() + probe_table(tmp_path, "late"))
        await handle.reload_mcp()
        await mcp.start()
        assert (len(processes(tmp_path)), processes(tmp_path, "late")) == (1, [])


# --- shared -----------------------------------------------------------------------------------------------------------


async def test_a_shared_server_is_one_process_for_all_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with mcp_scene(tmp_path, probe_table(tmp_path, share=True)) as stage:
        threads = [await stage.start() for _ in range(3)]
        for number, thread in enumerate(threads):
            outputs = await run_calls(stage, thread, call("echo", f"t{number}", "c1"))
            assert outputs["c1"].endswith(f"t{number}")
        (pid,) = processes(tmp_path)
        assert [each["params"]["_meta"]["threadId"] for each in heard(tmp_path, "tools/call")] == threads
        for thread in threads:
            assert is_alive(pid)
            await stage.client.request("thread/archive", {"threadId": thread})
        await gone(pid)


async def test_what_a_shared_server_asks_goes_to_the_thread_that_called_it(tmp_path: Path) -> None:
    table = probe_table(tmp_path, share=True, default_tools_approval_mode="approve")
    settings: Any = {"full_access": False, "approval_policy": "on-request", "sandbox_mode": "workspace-write"}
    async with mcp_scene(tmp_path, table, **settings) as stage:
        other, thread = await stage.start(), await stage.start()
        await talk(stage, other)
        stage.client.answer = lambda asked: {"action": "accept", "content": {"name": "Ann"}}
        await run_calls(stage, thread, call("ask"))
        (asked,) = stage.client.told("mcpServer/elicitation/request")
        assert asked["params"]["threadId"] == thread
        # Two at a time: nobody can tell which of them is meant.
        stage.client.answer = None
        stage.model.enqueue_calls(call("sleep", None, "c8"))
        turn = await stage.begin(other)
        await stage.client.wait_for("item/started", lambda params: params["item"]["id"] == "c8")
        outputs = await run_calls(stage, thread, call("ask", None, "c9"))
        assert '"decline"' in outputs["c9"]
        await stage.interrupt(other, turn)
        await stage.end(turn)


async def test_without_share_each_thread_has_its_own(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        for _ in range(2):
            await talk(stage, await stage.start())
        assert len(set(processes(tmp_path))) == 2


# --- sub-agents -------------------------------------------------------------------------------------------------------


def echo(text: str) -> Json:
    return {"call": "mcp__probe__echo", "args": {"text": text}}


async def test_a_thread_and_its_sub_agents_have_one_process(tmp_path: Path) -> None:
    """Many servers keep something, a page or a shell, that both go on with."""
    with AgentsModel() as model:
        async with mcp_scene(tmp_path, model=model) as stage:
            thread = await stage.start()
            script = do(echo("parent"), spawn(echo("child"), "child is done"), wait("$1"), "parent is done")
            assert (await stage.run(thread, script))["status"] == "completed"
            [child] = [each["params"]["thread"]["id"] for each in stage.client.told("thread/started")][1:]
            assert [each["params"]["_meta"]["threadId"] for each in heard(tmp_path, "tools/call")] == [thread, child]
            told = [each["params"] for each in stage.client.told(STATUS)]
            assert [each["status"] for each in told if each["threadId"] == child] == ["ready"]
            (pid,) = processes(tmp_path)
            assert is_alive(pid)
            # It ends with the last of them, and the other threads have their own.
            await stage.run(await stage.start(), do(echo("stranger"), "done"))
            assert len(set(processes(tmp_path))) == 2
            await stage.client.request("thread/archive", {"threadId": thread})
            await gone(pid)


async def test_a_sub_agent_that_rests_stops_nothing_of_its_parent(tmp_path: Path) -> None:
    with AgentsModel() as model:
        async with mcp_scene(tmp_path, model=model) as stage:
            thread = await stage.start()
            await stage.run(thread, do(echo("parent"), spawn(echo("child"), "child is done"), wait("$1"), "done"))
            (pid,) = processes(tmp_path)
            [child] = [each["params"]["thread"]["id"] for each in stage.client.told("thread/started")][1:]
            for rests, alive in ((child, True), (thread, False)):
                mcp = stage.server.threads.find(rests)._thread.mcp
                assert mcp is not None
                await mcp.stop()
                assert is_alive(pid) is alive
            await stage.run(thread, do(echo("again"), "done"))
            assert len(processes(tmp_path)) == 2


async def test_what_a_server_asks_goes_to_the_sub_agent_that_called_it(tmp_path: Path) -> None:
    table = probe_table(tmp_path, default_tools_approval_mode="approve")
    settings: Any = {"full_access": False, "approval_policy": "on-request", "sandbox_mode": "workspace-write"}
    with AgentsModel() as model:
        async with mcp_scene(tmp_path, table, model=model, **settings) as stage:
            stage.client.answer = lambda asked: {"action": "accept", "content": {"name": "Ann"}}
            ask = {"call": "mcp__probe__ask", "args": {}}
            await stage.run(await stage.start(), do(echo("parent"), spawn(ask, "done"), wait("$1"), "done"))
            [child] = [each["params"]["thread"]["id"] for each in stage.client.told("thread/started")][1:]
            (asked,) = stage.client.told("mcpServer/elicitation/request")
            assert asked["params"]["threadId"] == child
            assert len(processes(tmp_path)) == 1


# --- without any ------------------------------------------------------------------------------------------------------


async def test_a_server_without_mcp_servers_loads_nothing_of_mcp(tmp_path: Path) -> None:
    """In a process of its own: other tests of this one have loaded it."""
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from treadle.testing import AppServerHarness\n"
        "async def main():\n"
        "    with AppServerHarness(Path(sys.argv[1])) as harness:\n"
        "        harness.model.enqueue_assistant_message('hi')\n"
        "        async with harness.connect() as client:\n"
        "            thread = (await client.request('thread/start', {}))['thread']\n"
        "            await client.run_turn(thread['id'], 'hi')\n"
        "            assert (await client.request('mcpServerStatus/list', {}))['data'] == []\n"
        "asyncio.run(main())\n"
        "print(*(name for name in sys.modules if name.startswith('treadle.') and 'mcp' in name))\n"
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(tmp_path), stdout=asyncio.subprocess.PIPE, env=dict(os.environ)
    )
    out, _ = await child.communicate()
    assert child.returncode == 0
    assert out.split() == [b"treadle.server.methods.mcp_methods"]


@pytest.mark.parametrize("fault", ["", "stubborn"])
def test_no_server_outlives_an_app_server_that_is_killed(tmp_path: Path, fault: str) -> None:
    table = probe_table(
        tmp_path, "probe", *(("--fault", fault) if fault else ()), default_tools_approval_mode="approve"
    )
    with AppServerHarness(tmp_path, extra_toml=table) as harness, stdio_server(harness) as program:
        harness.model.enqueue_calls(call("sleep", None, "c1"))
        program.client.initialize()
        program.client.begin(program.client.start_thread())
        program.client.wait_for("item/started", lambda params: params["item"]["id"] == "c1")
        (pid,) = processes(tmp_path)
        program.kill()
        asyncio.run(gone(pid))
