"""A session without a terminal: what is said, added, interrupted and asked, on a server in this process."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path

import pytest

from chat_stage import ESCALATED, WAIT_S, on_stage, session_on
from treadle.cli import MAX_WAITING, GitChanges, UserAnswer, thread_to_resume
from treadle.errors import RpcError
from treadle.protocol.app import CommandExecutionRequestApprovalResponse
from treadle.testing import AppServerHarness

pytestmark = pytest.mark.anyio


async def test_a_message_is_a_turn_and_the_next_one_another(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        stage.model.enqueue_assistant_message("one")
        stage.model.enqueue_assistant_message("two")
        stage.say("first")
        await stage.done()
        stage.say("second")
        assert (await stage.done(2)).status == "completed"
        assert [request.last_user_text for request in stage.model.requests()] == ["first", "second"]
        assert stage.session.facts.usage is not None
        assert stage.session.has_turns
        assert not stage.session.working


async def test_what_is_said_meanwhile_goes_into_the_turn(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        gate = threading.Event()
        stage.model.enqueue_assistant_message("one", deltas=["o", "ne"], gate=gate, gate_after=3)
        stage.model.enqueue_assistant_message("two")
        stage.say("first")
        await stage.told.wait_for("item/agentMessage/delta")
        stage.say("and this")
        assert await stage.told.wait_for("note") == "added to the running turn"
        gate.set()
        await stage.done()
        assert len(stage.told.all("begun")) == 1
        assert stage.model.requests()[1].last_user_text == "and this"


async def test_what_comes_too_late_for_a_turn_begins_the_next(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        stage.model.enqueue_assistant_message("one")
        stage.model.enqueue_assistant_message("two")
        stage.say("first")
        ended = await stage.done()
        stage.session._turn_id = ended.id  # as if the end were still on its way
        stage.say("second")
        assert (await stage.done(2)).status == "completed"


async def test_an_interrupt_ends_the_turn_and_the_session_goes_on(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        gate = threading.Event()
        stage.model.enqueue_assistant_message("one", gate=gate)
        stage.model.enqueue_assistant_message("two")
        stage.say("first")
        await stage.told.wait_for("turn/started")
        stage.session.interrupt()
        stage.session.interrupt()
        assert stage.session.interrupting
        assert (await stage.done()).status == "interrupted"
        gate.set()
        stage.say("second")
        assert (await stage.done(2)).status == "completed"


async def test_an_interrupt_before_the_turn_has_begun_counts(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        gate = threading.Event()
        stage.model.enqueue_assistant_message("one", gate=gate)
        stage.say("first")
        await stage.told.wait_for("begun")
        assert stage.session._turn_id is None
        stage.session.interrupt()
        assert (await stage.done()).status == "interrupted"
        gate.set()


@pytest.mark.parametrize(("status", "told"), [(401, "not today"), (500, "HTTP 500")])
async def test_a_provider_that_refuses_is_told_and_the_session_goes_on(tmp_path: Path, status: int, told: str) -> None:
    async with on_stage(tmp_path) as stage:
        stage.model.enqueue_error(status, {"error": {"message": "not today"}})
        stage.model.enqueue_assistant_message("two")
        stage.say("first")
        failed = await stage.done()
        assert failed.status == "failed"
        assert told in failed.error.message
        stage.say("second")
        assert (await stage.done(2)).status == "completed"


async def test_a_request_that_is_refused_is_a_problem_and_no_more(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:

        async def nonsense() -> None:
            await stage.session.enter("no thread")

        stage.session.want(nonsense)
        assert "no thread" in await stage.told.wait_for("problem")
        stage.model.enqueue_assistant_message("one")
        stage.say("first")
        assert (await stage.done()).status == "completed"


async def test_a_server_that_is_gone_is_told(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        await stage.session.close()
        assert await stage.told.wait_for("lost")


async def test_no_is_no_and_what_to_do_instead_is_said(tmp_path: Path) -> None:
    async with on_stage(tmp_path, sandbox_mode="read-only") as stage:
        declined = CommandExecutionRequestApprovalResponse(decision="decline")
        stage.told.answer = lambda: UserAnswer(declined, "use the other file")
        stage.model.enqueue_function_call("exec_command", ESCALATED, call_id="c1")
        stage.model.enqueue_assistant_message("so be it")
        stage.model.enqueue_assistant_message("the other file")
        stage.say("first")
        await stage.told.wait_for("note")
        assert (await stage.done()).status == "completed"
        ((method, params),) = stage.told.asked
        assert method == "item/commandExecution/requestApproval"
        assert params["reason"] == "because"
        said = [text for request in stage.model.requests() for text in request.input_texts("user")]
        assert "use the other file" in said
        assert not (stage.harness.workspace / "made").exists()


async def test_a_view_that_fails_is_a_no(tmp_path: Path) -> None:
    async with on_stage(tmp_path, sandbox_mode="read-only") as stage:

        def fail() -> UserAnswer:
            raise RpcError(-32000, "nobody there")

        stage.told.answer = fail
        stage.model.enqueue_function_call("exec_command", ESCALATED, call_id="c1")
        stage.model.enqueue_assistant_message("so be it")
        stage.say("first")
        await stage.done()
        assert stage.told.asked
        assert not (stage.harness.workspace / "made").exists()


async def test_a_question_is_withdrawn_with_its_turn(tmp_path: Path) -> None:
    async with on_stage(tmp_path, sandbox_mode="read-only") as stage:
        stage.told.forever = True
        stage.model.enqueue_function_call("exec_command", ESCALATED, call_id="c1")
        stage.say("first")
        await stage.told.wait_for("asked")
        stage.session.interrupt()
        assert (await stage.done()).status == "interrupted"
        async with asyncio.timeout(WAIT_S):
            while not stage.told.withdrawn:
                await asyncio.sleep(0)


async def test_threads_are_left_forked_found_and_resumed(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        session = stage.session
        first = session.facts.id
        stage.model.enqueue_assistant_message("one")
        stage.say("the first words")
        await stage.done()
        fork = await session.fork()
        assert fork.id != first
        assert session.has_turns
        new = await session.enter(None)
        assert not session.has_turns
        await session.client.thread_set_name(first, "a name")
        named = await thread_to_resume(session.client, "a name")
        assert named is not None
        assert named.id == first
        assert (await session.enter(first)).id == first != new.id
        stage.model.enqueue_assistant_message("two")
        stage.say("again")
        await stage.done(2)
        assert stage.model.requests()[-1].input_texts("user")[-2:] == ["the first words", "again"]


async def test_settings_are_changed_for_the_thread(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        await stage.session.change(model="other-model", approvalPolicy="never", sandboxPolicy={"type": "readOnly"})
        stage.model.enqueue_assistant_message("one")
        stage.say("first")
        await stage.done()
        facts = stage.session.facts
        assert (facts.model, facts.approvals, facts.sandbox) == ("other-model", "never", "read-only")
        assert stage.model.requests()[0].json["model"] == "other-model"


async def test_a_summary_is_a_turn_and_what_is_said_meanwhile_comes_after_it(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        gate = threading.Event()
        stage.model.enqueue_assistant_message("one")
        stage.model.enqueue_assistant_message("the summary", gate=gate)
        stage.model.enqueue_assistant_message("two")
        stage.say("first")
        await stage.done()
        stage.session.want(stage.session.compact)
        await stage.told.wait_for("turn/started", 2)
        stage.say("second")
        assert await stage.told.wait_for("note") == "sent when the agent is done with this"
        gate.set()
        assert (await stage.done(3)).status == "completed"
        order = [kind for kind, _ in stage.told.shown if kind in ("begun", "turn/completed")]
        assert order == ["begun", "turn/completed"] * 3


async def test_files_are_found(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        (stage.harness.workspace / "folder").mkdir()
        (stage.harness.workspace / "folder" / "found.txt").touch()
        assert await stage.session.find_files("fnd") == ["folder/found.txt"]


async def test_not_more_than_a_person_can_type_waits(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        for _ in range(MAX_WAITING + 1):
            stage.session.want(asyncio.Event().wait)  # type: ignore[arg-type]
        assert "was not taken" in await stage.told.wait_for("problem")


async def test_changes_of_a_repository_are_shown_with_new_files(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as stage:
        changes = GitChanges(stage.session.client, stage.session.facts)
        assert await changes.read() is None
        git = await asyncio.create_subprocess_exec("git", "init", "-q", cwd=stage.harness.workspace)
        assert await git.wait() == 0
        assert await changes.read() == ""
        (stage.harness.workspace / "new ß.txt").write_text("hello\n")
        found = await changes.read()
        assert found is not None
        assert "+hello" in found
        assert "new ß.txt" in found


async def test_the_same_on_a_server_that_is_a_program_and_when_that_is_killed(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        pid = tmp_path / "pid"
        command = ["sh", "-c", f'echo $$ > {pid}; exec "$@"', "sh", *harness.command()]
        async with session_on(harness, harness.codex_config(launch_args_override=command)) as stage:
            stage.model.enqueue_assistant_message("one")
            stage.say("first")
            assert (await stage.done()).status == "completed"
            os.kill(int(pid.read_text()), signal.SIGKILL)
            assert await stage.told.wait_for("lost")
