"""What was allowed ends with the settings under which it was: grants, questions that are open, commands that run."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from system.agent.order import check_thread
from system.agent.scene import Json, Scene, patch, scene, shell, waiting_scene
from treadle.testing import ToolCall

pytestmark = pytest.mark.anyio

COMMAND = "item/commandExecution/requestApproval"
PATCH = "item/fileChange/requestApproval"
UPDATE = "thread/settings/update"
CONFINED: Json = {"type": "workspaceWrite", "excludeSlashTmp": True, "excludeTmpdirEnvVar": True}
READ_ONLY: Json = {"type": "readOnly"}
FULL: Json = {"type": "dangerFullAccess"}
ESCALATED = {"sandbox_permissions": "require_escalated", "justification": "it must"}
ADD = patch("*** Add File: made", "+x")


def _command(cmd: str, **more: Any) -> ToolCall:
    return ToolCall("exec_command", shell(cmd, **more), None)


async def _run(stage: Scene, thread: str, *calls: ToolCall, **params: Any) -> list[str]:
    """A turn with these calls; what the model was told about each."""
    stage.model.enqueue_calls(*calls)
    stage.model.enqueue_assistant_message("done")
    await stage.run(thread, **params)
    return list(stage.model.requests()[-1].tool_outputs.values())[-len(calls) :]


# --- what an answer for the session is about -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [{"workdir": "other"}, {"workdir": "link"}, {"tty": True}, {"login": True}, {"shell": "sh"}],
    ids=["directory", "link", "terminal", "login", "shell"],
)
async def test_a_command_for_the_session_is_that_command_in_that_place(tmp_path: Path, other: Json) -> None:
    async with scene(tmp_path) as stage:
        for name in ("first", "other"):
            (stage.workspace / name).mkdir()
            (stage.workspace / name / "run.sh").write_text(f"echo {name} > {stage.workspace}/{name}.ran\n")
        (stage.workspace / "link").symlink_to("other")
        stage.client.answer = lambda ask: {"decision": "acceptForSession"}
        thread = await stage.start(approvalPolicy="untrusted")
        first = {"workdir": "first"}
        await _run(stage, thread, _command("sh run.sh", **first), _command("sh run.sh", **first))
        await _run(stage, thread, _command("sh run.sh", **first))
        (stage.workspace / "first.ran").unlink()
        stage.client.answer = lambda ask: {"decision": "decline"}
        before = len(stage.client.told(COMMAND))
        await _run(stage, thread, _command("sh run.sh", **first))
        assert len(stage.client.told(COMMAND)) == before
        assert (stage.workspace / "first.ran").exists()
        (stage.workspace / "first.ran").unlink()
        assert await _run(stage, thread, _command("sh run.sh", **{**first, **other})) == ["rejected by user"]
        assert sorted(path.name for path in stage.workspace.glob("*.ran")) == []


async def test_a_command_for_the_session_is_no_other_that_reads_like_it(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        (stage.workspace / "run.sh").write_text("touch ran\n")
        others = ["sh  run.sh", "sh run.sh ", " sh run.sh", "sh run.sh\n", "sh run.sh\r", "'sh' run.sh", 'sh "run.sh"']
        others += ["sh run.sh #", "sh run.sh;", "sh run.sh\ntouch ran", "sh run.sh && touch ran", "sh ./run.sh"]
        others += ["sh -- run.sh", "sh -x run.sh", "X=1 sh run.sh", "env sh run.sh", "exec sh run.sh", "s\\h run.sh"]
        others += ["bash -lc 'sh run.sh'", "bash -c 'sh run.sh'", "$(echo sh) run.sh", "sh ru*.sh", "SH run.sh"]
        others += ["\u0455h run.sh", "sh\u00a0run.sh", "sh run.sh\u200b", "sh \u202erun.sh", "\uff53h run.sh"]
        stage.client.answer = lambda ask: {"decision": "acceptForSession"}
        thread = await stage.start(approvalPolicy="untrusted")
        await _run(stage, thread, _command("sh run.sh"))
        (stage.workspace / "ran").unlink()
        stage.client.answer = lambda ask: {"decision": "decline"}
        said = await _run(stage, thread, *map(_command, others))
        assert said == ["rejected by user"] * len(others)
        assert not (stage.workspace / "ran").exists()
        await _run(stage, thread, _command("sh run.sh"))
        assert (stage.workspace / "ran").exists()


@pytest.mark.this_machine
async def test_a_directory_swapped_while_the_user_is_asked_is_not_run_in(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        sub, outside = stage.workspace / "sub", tmp_path / "outside"
        for directory in (sub, outside):
            directory.mkdir()
        thread = await stage.start(approvalPolicy="untrusted")
        stage.model.enqueue_calls(_command("touch made", workdir="sub"))
        stage.model.enqueue_assistant_message("done")
        turn = await stage.begin(thread)
        ask = await stage.asked(COMMAND)
        sub.rmdir()
        sub.symlink_to(outside)
        stage.client.reply(ask, {"decision": "accept"})
        await stage.end(turn)
        assert list(outside.iterdir()) == []
        assert stage.completed("commandExecution")[0]["status"] == "failed"
        (told,) = stage.model.requests()[-1].tool_outputs.values()
        assert f"{sub} is no longer the directory" in told


# --- changes ---------------------------------------------------------------------------------------------------------

CHANGES: dict[str, Json] = {
    "policy": {"approvalPolicy": "on-request"},
    "sandbox": {"sandboxPolicy": FULL},
    "directory": {"cwd": "elsewhere"},
    "reviewer": {"approvalsReviewer": "auto_review"},
}
BACK: Json = {"approvalPolicy": "untrusted", "sandboxPolicy": CONFINED, "cwd": "..", "approvalsReviewer": "user"}


async def _update(stage: Scene, thread: str, **changes: Any) -> None:
    await stage.client.request(UPDATE, {"threadId": thread, **changes})


async def _by_turn(stage: Scene, thread: str, **changes: Any) -> None:
    stage.model.enqueue_assistant_message("noted")
    await stage.run(thread, **changes)


Change = Callable[..., Awaitable[None]]
WAYS = pytest.mark.parametrize("change", [_update, _by_turn], ids=["update", "turn"])


@WAYS
@pytest.mark.parametrize("what", CHANGES)
async def test_a_change_of_settings_ends_what_was_allowed_for_the_session(
    tmp_path: Path, what: str, change: Change
) -> None:
    async with scene(tmp_path) as stage:
        (stage.workspace / "elsewhere").mkdir()
        stage.client.answer = lambda ask: {"decision": "acceptForSession"}
        thread = await stage.start(approvalPolicy="untrusted")
        await _update(stage, thread, sandboxPolicy=CONFINED)
        touch = _command("touch made.txt")
        await _run(stage, thread, touch, ToolCall("apply_patch", {"input": ADD}, None))
        assert len(stage.client.told(COMMAND, PATCH)) == 2
        await change(stage, thread, **CHANGES[what])
        await change(stage, thread, **{name: BACK[name] for name in CHANGES[what]})
        (stage.workspace / "made").unlink()
        await _run(stage, thread, touch, ToolCall("apply_patch", {"input": ADD}, None))
        assert len(stage.client.told(COMMAND, PATCH)) == 4
        await check_thread(stage, thread)


async def test_another_change_ends_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        stage.client.answer = lambda ask: {"decision": "acceptForSession"}
        thread = await stage.start(approvalPolicy="untrusted")
        await _run(stage, thread, _command("touch made.txt"))
        await _update(stage, thread, effort="high", approvalPolicy="untrusted")
        await _run(stage, thread, _command("touch made.txt"))
        assert len(stage.client.told(COMMAND)) == 1


@pytest.mark.parametrize("kind", ["command", "patch"])
async def test_a_question_under_other_settings_is_taken_back(tmp_path: Path, kind: str) -> None:
    async with scene(tmp_path) as stage:
        call = _command("touch made") if kind == "command" else ToolCall("apply_patch", {"input": ADD}, None)
        method = COMMAND if kind == "command" else PATCH
        thread = await stage.start(approvalPolicy="untrusted")
        stage.model.enqueue_calls(call)
        stage.model.enqueue_assistant_message("done")
        turn = await stage.begin(thread)
        ask = await stage.asked(method)
        await _update(stage, thread, approvalPolicy="never", sandboxPolicy=READ_ONLY)
        stage.client.reply(ask, {"decision": "acceptForSession"})
        assert (await stage.end(turn))["status"] == "completed"
        (resolved,) = stage.client.told("serverRequest/resolved")
        assert resolved["params"]["requestId"] == ask["id"]
        assert not (stage.workspace / "made").exists()
        (told,) = stage.model.requests()[-1].tool_outputs.values()
        assert told.startswith("nothing was done: the approval policy, the sandbox or the directory")
        (item,) = stage.completed("commandExecution" if kind == "command" else "fileChange")
        assert item["status"] == "declined"
        await check_thread(stage, thread)


async def test_an_answer_that_comes_just_before_the_change_counts_no_more(tmp_path: Path) -> None:
    """The answer is there, and the settings change before the one who asked has looked at it."""
    async with scene(tmp_path) as stage:
        thread = await stage.start(approvalPolicy="untrusted")
        stage.model.enqueue_calls(_command("touch made"))
        stage.model.enqueue_assistant_message("done")
        turn = await stage.begin(thread)
        ask = await stage.asked(COMMAND)
        stage.client.reply(ask, {"decision": "accept"})
        stage.server.threads.find(thread)._thread.authority.forget()  # what a change of settings does first
        await stage.end(turn)
        assert not (stage.workspace / "made").exists()


# --- commands that run -----------------------------------------------------------------------------------------------


async def _shell(stage: Scene, thread: str, cmd: str = "exec sh", **more: Any) -> int:
    """A shell that a turn leaves running; its number."""
    (told,) = await _run(stage, thread, _command(cmd, tty=True, yield_time_ms=250, **more))
    found = re.search(r"session ID (\d+)", told)
    assert found is not None, told
    return int(found[1])


def _type(number: int, text: str, **more: Any) -> ToolCall:
    return ToolCall("write_stdin", {"session_id": number, "chars": text, **more}, None)


@WAYS
@pytest.mark.parametrize("sandbox", [READ_ONLY, CONFINED], ids=["readOnly", "workspaceWrite"])
async def test_a_shell_of_full_access_ends_with_it(tmp_path: Path, change: Change, sandbox: Json) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start(approvalPolicy="never")
        number = await _shell(stage, thread)
        await change(stage, thread, approvalPolicy="never", sandboxPolicy=sandbox)
        (warning,) = (told["params"]["message"] for told in stage.client.told("warning"))
        assert f"could do more were ended (process {number})" in warning
        victim = tmp_path / "victim"
        for _ in range(2):  # also when its end was reported
            (told,) = await _run(stage, thread, _type(number, f"touch {victim}\n", yield_time_ms=250))
            assert told.startswith(f"session {number} was ended: the settings of the thread changed")
        loaded = stage.server.threads.find(thread)._thread
        session = loaded.sessions.get(number)
        assert session is None or await session.wait(30)
        await loaded.journal.flush()
        assert not victim.exists()
        (item,) = [item for item in await stage.items(thread) if item["type"] == "commandExecution"]
        assert "[ended: the settings of the thread changed" in item["aggregatedOutput"]


async def test_a_call_that_waits_for_such_a_shell_is_told(tmp_path: Path) -> None:
    async with waiting_scene(tmp_path) as stage:
        stage.model.enqueue_calls(_command("echo here; exec sleep 3600", yield_time_ms=30_000))
        thread = await stage.start(approvalPolicy="never")
        turn = await stage.begin(thread)
        await stage.command_output(thread, "here")
        await _update(stage, thread, sandboxPolicy=READ_ONLY)
        stage.model.enqueue_assistant_message("done")
        await stage.end(turn)
        (told,) = stage.model.requests()[-1].tool_outputs.values()
        assert "[ended: the settings of the thread changed" in told
        assert stage.completed("commandExecution")[0]["status"] == "failed"
        await check_thread(stage, thread)


@pytest.mark.own_executor("what a command has left behind goes on when it has ended")
async def test_a_child_that_such_a_command_left_behind_ends_too(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        end = asyncio.create_task(asyncio.to_thread(fifo.read_bytes))  # returns when nobody holds the other end
        thread = await stage.start(approvalPolicy="never")
        (told,) = await _run(stage, thread, _command(f"sleep 3600 3> {fifo} & echo started", yield_time_ms=30_000))
        assert "exited with code 0" in told
        assert not end.done()
        await _update(stage, thread, sandboxPolicy=READ_ONLY)
        assert await end == b""


@pytest.mark.parametrize("policy", ["never", "untrusted"])
async def test_a_shell_outside_of_the_sandbox_ends_with_the_policy_that_asked_for_it(
    tmp_path: Path, policy: str
) -> None:
    async with scene(tmp_path) as stage:
        stage.client.answer = lambda ask: {"decision": "accept"}
        thread = await stage.start(approvalPolicy="on-request")
        await _update(stage, thread, sandboxPolicy=CONFINED)
        number = await _shell(stage, thread, **ESCALATED)
        second = await _shell(stage, thread, **ESCALATED)
        assert stage.client.told("warning") == [], "another one that was asked for changes nothing"
        await _update(stage, thread, approvalPolicy=policy)
        outputs = await _run(stage, thread, _type(number, "echo x\n"), _type(second, "echo x\n"))
        assert ["was ended" in output for output in outputs] == [True, True]


async def test_what_the_new_settings_allow_goes_on(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start(approvalPolicy="on-request")
        await _update(stage, thread, sandboxPolicy=READ_ONLY)
        first, second = await _shell(stage, thread), await _shell(stage, thread)
        for changes in ({"sandboxPolicy": CONFINED}, {"approvalPolicy": "never"}, {"sandboxPolicy": FULL}):
            await _update(stage, thread, **changes)
        (told,) = await _run(stage, thread, _type(first, "echo al''ive; exit\n", yield_time_ms=30_000))
        assert "alive" in told
        assert stage.client.told("warning") == []
        await _update(stage, thread, approvalPolicy="untrusted")
        (told,) = await _run(stage, thread, _type(second, "echo x\n"))
        assert "was ended" in told, "it would have been asked for"


async def test_a_command_of_the_user_is_not_of_the_thread(tmp_path: Path) -> None:
    async with waiting_scene(tmp_path) as stage:
        thread = await stage.start()
        command = "echo here; while [ ! -e go ]; do sleep 0.05; done; echo done > made"
        await stage.client.request("thread/shellCommand", {"threadId": thread, "command": command})
        await stage.command_output(thread, "here")
        await _update(stage, thread, approvalPolicy="never", sandboxPolicy=READ_ONLY)
        (stage.workspace / "go").touch()
        done = await stage.client.wait_for(
            "item/completed", lambda params: params["item"]["type"] == "commandExecution"
        )
        assert done["params"]["item"]["status"] == "completed"
        assert (stage.workspace / "made").exists()


async def test_what_another_server_changed_ends_it_too(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage, stage.harness.connect("second") as second:
        stage.client.answer = lambda ask: {"decision": "acceptForSession"}
        thread = await stage.start(approvalPolicy="untrusted")
        number = await _shell(stage, thread)
        await _run(stage, thread, _command("touch made.txt"))
        (stage.workspace / "made.txt").unlink()
        assert len(stage.client.told(COMMAND)) == 2
        await second.request("thread/resume", {"threadId": thread})
        await second.request(UPDATE, {"threadId": thread, "sandboxPolicy": READ_ONLY})
        stage.client.answer = lambda ask: {"decision": "decline"}
        outputs = await _run(stage, thread, _type(number, "touch made.txt\n"), _command("touch made.txt"))
        ended, rejected = sorted(outputs, reverse=True)  # both calls run at a time
        assert ended.startswith(f"session {number} was ended")
        assert rejected == "rejected by user"
        assert not (stage.workspace / "made.txt").exists()
