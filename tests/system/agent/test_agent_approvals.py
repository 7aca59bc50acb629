"""Who is asked before something is done, and what the sandbox keeps from being done."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from system.agent.order import check_thread
from system.agent.scene import Json, Scene, patch, scene, shell
from treadle.errors import RpcError
from treadle.execution import UNPROTECTED, can_protect
from treadle.testing import ToolCall

pytestmark = pytest.mark.anyio  # what a wire API may change is tried on each, and the rest on one

COMMAND = "item/commandExecution/requestApproval"
PATCH = "item/fileChange/requestApproval"
# The workspace of a test is below /tmp, which the policy would let everyone write.
CONFINED: Json = {"type": "workspaceWrite", "excludeSlashTmp": True, "excludeTmpdirEnvVar": True}
READ_ONLY: Json = {"type": "readOnly"}
TOUCH = shell("touch made")


def _touch(**more: Any) -> ToolCall:
    return ToolCall("exec_command", {**TOUCH, **more}, None)


async def _begin(stage: Scene, policy: Any, *calls: ToolCall, **params: Any) -> tuple[str, str]:
    stage.model.enqueue_calls(*calls)
    stage.model.enqueue_assistant_message("done")
    thread = await stage.start()
    return thread, await stage.begin(thread, approvalPolicy=policy, **params)


def _answers(stage: Scene, decision: Any) -> None:
    stage.client.answer = lambda ask: {"decision": decision}


def _output(stage: Scene) -> str:
    """Of the last call that the model has heard of."""
    return list(stage.model.requests()[-1].tool_outputs.values())[-1]


def _made(stage: Scene) -> bool:
    return (stage.workspace / "made").exists()


# --- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.every_wire
async def test_the_round_trip_is_told_in_order(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread, turn = await _begin(stage, "untrusted", _touch(justification="why"))
        ask = await stage.asked(COMMAND)
        assert not _made(stage)
        assert ask["params"]["threadId"] == thread
        assert ask["params"]["turnId"] == turn
        assert ask["params"]["command"] == "/bin/bash -c 'touch made'"
        assert ask["params"]["cwd"] == str(stage.workspace)
        assert ask["params"]["reason"] == "why"
        assert set(ask["params"]["availableDecisions"]) == {"accept", "acceptForSession", "decline", "cancel"}
        before = len(stage.client.messages)
        stage.client.reply(ask, {"decision": "accept"})
        assert (await stage.end(turn))["status"] == "completed"
        assert _made(stage)
        status, started, asked = stage.client.messages[before - 3 : before]
        assert status["params"]["status"] == {"type": "active", "activeFlags": ["waitingOnApproval"]}
        assert started["params"]["item"]["status"] == "inProgress"
        assert asked is ask
        resolved, status, *_ = stage.client.messages[before:]
        assert resolved["params"] == {"threadId": thread, "requestId": ask["id"]}
        assert status["params"]["status"] == {"type": "active", "activeFlags": []}
        assert stage.completed("commandExecution")[0]["status"] == "completed"
        await check_thread(stage, thread)


@pytest.mark.every_wire
@pytest.mark.parametrize(
    ("answer", "status", "told"),
    [
        ({"decision": "decline"}, "declined", "rejected by user"),
        (RpcError(-32000, "broken"), "failed", "approval request failed"),
        ({"decision": "perhaps"}, "failed", "approval request failed"),
        ({}, "failed", "approval request failed"),
    ],
)
async def test_a_no_is_a_no(tmp_path: Path, answer: Any, status: str, told: str) -> None:
    async with scene(tmp_path) as stage:
        thread, turn = await _begin(stage, "untrusted", _touch())
        stage.client.reply(await stage.asked(COMMAND), answer)
        assert (await stage.end(turn))["status"] == "completed", "the turn goes on"
        assert not _made(stage)
        (item,) = stage.completed("commandExecution")
        assert item["status"] == status
        assert _output(stage) == told
        await check_thread(stage, thread)


@pytest.mark.every_wire
async def test_cancel_ends_the_turn(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        _answers(stage, "cancel")
        thread, turn = await _begin(stage, "untrusted", _touch())
        assert (await stage.end(turn))["status"] == "interrupted"
        assert not _made(stage)
        assert stage.completed("commandExecution")[0]["status"] == "declined"
        await stage.run(thread, "again")
        assert _output(stage) == "rejected by user"
        await check_thread(stage, thread)


async def test_an_interrupt_takes_back_the_question(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread, turn = await _begin(stage, "untrusted", _touch())
        ask = await stage.asked(COMMAND)
        await stage.interrupt(thread, turn)
        assert (await stage.end(turn))["status"] == "interrupted"
        (resolved,) = stage.client.told("serverRequest/resolved")
        assert resolved["params"]["requestId"] == ask["id"]
        stage.client.reply(ask, {"decision": "accept"})
        await stage.run(thread, "again")
        assert not _made(stage)
        await check_thread(stage, thread)


async def test_accept_for_session_is_not_asked_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        _answers(stage, "acceptForSession")
        thread, turn = await _begin(stage, "untrusted", _touch())
        await stage.end(turn)
        stage.model.enqueue_calls(_touch(), ToolCall("exec_command", shell("touch other"), None))
        stage.model.enqueue_assistant_message("done")
        await stage.run(thread)
        asked = [ask["params"]["command"] for ask in stage.client.told(COMMAND)]
        assert asked == ["/bin/bash -c 'touch made'", "/bin/bash -c 'touch other'"]
        await check_thread(stage, thread)


async def test_a_yes_inside_the_sandbox_is_none_outside_of_it(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        _answers(stage, "acceptForSession")
        thread, turn = await _begin(stage, "untrusted", _touch(), sandboxPolicy=CONFINED)
        await stage.end(turn)
        stage.client.answer = None
        stage.model.enqueue_calls(_touch(sandbox_permissions="require_escalated"))
        stage.model.enqueue_assistant_message("done")
        turn = await stage.begin(thread)
        ask = await stage.asked(COMMAND, 2)
        stage.client.reply(ask, {"decision": "acceptForSession"})
        await stage.end(turn)
        stage.model.enqueue_calls(_touch(sandbox_permissions="require_escalated"), _touch())
        stage.model.enqueue_assistant_message("done")
        await stage.run(thread)
        assert len(stage.client.told(COMMAND)) == 2
        await check_thread(stage, thread)


async def test_what_only_looks_is_trusted(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        _, turn = await _begin(stage, "untrusted", ToolCall("exec_command", shell("ls && cat /dev/null"), None))
        await stage.end(turn)
        assert stage.client.told(COMMAND) == []
        assert stage.completed("commandExecution")[0]["status"] == "completed"


GRANULAR = {"sandbox_approval": True, "rules": True, "mcp_elicitations": True}
ESCALATED = {"sandbox_permissions": "require_escalated", "justification": "it must"}


@pytest.mark.parametrize("policy", ["on-request", {"granular": GRANULAR}], ids=["on-request", "granular"])
async def test_on_request_asks_for_what_leaves_the_sandbox(tmp_path: Path, policy: Any) -> None:
    async with scene(tmp_path) as stage:
        _answers(stage, "accept")
        _, turn = await _begin(stage, policy, _touch(), _touch(**ESCALATED), sandboxPolicy=CONFINED)
        await stage.end(turn)
        (ask,) = stage.client.told(COMMAND)
        assert ask["params"]["reason"] == "it must"


@pytest.mark.parametrize(
    "policy", ["never", {"granular": {**GRANULAR, "sandbox_approval": False}}], ids=["never", "granular"]
)
async def test_never_refuses_what_leaves_the_sandbox(tmp_path: Path, policy: Any) -> None:
    async with scene(tmp_path) as stage:
        _, turn = await _begin(stage, policy, _touch(**ESCALATED), sandboxPolicy=CONFINED)
        assert (await stage.end(turn))["status"] == "completed"
        assert not _made(stage)
        assert stage.client.told(COMMAND) == []
        assert "approval policy is" in _output(stage)


# --- patches ---------------------------------------------------------------------------------------------------------

ADD = ToolCall("apply_patch", {"input": patch("*** Add File: made", "+x")}, None)


@pytest.mark.every_wire
@pytest.mark.parametrize(
    ("decision", "status", "turn_status"),
    [
        ("accept", "completed", "completed"),
        ("acceptForSession", "completed", "completed"),
        ("decline", "declined", "completed"),
        ("cancel", "declined", "interrupted"),
        ("perhaps", "failed", "completed"),
    ],
)
async def test_a_patch_is_asked_for(tmp_path: Path, decision: str, status: str, turn_status: str) -> None:
    async with scene(tmp_path) as stage:
        _answers(stage, decision)
        thread, turn = await _begin(stage, "untrusted", ADD)
        assert (await stage.end(turn))["status"] == turn_status
        assert _made(stage) is (status == "completed")
        (item,) = stage.completed("fileChange")
        assert item["status"] == status
        await check_thread(stage, thread)


async def test_files_accepted_for_the_session_are_not_asked_for_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        _answers(stage, "acceptForSession")
        thread, turn = await _begin(stage, "untrusted", ADD)
        await stage.end(turn)
        change = patch("*** Update File: made", "@@", "-x", "+y")
        other = patch("*** Add File: other", "+x")
        for text in (change, other):
            stage.model.enqueue_function_call("apply_patch", {"input": text})
        stage.model.enqueue_assistant_message("done")
        await stage.run(thread)
        assert len(stage.client.told(PATCH)) == 2
        assert (stage.workspace / "made").read_text() == "y\n"


async def test_a_patch_outside_of_the_sandbox(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        (stage.workspace / ".git").mkdir()
        (stage.workspace / "link").symlink_to(tmp_path)
        places = [str(tmp_path / "outside.txt"), ".git/config", "link/behind.txt", "../beside.txt"]
        for place in places:
            stage.model.enqueue_function_call("apply_patch", {"input": patch(f"*** Add File: {place}", "+x")})
        stage.model.enqueue_calls(ADD)
        stage.model.enqueue_assistant_message("done")
        _answers(stage, "decline")
        thread = await stage.start()
        await stage.run(thread, approvalPolicy="on-request", sandboxPolicy=CONFINED)
        assert [item["status"] for item in stage.completed("fileChange")] == ["declined"] * 4 + ["completed"]
        reasons = [ask["params"]["reason"] for ask in stage.client.told(PATCH)]
        behind = f"; {stage.workspace}/link/behind.txt leads to {tmp_path}/behind.txt"
        outside = "it writes outside of the sandbox"
        assert reasons == [outside, outside, outside + behind, outside]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "workspace"]
        assert list((stage.workspace / ".git").iterdir()) == []
        await check_thread(stage, thread)


async def test_a_patch_of_git_is_asked_for_on_every_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Landlock cannot keep something read-only below what can be written; a patch we write ourselves."""
    monkeypatch.setenv("TREADLE_SANDBOX", "landlock")
    async with scene(tmp_path) as stage:
        (stage.workspace / ".git").mkdir()
        text = patch("*** Add File: .git/config", "+x")
        call = ToolCall("apply_patch", {"input": text}, None)
        _, turn = await _begin(stage, "never", call, sandboxPolicy=CONFINED)
        await stage.end(turn)
        assert stage.completed("fileChange")[0]["status"] == "failed"
        assert list((stage.workspace / ".git").iterdir()) == []


