"""Approvals that a model decides in the user's place."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from system.agent.order import check_thread
from system.agent.scene import Json, Scene, gate, methods, patch, scene, shell
from treadle.errors import RpcError
from treadle.testing import RecordedRequest, ToolCall

pytestmark = pytest.mark.anyio

COMMAND = "item/commandExecution/requestApproval"
PATCH = "item/fileChange/requestApproval"
STARTED = "item/autoApprovalReview/started"
COMPLETED = "item/autoApprovalReview/completed"
WARNING = "guardianWarning"
READ_ONLY: Json = {"type": "readOnly"}
ALLOW: Json = {"risk_level": "low", "user_authorization": "high", "rationale": "asked for", "outcome": "allow"}
DENY: Json = {"risk_level": "high", "user_authorization": "low", "rationale": "too dangerous", "outcome": "deny"}
TOUCH = ToolCall(
    "exec_command", shell("touch made", sandbox_permissions="require_escalated", justification="it must"), None
)
ADD = ToolCall("apply_patch", {"input": patch("*** Add File: made", "+x")}, None)


async def _thread(stage: Scene, **params: Any) -> str:
    given = {"approvalPolicy": "on-request", "approvalsReviewer": "auto_review", "sandbox": "read-only"}
    return await stage.start(**{**given, **params})


def _reviewed(stage: Scene, call: ToolCall, *answers: Any) -> None:
    """The model makes a call, and then the reviewer's model answers."""
    stage.model.enqueue_calls(call)
    for answer in answers:
        stage.model.enqueue_assistant_message(answer if isinstance(answer, str) else json.dumps(answer))


def _output(stage: Scene) -> str:
    return list(stage.model.requests()[-1].tool_outputs.values())[-1]


def _made(stage: Scene) -> bool:
    return (stage.workspace / "made").exists()


def _reviews(stage: Scene) -> list[RecordedRequest]:
    return [request for request in stage.model.requests() if request.output_schema is not None]


def _shown(request: RecordedRequest) -> str:
    """What the reviewer was given to judge."""
    assert request.last_user_text is not None
    return request.last_user_text


def _statuses(stage: Scene) -> list[str]:
    return [told["params"]["review"]["status"] for told in stage.client.told(COMPLETED)]


# --- a clear answer --------------------------------------------------------------------------------------------------


