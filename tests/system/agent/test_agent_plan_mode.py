"""Plan mode: how a thread gets into it, what the model is told, what becomes of a plan, and what it asks the user."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from system.agent.order import check_thread
from system.agent.scene import Json, Scene, gate, patch, scene, shell
from treadle.errors import RpcError
from treadle.testing import ToolCall

pytestmark = [pytest.mark.anyio]

ASK = "item/tool/requestUserInput"
QUESTION: Json = {
    "id": "colour",
    "header": "Colour",
    "question": "Which colour?",
    "options": [{"label": "red (Recommended)", "description": "warm"}, {"label": "blue", "description": "cold"}],
}


OPEN_SHELL = ": > early; echo ready; cat >> early"
ESCALATED = {"sandbox_permissions": "require_escalated", "justification": "it must"}


def mode(kind: str, model: str = "gpt-5.5", **settings: Any) -> Json:
    return {"mode": kind, "settings": {"model": model, **settings}}


async def _plan(stage: Scene, *calls: ToolCall) -> tuple[str, str]:
    """A turn in plan mode in which the model makes these calls."""
    stage.model.enqueue_calls(*calls)
    stage.model.enqueue_assistant_message("done")
    thread = await stage.start()
    return thread, await stage.begin(thread, collaborationMode=mode("plan"))


async def _asked(stage: Scene, **changes: Any) -> tuple[str, str, Json]:
    questions = {"questions": [{**QUESTION, **changes}]}
    thread, turn = await _plan(stage, ToolCall("request_user_input", questions, "c1"))
    return thread, turn, await stage.asked(ASK)


def _told(stage: Scene) -> str:
    """One message or several, by the wire API."""
    return "\n".join(stage.model.requests()[-1].input_texts("developer"))


# --- the mode --------------------------------------------------------------------------------------------------------


async def test_the_modes_there_are(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        assert (await stage.client.request("collaborationMode/list", {}))["data"] == [
            {"name": "Plan", "mode": "plan", "model": None, "reasoning_effort": "medium"},
            {"name": "Default", "mode": "default", "model": None, "reasoning_effort": None},
        ]


async def test_a_mode_is_a_setting_with_a_model_and_an_effort_of_its_own(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()

        async def change(**given: Any) -> Json:
            before = len(stage.client.told("thread/settings/updated"))
            await stage.client.request("thread/settings/update", {"threadId": thread, **given})
            (news,) = stage.client.told("thread/settings/updated")[before:]
            settings: Json = news["params"]["threadSettings"]
            own = settings["collaborationMode"]["settings"]
            assert (settings["model"], settings["effort"]) == (own["model"], own["reasoning_effort"])
            return settings

        planning = await change(
            collaborationMode=mode("plan", "other", reasoning_effort="low"), model="m", effort="high"
        )
        assert (planning["model"], planning["effort"]) == ("other", "low")
        assert planning["collaborationMode"]["mode"] == "plan"
        assert "<proposed_plan>" in planning["collaborationMode"]["settings"]["developer_instructions"]
        kept = await change(model="third")
        assert kept["collaborationMode"] == mode(
            "plan",
            "third",
            reasoning_effort="low",
            developer_instructions=planning["collaborationMode"]["settings"]["developer_instructions"],
        )
        own = await change(collaborationMode=mode("plan", developer_instructions="mine"))
        assert own["collaborationMode"]["settings"]["developer_instructions"] == "mine"
        assert own["effort"] is None
        plain = await change(collaborationMode=mode("default"))
        assert plain["collaborationMode"]["settings"]["developer_instructions"] is None
        with pytest.raises(RpcError, match="pair"):
            await stage.client.request(
                "thread/settings/update", {"threadId": thread, "collaborationMode": mode("pair")}
            )


async def test_what_the_model_is_told(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        for _ in range(4):
            stage.model.enqueue_assistant_message("yes")
        thread = await stage.start()
        await stage.run(thread, collaborationMode=mode("plan"))
        assert "<collaboration_mode>\n# Plan mode" in _told(stage)
        assert "request_user_input" in stage.model.requests()[-1].tool_names
        assert "update_plan" not in stage.model.requests()[-1].tool_names
        await stage.run(thread)
        assert "# Plan mode" in _told(stage)
        await stage.run(thread, collaborationMode=mode("plan", developer_instructions="my own way"))
        assert "<collaboration_mode>\nmy own way\n</collaboration_mode>" in _told(stage)
        assert "# Plan mode" not in _told(stage)
        await stage.run(thread, collaborationMode=mode("default"))
        assert "collaboration_mode" not in _told(stage)
        assert "update_plan" in stage.model.requests()[-1].tool_names


async def test_the_mode_outlives_the_server(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        stage.model.enqueue_assistant_message("<proposed_plan>\n# P\n</proposed_plan>")
        thread = await stage.start()
        await stage.run(thread, collaborationMode=mode("plan"))
        async with stage.harness.server() as server, stage.harness.connect(server=server) as client:
            resumed = await client.request("thread/resume", {"threadId": thread})
            assert resumed["collaborationMode"]["mode"] == "plan"
            (turn,) = resumed["thread"]["turns"]
            assert [item["type"] for item in turn["items"]] == ["userMessage", "plan"]


async def test_tools_of_another_mode_are_refused(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        plan = ToolCall("update_plan", {"plan": [{"step": "a", "status": "pending"}]}, "c1")
        thread, turn = await _plan(stage, plan, ToolCall("exec_command", shell("echo seen"), "c2"))
        await stage.end(turn)
        outputs = stage.model.requests()[-1].tool_outputs
        assert outputs["c1"] == "update_plan cannot be used in plan mode"
        assert "seen" in outputs["c2"]
        assert stage.client.told("turn/plan/updated") == []
        stage.model.enqueue_calls(ToolCall("request_user_input", {"questions": [QUESTION]}, "c3"))
        stage.model.enqueue_assistant_message("done")
        await stage.run(thread, collaborationMode=mode("default"))
        assert stage.model.requests()[-1].tool_outputs["c3"] == "request_user_input cannot be used in default mode"
        assert stage.client.told(ASK) == []


PROFILE = '[permissions.mine.filesystem]\n":root" = "read"\n":workspace_roots" = "write"\n'


@pytest.mark.parametrize(
    "given", [{"sandbox": "workspace-write"}, {"sandbox": "danger-full-access"}, {"permissions": "mine"}]
)
async def test_nothing_is_written_while_a_thread_plans(tmp_path: Path, given: Json) -> None:
    """Not by a command, not by a patch, and not through a shell that was open before."""
    async with scene(tmp_path, extra_toml=PROFILE) as stage:
        stage.model.enqueue_calls(ToolCall("exec_command", shell(OPEN_SHELL, tty=True, yield_time_ms=250), "c0"))
        stage.model.enqueue_assistant_message("open")
        thread = await stage.start(**given)
        await stage.run(thread)
        await stage.command_output(thread, "ready")
        (session,) = re.findall(r"session ID (\d+)", stage.model.requests()[-1].tool_outputs["c0"])
        stage.model.enqueue_calls(
            ToolCall("exec_command", shell("touch made; echo seen"), "c1"),
            ToolCall("apply_patch", patch("*** Add File: made", "+x"), "c2", custom=True),
            ToolCall("write_stdin", {"session_id": int(session), "chars": "x\n"}, "c3"),
            ToolCall("exec_command", shell("touch made", **ESCALATED), "c4"),
        )
        stage.model.enqueue_assistant_message("done")
        await stage.run(thread, collaborationMode=mode("plan"))
        outputs = stage.model.requests()[-1].tool_outputs
        assert "seen" in outputs["c1"]
        assert outputs["c2"] == "apply_patch cannot be used in plan mode"
        assert "the settings of the thread changed" in outputs["c3"]
        assert "never" in outputs["c4"]
        assert not (stage.workspace / "made").exists()
        assert (stage.workspace / "early").read_text() == ""
        stage.model.enqueue_calls(ToolCall("exec_command", shell("touch made"), "c5"))
        stage.model.enqueue_assistant_message("done")
        await stage.run(thread, collaborationMode=mode("default"))
        assert (stage.workspace / "made").exists()


async def test_clients_see_the_sandbox_that_they_chose_while_a_thread_plans(tmp_path: Path) -> None:
    """They send it back with the next turn."""
    async with scene(tmp_path, settings={"sandbox_mode": "workspace-write"}) as stage:
        stage.model.enqueue_assistant_message("yes")
        thread = await stage.start()
        await stage.run(thread, collaborationMode=mode("plan"))
        resumed = await stage.client.request("thread/resume", {"threadId": thread})
        assert resumed["sandbox"]["type"] == "workspaceWrite"


async def test_the_user_is_asked_and_no_reviewer_while_a_thread_plans(tmp_path: Path) -> None:
    settings = {"sandbox_mode": "read-only", "approval_policy": "on-request", "approvals_reviewer": "auto_review"}
    async with scene(tmp_path, settings=settings) as stage:
        stage.client.answer = lambda ask: {"decision": "decline"}
        _, turn = await _plan(stage, ToolCall("exec_command", shell("touch made", **ESCALATED), "c1"))
        await stage.end(turn)
        assert len(stage.client.told("item/commandExecution/requestApproval")) == 1
        assert not stage.client.told("item/autoApprovalReview/started")
        assert not (stage.workspace / "made").exists()


@pytest.mark.parametrize(("kind", "goals"), [("plan", True), ("default", False)])
async def test_a_goal_waits_while_the_thread_plans_or_goals_are_off(tmp_path: Path, kind: str, goals: bool) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start(config={"features.goals": goals})
        await stage.client.request("thread/settings/update", {"threadId": thread, "collaborationMode": mode(kind)})
        await stage.client.request("thread/goal/set", {"threadId": thread, "objective": "mend the roof"})
        stage.model.enqueue_assistant_message("what should it look like?")
        await stage.run(thread)
        assert "mend the roof" not in _told(stage)
        read = await stage.client.request("thread/read", {"threadId": thread})
        assert read["thread"]["status"] == {"type": "idle"}
        assert len(stage.model.requests()) == 1


# --- the plan --------------------------------------------------------------------------------------------------------


@pytest.mark.every_wire
async def test_a_plan_is_an_item_beside_the_message(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        text = "Look:\n<proposed_plan>\n# Roof\n- mend it\n</proposed_plan>\nThat is all."
        stage.model.enqueue_assistant_message(text, deltas=list(text))
        stage.model.enqueue_assistant_message("later")
        thread = await stage.start()
        turn = await stage.begin(thread, collaborationMode=mode("plan"))
        await stage.end(turn)
        await check_thread(stage, thread)
        (plan,), (message,) = stage.completed("plan"), stage.completed("agentMessage")
        assert (plan["id"], plan["text"]) == (f"{turn}-plan", "# Roof\n- mend it\n")
        assert message["text"] == "Look:\nThat is all."
        deltas = "".join(one["params"]["delta"] for one in stage.client.told("item/plan/delta"))
        assert deltas == plan["text"]
        order = [
            (news["method"].removeprefix("item/"), news["params"]["item"]["type"])
            for news in stage.client.told("item/started", "item/completed")
        ]
        assert order[2:] == [
            ("started", "agentMessage"),
            ("started", "plan"),
            ("completed", "plan"),
            ("completed", "agentMessage"),
        ]
        kinds = {item["type"]: item.get("text") for item in await stage.items(thread)}
        assert kinds["plan"] == plan["text"]
        await stage.run(thread)
        assert text in stage.model.requests()[-1].input_texts("assistant"), "the model sees what it wrote"


async def test_a_message_that_is_only_a_plan_is_no_message(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        stage.model.enqueue_assistant_message("\n<proposed_plan>\n# P\n</proposed_plan>\n")
        thread = await stage.start()
        await stage.run(thread, collaborationMode=mode("plan"))
        await check_thread(stage, thread)
        assert stage.completed("agentMessage") == []
        assert [item["text"] for item in stage.completed("plan")] == ["# P\n"]


async def test_a_second_plan_in_a_turn_has_an_id_of_its_own(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        opened = gate()
        stage.model.enqueue_assistant_message("<proposed_plan>\n# P\n</proposed_plan>", gate=opened)
        stage.model.enqueue_assistant_message("<proposed_plan>\n# Q\n</proposed_plan>")
        thread = await stage.start()
        turn = await stage.begin(thread, collaborationMode=mode("plan"))
        await stage.model.arrived(1)
        await stage.steer(thread, turn, "and another")
        opened.set()
        await stage.end(turn)
        plans = {item["id"]: item["text"] for item in stage.completed("plan")}
        assert plans == {f"{turn}-plan": "# P\n", f"{turn}-plan-2": "# Q\n"}
        await check_thread(stage, thread)


async def test_in_default_mode_the_tags_are_text(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        text = "<proposed_plan>\n# P\n</proposed_plan>"
        stage.model.enqueue_assistant_message(text)
        thread = await stage.start()
        await stage.run(thread)
        assert [item["text"] for item in stage.completed("agentMessage")] == [text]
        assert stage.completed("plan") == []


@pytest.mark.every_wire
async def test_a_plan_that_broke_off_is_begun_anew(tmp_path: Path) -> None:
    async with scene(tmp_path, provider={"stream_max_retries": 1}) as stage:
        text = "<proposed_plan>\n# Plan\n- one\n</proposed_plan>"
        stage.model.enqueue_assistant_message(text, deltas=[text[:24], text[24:]], cut_after=3)
        stage.model.enqueue_assistant_message(text)
        thread = await stage.start()
        assert (await stage.run(thread, collaborationMode=mode("plan")))["status"] == "completed"
        assert [item["text"] for item in await stage.items(thread) if item["type"] == "plan"] == ["# Plan\n- one\n"]


# --- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.every_wire
async def test_an_answer_reaches_the_model(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread, turn, asked = await _asked(stage)
        assert asked["params"] == {
            "threadId": thread,
            "turnId": turn,
            "itemId": "c1",
            "isBlocking": True,
            "autoResolutionMs": None,
            "questions": [{**QUESTION, "isOther": True, "isSecret": False}],
        }
        read = await stage.client.request("thread/read", {"threadId": thread})
        assert read["thread"]["status"] == {"type": "active", "activeFlags": ["waitingOnUserInput"]}
        stage.client.reply(asked, {"answers": {"colour": {"answers": ["blue", "user_note: dark"]}}})
        await stage.end(turn)
        output = stage.model.requests()[-1].tool_outputs["c1"]
        assert json.loads(output) == {"answers": {"colour": {"answers": ["blue", "user_note: dark"]}}}
        assert len(stage.client.told("serverRequest/resolved")) == 1
        await check_thread(stage, thread)


@pytest.mark.parametrize(
    "answer", [{"x": 1}, {"answers": {}}, {"answers": {"colour": "blue"}}, RpcError(-1, "no")], ids=str
)
async def test_no_answer_that_can_be_read_is_no_answer(tmp_path: Path, answer: Any) -> None:
    async with scene(tmp_path) as stage:
        _, turn, asked = await _asked(stage)
        stage.client.reply(asked, answer)
        assert (await stage.end(turn))["status"] == "completed"
        assert stage.model.requests()[-1].tool_outputs["c1"] == '{"answers":{}}'


async def test_an_interrupt_takes_the_question_back(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread, turn, asked = await _asked(stage)
        await stage.interrupt(thread, turn)
        assert (await stage.end(turn))["status"] == "interrupted"
        (resolved,) = stage.client.told("serverRequest/resolved")
        assert resolved["params"]["requestId"] == asked["id"]
        read = await stage.client.request("thread/read", {"threadId": thread})
        assert read["thread"]["status"] == {"type": "idle"}


async def test_who_comes_later_is_asked_too(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread, turn, asked = await _asked(stage)
        async with stage.harness.connect(server=stage.server) as late:
            await late.request("thread/resume", {"threadId": thread})
            again = await late.wait_for(ASK)
            assert again["params"]["questions"] == asked["params"]["questions"]
            late.reply(again, {"answers": {"colour": {"answers": ["red"]}}})
            await stage.end(turn)
        assert "red" in stage.model.requests()[-1].tool_outputs["c1"]


@pytest.mark.parametrize("given", [{"questions": []}, {"questions": [{**QUESTION, "options": []}]}, {"questions": "x"}])
async def test_questions_that_cannot_be_asked_are_told_to_the_model(tmp_path: Path, given: Json) -> None:
    async with scene(tmp_path) as stage:
        _, turn = await _plan(stage, ToolCall("request_user_input", given, "c1"))
        await stage.end(turn)
        assert "failed to parse function arguments" in stage.model.requests()[-1].tool_outputs["c1"]
        assert stage.client.told(ASK) == []


async def test_a_secret_answer_goes_to_the_model_and_nowhere_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "hunter-two-and-three"
    async with scene(tmp_path) as stage:
        thread, turn, asked = await _asked(stage, isSecret=True)
        assert asked["params"]["questions"][0]["isSecret"] is True
        stage.client.reply(asked, {"answers": {"colour": {"answers": [secret]}}})
        await stage.end(turn)
        assert secret in stage.model.requests()[-1].tool_outputs["c1"]
        events = await stage.client.request("thread/events/list", {"threadId": thread, "afterSeq": 0})
        read = await stage.read(thread)
        assert secret not in json.dumps([stage.client.messages, events, read], default=str)
        assert secret not in caplog.text
