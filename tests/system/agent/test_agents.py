"""Sub-agents: started, waited for, spoken to, closed; how their parent hears of them, and what clients see."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.agents_model import AgentsModel, call, do, notifications, spawn, wait
from system.agent.scene import Json, Scene, scene
from system.mcp.mcp_scene import probe_table
from treadle.agent import Children
from treadle.agent.turn import turn_start
from treadle.errors import RpcError
from treadle.llm import ProviderModel
from treadle.testing import Usage

pytestmark = pytest.mark.anyio  # what a wire API may change is tried on each, and the rest on one


class AgentScene:
    def __init__(self, stage: Scene, model: AgentsModel) -> None:
        self.stage = stage
        self.model = model

    @property
    def spawned(self) -> list[str]:
        """The ids of the sub-agents, in the order in which clients heard of them."""
        started = [each["params"]["thread"] for each in self.stage.client.told("thread/started")]
        return [thread["id"] for thread in started if thread["parentThreadId"] is not None]

    def calls(self, tool: str) -> list[Json]:
        """The items of the calls that are over."""
        return [item for item in self.stage.completed("collabAgentToolCall") if item["tool"] == tool]

    async def run_waiting(self, thread: str, script: str, gate: str = "go") -> Json:
        """A turn that waits for a sub-agent, which is done when it is waited for."""
        turn = await self.stage.begin(thread, script)
        await self.stage.client.wait_for("item/started", lambda params: params["item"].get("tool") == "wait")
        self.model.gates[gate].set()
        return await self.stage.end(turn)

    async def child_done(self, thread: str, number: int = 1) -> None:
        def over(_: Any) -> bool:
            ends = self.stage.client.told("turn/completed")
            return len([each for each in ends if each["params"]["threadId"] == thread]) >= number

        await self.stage.client.wait_for("turn/completed", over)

    async def heard(self, thread: str, child: str) -> Children:
        """What the thread knows of its sub-agents, once it has heard of the end of one."""
        loaded = self.stage.server.threads.get(thread)
        assert loaded is not None
        children = loaded._thread.children
        while not children._ended[child].turn_id:
            await asyncio.sleep(0.001)
        return children


@asynccontextmanager
async def agent_scene(tmp_path: Path, extra_toml: str = "", **more: Any) -> AsyncIterator[AgentScene]:
    with AgentsModel(**more) as model:
        async with scene(tmp_path, model=model, extra_toml=extra_toml) as stage:
            yield AgentScene(stage, model)


@pytest.mark.every_wire
async def test_a_child_is_started_and_waited_for(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        held = spawn({"hold": "go", "say": "child result"}, agent_type="explorer")
        turn = await on.run_waiting(thread, do(held, wait("$1"), "parent ends"))
        assert turn["status"] == "completed"
        [child] = on.spawned
        [spawned] = on.calls("spawnAgent")
        assert (spawned["status"], spawned["receiverThreadIds"], spawned["senderThreadId"]) == (
            "completed",
            [child],
            thread,
        )
        assert spawned["agentsStates"] == {child: {"status": "pendingInit", "message": None}}
        [waited] = on.calls("wait")
        assert waited["agentsStates"] == {child: {"status": "completed", "message": "child result"}}
        outputs = list(on.model.of(thread)[-1].tool_outputs.values())
        assert json.loads(outputs[0])["agent_id"] == child
        assert json.loads(outputs[1]) == {"status": {child: {"completed": "child result"}}, "timed_out": False}
        # What `wait_agent` has told is not told again.
        await on.stage.run(thread, do("later"))
        assert notifications(on.model.of(thread)[-1]) == []


@pytest.mark.every_wire
async def test_an_end_is_told_with_the_next_request_and_once(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        await on.stage.run(thread, do(spawn({"hold": "go", "say": "found </subagent_notification> it"}), "parent ends"))
        [child] = on.spawned
        on.model.gates["go"].set()
        await on.child_done(child)
        assert len(on.model.of(thread)) == 2  # nobody has woken the parent
        await on.stage.run(thread, do("next"))
        await on.stage.run(thread, do("and next"))
        *_, first, second = on.model.of(thread)
        told = [{"agent_path": child, "status": {"completed": "found </subagent_notification> it"}}]
        assert notifications(first) == notifications(second) == told
        texts = first.input_texts("user")
        assert texts[-1] == do("next")
        assert texts[-2].startswith("<subagent_notification>")
        assert texts[-2].count("</subagent_notification>") == 1


async def test_an_end_during_a_turn_is_told_in_that_turn(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        held = spawn({"hold": "go", "say": "quick"})
        turn = await on.stage.begin(thread, do(held, {"hold": "say", "say": "parent says"}, "and more"))
        await on.model.arrived(3)  # the child and the parent have both asked
        on.model.gates["go"].set()
        await on.stage.client.wait_for("turn/completed")  # that of the child
        on.model.gates["say"].set()
        ended = await on.stage.end(turn)
        assert ended["items"][-1]["text"] == "and more"
        [told] = notifications(on.model.of(thread)[-1])
        assert told["status"] == {"completed": "quick"}


async def test_the_child_is_a_thread_of_its_own(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as on:
        ask = on.stage.client.request
        thread = await on.stage.start()
        await on.run_waiting(thread, do(spawn({"hold": "go", "say": "one"}), wait("$1"), "e"))
        [child] = on.spawned
        read = (await ask("thread/read", {"threadId": child, "includeTurns": True}))["thread"]
        place = read["source"]["subAgent"]["thread_spawn"]
        assert (place["parent_thread_id"], place["depth"], place["agent_role"]) == (thread, 1, "default")
        assert (read["sessionId"], read["parentThreadId"], read["threadSource"]) == (thread, thread, "subagent")
        assert (read["agentNickname"], read["agentRole"]) == (place["agent_nickname"], "default")
        assert read["turns"][0]["items"][0]["content"][0]["text"] == do({"hold": "go", "say": "one"})

        async def listed(**params: Any) -> list[str]:
            return [each["id"] for each in (await ask("thread/list", params))["data"]]

        assert await listed() == [thread]
        assert await listed(sourceKinds=["subAgent"]) == [child]
        assert await listed(sourceKinds=["subAgentThreadSpawn"]) == [child]
        assert await listed(sourceKinds=["vscode", "subAgent"]) == [child, thread]
        assert await listed(parentThreadId=thread) == [child]
        assert await listed(parentThreadId=child) == []
        [request] = on.model.of(child)
        assert request.header("session-id") == thread
        assert request.header("x-codex-parent-thread-id") == thread
        assert request.header("x-openai-subagent") == "collab_spawn"
        # Who missed something of it catches up by the numbers of its events.
        told = [each for each in on.stage.client.messages if each["params"].get("threadId") == child and "seq" in each]
        page = await ask("thread/events/list", {"threadId": child, "afterSeq": 0})
        numbered = {each["seq"]: each["method"] for each in page["data"]}
        assert {
            each["seq"]: each["method"] for each in told if "delta" not in each["params"]
        }.items() <= numbered.items()
        # The user may talk to it as to any thread, and its parent hears of that as well.
        await on.stage.run(child, do("direct"))
        await on.stage.run(thread, do("next"))
        assert [each["status"] for each in notifications(on.model.of(thread)[-1])] == [{"completed": "direct"}]


async def test_children_are_sent_input_closed_and_opened_again(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        more = call("send_input", target="$1", message=do("second"))
        await on.stage.run(thread, do(spawn("first"), wait("$1"), more, wait("$1"), "e"))
        [child] = on.spawned
        assert [item["agentsStates"][child]["message"] for item in on.calls("wait")] == ["first", "second"]
        assert on.calls("sendInput")[0]["prompt"] == do("second")

        close, resume = call("close_agent", target=child), call("resume_agent", id=child)
        again = call("send_input", target=child, message=do("third"))
        script = do(close, wait(child), again, close, resume, again, wait(child), "e")
        await on.stage.run(thread, script)
        outputs = list(on.model.of(thread)[-1].tool_outputs.values())[4:]
        assert json.loads(outputs[0]) == {"previous_status": {"completed": "second"}}
        assert json.loads(outputs[1]) == {"status": {child: "not_found"}, "timed_out": False}
        assert outputs[2] == outputs[3] == f"agent with id {child} not found"
        assert json.loads(outputs[4]) == {"status": "pending_init"}
        assert json.loads(outputs[6]) == {"status": {child: {"completed": "third"}}, "timed_out": False}
        failed = {item["tool"] for item in on.stage.completed("collabAgentToolCall") if item["status"] == "failed"}
        assert failed == {"wait", "sendInput", "closeAgent"}


async def test_what_cannot_be_is_said_and_every_item_completes(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        other = await on.stage.start()
        bad = [
            call("spawn_agent"),
            call("spawn_agent", message="x", agent_type="nosuch"),
            call("spawn_agent", message="x", agent_type="worker", fork_context=True),
            call("spawn_agent", message="x", model_provider="nosuch"),
            call("wait_agent", targets=[]),
            call("close_agent", target=other),
            call("resume_agent", id=other),
            call("send_input", target=other, message="x"),
        ]
        await on.stage.run(thread, do(*bad, "e"))
        outputs = list(on.model.of(thread)[-1].tool_outputs.values())
        assert outputs[:3] == [
            "Provide one of: message or items",
            "unknown agent_type 'nosuch'",
            "Full-history forked agents inherit the parent agent type; omit agent_type, or spawn without a "
            "full-history fork.",
        ]
        assert outputs[3].startswith("Unknown model provider `nosuch` for spawn_agent. There are: ")
        assert outputs[4] == "agent ids must be non-empty"
        assert set(outputs[5:]) == {f"agent with id {other} not found"}
        begun = [each["params"]["item"] for each in on.stage.client.told("item/started")]
        begun_ids = [item["id"] for item in begun if item["type"] == "collabAgentToolCall"]
        assert begun_ids == [item["id"] for item in on.stage.completed("collabAgentToolCall")]
        assert on.spawned == []


async def test_limits(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, "[agents]\nmax_threads = 2\nmax_spawns_per_turn = 3\n") as on:
        thread = await on.stage.start()
        held = [spawn({"hold": "go", "say": str(number)}) for number in range(3)]
        await on.stage.run(thread, do(*held, "e"))
        outputs = list(on.model.of(thread)[-1].tool_outputs.values())
        assert outputs[2] == "collab spawn failed: agent thread limit reached"
        assert len(on.spawned) == 2
        on.model.gates["go"].set()
        for child in on.spawned:
            await on.child_done(child)
        # Those that are done do not count.
        grandchild = spawn(spawn("never"), "done")
        quick = [step for _ in range(4) for step in (spawn("c"), wait("$3"))]
        await on.stage.run(thread, do(grandchild, wait("$3"), *quick, "e"))
        child = on.spawned[2]
        assert list(on.model.of(child)[-1].tool_outputs.values()) == ["unsupported call: multi_agent_v1__spawn_agent"]
        assert not any(name.startswith("multi_agent") for name in on.model.of(child)[0].tool_names)
        last = list(on.model.of(thread)[-1].tool_outputs.values())[-2]
        assert last.startswith("collab spawn failed: agent thread limit reached: this turn has started 3")


async def test_interrupting_the_parent_interrupts_its_children(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        turn = await on.stage.begin(thread, do(spawn({"hold": "never", "say": "x"}), wait("$1"), "e"))
        await on.model.arrived(3)
        [child] = on.spawned
        await on.stage.interrupt(thread, turn)
        assert (await on.stage.end(turn))["status"] == "interrupted"
        await on.child_done(child)
        ends = [each["params"] for each in on.stage.client.told("turn/completed")]
        assert {each["threadId"]: each["turn"]["status"] for each in ends} == {
            thread: "interrupted",
            child: "interrupted",
        }
        await on.stage.run(thread, do("next"))
        assert notifications(on.model.of(thread)[-1]) == [{"agent_path": child, "status": "interrupted"}]


async def test_interrupting_the_parent_may_leave_its_children(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, "[agents]\ninterrupt_children = false\n") as on:
        thread = await on.stage.start()
        turn = await on.stage.begin(thread, do(spawn({"hold": "go", "say": "late"}, wake=True), wait("$1"), "e"))
        await on.model.arrived(3)
        await on.stage.interrupt(thread, turn)
        await on.stage.end(turn)
        on.model.gates["go"].set()
        [child] = on.spawned
        await on.child_done(child)
        children = await on.heard(thread, child)
        assert (children.pending(), children.wants_turn) == ([child], False)  # the user has stopped the thread
        await on.stage.run(thread, do("next"))
        assert [each["status"] for each in notifications(on.model.of(thread)[-1])] == [{"completed": "late"}]


@pytest.mark.parametrize("by", ["call", "setting", "goal"])
async def test_an_idle_parent_is_woken(tmp_path: Path, by: str) -> None:
    async with agent_scene(tmp_path, "[agents]\nwake_parent = true\n" if by == "setting" else "") as on:
        thread = await on.stage.start()
        await on.stage.run(thread, do(spawn({"hold": "go", "say": "done"}, wake=by == "call"), "e"))
        if by == "goal":
            goal = {"threadId": thread, "objective": "paint", "status": "active"}
            await on.stage.client.request("thread/goal/set", goal)
            await on.child_done(thread, 2)
        before = len(on.model.of(thread))
        on.model.gates["go"].set()
        await on.child_done(thread, 3 if by == "goal" else 2)
        after = on.model.of(thread)[before]
        assert [each["status"] for each in notifications(after)] == [{"completed": "done"}]


@pytest.mark.parametrize("who", ["parent", "child"])
async def test_an_interrupt_wakes_nobody(tmp_path: Path, who: str) -> None:
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        held = spawn({"hold": "never", "say": "x"}, wake=True)
        if who == "parent":
            turn = await on.stage.begin(thread, do(held, wait("$1"), "e"))
            await on.model.arrived(3)
            await on.stage.interrupt(thread, turn)
            await on.stage.end(turn)
        else:
            await on.stage.run(thread, do(held, "e"))
            await on.stage.interrupt(on.spawned[0], "")
        [child] = on.spawned
        await on.child_done(child)
        children = await on.heard(thread, child)
        assert (children.pending(), children.wants_turn) == ([child], False)


@pytest.mark.every_wire
async def test_what_was_said_is_copied_for_a_fork(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        await on.stage.run(thread, do("first answer"))
        await on.stage.run(thread, do(spawn("x"), wait("$1"), "told"))
        script = do(spawn("forked", fork_context=True), "e")
        await on.stage.run(thread, script)
        await on.child_done(on.spawned[1])
        [request] = on.model.of(on.spawned[1])
        assert request.input_texts("user")[-2:] == [script, do("forked")]
        assert "first answer" in request.input_texts("assistant")
        assert request.tool_outputs == {}
        read = await on.stage.client.request("thread/read", {"threadId": on.spawned[1], "includeTurns": True})
        assert len(read["thread"]["turns"]) == 1


async def test_what_a_child_asks_says_who_asks_and_is_for_it_alone(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start(approvalPolicy="untrusted", sandbox="workspace-write")
        touch = {"call": "exec_command", "args": {"cmd": "touch made", "justification": "need it"}}
        approval = "item/commandExecution/requestApproval"
        script = do(spawn(touch, touch, "done", agent_type="worker"), touch, "e")
        turn = await on.stage.begin(thread, script)
        requests = [await on.stage.asked(approval, number) for number in (1, 2)]
        asked = {each["params"]["threadId"]: each["params"] for each in requests}
        [child] = on.spawned
        read = (await on.stage.client.request("thread/read", {"threadId": child}))["thread"]
        assert asked[child]["reason"].startswith(f"{read['agentNickname']} [worker] asks")
        assert not str(asked[thread].get("reason")).startswith(read["agentNickname"])
        for each in requests:
            on.stage.client.reply(each, {"decision": "acceptForSession"})
        await on.stage.end(turn)
        await on.child_done(child)
        # The child was not asked again, its parent had to be asked itself.
        assert len(on.stage.client.told(approval)) == 2


async def test_the_question_of_a_server_says_which_child_asks(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, probe_table(tmp_path, default_tools_approval_mode="approve")) as on:
        on.stage.client.answer = lambda _: {"action": "accept", "content": {"name": "Ada"}}
        thread = await on.stage.start(approvalPolicy="on-request")
        ask = {"call": "mcp__probe__ask", "args": {}}
        await on.stage.run(thread, do(spawn(ask, "done"), wait("$1"), "e"))
        [asked] = on.stage.client.told("mcpServer/elicitation/request")
        assert asked["params"]["threadId"] == on.spawned[0]
        read = (await on.stage.client.request("thread/read", {"threadId": on.spawned[0]}))["thread"]
        assert asked["params"]["message"].startswith(f"{read['agentNickname']} asks: ")


async def test_the_question_of_a_model_says_which_child_asks(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, "[features]\ndefault_mode_request_user_input = true\n") as on:
        on.stage.client.answer = lambda _: {"answers": {"colour": {"answers": ["blue"]}}}
        thread = await on.stage.start()
        options = [{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}]
        question = {"id": "colour", "header": "Colour", "question": "Which?", "options": options}
        ask = {"call": "request_user_input", "args": {"questions": [question]}}
        await on.stage.run(thread, do(spawn(ask, "done", agent_type="worker"), wait("$1"), "e"))
        [asked] = on.stage.client.told("item/tool/requestUserInput")
        [child] = on.spawned
        read = (await on.stage.client.request("thread/read", {"threadId": child}))["thread"]
        assert asked["params"]["threadId"] == child
        assert asked["params"]["questions"][0]["question"] == f"{read['agentNickname']} [worker] asks: Which?"
        assert "blue" in next(iter(on.model.of(child)[-1].tool_outputs.values()))


async def test_a_client_that_joins_the_parent_later_follows_its_children(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start(approvalPolicy="untrusted", sandbox="workspace-write")
        touch = {"call": "exec_command", "args": {"cmd": "touch made"}}
        await on.stage.run(thread, do(spawn(touch, "done"), "e"))
        approval = "item/commandExecution/requestApproval"
        await on.stage.asked(approval)
        async with on.stage.harness.connect("late", server=on.stage.server) as late:
            await late.request("thread/resume", {"threadId": thread})
            asked = await late.wait_for(approval)
            assert asked["params"]["threadId"] == on.spawned[0]
            late.reply(asked, {"decision": "accept"})
            ended = await late.wait_for("turn/completed")
            assert ended["params"]["threadId"] == on.spawned[0]


async def test_archiving_and_deleting_take_the_children_along(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, "[agents]\nmax_depth = 2\n") as on:
        ask = on.stage.client.request

        async def tree() -> tuple[str, str, str]:
            thread = await on.stage.start()
            seen = len(on.spawned)
            await on.stage.run(thread, do(spawn(spawn({"hold": "never", "say": "x"}), "c"), wait("$1"), "e"))
            return thread, on.spawned[seen], on.spawned[seen + 1]

        def going(method: str) -> list[str]:
            return [each["params"]["threadId"] for each in on.stage.client.told(method)]

        archived, deleted = await tree(), await tree()
        await ask("thread/archive", {"threadId": archived[0]})
        await ask("thread/delete", {"threadId": deleted[0]})
        await on.stage.start()
        assert going("thread/archived") == list(archived)
        assert going("thread/deleted") == list(deleted)
        loaded = (await ask("thread/loaded/list", {}))["data"]
        assert not {*archived, *deleted} & set(loaded)
        kinds = {"sourceKinds": ["vscode", "subAgent"]}
        listed = {each["id"] for each in (await ask("thread/list", {**kinds, "archived": True}))["data"]}
        assert listed == set(archived)
        assert not {each["id"] for each in (await ask("thread/list", kinds))["data"]} & {*archived, *deleted}
        read = await ask("thread/read", {"threadId": archived[2], "includeTurns": True})
        assert read["thread"]["turns"][0]["status"] == "interrupted"


def _git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=T", "-c", "user.email=t@example.org")
    done = subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


# The workspaces of tests are in a temporary folder, which could be written anyway.
NO_TMP = "[sandbox_workspace_write]\nexclude_slash_tmp = true\nexclude_tmpdir_env_var = true\n"


@pytest.mark.this_machine
async def test_a_child_may_have_a_worktree_of_its_own(tmp_path: Path, machine: str) -> None:
    async with agent_scene(tmp_path, NO_TMP) as on:
        workspace = on.stage.workspace
        _git(workspace, "init", "--quiet")
        (workspace / "kept").write_text("old")
        _git(workspace, "add", "kept")
        _git(workspace, "commit", "--quiet", "-m", "first")
        thread = await on.stage.start(sandbox="workspace-write", approvalPolicy="never")
        write = {"call": "exec_command", "args": {"cmd": "echo new > kept; pwd", "login": False}}
        outside = {"call": "exec_command", "args": {"cmd": f"echo bad > {workspace}/kept", "login": False}}
        await on.stage.run(thread, do(spawn(write, outside, "c", isolation="worktree"), wait("$1"), "e"))
        told = json.loads(next(iter(on.model.of(thread)[-1].tool_outputs.values())))
        folder = Path(told["worktree"])
        assert folder.is_relative_to(workspace / ".worktrees")
        assert (folder / "kept").read_text() == "new\n"
        assert (workspace / "kept").read_text() == "old"
        assert _git(folder, "branch", "--show-current") == told["branch"]
        assert told["branch"].startswith("agents/")
        assert _git(workspace, "status", "--porcelain") == ""
        read = await on.stage.client.request("thread/read", {"threadId": on.spawned[0]})
        assert read["thread"]["environments"][0]["cwd"] == str(folder)
        assert read["thread"]["gitInfo"]["branch"] == told["branch"]


@pytest.mark.this_machine
async def test_no_worktree_where_the_parent_may_not_write(tmp_path: Path, machine: str) -> None:
    async with agent_scene(tmp_path, NO_TMP) as on:
        thread = await on.stage.start(sandbox="read-only")
        await on.stage.run(thread, do(spawn("c", isolation="worktree"), "e"))
        _git(on.stage.workspace, "init", "--quiet")
        await on.stage.run(thread, do(spawn("c", isolation="worktree"), "e"))
        first, second = on.model.of(thread)[-1].tool_outputs.values()
        assert first.startswith('isolation = "worktree" needs a git repository')
        assert second.startswith('isolation = "worktree" needs the right to write in')
        assert on.spawned == []


@pytest.mark.this_machine
async def test_a_worktree_leads_nowhere_else(tmp_path: Path, machine: str) -> None:
    (beside := tmp_path / "beside").mkdir()
    async with agent_scene(tmp_path, NO_TMP) as on:
        workspace = on.stage.workspace
        _git(workspace, "init", "--quiet")
        _git(workspace, "commit", "--quiet", "--allow-empty", "-m", "first")
        (workspace / ".worktrees").symlink_to(beside)
        thread = await on.stage.start(sandbox="workspace-write", approvalPolicy="never")
        await on.stage.run(thread, do(spawn("c", isolation="worktree"), "e"))
        (told,) = on.model.of(thread)[-1].tool_outputs.values()
        assert told.startswith('isolation = "worktree" needs the right to write in')
        assert [path.name for path in beside.iterdir()] == []
        assert on.spawned == []


@pytest.mark.this_machine
async def test_a_repository_that_must_not_be_read_is_not_checked_out(tmp_path: Path, machine: str) -> None:
    (secret := tmp_path / "secret").mkdir()
    _git(secret, "init", "--quiet")
    _git(secret, "commit", "--quiet", "--allow-empty", "-m", "first")
    profile = '[permissions.p.filesystem]\n":root" = "read"\n":workspace_roots" = "write"\n'
    async with agent_scene(tmp_path, f'{profile}"{secret}" = "deny"\n') as on:
        (on.stage.workspace / ".git").write_text(f"gitdir: {secret}/.git\n")
        thread = await on.stage.start(permissions="p", approvalPolicy="never")
        await on.stage.run(thread, do(spawn("c", isolation="worktree"), "e"))
        (told,) = on.model.of(thread)[-1].tool_outputs.values()
        assert told.startswith('isolation = "worktree" needs')
        assert not (secret / ".git/worktrees").exists()


ROLES = """
[agents.small]
description = "Small"
model = "small-model"
model_reasoning_effort = "low"
developer_instructions = "Be small."
tools = ["exec_command"]
nickname_candidates = ["Rex"]

