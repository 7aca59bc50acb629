"""Calls of MCP tools in a turn: what the model is told of, what it gets, and what clients see."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from system.agent.order import check_thread
from system.mcp.mcp_scene import (
    PROBE,
    PROGRESS,
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
from treadle.testing import MockModel, ToolCall

pytestmark = pytest.mark.anyio
NO_RESULT = {"structuredContent": None, "_meta": None}


def _text(output: str) -> str:
    """What is behind the first line, which says how long it took."""
    header, _, text = output.partition("\nOutput:")
    assert re.fullmatch(r"Wall time: \d+\.\d{4} seconds", header), output
    return text.removeprefix("\n")


@pytest.mark.every_wire
async def test_a_call_goes_to_its_server_and_its_result_to_the_model(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        thread = await stage.start()
        outputs = await run_calls(stage, thread, call("echo", "hello", "c1"))
        assert _text(outputs["c1"]) == "hello"
        (item,) = items(stage)
        assert (item["id"], item["server"], item["tool"], item["status"]) == ("c1", "probe", "echo", "completed")
        assert (item["arguments"], item["readOnlyHint"], item["error"]) == ({"text": "hello"}, True, None)
        assert item["result"] == {"content": [{"type": "text", "text": "hello"}], **NO_RESULT}
        assert item["durationMs"] >= 0
        assert statuses(stage) == [("probe", "starting"), ("probe", "ready")]
        assert {"mcp__probe__echo", "mcp__probe__odd_name_x_y_z", "read_mcp_resource"} <= set(tool_names(stage))
        (asked,) = heard(tmp_path, "tools/call")
        assert asked["params"]["name"] == "echo"
        assert asked["params"]["_meta"]["threadId"] == thread
        await check_thread(stage, thread)


@pytest.mark.every_wire
@pytest.mark.parametrize(
    ("tool", "shown", "told"),
    [
        ("audio", None, "<audio content omitted because you do not support audio input>"),
        ("empty", {"content": [], **NO_RESULT}, ""),
        (
            "structured",
            {"content": [{"type": "text", "text": "ignored"}], "structuredContent": {"n": 1}, "_meta": None},
            '{"n":1}',
        ),
        ("link", None, '{"type":"resource_link","uri":"probe://one","name":"one"}'),
        ("embedded", None, '{"type":"resource","resource":{"uri":"probe://one","text":"the first"}}'),
    ],
)
async def test_kinds_of_results(tmp_path: Path, tool: str, shown: Any, told: str) -> None:
    async with mcp_scene(tmp_path) as stage:
        outputs = await run_calls(stage, await stage.start(), call(tool, None, "c1"))
        assert _text(outputs["c1"]) == told
        (item,) = items(stage)
        assert item["status"] == "completed"
        assert shown in (None, item["result"])


@pytest.mark.every_wire
async def test_an_image_is_seen_by_the_model(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        await run_calls(stage, await stage.start(), call("image", None, "c1"))
        assert "iVBORw0KGgo" in json.dumps(stage.model.requests()[-1].json)


@pytest.mark.every_wire
async def test_an_error_of_a_tool_is_a_failed_item_with_its_result(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        outputs = await run_calls(stage, await stage.start(), call("iserror", None, "c1"))
        assert _text(outputs["c1"]) == "it went wrong"
        (item,) = items(stage)
        assert (item["status"], item["error"]) == ("failed", None)
        assert item["result"]["content"] == [{"type": "text", "text": "it went wrong"}]


async def test_an_error_of_the_server_is_a_failed_item_with_its_message(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        outputs = await run_calls(stage, await stage.start(), call("rpcerror", None, "c1"))
        said = (
            "tool call error: tool call failed for `probe/rpcerror`\n\nCaused by:\n"
            '    Mcp error: -32602: bad arguments here({"x":1})'
        )
        assert _text(outputs["c1"]) == said
        (item,) = items(stage)
        assert (item["status"], item["result"], item["error"]) == ("failed", None, {"message": said})


async def test_a_server_that_dies_is_started_again_for_the_next_call(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        thread = await stage.start()
        outputs = await run_calls(stage, thread, call("die", None, "c1"))
        assert "the server is started again for the next call" in outputs["c1"]
        assert _text((await run_calls(stage, thread, call("echo", "back", "c2")))["c2"]) == "back"
        assert [item["status"] for item in items(stage)] == ["failed", "completed"]
        assert len(set(processes(tmp_path))) == 2
        await check_thread(stage, thread)


async def test_arguments_that_are_no_json_object_are_the_models_business(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        outputs = await run_calls(
            stage,
            await stage.start(),
            ToolCall("mcp__probe__echo", "{bad", "c1"),
            ToolCall("mcp__probe__echo", "[]", "c2"),
        )
        assert all("failed to parse function arguments" in output for output in outputs.values())
        assert items(stage) == []  # as the real program has it
        assert heard(tmp_path, "tools/call") == []


@pytest.mark.every_wire
async def test_a_tool_that_is_not_there(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        outputs = await run_calls(stage, await stage.start(), ToolCall("mcp__probe__nosuch", {}, "c1"))
        assert outputs["c1"] == "unsupported call: mcp__probe__nosuch"
        assert items(stage) == []


async def test_every_spelling_of_a_name_is_understood(tmp_path: Path) -> None:
    spellings = [
        ("mcp__probe", "echo"),
        (None, "mcp__probe__echo"),
        (None, "mcp__probe.echo"),
        ("mcp__probe", "odd_name_x_y_z"),
    ]
    async with mcp_scene(tmp_path) as stage:
        made = [
            {
                "type": "function_call",
                "id": f"f{number}",
                "call_id": f"c{number}",
                "name": name,
                "arguments": "{}",
                **({} if namespace is None else {"namespace": namespace}),
            }
            for number, (namespace, name) in enumerate(spellings)
        ]
        events: list[Any] = [{"type": "response.output_item.done", "item": item} for item in made]
        stage.model.enqueue_sse([*events, {"type": "response.completed", "response": {"id": "r"}}])
        stage.model.enqueue_assistant_message("done")
        assert (await stage.run(await stage.start()))["status"] == "completed"
        assert [item["status"] for item in items(stage)] == ["completed"] * len(spellings)
        assert {item["tool"] for item in items(stage)} == {"echo", "odd.name-x/y z"}


@pytest.mark.responses_wire
async def test_on_responses_a_server_is_a_namespace(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        await run_calls(stage, await stage.start(), call("echo"))
        spaces = [tool for tool in stage.model.requests()[-1].json["tools"] if tool["type"] == "namespace"]
        (space,) = [space for space in spaces if space["name"].startswith("mcp__")]
        assert (space["name"], space["description"]) == ("mcp__probe", "Use the probe tools wisely.")
        names = [tool["name"] for tool in space["tools"]]
        assert names == sorted(names)


async def test_progress_goes_to_whoever_looks(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        thread = await stage.start()
        await run_calls(stage, thread, call("progress", "3", "c1"))
        told = stage.client.told(PROGRESS)
        assert [each["params"]["message"] for each in told] == ["step 1", "step 2", "step 3"]
        assert {each["params"]["itemId"] for each in told} == {"c1"}
        names = [message["method"] for message in stage.client.messages]
        assert names.index(PROGRESS) > names.index("item/started")


async def test_of_a_large_result_the_whole_is_in_a_file(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        outputs = await run_calls(stage, await stage.start(), call("big", "1500000", "c1"))
        assert len(outputs["c1"]) < 60_000
        found = re.search(r"and is in (\S+): read what you need of it", outputs["c1"])
        assert found is not None
        assert Path(found[1]).read_text() == "x" * 1_500_000
        (item,) = items(stage)
        assert len(json.dumps(item)) < 200_000
    assert not Path(found[1]).exists()


async def test_a_tool_that_takes_too_long_costs_its_timeout(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, probe_table(tmp_path, tool_timeout_sec=2)) as stage:
        outputs = await run_calls(stage, await stage.start(), call("sleep", None, "c1"))
        assert "timed out awaiting tools/call after" in outputs["c1"]
        (item,) = items(stage)
        assert item["status"] == "failed"
        assert "timed out" in item["error"]["message"]
        assert _text((await run_calls(stage, item_thread(stage), call("echo", "well", "c2")))["c2"]) == "well"
        (cancelled,) = heard(tmp_path, "notifications/cancelled")
        (slow, _) = heard(tmp_path, "tools/call")
        assert cancelled["params"]["requestId"] == slow["id"]


def item_thread(stage: Any) -> str:
    thread: str = stage.client.told("thread/started")[0]["params"]["thread"]["id"]
    return thread


async def test_an_interrupt_cancels_the_call_and_ends_its_item(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        stage.model.enqueue_calls(call("sleep", None, "c1"))
        thread = await stage.start()
        turn = await stage.begin(thread)
        await stage.client.wait_for("item/started", lambda params: params["item"]["id"] == "c1")
        await stage.interrupt(thread, turn)
        assert (await stage.end(turn))["status"] == "interrupted"
        (item,) = items(stage)
        assert (item["status"], item["error"]) == ("failed", {"message": "interrupted by the user"})
        assert _text((await run_calls(stage, thread, call("echo", "on", "c2")))["c2"]) == "on"
        # The second call was answered after the server had read what came before it.
        assert len(heard(tmp_path, "notifications/cancelled")) == len(heard(tmp_path, "tools/call")) - 1
        await check_thread(stage, thread)


# --- in which order ---------------------------------------------------------------------------------------------------


async def _order(stage: Any, *calls: ToolCall) -> list[tuple[str, str]]:
    await run_calls(stage, await stage.start(), *calls)
    return [
        (message["method"].removeprefix("item/"), message["params"]["item"]["id"])
        for message in stage.client.told("item/started", "item/completed")
        if message["params"]["item"]["type"] == "mcpToolCall"
    ]


async def test_calls_of_a_server_run_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        assert await _order(stage, call("safe", None, "c1"), call("safe", None, "c2"), call("echo", None, "c3")) == [
            ("started", "c1"),
            ("completed", "c1"),
            ("started", "c2"),
            ("completed", "c2"),
            ("started", "c3"),
            ("completed", "c3"),
        ]


@pytest.mark.parametrize("tool", ["echo", "safe"])
async def test_calls_run_together_where_they_only_read_or_the_settings_say_so(tmp_path: Path, tool: str) -> None:
    table = probe_table(tmp_path, supports_parallel_tool_calls=tool == "safe")
    async with mcp_scene(tmp_path, table) as stage:
        order = await _order(stage, call(tool, None, "c1"), call(tool, None, "c2"))
        assert order[:2] == [("started", "c1"), ("started", "c2")]


async def test_a_slow_server_does_not_hold_up_another_one(tmp_path: Path) -> None:
    tables = probe_table(tmp_path, "slow", tool_timeout_sec=30), probe_table(tmp_path, "quick")
    async with mcp_scene(tmp_path, *tables) as stage:
        stage.model.enqueue_calls(call("sleep", None, "c1", server="slow"), call("safe", None, "c2", server="quick"))
        thread = await stage.start()
        turn = await stage.begin(thread)
        await stage.client.wait_for("item/completed", lambda params: params["item"]["id"] == "c2")
        assert [item["id"] for item in items(stage)] == ["c2"]
        await stage.interrupt(thread, turn)
        await stage.end(turn)


# --- which tools there are --------------------------------------------------------------------------------------------


@pytest.mark.every_wire
async def test_tools_that_come_in_a_turn_are_offered_with_its_next_request(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        await run_calls(stage, await stage.start(), call("more", "fresh"))
        assert "mcp__probe__fresh" not in tool_names(stage, 0)
        assert "mcp__probe__fresh" in tool_names(stage, 1)


async def test_a_tool_that_is_taken_away_while_it_runs_ends_well(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path) as stage:
        thread = await stage.start()
        stage.model.enqueue_calls(call("vanish", "0", "c1"))
        stage.model.enqueue_calls(call("vanish", "0", "c2"))
        stage.model.enqueue_assistant_message("done")
        assert (await stage.run(thread))["status"] == "completed"
        outputs = stage.model.requests()[-1].tool_outputs
        assert (_text(outputs["c1"]), outputs["c2"]) == ("gone", "unsupported call: mcp__probe__vanish")
        assert "mcp__probe__vanish" not in tool_names(stage)

        # And while another turn of the thread has the new list already.
        direct = {"threadId": thread, "server": "probe", "tool": "vanish", "arguments": {"text": "60"}}
        asking = asyncio.ensure_future(stage.client.request("mcpServer/tool/call", direct))
        while len(heard(tmp_path, "tools/call")) < 2:
            await asyncio.sleep(0.01)
        await run_calls(stage, thread, call("echo"))
        assert (await asking)["content"][0]["text"] == "gone"
        await check_thread(stage, thread)


async def test_names_that_are_none(tmp_path: Path) -> None:
    """A name of the settings can be anything; it is shown as it is, and the model has one that it can write."""
    name = "a__b\u0007 \u001b[31m\u202e"
    servers = {name: {"command": sys.executable, "args": ["-I", "-S", PROBE]}, "a": {"enabled": False}}
    async with mcp_scene(tmp_path, "") as stage:
        thread = await stage.start(config={"mcp_servers": servers})
        stage.model.enqueue_assistant_message("hello")
        await stage.run(thread)
        (echo,) = [each for each in tool_names(stage) if each.endswith("__echo")]
        assert re.fullmatch(r"mcp__[A-Za-z0-9_]{1,40}__echo", echo)
        outputs = await run_calls(stage, thread, ToolCall(echo, {"text": "hi"}, "c1"))
        assert _text(outputs["c1"]) == "hi"
        assert items(stage)[0]["server"] == name
        listed = await stage.client.request("mcpServerStatus/list", {"threadId": thread})
        assert {status["name"]: status["runtimeStatus"] for status in listed["data"]} == {
            name: "connected",
            "a": "disabled",
        }


async def test_tools_that_are_switched_off_are_not_offered_and_cannot_be_called(tmp_path: Path) -> None:
    table = probe_table(tmp_path, enabled_tools=["echo", "safe"], disabled_tools=["safe"])
    async with mcp_scene(tmp_path, table) as stage:
        outputs = await run_calls(stage, await stage.start(), call("safe", None, "c1"), call("more", None, "c2"))
        assert [name for name in tool_names(stage) if name.startswith("mcp__")] == ["mcp__probe__echo"]
        assert outputs == {"c1": "unsupported call: mcp__probe__safe", "c2": "unsupported call: mcp__probe__more"}
        assert heard(tmp_path, "tools/call") == []


@pytest.mark.every_wire
async def test_many_tools_are_behind_a_search(tmp_path: Path) -> None:
    async with mcp_scene(
        tmp_path, probe_table(tmp_path, "probe", "--tools", "150"), model_context_window=20_000
    ) as stage:
        thread = await stage.start()
        stage.model.enqueue_calls(ToolCall("tool_search", {"query": "many 77", "limit": 1}, "c1"))
        stage.model.enqueue_calls(call("many_77", None, "c2"))
        stage.model.enqueue_assistant_message("done")
        assert (await stage.run(thread))["status"] == "completed"
        first, second = tool_names(stage, 0), tool_names(stage, 1)
        assert "tool_search" in first
        assert not [name for name in first if name.startswith("mcp__")]
        assert [name for name in second if name.startswith("mcp__")] == ["mcp__probe__many_77"]
        outputs = stage.model.requests()[-1].tool_outputs
        assert "mcp__probe__many_77" in outputs["c1"]
        assert _text(outputs["c2"]) == "many_77"
        # A tool that was not found can be called all the same: the model may know it from before.
        assert _text((await run_calls(stage, thread, call("many_5", None, "c3")))["c3"]) == "many_5"


SEARCHED = '[models."mock-model"]\ntool_search = true\n'


def _search(call_id: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_search_call", "id": f"ts_{call_id}", "call_id": call_id, "arguments": arguments, **more}


def _enqueue_items(model: MockModel, *found: dict[str, Any]) -> None:
    done = [{"type": "response.output_item.done", "output_index": n, "item": item} for n, item in enumerate(found)]
    model.enqueue_sse([{"type": "response.created"}, *done, {"type": "response.completed", "response": {"id": "r"}}])


@pytest.mark.responses_wire
async def test_a_model_that_knows_the_search_of_its_api_has_that(tmp_path: Path) -> None:
    table = probe_table(tmp_path, "probe", "--tools", "150") + SEARCHED
    with MockModel() as model:
        async with mcp_scene(tmp_path, table, model=model, model_context_window=20_000) as stage:
            thread = await stage.start()
            client = {"execution": "client", "status": "completed"}
            _enqueue_items(
                stage.model,
                _search("s1", {"query": "many 77", "limit": 1}, **client),
                _search("s2", {"limit": 1}, **client),
                _search("s3", {"query": "x"}, execution="server"),  # which has its answer
            )
            call_77 = {"type": "function_call", "id": "f", "call_id": "c2", "name": "many_77", "arguments": "{}"}
            _enqueue_items(stage.model, {**call_77, "namespace": "mcp__probe"})
            stage.model.enqueue_assistant_message("done")
            assert (await stage.run(thread))["status"] == "completed"
            first, second, third = (request.json for request in stage.model.requests())
            (offered,) = [tool for tool in first["tools"] if tool["type"] == "tool_search"]
            assert (offered["execution"], offered["parameters"]["required"]) == ("client", ["query"])
            assert [tool["name"] for tool in first["tools"] if tool["type"] == "namespace"] == ["multi_agent_v1"]
            assert second["tools"] == first["tools"], "what was found is in the answer"
            answers = {item["call_id"]: item for item in second["input"] if item["type"] == "tool_search_output"}
            assert answers.keys() == {"s1", "s2"}
            assert answers["s2"] == {**answers["s1"], "call_id": "s2", "tools": []}
            assert {key: answers["s1"][key] for key in ("status", "execution")} == client
            (namespace,) = answers["s1"]["tools"]
            assert namespace["name"] == "mcp__probe"
            (function,) = namespace["tools"]
            assert (function["name"], function["defer_loading"]) == ("many_77", True)
            (output,) = [item for item in third["input"] if item["type"] == "function_call_output"]
            assert output["output"][-1]["text"] == "many_77"


@pytest.mark.responses_wire
async def test_a_search_of_one_provider_is_not_shown_to_another(tmp_path: Path) -> None:
    with MockModel() as model, MockModel() as other:
        more = f'[model_providers.other]\nname = "Other"\nbase_url = "{other.base_url}"\nwire_api = "responses"\n'
        async with mcp_scene(tmp_path, probe_table(tmp_path) + more, model=model) as stage:
            thread = await stage.start()
            _enqueue_items(stage.model, _search("s1", '{"query": "echo"}', execution="client"))
            stage.model.enqueue_assistant_message("done")
            await stage.run(thread)
            assert "tool_search_output" in json.dumps(stage.model.requests()[-1].json)
            other.enqueue_assistant_message("hello")
            await stage.client.request("thread/resume", {"threadId": thread, "modelProvider": "other"})
            assert (await stage.run(thread))["status"] == "completed"
            assert "tool_search" not in json.dumps(other.requests()[-1].json["input"])


@pytest.mark.responses_wire
async def test_a_server_that_refuses_the_search_of_the_api_gets_a_function(tmp_path: Path) -> None:
    table = probe_table(tmp_path, "probe", "--tools", "150") + SEARCHED
    with MockModel() as model:
        async with mcp_scene(tmp_path, table, model=model, model_context_window=20_000) as stage:
            message = "Invalid value: 'tool_search'. Supported values are: 'function'."
            stage.model.enqueue_error(400, {"error": {"message": message}})
            stage.model.enqueue_calls(ToolCall("tool_search", {"query": "many 77", "limit": 1}, "c1"))
            stage.model.enqueue_calls(ToolCall("mcp__probe__many_77", {}, "c2"))
            stage.model.enqueue_assistant_message("done")
            assert (await stage.run(await stage.start()))["status"] == "completed"
            second = [tool for tool in stage.model.requests()[1].json["tools"] if tool.get("name") == "tool_search"]
            assert [tool["type"] for tool in second] == ["function"]
            assert "mcp__probe__many_77" in tool_names(stage, 2)
            assert _text(stage.model.requests()[-1].tool_outputs["c2"]) == "many_77"


@pytest.mark.responses_wire  # Anthropic wants the tools of the history in any case
async def test_a_turn_at_its_limit_of_rounds_has_no_tools_of_servers_either(tmp_path: Path) -> None:
    with MockModel() as model:
        async with mcp_scene(tmp_path, model=model) as stage:
            stage.model.enqueue_calls(call("echo"))
            stage.model.enqueue_assistant_message("enough")
            assert (await stage.run(await stage.start(), maxIterations=1))["status"] == "completed"
            assert tool_names(stage, 0) != []
            assert tool_names(stage, 1) == []


async def test_the_whole_of_a_large_result_can_be_read_by_a_sandboxed_command(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"approval_policy": "never", "sandbox_mode": "read-only"}
    table = probe_table(tmp_path, default_tools_approval_mode="approve")
    async with mcp_scene(tmp_path, table, full_access=False, **settings) as stage:
        thread = await stage.start()
        output = (await run_calls(stage, thread, call("big", "100000", "c1")))["c1"]
        assert len(output) < 50_000
        told = re.search(r"The whole output has (\d+) bytes and is in (/\S+): read what you need of it", output)
        assert told is not None, output[-300:]
        reading = ToolCall("exec_command", {"cmd": f"wc -c < {told[2]}"}, "c2")
        assert told[1] in (await run_calls(stage, thread, reading))["c2"].split()
        await stage.client.request("thread/archive", {"threadId": thread})
        assert not os.path.exists(os.path.dirname(told[2]))
