"""What the model's tools do: commands, patches, plans, images, tools of the client."""

from __future__ import annotations

import asyncio
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from system.agent.order import check_thread
from system.agent.scene import Json, Scene, patch, scene, shell, waiting_scene
from treadle.errors import RpcError
from treadle.testing import RecordedRequest, ToolCall

pytestmark = [pytest.mark.anyio, pytest.mark.every_wire]


async def _call(stage: Scene, *calls: ToolCall, **params: Any) -> tuple[str, RecordedRequest]:
    """One turn with these calls; the thread, and the request that has their outputs."""
    stage.model.enqueue_calls(*calls)
    stage.model.enqueue_assistant_message("done")
    thread = await stage.start(**params)
    assert (await stage.run(thread))["status"] == "completed"
    await check_thread(stage, thread)
    return thread, stage.model.requests()[-1]


# --- commands --------------------------------------------------------------------------------------------------------


async def test_a_command_is_an_item_with_its_output(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        (stage.workspace / "sub").mkdir()
        _, request = await _call(
            stage,
            ToolCall("exec_command", shell("echo out; echo err >&2; exit 3"), "c1"),
            ToolCall("exec_command", shell("pwd", workdir="sub"), "c2"),
            ToolCall("exec_command", shell("[ -t 0 ] && echo terminal", tty=True), "c3"),
        )
        items = {item["id"]: item for item in stage.completed("commandExecution")}
        assert items["c1"]["status"] == "failed"
        assert items["c1"]["exitCode"] == 3
        assert sorted(items["c1"]["aggregatedOutput"].split()) == ["err", "out"]
        assert items["c1"]["command"] == "/bin/bash -c 'echo out; echo err >&2; exit 3'"
        assert items["c2"]["status"] == "completed"
        assert items["c2"]["cwd"] == str(stage.workspace / "sub")
        assert items["c2"]["aggregatedOutput"] == f"{stage.workspace}/sub\n"
        assert "terminal" in items["c3"]["aggregatedOutput"]
        assert "Process exited with code 3" in request.tool_outputs["c1"]
        assert "Output:\n" in request.tool_outputs["c1"]


async def test_output_is_cut_to_the_budget_for_the_model_only(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        cmd = shell("echo first; seq 10000 19999; echo last", max_output_tokens=100)
        _, request = await _call(stage, ToolCall("exec_command", cmd, "c1"))
        output = request.tool_outputs["c1"]
        assert len(output) < 1000
        assert "first" in output
        assert "last" in output
        assert "15000" not in output
        (item,) = stage.completed("commandExecution")
        assert "15000" in item["aggregatedOutput"]


async def test_a_session_is_written_to_until_it_ends(tmp_path: Path) -> None:
    async with waiting_scene(tmp_path) as stage:
        cmd = shell("stty -echo; echo ready; read a; echo got $a; read b; echo end $b", tty=True, yield_time_ms=250)
        stage.model.enqueue_function_call("exec_command", cmd, call_id="c1")
        thread = await stage.start()
        turn = await stage.begin(thread)
        first = (await stage.model.arrived(2))[1].tool_outputs["c1"]
        assert "Process running with session ID" in first
        number = int(first.partition("session ID ")[2].split()[0])
        for call_id, chars in (("c2", "one\n"), ("c3", "two\n")):
            arguments = {"session_id": number, "chars": chars, "yield_time_ms": 30_000 if chars == "two\n" else 250}
            stage.model.enqueue_function_call("write_stdin", arguments, call_id=call_id)
        stage.model.enqueue_function_call("write_stdin", {"session_id": number}, call_id="c4")
        stage.model.enqueue_assistant_message("done")
        await stage.end(turn)
        outputs = stage.model.requests()[-1].tool_outputs
        assert "got one" in outputs["c2"] + outputs["c3"]
        assert "end two" in outputs["c3"]
        assert "exited with code 0" in outputs["c3"]
        assert "no session" in outputs["c4"]
        told = [m["params"]["stdin"] for m in stage.client.told("item/commandExecution/terminalInteraction")]
        assert told == ["one\n", "two\n"]
        (item,) = stage.completed("commandExecution")
        assert item["status"] == "completed"
        assert item["aggregatedOutput"].split() == ["ready", "got", "one", "end", "two"]
        await check_thread(stage, thread)


async def test_the_model_is_told_how_a_command_ended_between_two_looks(tmp_path: Path) -> None:
    async with waiting_scene(tmp_path) as stage:
        cmd = shell("until [ -e go ]; do sleep 0.02; done; echo late; exit 4", yield_time_ms=250)
        stage.model.enqueue_function_call("exec_command", cmd, call_id="c1")
        thread = await stage.start()
        turn = await stage.begin(thread)
        first = (await stage.model.arrived(2))[1].tool_outputs["c1"]
        look = {"session_id": int(first.partition("session ID ")[2].split()[0])}
        (stage.workspace / "go").touch()
        await stage.client.wait_for("item/completed", lambda params: params["item"]["id"] == "c1")
        stage.model.enqueue_function_call("write_stdin", look, call_id="c2")
        stage.model.enqueue_function_call("write_stdin", look, call_id="c3")
        stage.model.enqueue_assistant_message("done")
        await stage.end(turn)
        outputs = stage.model.requests()[-1].tool_outputs
        assert "exited with code 4" in outputs["c2"]
        assert outputs["c2"].endswith("late\n")
        assert "no session" in outputs["c3"]


async def test_a_command_without_a_terminal_has_no_input(tmp_path: Path) -> None:
    async with waiting_scene(tmp_path) as stage:
        stage.model.enqueue_function_call("exec_command", shell("exec sleep 3600", yield_time_ms=250), call_id="c1")
        thread = await stage.start()
        turn = await stage.begin(thread)
        first = (await stage.model.arrived(2))[1].tool_outputs["c1"]
        number = int(first.partition("session ID ")[2].split()[0])
        stage.model.enqueue_function_call("write_stdin", {"session_id": number, "chars": "x"}, call_id="c2")
        stage.model.enqueue_assistant_message("done")
        assert (await stage.end(turn))["status"] == "completed"
        assert "tty" in stage.model.requests()[-1].tool_outputs["c2"]


async def test_calls_that_cannot_be_done_are_answered(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        _, request = await _call(
            stage,
            ToolCall("no_such_tool", {}, "c1"),
            ToolCall("exec_command", "{oops", "c2"),
            ToolCall("exec_command", {"cmd": 1}, "c3"),
            ToolCall("exec_command", shell("true", workdir="/no/such/place"), "c4"),
            ToolCall("no_such_freeform", "text", "c5", custom=True),
            ToolCall("update_plan", {"plan": "no"}, "c6"),
            ToolCall("exec_command", shell("true", workdir="a\0b"), "c7"),
        )
        outputs = request.tool_outputs
        assert outputs["c1"] == "unsupported call: no_such_tool"
        assert outputs["c2"].startswith("failed to parse function arguments: ")
        assert outputs["c3"].startswith("failed to parse function arguments: ")
        # The real codex does not say what is missing.
        assert re.search("/no/such/place|No such file or directory", outputs["c4"])
        kind = "custom tool call" if stage.harness.wire_api == "responses" else "call"  # the others have one kind
        assert outputs["c5"] == f"unsupported {kind}: no_such_freeform"
        assert outputs["c6"].startswith("failed to parse function arguments: ")
        assert "NUL" in outputs["c7"]
        items = [(item["id"], item["status"]) for item in stage.completed("commandExecution")]
        assert sorted(items) == [("c4", "failed"), ("c7", "failed")]


# --- patches ---------------------------------------------------------------------------------------------------------


async def test_a_patch_adds_updates_moves_and_deletes(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        ws = stage.workspace
        (ws / "old.txt").write_text("one\ntwo\n")
        (ws / "gone.txt").write_text("x\n")
        text = patch(
            "*** Add File: new/a.txt",
            "+hello",
            "*** Update File: old.txt",
            "*** Move to: moved.txt",
            "@@",
            "-two",
            "+2",
            "*** Delete File: gone.txt",
        )
        _, request = await _call(stage, ToolCall("apply_patch", {"input": text}, "c1"))
        assert (ws / "new/a.txt").read_text() == "hello\n"
        assert (ws / "moved.txt").read_text() == "one\n2\n"
        assert not (ws / "old.txt").exists()
        assert not (ws / "gone.txt").exists()
        assert request.tool_outputs["c1"].startswith("Success. Updated the following files:")
        (item,) = stage.completed("fileChange")
        assert item["status"] == "completed"
        kinds = {change["path"]: change["kind"] for change in item["changes"]}
        assert kinds[str(ws / "new/a.txt")] == {"type": "add"}
        assert kinds[str(ws / "gone.txt")] == {"type": "delete"}
        assert kinds[str(ws / "old.txt")] == {"type": "update", "move_path": str(ws / "moved.txt")}
        diff = stage.client.told("turn/diff/updated")[-1]["params"]["diff"]
        assert "diff --git a/old.txt b/moved.txt" in diff
        assert "+++ b/new/a.txt" in diff
        assert "deleted file mode" in diff


async def test_a_patch_that_does_not_apply_changes_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        (stage.workspace / "a.txt").write_text("one\n")
        text = patch("*** Add File: new.txt", "+x", "*** Update File: a.txt", "@@", "-not there", "+y")
        _, request = await _call(
            stage,
            ToolCall("apply_patch", text, "c1", custom=True),
            ToolCall("apply_patch", "rubbish", "c2", custom=True),
        )
        assert "not applied" in request.tool_outputs["c1"]
        assert "not applied" in request.tool_outputs["c2"]
        assert sorted(path.name for path in stage.workspace.iterdir()) == ["a.txt"]
        assert (stage.workspace / "a.txt").read_text() == "one\n"
        assert stage.client.told("turn/diff/updated") == []


async def test_a_patch_as_a_here_document(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        (stage.workspace / "sub").mkdir()
        text = patch("*** Add File: a.txt", "+hello")
        cmd = f"cd sub && apply_patch <<'EOF'\n{text}EOF\n"
        await _call(stage, ToolCall("exec_command", {"cmd": cmd}, "c1"))
        assert (stage.workspace / "sub/a.txt").read_text() == "hello\n"
        assert [item["id"] for item in stage.completed("fileChange")] == ["c1"]
        assert stage.completed("commandExecution") == []


async def test_the_diff_of_a_turn_is_what_changed_in_all(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        (stage.workspace / "a.txt").write_text("one\n")
        steps = [("one", "two"), ("two", "one")]
        await _call(
            stage,
            *(
                ToolCall("apply_patch", {"input": patch("*** Update File: a.txt", "@@", f"-{old}", f"+{new}")}, f"c{n}")
                for n, (old, new) in enumerate(steps)
            ),
        )
        first, second = (told["params"]["diff"] for told in stage.client.told("turn/diff/updated"))
        assert "-one\n+two\n" in first
        assert second == "", "back to where it was"


async def test_a_command_after_a_patch_sees_it(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        text = patch("*** Add File: a.txt", "+hello")
        _, request = await _call(
            stage, ToolCall("apply_patch", {"input": text}, "c1"), ToolCall("exec_command", shell("cat a.txt"), "c2")
        )
        assert "hello" in request.tool_outputs["c2"]


# --- plans and images ------------------------------------------------------------------------------------------------


async def test_a_plan_is_told(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        steps = [{"step": "look", "status": "completed"}, {"step": "do", "status": "in_progress"}]
        _, request = await _call(stage, ToolCall("update_plan", {"plan": steps, "explanation": "why"}, "c1"))
        (told,) = stage.client.told("turn/plan/updated")
        assert told["params"]["explanation"] == "why"
        assert told["params"]["plan"] == [
            {"step": "look", "status": "completed"},
            {"step": "do", "status": "inProgress"},
        ]
        assert request.tool_outputs["c1"] == "Plan updated"


def _png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0\xff\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


async def test_an_image_is_looked_at(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        (stage.workspace / "a.png").write_bytes(_png())
        (stage.workspace / "b.txt").write_text("no picture")
        _, request = await _call(
            stage,
            ToolCall("view_image", {"path": "a.png"}, "c1"),
            ToolCall("view_image", {"path": "b.txt"}, "c2"),
            ToolCall("view_image", {"path": "none.png"}, "c3"),
        )
        (item,) = stage.completed("imageView")
        assert item["path"] == str(stage.workspace / "a.png")
        if stage.harness.wire_api == "chat":  # a tool gives only text there: the image is shown by the user
            (output,) = (entry["content"][1:] for entry in request.input[-1:])
        else:
            (output,) = (item["output"] for item in request.input if item.get("call_id") == "c1" and "output" in item)
        assert output[0]["image_url"].startswith("data:image/png;base64,")
        assert "b.txt" in request.tool_outputs["c2"]
        assert "none.png" in request.tool_outputs["c3"]


# --- what the user gives ---------------------------------------------------------------------------------------------


async def test_every_kind_of_input_reaches_the_model(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        ws = stage.workspace
        (ws / "a.png").write_bytes(_png())
        (ws / "b.txt").write_text("no picture")
        (ws / "SKILL.md").write_text("do it well")
        stage.model.enqueue_assistant_message("a")
        thread = await stage.start()
        data_url = "data:image/png;base64,AAAA"
        given: list[Json] = [
            {"type": "text", "text": "look at @file"},
            {"type": "image", "url": data_url},
            {"type": "image", "url": "https://example.org/a.png", "detail": "high"},
            {"type": "localImage", "path": str(ws / "a.png")},
            {"type": "localImage", "path": str(ws / "none.png")},
            {"type": "localImage", "path": str(ws / "b.txt")},
            {"type": "skill", "name": "well", "path": str(ws / "SKILL.md")},
            {"type": "skill", "name": "lost", "path": str(ws / "none.md")},
            {"type": "mention", "name": "file", "path": "app://file"},
        ]
        answer = await stage.client.request("turn/start", {"threadId": thread, "input": given})
        assert (await stage.end(answer["turn"]["id"]))["status"] == "completed"
        request = stage.model.single_request()
        # Whether it is one message or three is a matter of the API.
        parts = [part for item in request.input if item.get("role") == "user" for part in item["content"]]
        text, image, remote, opening, local, closing, missing, wrong, skill, lost = parts
        assert text == {"type": "input_text", "text": "look at @file"}
        assert (image["type"], image["image_url"]) == ("input_image", data_url)
        assert (remote["type"], remote["image_url"]) == ("input_image", "https://example.org/a.png")
        if stage.harness.wire_api != "anthropic":  # where images have no details
            assert remote["detail"] == "high"
        assert str(ws / "a.png") in opening["text"]
        assert local["image_url"].startswith("data:image/png;base64,")
        assert closing["text"] == "</image>"
        assert "none.png could not be read" in missing["text"]
        assert "b.txt could not be read" in wrong["text"]
        assert skill["text"].startswith("<skill>\n<name>well</name>")
        assert "do it well" in skill["text"]
        assert "could not be read" in lost["text"]
        (shown,) = stage.completed("userMessage")
        assert [part["type"] for part in shown["content"]] == [part["type"] for part in given]
        await check_thread(stage, thread)


# --- tools of the client ---------------------------------------------------------------------------------------------

TOOL = {"type": "function", "name": "weather", "description": "", "inputSchema": {"type": "object"}}
SPACE = {"type": "namespace", "name": "home", "description": "", "tools": [{**TOOL, "name": "lamp"}]}


def _text(text: str, success: bool = True) -> Json:
    return {"contentItems": [{"type": "inputText", "text": text}], "success": success}


@pytest.mark.parametrize(
    ("answer", "status", "output"),
    [
        (_text("sunny"), "completed", "sunny"),
        (_text("no idea", success=False), "failed", "no idea"),
        (RpcError(-32000, "broken"), "failed", "dynamic tool request failed"),
        ({"nonsense": 1}, "failed", "dynamic tool request failed"),
    ],
)
async def test_a_tool_of_the_client(tmp_path: Path, answer: Any, status: str, output: str) -> None:
    async with scene(tmp_path) as stage:
        stage.model.enqueue_function_call("weather", {"city": "Ulm"}, call_id="c1")
        stage.model.enqueue_assistant_message("done")
        thread = await stage.start(dynamicTools=[TOOL])
        turn = await stage.begin(thread)
        ask = await stage.asked("item/tool/call")
        assert ask["params"] == {
            "threadId": thread,
            "turnId": turn,
            "callId": "c1",
            "namespace": None,
            "tool": "weather",
            "arguments": {"city": "Ulm"},
        }
        stage.client.reply(ask, answer)
        await stage.end(turn)
        (item,) = stage.completed("dynamicToolCall")
        assert item["status"] == status
        assert item["success"] is (status == "completed")
        assert stage.model.requests()[-1].tool_outputs["c1"] == output
        assert "weather" in stage.model.requests()[0].tool_names
        (resolved,) = stage.client.told("serverRequest/resolved")
        assert resolved["params"]["requestId"] == ask["id"]
        await check_thread(stage, thread)


async def test_tools_of_the_client_in_a_namespace(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        call = {"type": "function_call", "id": "f1", "call_id": "c1", "name": "lamp", "namespace": "home"}
        item = {**call, "arguments": "{}", "status": "completed"}
        bare = {**item, "id": "f2", "call_id": "c2", "namespace": None}
        events: list[Json] = [{"type": "response.output_item.done", "item": one} for one in (item, bare)]
        stage.model.enqueue_sse([*events, {"type": "response.completed", "response": {"id": "r"}}])
        stage.model.enqueue_assistant_message("done")
        stage.client.answer = lambda ask: _text("on")
        thread = await stage.start(dynamicTools=[SPACE])
        await stage.run(thread)
        (ask,) = stage.client.told("item/tool/call")
        assert (ask["params"]["namespace"], ask["params"]["tool"]) == ("home", "lamp")
        outputs = stage.model.requests()[-1].tool_outputs
        assert outputs == {"c1": "on", "c2": "unsupported call: lamp"}
        await check_thread(stage, thread)


async def test_an_interrupt_takes_back_the_question(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        stage.model.enqueue_function_call("weather", {}, call_id="c1")
        stage.model.enqueue_assistant_message("later")
        thread = await stage.start(dynamicTools=[TOOL])
        turn = await stage.begin(thread)
        ask = await stage.asked("item/tool/call")
        await stage.interrupt(thread, turn)
        await stage.end(turn)
        assert [m["params"]["requestId"] for m in stage.client.told("serverRequest/resolved")] == [ask["id"]]
        stage.client.reply(ask, _text("too late"))
        await stage.run(thread, "again")
        assert "too late" not in str(stage.model.requests()[-1].json)
        await check_thread(stage, thread)


async def test_many_deltas_of_a_fast_command_are_all_there(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        async with asyncio.timeout(30):
            await _call(stage, ToolCall("exec_command", shell("seq 1 20000"), "c1"))
        (item,) = stage.completed("commandExecution")
        deltas = "".join(told["params"]["delta"] for told in stage.client.told("item/commandExecution/outputDelta"))
        assert deltas == item["aggregatedOutput"] == "".join(f"{n}\n" for n in range(1, 20001))


# --- how much of an output the model gets ----------------------------------------------------------------------------


async def test_the_output_of_a_command_is_cut_to_the_limit(tmp_path: Path) -> None:
    async with scene(tmp_path, settings={"tool_output_token_limit": 100}) as stage:
        stage.model.enqueue_function_call("exec_command", {"cmd": "seq 1000", "max_output_tokens": 5000}, call_id="c1")
        stage.model.enqueue_assistant_message("done")
        await stage.run(await stage.start())
        output = stage.model.requests()[-1].tool_outputs["c1"]
        assert len(output) < 100 * 4 + 64
        assert "tokens of output were cut here" in output
        assert output.endswith("\n999\n1000\n")
        (item,) = stage.completed("commandExecution")
        assert item["aggregatedOutput"].count("\n") == 1000  # clients get all of it


async def test_the_output_of_a_tool_of_the_client_is_cut_to_the_limit(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        stage.model.enqueue_function_call("weather", {"city": "Ulm"}, call_id="c1")
        stage.model.enqueue_assistant_message("done")
        thread = await stage.start(dynamicTools=[TOOL], config={"tool_output_token_limit": 100})
        turn = await stage.begin(thread)
        texts = [{"type": "inputText", "text": text} for text in ("a" * 300, "b" * 300, "c" * 300)]
        stage.client.reply(await stage.asked("item/tool/call"), {"contentItems": texts, "success": True})
        await stage.end(turn)
        output = stage.model.requests()[-1].tool_outputs["c1"]
        assert output.count("a") == 300 + 2 * "tokens of output were cut here".count("a")
        assert 0 < output.count("b") < 110
        assert "c" * 3 not in output