[agents.writer]
description = "Writes"
sandbox_mode = "workspace-write"
"""


async def test_roles(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, ROLES) as on:
        thread = await on.stage.start(sandbox="workspace-write", approvalPolicy="never", developerInstructions="All.")
        write = {"call": "exec_command", "args": {"cmd": "echo x > made", "login": False}}
        explorer = spawn(write, "c", agent_type="explorer")
        await on.stage.run(thread, do(explorer, wait("$1"), spawn("s", agent_type="small"), wait("$2"), "e"))
        assert not (on.stage.workspace / "made").exists()
        [request] = on.model.of(on.spawned[1])
        assert request.json["model"] == "small-model"
        assert request.tool_names == ["exec_command"]
        assert any("All.\n\nBe small." in text for text in request.input_texts("developer"))
        [_, small] = on.calls("spawnAgent")
        assert (small["model"], small["reasoningEffort"]) == ("small-model", "low")
        assert json.loads(list(on.model.of(thread)[-1].tool_outputs.values())[2])["nickname"] == "Rex"
        reading = await on.stage.start(sandbox="read-only")
        await on.stage.run(reading, do(spawn("w", agent_type="writer"), spawn("d"), wait("$1"), "e"))
        refused = next(iter(on.model.of(reading)[-1].tool_outputs.values()))
        assert refused.startswith("the agent_type 'writer' has sandbox_mode = \"workspace-write\", which is more than")


async def test_what_children_use_counts_for_the_budget_and_is_shown_apart(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, usage=Usage(input_tokens=9, output_tokens=1)) as on:
        thread = await on.stage.start()
        goal = {"threadId": thread, "objective": "paint", "status": "paused", "tokenBudget": 45}
        await on.stage.client.request("thread/goal/set", goal)
        await on.run_waiting(thread, do(spawn({"hold": "go", "say": "c"}), wait("$1"), "e"))
        told = on.stage.client.told("thread/tokenUsage/updated")
        usage = [each["params"]["tokenUsage"] for each in told if each["params"]["threadId"] == thread][-1]
        assert usage["total"]["totalTokens"] == 30
        assert usage["agents"]["totalTokens"] == 10
        goal_now = (await on.stage.client.request("thread/goal/get", {"threadId": thread}))["goal"]
        assert goal_now["tokensUsed"] == 40


async def test_a_hundred_children_twenty_at_a_time(tmp_path: Path) -> None:
    settings = "[agents]\nmax_threads = 20\n"
    async with asyncio.timeout(120):
        async with agent_scene(tmp_path, settings) as on:
            thread = await on.stage.start()
            steps: list[Any] = []
            for begin in range(0, 100, 20):
                steps.append([spawn(f"c{begin + number}") for number in range(20)])
                steps += [wait(f"${begin + number + 1}") for number in range(20)]
            ended = await on.stage.run(thread, do(*steps, "e"))
            assert ended["status"] == "completed"
            assert len(set(on.spawned)) == 100
            outputs = [json.loads(each) for each in on.model.of(thread)[-1].tool_outputs.values()]
            assert sum("agent_id" in each for each in outputs) == 100
            final = {child for each in outputs for child in each.get("status", ())}
            assert final == set(on.spawned)
            assert not on.stage.server.threads.running_in(thread)
            # Those that are closed leave memory, and the state of their parent.
            await on.stage.run(thread, do([call("close_agent", target=child) for child in on.spawned], "e"))
            assert on.stage.server.threads.ids() == [thread]
            loaded = on.stage.server.threads.get(thread)
            assert loaded is not None
            children = loaded._thread.children
            assert (children._open, children._ended, children._asked, children._returned) == ({}, {}, {}, {})


async def test_all_agents_of_a_session_together_wait_for_a_provider_as_one_thread(tmp_path: Path) -> None:
    with AgentsModel() as model:
        async with scene(tmp_path, model=model, provider={"max_concurrent_requests": 1}) as stage:
            thread, other = await stage.start(), await stage.start()
            held = {"hold": "go", "say": "c"}
            turn = await stage.begin(thread, do([spawn(held) for _ in range(5)], "e"))
            await model.arrived(2)  # that of the first child holds the only place
            [provider] = stage.server.models._models.values()
            assert isinstance(provider, ProviderModel)

            async def waiting(number: int) -> None:
                while provider.queue_stats().waiting < number:
                    await asyncio.sleep(0.001)

            await waiting(5)  # the other children, and their parent
            second = await stage.begin(other, do("other"))
            await waiting(6)
            model.gates["go"].set()
            await stage.end(turn)
            await stage.end(second)
            after = [request.header("thread-id") for request in model.requests()[2:]]
            assert other in after[:2], "it waits for one of them, not for all"


@pytest.mark.every_wire
async def test_hostile_arguments_are_answered(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        calls = [
            call("spawn_agent", message=3),
            call("spawn_agent", message=" "),
            call("spawn_agent", message="x", items=[]),
            call("spawn_agent", items=[{"type": "nosuch"}]),
            call("spawn_agent", message="x", agent_type="../" * 5000),
            call("spawn_agent", message="x", isolation="chroot"),
            call("wait_agent", targets="x"),
            call("wait_agent", targets=[f"t{number}" for number in range(300)]),
            call("wait_agent", targets=["../../etc"], timeout_ms=-1e300),
            call("send_input", target=None, message="x"),
            call("close_agent", target=thread),
            call("resume_agent", id="\0"),
        ]
        ended = await on.stage.run(thread, do(*calls, "e"))
        assert ended["status"] == "completed"
        outputs = list(on.model.of(thread)[-1].tool_outputs.values())
        assert len(outputs) == len(calls)
        assert all(0 < len(output) < 1_000 and "internal error" not in output for output in outputs), outputs
        begun = [each["params"]["item"]["id"] for each in on.stage.client.told("item/started")]
        over = {each["params"]["item"]["id"] for each in on.stage.client.told("item/completed")}
        assert set(begun) == over
        assert on.spawned == []


def _arguments(chosen: random.Random) -> dict[str, Any]:
    """Members that the tools know, with values that they do not expect."""
    names = ["message", "items", "agent_type", "model", "model_provider", "reasoning_effort", "fork_context", "wake"]
    names += ["isolation", "engine", "target", "targets", "timeout_ms", "interrupt", "id", "query", "url", "start"]
    names += ["type", "text", "path", "name", "image_url", "questions", "plan", "objective", "x"]
    texts = ["", " ", "\0", "x" * 5_000, "../" * 50, "\ud800", "text", "skill", "image", "worker", "explorer", "-1"]
    texts += ["http://127.0.0.1:1/", "file:///etc/passwd", "http://[", "data:image/png;base64,x", "worktree"]

    def value(depth: int) -> Any:
        match chosen.randrange(9 if depth < 3 else 6):
            case 0:
                return chosen.choice([0, -1, 2**31, 10**40, 1e308, 0.5])
            case 1:
                return chosen.choice([None, True, False])
            case 6:
                return [value(depth + 1) for _ in range(chosen.randrange(3))]
            case 7 | 8:
                return {chosen.choice(names): value(depth + 1) for _ in range(chosen.randrange(4))}
        return chosen.choice(texts)

    return {chosen.choice(names): value(0) for _ in range(chosen.randrange(5))}


async def test_any_arguments_are_answered(tmp_path: Path) -> None:
    settings = '[agents]\nengines = ["claude"]\n[tools.web_search]\nendpoint = "http://127.0.0.1:1"\n'
    tools = [f"multi_agent_v1__{name}" for name in ("spawn_agent", "send_input", "close_agent", "resume_agent")]
    tools += ["multi_agent_v1__wait_agent", "web_search", "web_fetch", "request_user_input"]
    chosen = random.Random(26)
    with AgentsModel() as model:
        async with scene(tmp_path, model=model, settings={"web_search": "live"}, extra_toml=settings) as stage:
            thread = await stage.start(sandbox="read-only", approvalPolicy="never")
            calls: list[Any] = [[{"call": name, "args": _arguments(chosen)} for name in tools] for _ in range(60)]
            assert (await stage.run(thread, do(*calls, "e")))["status"] == "completed"
            outputs = list(model.of(thread)[-1].tool_outputs.values())
            assert len(outputs) == len(tools) * len(calls)
            assert all(0 < len(output) < 1_000 and "internal error" not in output for output in outputs)
            items = [each["params"]["item"] for each in stage.client.told("item/started")]
            begun = [item["id"] for item in items if item["type"] in ("collabAgentToolCall", "webSearch")]
            over = [item["id"] for kind in ("collabAgentToolCall", "webSearch") for item in stage.completed(kind)]
            assert sorted(begun) == sorted(over)


async def test_who_unsubscribes_from_the_parent_follows_its_children_no_more(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        await on.stage.run(thread, do(spawn({"hold": "go", "say": "c"}), "e"))
        answer = await on.stage.client.request("thread/unsubscribe", {"threadId": thread})
        assert answer["status"] == "unsubscribed"
        on.model.gates["go"].set()
        idle = {"type": "idle"}
        await on.stage.client.wait_for(
            "thread/status/changed", lambda params: params["threadId"] == on.spawned[0] and params["status"] == idle
        )
        ended = [each["params"]["threadId"] for each in on.stage.client.told("turn/completed")]
        assert on.spawned[0] not in ended


async def test_a_thread_that_is_stored_nowhere_has_children_like_it(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start(ephemeral=True)
        await on.run_waiting(thread, do(spawn({"hold": "go", "say": "c"}), wait("$1"), "e"))
        [waited] = on.calls("wait")
        assert waited["agentsStates"][on.spawned[0]]["message"] == "c"
        kinds = {"sourceKinds": ["vscode", "subAgent"]}
        assert (await on.stage.client.request("thread/list", kinds))["data"] == []
        read = await on.stage.client.request("thread/read", {"threadId": on.spawned[0]})
        assert read["thread"]["ephemeral"] is True


async def test_a_child_that_was_deleted_is_forgotten(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        await on.run_waiting(thread, do(spawn({"hold": "go", "say": "c"}), wait("$1"), "e"))
        [child] = on.spawned
        await on.stage.client.request("thread/delete", {"threadId": child})
        await on.stage.run(thread, do(wait(child), call("send_input", target=child, message="x"), "e"))
        waited, sent = list(on.model.of(thread)[-1].tool_outputs.values())[-2:]
        assert json.loads(waited)["status"] == {child: "not_found"}
        assert sent == f"agent with id {child} not found"


async def test_a_child_that_cannot_begin_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise RpcError(-32600, "no turns today")

    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        start_turn = turn_start.start_turn

        async def only_for_parents(given: Any, *more: Any, **named: Any) -> Any:
            return await (fail if given.state.agent else start_turn)(given, *more, **named)

        monkeypatch.setattr(turn_start, "start_turn", only_for_parents)
        await on.stage.run(thread, do(spawn("c"), "e"))
        [output] = on.model.of(thread)[-1].tool_outputs.values()
        assert output == "collab spawn failed: no turns today"
        [item] = on.calls("spawnAgent")
        assert (item["status"], item["agentsStates"]) == ("failed", {})
        [child] = on.spawned
        gone = await on.stage.client.wait_for("thread/deleted")
        assert gone["params"]["threadId"] == child
        assert (await on.stage.client.request("thread/list", {"parentThreadId": thread}))["data"] == []
        await on.stage.run(thread, do("next"))
        assert notifications(on.model.of(thread)[-1]) == []


@pytest.mark.this_machine
async def test_a_role_has_the_skills_that_it_names(tmp_path: Path) -> None:
    table = '[agents.critic]\ndescription = "Critic"\nskills = ["one", "off"]\n'
    table += '[[skills.config]]\nname = "off"\nenabled = false\n'
    async with agent_scene(tmp_path, table) as on:
        for name in ("one", "two", "off"):
            folder = on.stage.harness.home / "skills" / name
            folder.mkdir(parents=True)
            (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: about {name}\n---\nText.\n")
        thread = await on.stage.start()
        await on.run_waiting(thread, do(spawn({"hold": "go", "say": "done"}, agent_type="critic"), wait("$1"), "e"))
        [child] = on.spawned

        def listed(thread_id: str) -> list[str]:
            text = str(on.model.of(thread_id)[0].json)
            return [name for name in ("one", "two", "off") if f"about {name}" in text]

        assert listed(thread) == ["one", "two"]
        assert listed(child) == ["one"]