@pytest.mark.every_wire
async def test_what_is_allowed_is_done(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await _thread(stage)
        _reviewed(stage, TOUCH, ALLOW)
        stage.model.enqueue_assistant_message("done")
        assert (await stage.run(thread, "make it"))["status"] == "completed"
        assert _made(stage)
        assert stage.client.told(COMMAND) == []
        (request,) = _reviews(stage)
        text = _shown(request)
        assert '{"role": "user", "text": "make it"}' in text
        assert '"command": ["/bin/bash", "-c", "touch made"]' in text
        assert '"reason given by the agent": "it must"' in text
        assert request.json["model"] == stage.model.requests()[0].json["model"]
        await check_thread(stage, thread)


async def test_a_review_is_told_in_order(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await _thread(stage)
        _reviewed(stage, TOUCH, ALLOW)
        stage.model.enqueue_assistant_message("done")
        turn = await stage.run(thread)
        told = stage.client.told("item/started", STARTED, WARNING, COMPLETED, "item/completed")
        told = [one for one in told if one["params"].get("item", {}).get("type") in (None, "commandExecution")]
        assert methods(told) == ["item/started", STARTED, WARNING, COMPLETED, "item/completed"]
        began, warning, ended = (one["params"] for one in told[1:4])
        item = told[0]["params"]["item"]["id"]
        action = {
            "type": "command",
            "source": "unifiedExec",
            "command": "/bin/bash -c 'touch made'",
            "cwd": str(stage.workspace),
        }
        assert began["action"] == ended["action"] == action
        assert began["targetItemId"] == ended["targetItemId"] == item
        assert began["turnId"] == ended["turnId"] == turn["id"]
        assert began["reviewId"] == ended["reviewId"]
        assert began["startedAtMs"] == ended["startedAtMs"] <= ended["completedAtMs"]
        assert began["review"] == {
            "status": "inProgress",
            "riskLevel": None,
            "userAuthorization": None,
            "rationale": None,
        }
        assert ended["review"]["status"] == "approved"
        assert warning["message"] == "Automatic approval review approved (risk: low, authorization: high): asked for"
        await check_thread(stage, thread)


@pytest.mark.every_wire
async def test_what_is_denied_is_not_done_and_the_model_hears_why(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await _thread(stage)
        _reviewed(stage, TOUCH, DENY)
        stage.model.enqueue_assistant_message("done")
        assert (await stage.run(thread))["status"] == "completed", "the turn goes on"
        assert not _made(stage)
        assert stage.completed("commandExecution")[0]["status"] == "declined"
        assert _output(stage).startswith("denied by the automatic reviewer of this thread: too dangerous\n")
        assert stage.client.told(COMMAND) == []
        await check_thread(stage, thread)


@pytest.mark.parametrize(("answer", "done"), [(ALLOW, True), (DENY, False)], ids=["allow", "deny"])
async def test_a_patch_is_reviewed_as_a_whole(tmp_path: Path, answer: Json, done: bool) -> None:
    async with scene(tmp_path) as stage:
        thread = await _thread(stage)
        _reviewed(stage, ADD, answer)
        stage.model.enqueue_assistant_message("done")
        await stage.run(thread)
        assert _made(stage) is done
        assert stage.completed("fileChange")[0]["status"] == ("completed" if done else "declined")
        path = str(stage.workspace / "made")
        (began,) = stage.client.told(STARTED)
        assert began["params"]["action"] == {"type": "applyPatch", "cwd": str(stage.workspace), "files": [path]}
        text = _shown(_reviews(stage)[0])
        assert f'"path": "{path}"' in text
        assert '"diff": "x\\n"' in text
        assert f'"writes": ["{path}"]' in text


@pytest.mark.parametrize(("answer", "done"), [(ALLOW, True), (DENY, False)], ids=["allow", "deny"])
async def test_a_command_that_the_sandbox_stopped_is_reviewed_before_it_runs_without(
    tmp_path: Path, answer: Json, done: bool
) -> None:
    async with scene(tmp_path) as stage:
        thread = await _thread(stage)
        _reviewed(stage, ToolCall("exec_command", shell("touch made"), None), answer)
        stage.model.enqueue_assistant_message("done")
        await stage.run(thread)
        assert _made(stage) is done
        assert '"runs": "without a sandbox"' in _shown(_reviews(stage)[0])
        assert ("too dangerous" in _output(stage)) is not done
        await check_thread(stage, thread)


async def test_who_trusts_no_command_is_asked(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await _thread(stage, approvalPolicy="untrusted")
        stage.client.answer = lambda ask: {"decision": "decline"}
        stage.model.enqueue_calls(ToolCall("exec_command", shell("touch made"), None))
        stage.model.enqueue_assistant_message("done")
        await stage.run(thread)
        assert len(stage.client.told(COMMAND)) == 1
        assert _reviews(stage) == []


async def test_the_older_name_of_the_setting(tmp_path: Path) -> None:
    async with scene(tmp_path, settings={"approvals_reviewer": "guardian_subagent"}) as stage:
        started = await stage.client.request("thread/start", {})
        assert started["approvalsReviewer"] == "auto_review"
        started = await stage.client.request("thread/start", {"approvalsReviewer": "user"})
        thread = started["thread"]["id"]
        await stage.client.request(
            "thread/settings/update", {"threadId": thread, "approvalsReviewer": "guardian_subagent"}
        )
        updated = await stage.client.wait_for("thread/settings/updated")
        assert updated["params"]["threadSettings"]["approvalsReviewer"] == "auto_review"
        fork = {"threadId": thread, "approvalsReviewer": "guardian_subagent"}
        stage.model.enqueue_assistant_message("done")
        await stage.run(thread)
        assert (await stage.client.request("thread/fork", fork))["approvalsReviewer"] == "auto_review"


async def test_the_configuration_of_the_reviewer(tmp_path: Path) -> None:
    toml = '[auto_review]\nmodel = "small"\npolicy = "No weekends."\nextra_policy = "No mondays."\n'
    async with scene(tmp_path, extra_toml=toml) as stage:
        thread = await _thread(stage)
        _reviewed(stage, TOUCH, ALLOW)
        stage.model.enqueue_assistant_message("done")
        await stage.run(thread)
        (request,) = _reviews(stage)
        assert request.json["model"] == "small"
        assert "No weekends." in json.dumps(request.json)
        assert "No mondays." in json.dumps(request.json)


# --- no clear answer -------------------------------------------------------------------------------------------------


@pytest.mark.every_wire
@pytest.mark.parametrize(("decision", "done"), [("accept", True), ("decline", False)])
async def test_without_a_clear_answer_the_user_is_asked(tmp_path: Path, decision: str, done: bool) -> None:
    async with scene(tmp_path) as stage:
        thread = await _thread(stage)
        stage.client.answer = lambda ask: {"decision": decision}
        _reviewed(stage, TOUCH, *["I think it is fine"] * 3)
        stage.model.enqueue_assistant_message("done")
        await stage.run(thread)
        assert _made(stage) is done
        assert methods(stage.client.told(STARTED, WARNING, COMPLETED, COMMAND)) == [
            STARTED,
            WARNING,
            COMPLETED,
            COMMAND,
        ]
        assert _statuses(stage) == ["aborted"]
        assert stage.client.told(WARNING)[0]["params"]["message"].endswith("You are asked instead.")
        await check_thread(stage, thread)


async def test_a_client_that_says_yes_by_itself_is_not_asked(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage, stage.harness.connect("codex_python_sdk", server=stage.server) as sdk:
        sdk.answer = lambda ask: {"decision": "accept"}
        params = {"approvalPolicy": "on-request", "approvalsReviewer": "auto_review", "sandbox": "read-only"}
        thread = (await sdk.request("thread/start", params))["thread"]["id"]
        _reviewed(stage, TOUCH, *["I think it is fine"] * 3)
        stage.model.enqueue_assistant_message("done")
        await sdk.run_turn(thread, "go")
        assert not _made(stage)
        assert sdk.told(COMMAND) == []
        assert "no judgement of the action" in _output(stage)
        # A person who follows the thread, too, is asked, and the program still is not; not even when it joins later.
        await stage.client.request("thread/resume", {"threadId": thread})
        _reviewed(stage, TOUCH, *["I think it is fine"] * 3)
        stage.model.enqueue_assistant_message("done")
        turn = await stage.begin(thread)
        ask = await stage.asked(COMMAND)
        await sdk.request("thread/resume", {"threadId": thread})
        stage.client.reply(ask, {"decision": "decline"})
        await stage.end(turn)
        assert sdk.told(COMMAND) == []
        assert not _made(stage)


async def test_with_nobody_there_it_is_declined(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await _thread(stage)
        held = gate()
        stage.model.enqueue_calls(TOUCH)
        stage.model.enqueue_error(400, {"error": {"message": "no such thing"}}, gate=held)
        stage.model.enqueue_assistant_message("done")
        turn = await stage.begin(thread)
        await stage.client.wait_for(STARTED)
        await stage.client.request("thread/unsubscribe", {"threadId": thread})
        held.set()
        async with asyncio.timeout(30):
            while not (turns := await stage.read(thread)) or turns[-1]["status"] == "inProgress":
                await asyncio.sleep(0.01)
        assert turns[-1]["id"] == turn
        assert not _made(stage)
        assert turns[-1]["items"][1]["status"] == "declined"


async def test_the_time_of_a_review_is_limited(tmp_path: Path) -> None:
    async with scene(tmp_path, extra_toml="[auto_review]\ntimeout_ms = 50\n") as stage:
        thread = await _thread(stage)
        stage.client.answer = lambda ask: {"decision": "decline"}
        held = gate()
        stage.model.enqueue_calls(TOUCH)
        stage.model.enqueue_assistant_message(json.dumps(ALLOW), gate=held)
        stage.model.enqueue_assistant_message("done")
        turn = await stage.begin(thread)
        await stage.asked(COMMAND)
        held.set()
        await stage.end(turn)
        assert not _made(stage)
        assert _statuses(stage) == ["timedOut"]


async def test_the_offline_model_leaves_it_to_the_user(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await _thread(stage, modelProvider="offline", model="offline")
        stage.client.answer = lambda ask: {"decision": "decline"}
        assert (await stage.run(thread))["status"] == "completed"
        assert len(stage.client.told(PATCH)) == 1
        assert len(stage.client.told(PATCH, COMMAND)) == len(stage.client.told(STARTED))
        assert not list(stage.workspace.glob("treadle-offline*"))


# --- meanwhile -------------------------------------------------------------------------------------------------------


async def test_an_interrupt_ends_the_review(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await _thread(stage)
        held = gate()
        stage.model.enqueue_calls(TOUCH)
        stage.model.enqueue_assistant_message(json.dumps(ALLOW), gate=held)
        turn = await stage.begin(thread)
        await stage.client.wait_for(STARTED)
        await stage.interrupt(thread, turn)
        assert (await stage.end(turn))["status"] == "interrupted"
        held.set()
        assert methods(stage.client.told(COMPLETED, "turn/completed")) == [COMPLETED, "turn/completed"]
        assert _statuses(stage) == ["aborted"]
        assert not _made(stage)


async def test_a_change_of_the_settings_takes_it_back(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await _thread(stage)
        held = gate()
        stage.model.enqueue_calls(TOUCH)
        stage.model.enqueue_assistant_message(json.dumps(ALLOW), gate=held)
        stage.model.enqueue_assistant_message("done")
        turn = await stage.begin(thread)
        await stage.client.wait_for(STARTED)
        await stage.model.arrived(2)  # else the next request of the turn might get the reviewer's answer
        await stage.client.request("thread/settings/update", {"threadId": thread, "approvalsReviewer": "user"})
        await stage.client.wait_for(COMPLETED)
        held.set()
        assert (await stage.end(turn))["status"] == "completed"
        assert _statuses(stage) == ["aborted"]
        assert not _made(stage)
        assert "changed meanwhile" in _output(stage)
        assert stage.client.told(COMMAND) == []


async def test_denials_in_a_row_end_the_turn(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await _thread(stage)
        for _ in range(3):
            _reviewed(stage, TOUCH, DENY)
        assert (await stage.run(thread))["status"] == "interrupted"
        assert _statuses(stage) == ["denied"] * 3
        assert [item["status"] for item in stage.completed("commandExecution")] == ["declined"] * 3
        last = stage.client.told(WARNING, "item/completed", "turn/completed")[-3:]
        assert methods(last) == ["item/completed", WARNING, "turn/completed"]
        assert "3 in a row" in last[1]["params"]["message"]
        await check_thread(stage, thread)
        _reviewed(stage, TOUCH, DENY)  # another turn begins anew
        stage.model.enqueue_assistant_message("done")
        assert (await stage.run(thread))["status"] == "completed"


# --- the user overrules ----------------------------------------------------------------------------------------------


async def test_the_user_allows_what_was_denied_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await _thread(stage)
        _reviewed(stage, TOUCH, DENY)
        stage.model.enqueue_assistant_message("done")
        await stage.run(thread)
        (denied,) = stage.client.told(COMPLETED)
        allow = {"threadId": thread, "event": {"id": denied["params"]["reviewId"], "status": "denied"}}
        assert await stage.client.request("thread/approveGuardianDeniedAction", allow) == {}
        with pytest.raises(RpcError, match="no denied review"):
            await stage.client.request("thread/approveGuardianDeniedAction", allow)
        again = ToolCall("exec_command", {**json.loads(json.dumps(TOUCH.arguments)), "justification": "so?"}, None)
        stage.model.enqueue_calls(again)
        stage.model.enqueue_assistant_message("done")
        await stage.run(thread)
        assert _made(stage)
        assert "The user has allowed the action of the call" in json.dumps(stage.model.requests()[-1].json)
        (stage.workspace / "made").unlink()
        _reviewed(stage, TOUCH, DENY)
        stage.model.enqueue_assistant_message("done")
        await stage.run(thread)
        assert not _made(stage), "only once"
        await check_thread(stage, thread)


@pytest.mark.parametrize("event", [None, 5, {}, {"id": 5}, {"id": "nonsense"}])
async def test_only_a_denial_of_ours_can_be_overruled(tmp_path: Path, event: Any) -> None:
    async with scene(tmp_path) as stage:
        thread = await _thread(stage)
        with pytest.raises(RpcError) as refused:
            await stage.client.request("thread/approveGuardianDeniedAction", {"threadId": thread, "event": event})
        assert refused.value.code == -32600
