"""A thread of ours on the exec-server of the real codex: what an agent does, done there.

The agent's own tests run there as a whole with `TREADLE_TEST_ENVIRONMENT=codex`; here is one of each kind.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from system.agent.scene import Json, Scene, patch, scene, shell
from system.environments.far import until
from system.mcp.mcp_scene import call, mcp_scene, probe_table, processes, run_calls
from treadle.testing import ToolCall

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

CONFINED: Json = {"type": "workspaceWrite", "excludeSlashTmp": True, "excludeTmpdirEnvVar": True}
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
COMMAND = "item/commandExecution/requestApproval"


@pytest.fixture
async def stage(real_exec_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setenv("CODEX_EXEC_SERVER_URL", real_exec_server)
    async with scene(tmp_path / "agent") as made:
        yield made


async def turn(stage: Scene, thread: str, *calls: ToolCall, **params: Any) -> list[str]:
    """What the model is told about its calls; a turn that is over."""
    for each in calls:
        stage.model.enqueue_calls(each)
    stage.model.enqueue_assistant_message("done")
    assert (await stage.run(thread, **params))["status"] == "completed"
    outputs = stage.model.requests()[-1].tool_outputs
    return [outputs[each.call_id or ""] for each in calls]


async def test_commands_that_end_and_one_that_is_typed_into(stage: Scene) -> None:
    thread = await stage.start()
    first, second = await turn(
        stage,
        thread,
        ToolCall("exec_command", shell("pwd; echo to-err >&2; exit 3"), "c1"),
        ToolCall("exec_command", shell("read x; echo got:$x", tty=True, yield_time_ms=250), "c2"),
    )
    assert str(stage.workspace) in first
    assert "to-err" in first
    assert "exited with code 3" in first
    session = int(second.partition("session ID ")[2].split()[0])
    (told,) = await turn(
        stage, thread, ToolCall("write_stdin", {"session_id": session, "chars": "abc\n", "yield_time_ms": 30_000}, "c3")
    )
    assert "got:abc" in told
    assert "exited with code 0" in told
    assert [item["exitCode"] for item in stage.completed("commandExecution")] == [3, 0]


async def test_a_patch(stage: Scene) -> None:
    (stage.workspace / "old").write_text("one\ntwo\n")
    (stage.workspace / "gone").write_text("x\n")
    text = patch("*** Add File: new", "+x", "*** Update File: old", "@@", " one", "-two", "+2", "*** Delete File: gone")
    thread = await stage.start()
    await turn(stage, thread, ToolCall("apply_patch", {"input": text}, "c1"), sandboxPolicy=CONFINED)
    assert sorted(path.name for path in stage.workspace.iterdir() if not path.name.startswith(".")) == ["new", "old"]
    assert (stage.workspace / "old").read_text() == "one\n2\n"
    (item,) = stage.completed("fileChange")
    assert item["status"] == "completed"


@pytest.mark.parametrize("decision", ["accept", "decline"])
async def test_what_the_sandbox_denies_runs_without_it_when_the_user_says_so(stage: Scene, decision: str) -> None:
    outside = stage.workspace.parent / "outside"
    stage.client.answer = lambda ask: {"decision": decision}
    thread = await stage.start(approvalPolicy="on-request")
    calls = [ToolCall("exec_command", shell(f"echo x > {name}"), str(name)) for name in ("inside", outside)]
    await turn(stage, thread, *calls, sandboxPolicy=CONFINED)
    (ask,) = stage.client.told(COMMAND)
    assert ask["params"]["itemId"] == str(outside)
    assert (stage.workspace / "inside").exists()
    assert outside.exists() is (decision == "accept")


async def test_a_patch_beside_the_sandbox_is_refused(stage: Scene) -> None:
    outside = stage.workspace.parent / "outside"
    text = patch(f"*** Add File: {outside}", "+x")
    thread = await stage.start(approvalPolicy="never")
    await turn(stage, thread, ToolCall("apply_patch", {"input": text}, "c1"), sandboxPolicy=CONFINED)
    (item,) = stage.completed("fileChange")
    assert item["status"] == "failed"
    assert not outside.exists()


async def test_a_picture(stage: Scene) -> None:
    (stage.workspace / "pixel.png").write_bytes(PIXEL)
    thread = await stage.start()
    await turn(stage, thread, ToolCall("view_image", {"path": "pixel.png"}, "c1"), sandboxPolicy=CONFINED)
    assert base64.b64encode(PIXEL).decode() in str(stage.model.requests()[-1].input)


async def test_what_the_project_says(stage: Scene) -> None:
    skill = stage.workspace / ".agents" / "skills" / "weave"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: weave\ndescription: Weaves cloth.\n---\nPass the shuttle.\n")
    rules = stage.workspace / "AGENTS.md"
    thread = await stage.start()
    for text in ("Answer like a weaver.", "Answer like a dyer, briefly."):
        rules.write_text(text)
        await turn(stage, thread, sandboxPolicy=CONFINED)
        told = str(stage.model.requests()[-1].input)
        assert text in told
        assert "Weaves cloth." in told
    assert "weaver" not in told


async def test_what_clients_search_and_run(stage: Scene) -> None:
    (stage.workspace / "Main.py").touch()
    params: Json = {"query": "main", "roots": [str(stage.workspace)], "environmentId": "remote"}
    files = (await stage.client.request("fuzzyFileSearch", params))["files"]
    assert [found["path"] for found in files] == ["Main.py"]
    read: Json = {"command": ["ls"], "cwd": str(stage.workspace), "environmentId": "remote"}
    done = await stage.client.request("command/exec", {**read, "sandboxPolicy": {"type": "readOnly"}})
    assert "Main.py" in done["stdout"]


async def test_an_mcp_server(real_exec_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEX_EXEC_SERVER_URL", real_exec_server)
    async with mcp_scene(tmp_path, probe_table(tmp_path, environment_id="remote")) as stage:
        thread = await stage.start()
        assert "hello" in (await run_calls(stage, thread, call("echo", "hello", "c1")))["c1"]
        assert "ended" in (await run_calls(stage, thread, call("die", call_id="c2")))["c2"]
        assert "again" in (await run_calls(stage, thread, call("echo", "again", "c3")))["c3"]
        pids = processes(tmp_path)
        await stage.client.request("thread/archive", {"threadId": thread})
        await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


async def test_a_thread_that_plans_writes_nothing(stage: Scene) -> None:
    thread = await stage.start()
    plan = {"mode": "plan", "settings": {"model": "mock-model"}}
    (told,) = await turn(
        stage, thread, ToolCall("exec_command", shell("echo x > made; cat made"), "c1"), collaborationMode=plan
    )
    assert "exited with code 1" in told
    assert not (stage.workspace / "made").exists()
