"""Reviews: what clients see of them, what the reviewer is given and may do, and what the thread remembers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kit.app_client import AppClient
from kit.app_program import stdio_server
from system.agent.order import check_thread
from system.agent.scene import Json, Scene, gate, patch, scene, shell, user_texts
from treadle.agent import NO_REPORT, UNFINISHED
from treadle.config import REVIEW_PROMPT
from treadle.errors import RpcError
from treadle.testing import AppServerHarness, MockModel, ToolCall, Usage

pytestmark = pytest.mark.anyio

UNCOMMITTED: Json = {"type": "uncommittedChanges"}
FINDING = {
    "title": "[P1] Close it",
    "body": "It stays open.\nAlways.",
    "confidence_score": 0.9,
    "priority": 1,
    "code_location": {"absolute_file_path": "/x/a.py", "line_range": {"start": 2, "end": 3}},
}
REPORT = "Not yet.\n\nReview comment:\n\n- [P1] Close it — /x/a.py:2-3\n  It stays open.\n  Always."

OPEN_SHELL = ": > early; echo ready; cat >> early"


def _answer(*findings: Json, explanation: str = "Not yet.") -> str:
    overall = {"overall_correctness": "patch is incorrect", "overall_confidence_score": 0.8}
    return json.dumps({"findings": findings, "overall_explanation": explanation, **overall})


async def _begin(stage: Scene, thread: str, target: Json = UNCOMMITTED, **params: Any) -> Json:
    return await stage.client.request("review/start", {"threadId": thread, "target": target, **params})


async def _review(stage: Scene, thread: str, target: Json = UNCOMMITTED, **params: Any) -> Json:
    """A whole one; the turn as `turn/completed` tells it."""
    return await stage.end((await _begin(stage, thread, target, **params))["turn"]["id"])


def _types(turn: Json) -> list[str]:
    return [item["type"] for item in turn["items"]]


@pytest.mark.every_wire
async def test_the_reviewer_works_beside_the_conversation(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        stage.model.enqueue_assistant_message("hello yourself")
        await stage.run(thread, "hello")
        stage.model.enqueue_function_call("exec_command", shell("echo looked"), call_id="c1")
        stage.model.enqueue_assistant_message(_answer(FINDING))
        begun = await _begin(stage, thread)
        assert begun["reviewThreadId"] == thread
        assert [item["content"][0]["text"] for item in begun["turn"]["items"]] == ["current changes"]
        ended = await stage.end(begun["turn"]["id"])
        assert (ended["status"], ended["items"][0]["text"]) == ("completed", REPORT)
        _, first, second = stage.model.requests()
        assert first.tool_names == second.tool_names == ["exec_command", "write_stdin", "view_image"]
        assert first.input_texts("developer")[0].startswith(REVIEW_PROMPT)
        assert len(user_texts(first)) == 1
        assert "not committed" in user_texts(first)[0]
        assert "looked" in second.tool_outputs["c1"]
        stage.model.enqueue_assistant_message("will do")
        await stage.run(thread, "put it right")
        after = stage.model.requests()[-1]
        assert after.input_texts("assistant") == ["hello yourself", REPORT]
        asked = user_texts(after)
        assert (asked[0], asked[2]) == ("hello", "put it right")
        assert "<action>review</action>" in asked[1]
        assert not after.tool_outputs
        reviewed = (await stage.read(thread))[1]
        kinds = ["enteredReviewMode", "userMessage", "commandExecution", "exitedReviewMode", "agentMessage"]
        assert _types(reviewed) == kinds
        assert reviewed["items"][3]["review"] == REPORT
        await check_thread(stage, thread)


TARGETS = [
    (UNCOMMITTED, "current changes", "untracked"),
    ({"type": "baseBranch", "branch": " it's "}, "changes against 'it's'", "git merge-base HEAD 'it'\"'\"'s'`"),
    ({"type": "commit", "sha": "0123456789", "title": "Fix it"}, "commit 0123456: Fix it", "git show 0123456789`"),
    ({"type": "commit", "sha": "0123456789", "title": " "}, "commit 0123456", "the commit 0123456789 changes"),
    ({"type": "custom", "instructions": " look here "}, "look here", "look here"),
]


async def test_what_is_reviewed_has_a_title_and_a_question(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        for target, title, question in TARGETS:
            thread = await stage.start()
            stage.model.enqueue_assistant_message("fine")
            await _review(stage, thread, target)
            [(entered, asked, left, said)] = [turn["items"] for turn in await stage.read(thread)]
            assert (entered["review"], left["review"], said["text"]) == (title, "fine", "fine")
            assert question in asked["content"][0]["text"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"type": "custom", "instructions": " "}, "instructions must not be empty"),
        ({"type": "baseBranch", "branch": ""}, "branch must not be empty"),
        ({"type": "commit", "sha": "\t"}, "sha must not be empty"),
    ],
)
@pytest.mark.parametrize("delivery", ["inline", "detached"])
async def test_a_target_that_says_nothing_is_refused(tmp_path: Path, target: Json, message: str, delivery: str) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        with pytest.raises(RpcError, match=message):
            await _begin(stage, thread, target, delivery=delivery)
        assert (await stage.client.request("thread/loaded/list", {}))["data"] == [thread]


async def test_a_detached_review_is_in_a_copy_and_the_thread_goes_on(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        stage.model.enqueue_assistant_message("hello yourself")
        await stage.run(thread, "hello")
        opened = gate()
        stage.model.enqueue_assistant_message("fine", gate=opened)
        begun = await _begin(stage, thread, delivery="detached")
        copy = begun["reviewThreadId"]
        assert copy != thread
        await stage.model.arrived(2)
        stage.model.enqueue_assistant_message("meanwhile")
        await stage.run(thread, "go on")
        opened.set()
        assert (await stage.end(begun["turn"]["id"]))["items"][0]["text"] == "fine"
        assert [len(turn["items"]) for turn in await stage.read(thread)] == [2, 2]
        assert [_types(turn)[0] for turn in await stage.read(copy)] == ["userMessage", "enteredReviewMode"]
        started = stage.client.told("thread/started")[-1]["params"]["thread"]
        assert (started["id"], started["forkedFromId"]) == (copy, thread)
        await check_thread(stage, thread)


async def test_an_interrupted_review_leaves_review_mode(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        stage.model.enqueue_function_call("exec_command", shell("sleep 60"))
        turn = (await _begin(stage, thread))["turn"]["id"]
        await stage.client.wait_for("item/started", lambda params: params["item"]["type"] == "commandExecution")
        await stage.interrupt(thread, turn)
        assert (await stage.end(turn))["status"] == "interrupted"
        [left], [said] = stage.completed("exitedReviewMode"), stage.completed("agentMessage")
        assert (left["review"], said["text"]) == (NO_REPORT, UNFINISHED)
        stage.model.enqueue_assistant_message("yes")
        await stage.run(thread, "are you there?")
        after = stage.model.requests()[-1]
        assert after.input_texts("assistant") == [UNFINISHED]
        assert not after.tool_outputs


async def test_a_review_that_fails_leaves_review_mode(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        stage.model.enqueue_error(400, {"error": {"message": "no such model"}})
        ended = await _review(stage, thread)
        assert (ended["status"], ended["items"]) == ("failed", [])
        assert "no such model" in ended["error"]["message"]
        assert [item["review"] for item in stage.completed("exitedReviewMode")] == [NO_REPORT]
        await check_thread(stage, thread)


async def test_an_empty_answer_is_no_report(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        stage.model.enqueue_assistant_message("")
        assert (await _review(stage, thread))["items"][0]["text"] == NO_REPORT


async def test_it_takes_the_place_of_a_turn_and_takes_no_other_input(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        stage.model.enqueue_assistant_message("never", gate=gate())
        running = await stage.begin(thread, "long work")
        await stage.model.arrived(1)
        opened = gate()
        stage.model.enqueue_assistant_message("fine", gate=opened)
        turn = (await _begin(stage, thread))["turn"]["id"]
        assert (await stage.end(running))["status"] == "interrupted"
        await stage.model.arrived(2)
        for refused in (stage.steer(thread, turn, "and this"), stage.begin(thread, "and this")):
            with pytest.raises(RpcError, match=r"cannot .* review") as error:
                await refused
            assert error.value.data == {"codexErrorInfo": {"activeTurnNotSteerable": {"turnKind": "review"}}}
        opened.set()
        assert (await stage.end(turn))["status"] == "completed"
        await check_thread(stage, thread)


async def test_nobody_is_asked_and_other_tools_are_not_there(tmp_path: Path) -> None:
    settings = {"sandbox_mode": "read-only", "approval_policy": "on-request"}
    async with scene(tmp_path, settings=settings) as stage:
        thread = await stage.start()
        escalated = shell("touch made", sandbox_permissions="require_escalated", justification="please")
        stage.model.enqueue_function_call("exec_command", escalated, call_id="c1")
        stage.model.enqueue_custom_call("apply_patch", patch("*** Add File: made", "+x"), call_id="c2")
        stage.model.enqueue_assistant_message("fine")
        assert (await _review(stage, thread))["status"] == "completed"
        outputs = stage.model.requests()[-1].tool_outputs
        assert "never" in outputs["c1"]
        assert outputs["c2"] in ("unsupported custom tool call: apply_patch", "unsupported call: apply_patch")
        assert not (stage.workspace / "made").exists()
        assert not stage.client.told("item/commandExecution/requestApproval")


@pytest.mark.parametrize("sandbox", ["workspace-write", "danger-full-access"])
async def test_a_reviewer_writes_nothing(tmp_path: Path, sandbox: str) -> None:
    """Not by a command, and not through a shell that the thread has open; one of its own it may use."""
    with MockModel(on_empty="wait") as model:
        async with scene(tmp_path, settings={"sandbox_mode": sandbox}, model=model) as stage:
            model.enqueue_calls(ToolCall("exec_command", shell(OPEN_SHELL, tty=True, yield_time_ms=250), "c0"))
            model.enqueue_assistant_message("open")
            thread = await stage.start()
            await stage.run(thread)
            await stage.command_output(thread, "ready")
            theirs = await _session(stage, "c0")
            model.enqueue_calls(
                ToolCall("exec_command", shell("touch made; echo seen"), "c1"),
                ToolCall("write_stdin", {"session_id": theirs, "chars": "x\n", "yield_time_ms": 250}, "c2"),
                ToolCall("exec_command", shell("head -n 1 && touch made", tty=True, yield_time_ms=250), "c3"),
            )
            turn = (await _begin(stage, thread))["turn"]["id"]
            own = {"session_id": await _session(stage, "c3"), "chars": "mine\n"}
            model.enqueue_function_call("write_stdin", own, call_id="c4")
            model.enqueue_assistant_message("fine")
            assert (await stage.end(turn))["status"] == "completed"
            outputs = model.requests()[-1].tool_outputs
            assert "seen" in outputs["c1"]
            assert outputs["c2"] == f"session {theirs} is not yours: it may do more than you may"
            assert "mine" in outputs["c4"]
            assert not (stage.workspace / "made").exists()
            assert (stage.workspace / "early").read_text() == ""


async def test_what_was_allowed_for_the_session_is_not_allowed_to_a_reviewer(tmp_path: Path) -> None:
    async with scene(tmp_path, settings={"sandbox_mode": "read-only", "approval_policy": "on-request"}) as stage:
        escalated = shell("touch made", sandbox_permissions="require_escalated", justification="please")
        for number in range(2):
            stage.model.enqueue_function_call("exec_command", escalated, call_id=f"c{number}")
            stage.model.enqueue_assistant_message("fine")
        stage.client.answer = lambda ask: {"decision": "acceptForSession"}
        thread = await stage.start()
        await stage.run(thread)
        (stage.workspace / "made").unlink()
        assert (await _review(stage, thread))["status"] == "completed"
        assert "never" in stage.model.requests()[-1].tool_outputs["c1"]
        assert not (stage.workspace / "made").exists()


async def _session(stage: Scene, call_id: str) -> int:
    started = await stage.client.wait_for("item/started", lambda params: params["item"]["id"] == call_id)
    return int(started["params"]["item"]["processId"])


async def test_who_wants_to_be_asked_before_every_command_still_is(tmp_path: Path) -> None:
    settings = {"sandbox_mode": "danger-full-access", "approval_policy": "untrusted"}
    async with scene(tmp_path, settings=settings) as stage:
        thread = await stage.start()
        stage.model.enqueue_function_call("exec_command", shell("touch made"), call_id="c1")
        stage.model.enqueue_assistant_message("fine")
        turn = (await _begin(stage, thread))["turn"]["id"]
        asked = await stage.asked("item/commandExecution/requestApproval")
        stage.client.reply(asked, {"decision": "decline"})
        assert (await stage.end(turn))["status"] == "completed"
        assert not (stage.workspace / "made").exists()


async def test_the_model_for_reviews_and_what_it_costs(tmp_path: Path) -> None:
    async with scene(tmp_path, settings={"review_model": "judge"}) as stage:
        thread = await stage.start()
        stage.model.enqueue_assistant_message("hi", usage=Usage(input_tokens=10, output_tokens=1))
        await stage.run(thread, "hello")
        stage.model.enqueue_assistant_message("fine", usage=Usage(input_tokens=100, output_tokens=5))
        await _review(stage, thread)
        stage.model.enqueue_assistant_message("hi", usage=Usage(input_tokens=20, output_tokens=1))
        await stage.run(thread, "again")
        models = [request.json["model"] for request in stage.model.requests()]
        assert models[1] == "judge"
        assert models[0] == models[2] != "judge"
        told = [message["params"]["tokenUsage"] for message in stage.client.told("thread/tokenUsage/updated")]
        assert [usage["total"]["totalTokens"] for usage in told] == [11, 116, 137]
        # How full the context of the thread is does not depend on what the reviewer has read.
        assert [usage["last"]["totalTokens"] for usage in told] == [11, 11, 21]


def test_a_review_whose_server_was_killed_has_an_end(tmp_path: Path) -> None:
    """Clients that read it later would stay in review mode."""
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_assistant_message("late", gate=gate())
        with stdio_server(harness) as program:
            client = program.client
            client.initialize(experimentalApi=True)
            thread = client.start_thread()
            client.call("review/start", {"threadId": thread, "target": UNCOMMITTED})
            client.wait_for("item/completed", lambda params: params["item"]["type"] == "enteredReviewMode")
            (running,) = client.turns(thread)
            assert "exitedReviewMode" not in _types(running)
            program.kill()
        with stdio_server(harness, log="second") as program:
            client = program.client
            client.initialize(experimentalApi=True)
            (read,) = client.turns(thread)
            assert read["status"] == "interrupted"
            assert (_types(read)[0], _types(read)[-1]) == ("enteredReviewMode", "exitedReviewMode")
            assert read["items"][-1]["review"] == NO_REPORT
            _check_lists(client, thread, read)
            (resumed,) = client.call("thread/resume", {"threadId": thread})["thread"]["turns"]
            assert resumed["items"] == read["items"]
            _check_lists(client, thread, read)


def _check_lists(client: AppClient, thread: str, turn: Json) -> None:
    """Every way to the items of the turn gives them all, once, its end among them."""
    for direction, wanted in (("asc", turn["items"]), ("desc", turn["items"][::-1])):
        for limit in (1, 100):
            found: list[Json] = []
            params = {"threadId": thread, "limit": limit, "sortDirection": direction}
            while True:
                page = client.call("thread/items/list", params)
                found += [entry["item"] for entry in page["data"]]
                if page["nextCursor"] is None:
                    break
                params["cursor"] = page["nextCursor"]
            assert found == wanted
    asked = {"threadId": thread, "turnId": turn["id"], "itemIds": [turn["items"][-1]["id"]]}
    (entry,) = client.call("thread/items/read", asked)["data"]
    assert entry["item"] == turn["items"][-1]
    listed = client.call("thread/turns/list", {"threadId": thread, "itemsView": "full"})
    assert [each["items"] for each in listed["data"]] == [turn["items"]]