@pytest.mark.parametrize("policy", [READ_ONLY, CONFINED], ids=["readOnly", "workspaceWrite"])
async def test_never_refuses_a_patch_outside_of_the_sandbox(tmp_path: Path, policy: Json) -> None:
    async with scene(tmp_path) as stage:
        text = patch(f"*** Add File: {tmp_path}/outside.txt", "+x")
        calls = [ADD] if policy is READ_ONLY else []
        thread, turn = await _begin(
            stage, "never", ToolCall("apply_patch", {"input": text}, None), *calls, sandboxPolicy=policy
        )
        await stage.end(turn)
        assert {item["status"] for item in stage.completed("fileChange")} == {"failed"}
        assert not _made(stage)
        assert not (tmp_path / "outside.txt").exists()
        assert "approval policy is never" in _output(stage)
        await check_thread(stage, thread)


# --- the sandbox of commands -----------------------------------------------------------------------------------------


def _writes(path: str) -> ToolCall:
    return ToolCall("exec_command", shell(f"echo x > {path}"), path)


async def test_a_sandbox_keeps_commands_in(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        (stage.workspace / ".git").mkdir()
        outside = f"{tmp_path}/outside.txt"
        calls = [_writes("inside.txt"), _writes(outside), _writes(".git/config")]
        _, turn = await _begin(stage, "never", *calls, sandboxPolicy=CONFINED)
        await stage.end(turn)
        done = {item["id"]: item["status"] for item in stage.completed("commandExecution")}
        warnings = [told["params"]["message"] for told in stage.client.told("warning")]
        protects = await can_protect()
        kept = "failed" if protects else "completed"
        assert done == {"inside.txt": "completed", outside: "failed", ".git/config": kept}
        assert warnings == ([] if protects else [UNPROTECTED])
        assert (stage.workspace / "inside.txt").exists()
        assert not Path(outside).exists()
        assert (stage.workspace / ".git/config").exists() is not protects


async def test_read_only_is_read_only(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        calls = [_writes("inside.txt"), ToolCall("exec_command", shell("cat there"), "read")]
        (stage.workspace / "there").write_text("text")
        _, turn = await _begin(stage, "never", *calls, sandboxPolicy=READ_ONLY)
        await stage.end(turn)
        done = {item["id"]: item["status"] for item in stage.completed("commandExecution")}
        assert done == {"inside.txt": "failed", "read": "completed"}
        assert not (stage.workspace / "inside.txt").exists()


@pytest.mark.parametrize("decision", ["accept", "decline"])
async def test_what_the_sandbox_stopped_may_be_tried_without(tmp_path: Path, decision: str) -> None:
    async with scene(tmp_path) as stage:
        _answers(stage, decision)
        call = _writes("inside.txt")
        thread, turn = await _begin(stage, "on-request", call, sandboxPolicy=READ_ONLY)
        await stage.end(turn)
        (ask,) = stage.client.told(COMMAND)
        assert ask["params"]["reason"] == "command failed; retry without sandbox?"
        assert (stage.workspace / "inside.txt").exists() is (decision == "accept")
        (item,) = stage.completed("commandExecution")
        assert item["status"] == ("completed" if decision == "accept" else "failed")
        await check_thread(stage, thread)


async def test_a_retry_accepted_for_the_session_is_not_asked_for_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        _answers(stage, "acceptForSession")
        thread, turn = await _begin(stage, "on-request", _touch(), sandboxPolicy=READ_ONLY)
        await stage.end(turn)
        assert _made(stage)
        (stage.workspace / "made").unlink()
        stage.model.enqueue_calls(_touch())
        stage.model.enqueue_assistant_message("done")
        await stage.run(thread)
        assert _made(stage)
        assert len(stage.client.told(COMMAND)) == 1
        await check_thread(stage, thread)


@pytest.mark.this_machine
@pytest.mark.parametrize("policy", ["never", "on-request", "untrusted"])
async def test_a_sandbox_that_does_not_work_is_no_way_out(
    tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_SANDBOX", "none-of-these")
    async with scene(tmp_path) as stage:
        _answers(stage, "decline")
        # `ls` is trusted, so that nobody is asked before it is started
        call = ToolCall("exec_command", shell("ls" if policy == "untrusted" else "touch made"), None)
        thread, turn = await _begin(stage, policy, call, sandboxPolicy=CONFINED)
        assert (await stage.end(turn))["status"] == "completed"
        assert not _made(stage)
        (item,) = stage.completed("commandExecution")
        if policy == "never":
            assert item["status"] == "failed"
            assert "TREADLE_SANDBOX" in _output(stage)
        else:
            (ask,) = stage.client.told(COMMAND)
            assert "TREADLE_SANDBOX" in ask["params"]["reason"]
            assert "without a sandbox" in ask["params"]["reason"]
            assert item["status"] == "declined"
        await check_thread(stage, thread)


async def test_the_user_may_do_without_a_sandbox_that_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_SANDBOX", "none-of-these")
    async with scene(tmp_path) as stage:
        _answers(stage, "accept")
        _, turn = await _begin(stage, "on-request", _touch(), sandboxPolicy=CONFINED)
        await stage.end(turn)
        assert _made(stage)
        assert stage.completed("commandExecution")[0]["status"] == "completed"


# --- several clients -------------------------------------------------------------------------------------------------


async def test_the_first_answer_of_two_clients_counts(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage, stage.harness.connect("second", server=stage.server) as second:
        stage.model.enqueue_calls(_touch())
        stage.model.enqueue_assistant_message("done")
        thread = await stage.start()
        await second.request("thread/resume", {"threadId": thread})
        turn = await stage.begin(thread, approvalPolicy="untrusted")
        first_ask = await stage.asked(COMMAND)
        second_ask = await second.wait_for(COMMAND)
        assert first_ask == second_ask
        second.reply(second_ask, {"decision": "decline"})
        stage.client.reply(first_ask, {"decision": "accept"})
        await stage.end(turn)
        assert not _made(stage)
        for client in (stage.client, second):
            assert len(client.told("serverRequest/resolved")) == 1
        await check_thread(stage, thread)


async def test_who_does_not_listen_cannot_answer(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage, stage.harness.connect("stranger", server=stage.server) as stranger:
        _, turn = await _begin(stage, "untrusted", _touch())
        ask = await stage.asked(COMMAND)
        stranger.reply(ask, {"decision": "accept"})
        stage.client.reply(ask, {"decision": "decline"})
        await stage.end(turn)
        assert not _made(stage)


async def test_an_open_question_is_asked_again_on_resume(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread, turn = await _begin(stage, "untrusted", _touch())
        ask = await stage.asked(COMMAND)
        stage.client.close()
        async with stage.harness.connect("second", server=stage.server) as second:
            resumed = await second.request("thread/resume", {"threadId": thread})
            assert resumed["thread"]["status"]["activeFlags"] == ["waitingOnApproval"]
            again = await second.wait_for(COMMAND)
            assert again == ask
            second.reply(again, {"decision": "accept"})
            assert (await second.turn_end(turn))["turn"]["status"] == "completed"
            assert _made(stage)


@pytest.mark.every_wire
async def test_two_questions_at_once(tmp_path: Path) -> None:
    """Each is answered by itself, and the thread waits until both are."""
    async with scene(tmp_path) as stage:
        calls = [ToolCall("exec_command", shell(f"touch {name}"), name) for name in ("a", "b")]
        thread, turn = await _begin(stage, "untrusted", *calls)
        first, second = await stage.asked(COMMAND, 1), await stage.asked(COMMAND, 2)
        assert first["id"] != second["id"]
        stage.client.reply(second, {"decision": "accept"})
        await stage.client.wait_for("item/completed", lambda params: params["item"]["id"] == "b")
        resolved = await stage.client.wait_for("serverRequest/resolved")
        assert resolved["params"]["requestId"] == second["id"]
        assert stage.client.told("thread/status/changed")[-1]["params"]["status"]["activeFlags"] == [
            "waitingOnApproval"
        ]
        stage.client.reply(first, {"decision": "decline"})
        await stage.end(turn)
        assert (stage.workspace / "b").exists()
        assert not (stage.workspace / "a").exists()
        await check_thread(stage, thread)


async def test_a_question_does_not_stop_other_threads(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        waiting, turn = await _begin(stage, "untrusted", _touch())
        ask = await stage.asked(COMMAND)
        stage.model.enqueue_assistant_message("other")
        other = await stage.start()
        async with asyncio.timeout(30):
            assert (await stage.run(other))["status"] == "completed"
        stage.client.reply(ask, {"decision": "decline"})
        await stage.end(turn)
        await check_thread(stage, waiting)
