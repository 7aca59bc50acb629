"""Commands that outlive their call: listed, ended and told of, and never left `inProgress` when they are not."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from kit.app_program import stdio_server
from kit.processes import processes_left, processes_with
from kit.wire_client import Json
from system.agent.scene import ENDED, Scene, gate, scene, shell
from treadle.errors import RpcError
from treadle.execution import LocalProcess
from treadle.testing import AppServerHarness, ToolCall
from treadle.tools.command import command_sessions

pytestmark = pytest.mark.anyio

TERMINALS = "thread/backgroundTerminals"


async def background(stage: Scene, *commands: str, **params: Any) -> str:
    """A thread whose first turn has ended, with these commands still running."""
    for number, command in enumerate(commands, start=1):
        stage.model.enqueue_function_call("exec_command", shell(command, yield_time_ms=250), call_id=f"c{number}")
    stage.model.enqueue_assistant_message("they run")
    thread = await stage.start(**params)
    turn = await stage.run(thread)
    assert turn["status"] == "completed"
    return thread


async def terminals(stage: Scene, thread: str, **page: Any) -> Json:
    return await stage.client.request(f"{TERMINALS}/list", {"threadId": thread, **page})


async def commands_of(stage: Scene, thread: str) -> dict[str, Json]:
    """As three ways to read them show them."""
    read = {item["id"]: item for item in await stage.items(thread) if item["type"] == "commandExecution"}
    listed = await stage.client.request("thread/items/list", {"threadId": thread})
    entries = [entry["item"] for entry in listed["data"] if entry["item"]["type"] == "commandExecution"]
    pages = await stage.client.request("thread/turns/list", {"threadId": thread, "itemsView": "full"})
    paged = [item for turn in pages["data"] for item in turn["items"] if item["type"] == "commandExecution"]
    assert {item["id"]: item for item in entries} == {item["id"]: item for item in paged} == read
    return read


async def test_a_thread_without_commands(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        assert await terminals(stage, thread) == {"data": [], "nextCursor": None}
        assert await stage.client.request(f"{TERMINALS}/clean", {"threadId": thread}) == {}
        ended = await stage.client.request(f"{TERMINALS}/terminate", {"threadId": thread, "processId": "12345"})
        assert ended == {"terminated": False}
        for method, params in (("list", {"cursor": "x"}), ("terminate", {"processId": "x"})):
            with pytest.raises(RpcError, match="'x' is not a number"):
                await stage.client.request(f"{TERMINALS}/{method}", {"threadId": thread, **params})


@pytest.mark.own_executor("what has left the group of a command goes on, and holds its output open")
async def test_commands_are_listed_by_pages_and_ended_one_by_one(tmp_path: Path, marker: str) -> None:
    async with scene(tmp_path) as stage:
        lines = [f"echo {name}; sleep {marker} & (setsid sleep {marker} &) ; wait" for name in ("one", "two")]
        thread = await background(stage, *lines)
        both = (await terminals(stage, thread))["data"]
        assert {found["itemId"]: found["command"] for found in both} == {"c1": lines[0], "c2": lines[1]}
        assert {found["cwd"] for found in both} == {str(stage.workspace)}
        page = await terminals(stage, thread, limit=1)
        assert (page["data"], page["nextCursor"]) == (both[:1], both[0]["processId"])
        rest = await terminals(stage, thread, limit=0, cursor=page["nextCursor"])
        assert rest == {"data": both[1:], "nextCursor": None}
        assert {item["status"] for item in (await commands_of(stage, thread)).values()} == {"inProgress"}
        assert stage.completed("commandExecution") == []

        params = {"threadId": thread, "processId": both[0]["processId"]}
        told = len(stage.client.messages)
        assert await stage.client.request(f"{TERMINALS}/terminate", params) == {"terminated": True}
        assert (await terminals(stage, thread))["data"] == both[1:]
        assert await stage.client.request(f"{TERMINALS}/terminate", params) == {"terminated": False}
        await stage.client.wait_for("item/completed", lambda params: params["item"]["id"] == both[0]["itemId"])
        # Its end comes after the answer, as with the real server.
        assert stage.client.messages[told]["method"] == "<reply>"

        told = len(stage.client.messages)
        assert await stage.client.request(f"{TERMINALS}/clean", {"threadId": thread}) == {}
        assert (await terminals(stage, thread))["data"] == []
        await stage.client.wait_for("item/completed", lambda params: params["item"]["id"] == both[1]["itemId"])
        assert stage.client.messages[told]["method"] == "<reply>"
        items = {item["id"]: item for item in stage.completed("commandExecution")}
        for number, word in (("c1", "one\n"), ("c2", "two\n")):
            item = items[number]
            assert (item["status"], item["aggregatedOutput"], item["exitCode"]) == ("failed", word, ENDED)
        assert (await terminals(stage, thread))["data"] == []
        assert await commands_of(stage, thread) == items
        assert not await asyncio.to_thread(processes_left, marker)


@pytest.mark.parametrize("interrupted", [False, True])
async def test_what_ends_by_itself_later_is_told_then(tmp_path: Path, interrupted: bool) -> None:
    async with scene(tmp_path) as stage:
        for name in ("first", "second"):  # one each, or it could open the first again before its writer has closed it
            await asyncio.to_thread(os.mkfifo, stage.workspace / name)
        cmd = shell("echo begun; for pipe in first second; do read x < $pipe; echo got $x; done", yield_time_ms=250)
        stage.model.enqueue_function_call("exec_command", cmd, call_id="c1")
        stage.model.enqueue_assistant_message("it runs", gate=gate() if interrupted else None)
        thread = await stage.start()
        turn = await stage.begin(thread)
        if interrupted:
            await stage.model.arrived(2)
            await stage.interrupt(thread, turn)
        assert (await stage.end(turn))["status"] == ("interrupted" if interrupted else "completed")
        told = len(stage.client.messages)
        await asyncio.to_thread((stage.workspace / "first").write_text, "more\n")
        await stage.command_output(thread, "got more")
        seen = (await commands_of(stage, thread))["c1"]
        assert (seen["status"], seen["aggregatedOutput"]) == ("inProgress", "begun\ngot more\n")
        seq = stage.client.messages[told - 1]["seq"]
        page = await stage.client.request("thread/events/list", {"threadId": thread, "afterSeq": seq})
        assert page["openItems"] == [seen]
        await asyncio.to_thread((stage.workspace / "second").write_text, "this\n")
        done = await stage.client.wait_for("item/completed", lambda params: params["item"]["id"] == "c1")
        done = done["params"]
        assert done["turnId"] == turn
        item, output = done["item"], "begun\ngot more\ngot this\n"
        assert (item["status"], item["aggregatedOutput"], item["exitCode"]) == ("completed", output, 0)
        later = [message["method"] for message in stage.client.messages[told:] if message["method"] != "<reply>"]
        assert later == [*["item/commandExecution/outputDelta"] * 2, "item/completed"]
        assert await commands_of(stage, thread) == {"c1": item}
        assert (await terminals(stage, thread))["data"] == []


async def test_a_command_that_its_turn_waits_for_is_listed_and_the_turn_goes_on(tmp_path: Path, marker: str) -> None:
    async with scene(tmp_path) as stage:
        stage.model.enqueue_function_call("exec_command", shell(f"echo begun; exec sleep {marker}"), call_id="c1")
        stage.model.enqueue_assistant_message("so be it")
        thread = await stage.start()
        turn = await stage.begin(thread)
        await stage.command_output(thread, "begun")
        assert [found["itemId"] for found in (await terminals(stage, thread))["data"]] == ["c1"]
        await stage.client.request(f"{TERMINALS}/clean", {"threadId": thread})
        assert (await stage.end(turn))["status"] == "completed"
        assert f"code {ENDED}" in stage.model.requests()[-1].tool_outputs["c1"]


@pytest.mark.this_machine
async def test_an_interrupt_does_not_wait_for_a_place_that_hangs(
    tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(process: LocalProcess) -> None:
        await asyncio.Event().wait()

    async with scene(tmp_path) as stage:
        stage.model.enqueue_function_call("exec_command", shell(f"echo begun; exec sleep {marker}"), call_id="c1")
        thread = await stage.start()
        turn = await stage.begin(thread)
        await stage.command_output(thread, "begun")
        with monkeypatch.context() as patch:
            patch.setattr(LocalProcess, "terminate", hang)
            patch.setattr(command_sessions, "TERMINATE_DEADLINE_S", 0.05)
            await stage.interrupt(thread, turn)
            assert (await stage.end(turn))["status"] == "interrupted"
        (item,) = stage.completed("commandExecution")
        assert (item["status"], item["aggregatedOutput"], item["exitCode"]) == ("failed", "begun\n", -1)
        assert await commands_of(stage, thread) == {"c1": item}
        methods = [message["method"] for message in stage.client.messages]
        assert methods.index("turn/completed") > len(methods) - 1 - methods[::-1].index("item/completed")
    assert not await asyncio.to_thread(processes_left, marker)


async def test_a_command_that_was_only_asked_for_does_not_stay_in_progress(tmp_path: Path) -> None:
    async with scene(tmp_path, settings={"approval_policy": "untrusted"}) as stage:
        stage.model.enqueue_function_call("exec_command", shell("touch it"), call_id="c1")
        thread = await stage.start()
        turn = await stage.begin(thread)
        await stage.asked("item/commandExecution/requestApproval")
        await stage.interrupt(thread, turn)
        assert (await stage.end(turn))["status"] == "interrupted"
        (item,) = stage.completed("commandExecution")
        assert item["status"] == "failed"
        assert await commands_of(stage, thread) == {"c1": item}


@pytest.mark.parametrize("how", ["archive", "delete", "stop"])
async def test_a_thread_that_goes_takes_its_commands_along(tmp_path: Path, marker: str, how: str) -> None:
    harness = AppServerHarness(tmp_path)
    with harness:
        async with harness.server() as server, harness.connect(server=server) as client:
            stage = Scene(harness, server, client)
            thread = await background(stage, f"echo begun; exec sleep {marker}")
            assert processes_with(marker)
            if how != "stop":
                await client.request(f"thread/{how}", {"threadId": thread})
                assert not await asyncio.to_thread(processes_left, marker)
        assert not await asyncio.to_thread(processes_left, marker)
        async with harness.server() as server, harness.connect(server=server) as client:
            again = Scene(harness, server, client)
            if how == "delete":
                with pytest.raises(RpcError):
                    await again.items(thread)
                return
            kept = (await commands_of(again, thread))["c1"]
            assert (kept["status"], kept["aggregatedOutput"], kept["exitCode"]) == ("failed", "begun\n", ENDED)


async def test_turns_that_are_taken_back_hear_no_more_of_their_commands(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        await asyncio.to_thread(os.mkfifo, stage.workspace / "pipe")
        thread = await background(stage, "read x < pipe; echo got $x")
        await stage.client.request("thread/rollback", {"threadId": thread, "numTurns": 1})
        assert [found["itemId"] for found in (await terminals(stage, thread))["data"]] == ["c1"]
        told = len(stage.client.messages)
        await asyncio.to_thread((stage.workspace / "pipe").write_text, "this\n")
        await stage.client.request(f"{TERMINALS}/clean", {"threadId": thread})
        stage.model.enqueue_assistant_message("again")
        await stage.run(thread)
        assert "commandExecution" not in str(stage.client.messages[told:])
        assert await commands_of(stage, thread) == {}


def test_what_a_killed_server_left_behind_is_shown_as_ended(tmp_path: Path, marker: str) -> None:
    harness = AppServerHarness(tmp_path)
    with harness:
        for number, wait in ((1, 250), (2, 30_000)):
            call = {"cmd": f"echo begun; exec sleep {marker}", "login": False, "yield_time_ms": wait}
            harness.model.enqueue_calls(ToolCall("exec_command", call, f"c{number}"))
        with stdio_server(harness) as program:
            program.client.initialize()
            thread = program.client.start_thread()
            program.client.begin(thread)
            program.client.wait_for("item/started", lambda params: params["item"]["id"] == "c2")
            program.kill()
        assert not processes_left(marker)
        with stdio_server(harness, log="second") as program:
            program.client.initialize()
            for method in ("thread/read", "thread/resume"):
                told = program.client.call(method, {"threadId": thread, "includeTurns": True})
                (turn,) = told["thread"]["turns"]
                assert turn["status"] == "interrupted"
                commands = {item["id"]: item for item in turn["items"] if item["type"] == "commandExecution"}
                assert {number: item["status"] for number, item in commands.items()} == {"c1": "failed", "c2": "failed"}
            fork = program.client.call("thread/fork", {"threadId": thread})["thread"]
            assert [item["status"] for item in fork["turns"][0]["items"][1:]] == ["failed", "failed"]
