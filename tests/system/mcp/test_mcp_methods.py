"""What clients ask about MCP servers without a turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from system.agent.scene import Json, Scene
from system.mcp.mcp_scene import STATUS, call, heard, mcp_scene, probe_table, processes, run_calls, statuses
from treadle.errors import RpcError

pytestmark = pytest.mark.anyio


async def _list(stage: Scene, **params: Any) -> list[Json]:
    data: list[Json] = (await stage.client.request("mcpServerStatus/list", params))["data"]
    return data


async def _refusal(stage: Scene, method: str, **params: Any) -> RpcError:
    with pytest.raises(RpcError) as refused:
        await stage.client.request(method, params)
    return refused.value


# --- mcpServerStatus/list ---------------------------------------------------------------------------------------------


async def test_the_servers_of_a_thread_are_started_to_be_looked_at(tmp_path: Path) -> None:
    tables = (
        probe_table(tmp_path),
        probe_table(tmp_path, "off", enabled=False),
        probe_table(tmp_path, "bad", "--fault", "exit"),
    )
    async with mcp_scene(tmp_path, *tables) as stage:
        thread = await stage.start()
        bad, off, probe = await _list(stage, threadId=thread)
        assert (probe["name"], probe["runtimeStatus"], probe["authStatus"]) == ("probe", "connected", "unsupported")
        assert probe["serverInfo"]["title"] == "Probe server"
        assert probe["serverCapabilities"]["tools"] == {"listChanged": True}
        assert probe["tools"]["echo"] == {
            "name": "echo",
            "description": "echo tool",
            "inputSchema": {"type": "object", "properties": {"text": {"type": "string", "description": "what to say"}}},
            "annotations": {"readOnlyHint": True, "title": "Echo it"},
        }
        assert "odd.name-x/y z" in probe["tools"]
        assert probe["resources"] == [{"uri": "probe://one", "name": "one", "mimeType": "text/plain"}]
        assert probe["resourceTemplates"] == [{"uriTemplate": "probe://{name}", "name": "any"}]
        assert (off["runtimeStatus"], off["tools"], off["toolsError"]) == ("disabled", {}, None)
        assert (bad["runtimeStatus"], bad["tools"], bad["serverInfo"]) == ("failed", {}, None)
        assert bad["toolsError"].startswith("MCP startup failed: handshaking with MCP server failed")
        await run_calls(stage, thread, call("echo"))
        assert len(processes(tmp_path)) == 1


async def test_without_a_thread_there_are_no_second_copies(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        await run_calls(stage, await stage.start(), call("echo"))
        (probe,) = await _list(stage)
        assert (probe["runtimeStatus"], len(probe["tools"])) == (None, len(probe["tools"]))
        assert "echo" in probe["tools"]
        assert len(processes(tmp_path)) == 1


async def test_what_was_started_to_be_looked_at_is_started_once(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        for _ in range(3):
            (probe,) = await _list(stage)
            assert "echo" in probe["tools"]
        assert len(processes(tmp_path)) == 1


async def test_details_names_and_pages(tmp_path: Path) -> None:
    tables = [probe_table(tmp_path, name) for name in ("c", "a", "b")]
    async with mcp_scene(tmp_path, *tables) as stage:
        assert [each["name"] for each in await _list(stage)] == ["a", "b", "c"]
        (only,) = await _list(stage, serverName="b", detail="toolsAndAuthOnly")
        assert (only["name"], only["resources"], "echo" in only["tools"]) == ("b", [], True)
        page = await stage.client.request("mcpServerStatus/list", {"limit": 2, "detail": "toolsAndAuthOnly"})
        assert [each["name"] for each in page["data"]] == ["a", "b"]
        rest = await stage.client.request("mcpServerStatus/list", {"cursor": page["nextCursor"]})
        assert ([each["name"] for each in rest["data"]], rest["nextCursor"]) == (["c"], None)


async def test_a_server_with_its_token_in_a_variable_says_so(tmp_path: Path) -> None:
    table = (
        '[mcp_servers.web]\nurl = "http://user:word@127.0.0.1:9/mcp"\nbearer_token_env_var = "NOWHERE"\n'
        "startup_timeout_sec = 5\n"
    )
    async with mcp_scene(tmp_path, table) as stage:
        (web,) = await _list(stage)
        assert (web["authStatus"], web["httpOrigin"]) == ("bearerToken", "http://127.0.0.1:9")


# --- mcpServer/tool/call ----------------------------------------------------------------------------------------------


async def test_a_client_calls_a_tool_without_a_turn_an_item_or_a_question(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, full_access=False, approval_policy="on-request") as stage:
        thread = await stage.start()
        params = {"threadId": thread, "server": "probe"}
        request = stage.client.request
        answer = await request("mcpServer/tool/call", {**params, "tool": "structured", "arguments": {}})
        assert answer == {"content": [{"type": "text", "text": "ignored"}], "structuredContent": {"n": 1}}
        answer = await request("mcpServer/tool/call", {**params, "tool": "iserror"})
        assert answer == {"content": [{"type": "text", "text": "it went wrong"}], "isError": True}
        await request("mcpServer/tool/call", {**params, "tool": "write_it", "_meta": {"mine": 1}})
        assert stage.client.told("item/started", "mcpServer/elicitation/request", "turn/started") == []
        meta = heard(tmp_path, "tools/call")[-1]["params"]["_meta"]
        assert (meta["threadId"], meta["mine"]) == (thread, 1)


async def test_an_error_of_the_server_is_passed_on_as_it_is(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, probe_table(tmp_path, disabled_tools=["safe"])) as stage:
        params = {"threadId": await stage.start(), "server": "probe"}
        error = await _refusal(stage, "mcpServer/tool/call", **params, tool="rpcerror")
        assert (error.code, error.message, error.data) == (-32602, "bad arguments here", {"x": 1})
        error = await _refusal(stage, "mcpServer/tool/call", **{**params, "server": "zzz"}, tool="x")
        assert (error.code, error.message) == (-32603, "unknown MCP server 'zzz'")
        error = await _refusal(stage, "mcpServer/tool/call", **params, tool="safe")
        assert (error.code, "switch off" in error.message) == (-32603, True)
        error = await _refusal(stage, "mcpServer/tool/call", server="probe", tool="echo")
        assert "threadId" in error.message


# --- mcpServer/resource/read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_thread", [True, False])
async def test_a_resource_is_read_with_a_thread_or_without(tmp_path: Path, with_thread: bool) -> None:
    async with mcp_scene(tmp_path) as stage:
        params = {"threadId": await stage.start()} if with_thread else {}
        request = {**params, "server": "probe", "uri": "probe://one"}
        assert await stage.client.request("mcpServer/resource/read", request) == {
            "contents": [{"uri": "probe://one", "mimeType": "text/plain", "text": "the first"}],
            "originCallId": None,
        }
        error = await _refusal(stage, "mcpServer/resource/read", **{**request, "uri": "probe://two"})
        assert (error.code, error.message) == (-32002, "Resource not found")
        error = await _refusal(stage, "mcpServer/resource/read", **{**request, "server": "zzz"})
        assert (error.code, error.message) == (-32603, "unknown MCP server 'zzz'")


# --- mcpServer/prompt/list, mcpServer/prompt/get ----------------------------------------------------------------------


async def test_prompts_of_all_servers_of_a_thread_are_listed(tmp_path: Path) -> None:
    tables = (
        probe_table(tmp_path, "off", enabled=False),
        probe_table(tmp_path, "bad", "--fault", "exit"),
        probe_table(tmp_path, "web"),
        probe_table(tmp_path),
    )
    async with mcp_scene(tmp_path, *tables) as stage:
        params = {"threadId": await stage.start()}
        listed = await stage.client.request("mcpServer/prompt/list", params)
        assert [(each["server"], each["name"]) for each in listed["data"]] == [
            ("web", "greet"),
            ("web", "odd name"),
            ("probe", "greet"),
            ("probe", "odd name"),
        ]
        arguments = [
            {"name": "who", "description": None, "required": True},
            {"name": "how", "description": None, "required": None},
        ]
        assert listed["data"][0]["arguments"] == arguments
        first = await stage.client.request("mcpServer/prompt/list", {**params, "limit": 3})
        assert (len(first["data"]), first["nextCursor"]) == (3, "3")
        assert len(processes(tmp_path)) == 1


async def test_a_prompt_is_the_input_of_a_turn(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        params = {"threadId": await stage.start(), "server": "probe", "name": "odd name"}
        got = await stage.client.request("mcpServer/prompt/get", params)
        assert [part.get("text") for part in got["input"]] == ["Look at this.", "the first", None, "Assistant: I see."]
        assert got["input"][2]["url"].startswith("data:image/png;base64,")
        stage.model.enqueue_assistant_message("seen")
        assert (await stage.run(params["threadId"], input=got["input"]))["status"] == "completed"
        texts = stage.model.requests()[-1].input_texts("user")
        assert texts[-3:] == ["Look at this.", "the first", "Assistant: I see."]

        greet = {**params, "name": "greet"}
        got = await stage.client.request("mcpServer/prompt/get", {**greet, "arguments": {"who": "Ada"}})
        assert (got["description"], got["input"][0]["text"]) == ("a greeting", "Greet Ada.")
        error = await _refusal(stage, "mcpServer/prompt/get", **greet)
        assert (error.code, error.message) == (-32602, "no prompt greet with []")
        error = await _refusal(stage, "mcpServer/prompt/get", **{**greet, "server": "zzz"})
        assert (error.code, error.message) == (-32603, "unknown MCP server 'zzz'")


async def test_a_thread_without_servers_has_no_prompts(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, "") as stage:
        listed = await stage.client.request("mcpServer/prompt/list", {"threadId": await stage.start()})
        assert listed == {"data": [], "nextCursor": None}


# --- config/mcpServer/reload ------------------------------------------------------------------------------------------


async def test_a_reload_brings_threads_that_use_servers_to_the_new_settings(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        busy, fresh = await stage.start(), await stage.start()
        await run_calls(stage, busy, call("echo"))
        path = stage.harness.home / "config.toml"
        path.write_text(path.read_text() + probe_table(tmp_path, "more"))
        assert await stage.client.request("config/mcpServer/reload", {}) == {}
        await stage.client.wait_for(STATUS, lambda params: (params["name"], params["status"]) == ("more", "ready"))
        assert statuses(stage)[2:] == [("probe", "ready"), ("more", "starting"), ("more", "ready")]
        assert (len(processes(tmp_path)), len(processes(tmp_path, "more"))) == (1, 1)
        assert fresh not in {each["params"]["threadId"] for each in stage.client.told(STATUS)}


async def test_a_reload_starts_a_dead_server_at_once(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        thread = await stage.start()
        await run_calls(stage, thread, call("die"))
        (probe,) = [each for each in stage.server.threads.ids() if each == thread]
        assert probe
        await stage.client.request("config/mcpServer/reload", {})
        await stage.client.wait_for(STATUS, lambda _: len(processes(tmp_path)) == 2 and len(statuses(stage)) == 4)
        assert statuses(stage)[2:] == [("probe", "starting"), ("probe", "ready")]


# --- resources, for the model -----------------------------------------------------------------------------------------


@pytest.mark.every_wire
async def test_the_model_lists_and_reads_resources(tmp_path: Path) -> None:
    from treadle.testing import ToolCall

    # Beside what is no resource, which is left out, whatever it calls its server.
    async with mcp_scene(tmp_path, probe_table(tmp_path, "probe", "--fault", "odd-resources")) as stage:
        thread = await stage.start()
        one = {"server": "probe", "uri": "probe://one", "name": "one", "mimeType": "text/plain"}
        template = {"server": "probe", "uriTemplate": "probe://{name}", "name": "any"}
        outputs = await run_calls(
            stage,
            thread,
            ToolCall("list_mcp_resources", {}, "c1"),
            ToolCall("list_mcp_resources", {"server": "probe"}, "c2"),
            ToolCall("list_mcp_resource_templates", {}, "c3"),
            ToolCall("read_mcp_resource", {"server": "probe", "uri": "probe://one"}, "c4"),
            ToolCall("read_mcp_resource", {"server": "probe", "uri": "probe://two"}, "c5"),
            ToolCall("read_mcp_resource", {"server": "zzz", "uri": "x"}, "c6"),
            ToolCall("list_mcp_resources", {"cursor": "2"}, "c7"),
        )
        assert json.loads(outputs["c1"]) == {"resources": [one]}
        assert json.loads(outputs["c2"]) == {"server": "probe", "resources": [one]}
        assert json.loads(outputs["c3"]) == {"resourceTemplates": [template]}
        assert json.loads(outputs["c4"]) == {
            "server": "probe",
            "uri": "probe://one",
            "contents": [{"uri": "probe://one", "mimeType": "text/plain", "text": "the first"}],
        }
        assert outputs["c5"] == (
            "resources/read failed: resources/read failed for `probe` (probe://two): "
            "Mcp error: -32002: Resource not found"
        )
        assert outputs["c6"] == "unknown MCP server 'zzz'"
        assert outputs["c7"] == "cursor can only be used when a server is specified"
        shown = {item["id"]: item for item in stage.completed("mcpToolCall")}
        assert {each: shown[each]["server"] for each in ("c1", "c2", "c3", "c4")} == {
            "c1": "codex",
            "c2": "probe",
            "c3": "codex",
            "c4": "probe",
        }
        assert shown["c1"]["result"]["content"] == [{"type": "text", "text": outputs["c1"]}]
        assert [shown[each]["status"] for each in ("c4", "c5", "c6", "c7")] == ["completed", *["failed"] * 3]
        assert shown["c5"]["error"] == {"message": outputs["c5"]}
