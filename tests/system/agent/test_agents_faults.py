"""Sub-agents when something comes between: interrupts, deletions, other servers, a busy store, narrower settings."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from kit.agents_model import AgentsModel, call, do, notifications, spawn, wait
from system.agent.scene import Scene, shell
from system.agent.test_agents import NO_TMP, AgentScene, _git, agent_scene
from treadle.agent import Children, NewChild
from treadle.agent.thread import thread as thread_module
from treadle.agent.thread import thread_children, thread_making
from treadle.agent.tools import new_child
from treadle.errors import RpcError
from treadle.execution import Worktrees
from treadle.hooks import HookResult, PythonHook
from treadle.protocol.app import ReadOnlySandboxPolicy
from treadle.server import AppServer, child_threads
from treadle.server.methods import thread_lifecycle
from treadle.store import FILE_NAME
from treadle.testing import AppServerHarness, Usage

pytestmark = pytest.mark.anyio


def _statuses(on: AgentScene, thread: str) -> list[Any]:
    return [each["status"] for each in notifications(on.model.of(thread)[-1])]


def _children(on: AgentScene, thread: str) -> Children:
    loaded = on.stage.server.threads.get(thread)
    assert loaded is not None
    return loaded._thread.children


async def test_an_archived_one_goes_with_those_above_it(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, "[agents]\nmax_depth = 2\n") as on:
        ask = on.stage.client.request
        thread = await on.stage.start()
        await on.stage.run(thread, do(spawn(spawn("cc"), wait("$1"), "c"), wait("$1"), "e"))
        _, below = on.spawned
        await ask("thread/archive", {"threadId": below})
        await ask("thread/delete", {"threadId": thread})
        store = await on.stage.server.store()
        assert [each for each in (thread, *on.spawned) if await store.load(each) is not None] == []


async def test_those_below_are_closed_with_it(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, "[agents]\nmax_depth = 2\n") as on:
        thread = await on.stage.start()
        await on.stage.run(thread, do(spawn(spawn({"hold": "never", "say": "cc"}), "c"), wait("$1"), "e"))
        child, below = on.spawned
        await on.stage.run(thread, do(call("close_agent", target=child), "e"))
        assert on.stage.server.threads.ids() == [thread]
        [turn] = await on.stage.read(below)
        assert turn["status"] == "interrupted"


async def test_a_rollback_closes_what_was_started_and_tells_again_what_was_told(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as on:
        ask = on.stage.client.request
        thread = await on.stage.start()
        await on.stage.run(thread, do(spawn({"hold": "go", "say": "kept"}), "e"))
        on.model.gates["go"].set()
        await on.child_done(on.spawned[0])
        await on.stage.run(thread, do(spawn({"hold": "never", "say": "cut"}), "e"))
        kept, cut = on.spawned
        assert _statuses(on, thread) == [{"completed": "kept"}]
        await ask("thread/rollback", {"threadId": thread, "numTurns": 1})
        await on.child_done(cut)
        await on.stage.run(thread, do(call("send_input", target=cut, message="x"), "e"))
        assert _statuses(on, thread) == [{"completed": "kept"}]
        assert list(on.model.of(thread)[-1].tool_outputs.values())[-1] == f"agent with id {cut} not found"
        await on.stage.run(thread, do("next"))
        assert _statuses(on, thread) == [{"completed": "kept"}]
        assert list(_children(on, thread)._ended) == [kept]


async def test_what_another_server_has_done_is_told(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        await on.run_waiting(thread, do(spawn({"hold": "go", "say": "first"}), wait("$1"), "e"))
        [child] = on.spawned
        async with on.stage.harness.server() as other, on.stage.harness.connect(server=other) as client:
            for each in (thread, child):
                await client.request("thread/resume", {"threadId": each})
            await client.run_turn(thread, do("there"))
            await client.run_turn(child, do("second"))
        await on.stage.run(thread, do("next"))
        assert _statuses(on, thread) == [{"completed": "second"}]


async def test_an_interrupt_before_the_output_is_written_loses_no_end(tmp_path: Path) -> None:
    """A hook looks at the output of `wait_agent`, and the turn is interrupted meanwhile."""
    seen = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def look(_: Any) -> HookResult | None:
        loop.call_soon_threadsafe(seen.set)
        await asyncio.sleep(60)
        return None

    hooks = {"PostToolUse": PythonHook(look, matcher=".*wait_agent", timeout=60)}
    with AgentsModel() as model, AppServerHarness(tmp_path, model=model) as harness:
        async with (
            AppServer(home=harness.home, cwd=str(harness.workspace), hooks=hooks) as server,
            harness.connect(server=server) as client,
        ):
            on = AgentScene(Scene(harness, server, client), model)
            thread = await on.stage.start()
            held = spawn({"hold": "go", "say": "found it"})
            turn = await on.stage.begin(thread, do(held, wait("$1"), "e"))
            await client.wait_for("item/started", lambda params: params["item"].get("tool") == "wait")
            model.gates["go"].set()
            await seen.wait()
            await on.stage.interrupt(thread, turn)
            await on.stage.end(turn)
            await on.stage.run(thread, do("next"))
            assert _statuses(on, thread) == [{"completed": "found it"}]
            await on.stage.run(thread, do("and next"))
            assert len(_statuses(on, thread)) == 1


async def test_an_end_between_the_look_and_the_telling_is_told_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`wait_agent` has found the first end, and the second comes before its output is written."""
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        found = Children.wait

        async def wait_and_talk(self: Children, ids: Any, timeout_s: float) -> Any:
            ends = await found(self, ids, timeout_s)
            await on.stage.run(on.spawned[0], do("second"))
            return ends

        monkeypatch.setattr(Children, "wait", wait_and_talk)
        await on.run_waiting(thread, do(spawn({"hold": "go", "say": "first"}), wait("$1"), "e"))
        await on.stage.run(thread, do("next"))
        assert _statuses(on, thread) == [{"completed": "second"}]


async def test_one_that_ends_while_it_is_to_be_interrupted_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        wanted = Children.send

        async def end_first(self: Children, child_id: str, *more: Any, **named: Any) -> str:
            child = on.stage.server.threads.get(child_id)
            assert child is not None

            async def too_late(_: Any) -> None:
                on.model.gates["go"].set()

            held = type("Held", (), {"id": child_id, "turn_id": child.turn_id, "interrupt": staticmethod(too_late)})
            for name in ("wait_turn", "start_turn", "limit", "spent"):
                setattr(held, name, getattr(child, name))
            find = child_threads.ChildThreads.find
            monkeypatch.setattr(
                child_threads.ChildThreads, "find", lambda self, each: held if each == child_id else find(self, each)
            )
            try:
                return await wanted(self, child_id, *more, **named)
            finally:
                monkeypatch.undo()

        monkeypatch.setattr(Children, "send", end_first)
        again = call("send_input", target="$1", message=do({"hold": "never", "say": "x"}), interrupt=True)
        await on.stage.run(thread, do(spawn({"hold": "go", "say": "just done"}), again, "e"))
        await on.stage.run(thread, do("next"))
        assert _statuses(on, thread) == [{"completed": "just done"}]


async def test_nobody_is_woken_by_a_child_while_it_is_being_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        await on.stage.run(thread, do(spawn({"hold": "go", "say": "c"}, wake=True), "e"))
        [child] = on.spawned
        below = child_threads.stored_below

        async def end_meanwhile(*given: Any) -> Any:
            on.model.gates["go"].set()
            await on.child_done(child)
            await on.stage.client.request("thread/list", {})
            return await below(*given)

        monkeypatch.setattr(thread_lifecycle, "stored_below", end_meanwhile)
        before = len(on.model.of(thread))
        await on.stage.client.request("thread/delete", {"threadId": thread})
        assert len(on.model.of(thread)) == before
        assert not on.stage.server.threads.ids()
        loads = [each for each in on.stage.client.told("turn/started") if each["params"]["threadId"] == thread]
        assert len(loads) == 1


async def test_one_that_was_deleted_is_told_as_gone_and_forgotten(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        await on.stage.run(thread, do(spawn({"hold": "never", "say": "c"}), "e"))
        [child] = on.spawned
        await on.stage.client.request("thread/delete", {"threadId": child})
        await on.stage.run(thread, do("next"))
        assert notifications(on.model.of(thread)[-1]) == [{"agent_path": child, "status": "not_found"}]
        children = _children(on, thread)
        assert (children._open, children._ended, children._asked) == ({}, {}, {})


async def test_those_that_are_opened_again_count_as_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_children, "MAX_OPEN", 1)
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        first = [spawn("a"), wait("$1"), call("close_agent", target="$1")]
        await on.stage.run(thread, do(*first, spawn("b"), wait("$2"), call("resume_agent", id="$1"), "e"))
        refused = list(on.model.of(thread)[-1].tool_outputs.values())[-1]
        assert refused == "collab resume failed: agent thread limit reached: 1 are open; close some"
        await on.stage.run(thread, do(spawn("c"), "e"))
        refused = list(on.model.of(thread)[-1].tool_outputs.values())[-1]
        assert refused == "collab spawn failed: agent thread limit reached: 1 are open; close some"
        # One that somebody has deleted has no place any more.
        await on.stage.client.request("thread/delete", {"threadId": on.spawned[1]})
        await on.stage.run(thread, do(call("resume_agent", id=on.spawned[0]), "e"))
        assert list(_children(on, thread)._open) == [on.spawned[0]]


async def test_an_interrupt_while_a_child_is_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is busy, so what the child begins with is still on its way into it."""
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        other = sqlite3.connect(on.stage.harness.home / FILE_NAME, isolation_level=None)
        made, ids = asyncio.Event(), []
        make_child = thread_making.make_child

        async def make_and_hold(*given: Any) -> Any:
            child = await make_child(*given)
            other.execute("BEGIN IMMEDIATE")
            ids.append(child.id)
            made.set()
            return child

        monkeypatch.setattr(child_threads, "make_child", make_and_hold)
        turn = await on.stage.begin(thread, do(spawn("c"), "e"))
        await made.wait()
        interrupted = asyncio.create_task(on.stage.interrupt(thread, turn))
        await asyncio.wait({interrupted}, timeout=0.3)  # it waits for the store; whatever else is done is done
        other.execute("ROLLBACK")
        other.close()
        await interrupted
        await on.stage.client.wait_for("thread/deleted", lambda params: params["threadId"] == ids[0])
        assert await (await on.stage.server.store()).load(ids[0]) is None
        assert on.stage.server.threads.ids() == [thread]


def _make_repository(on: AgentScene) -> Path:
    workspace = on.stage.workspace
    _git(workspace, "init", "--quiet")
    (workspace / "kept").write_text("old")
    _git(workspace, "add", "kept")
    _git(workspace, "commit", "--quiet", "-m", "first")
    return workspace


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when a worktree was removed that nobody needs."""
    gone = asyncio.Event()
    remove = new_child._remove_worktree

    async def removing(*given: Any) -> None:
        await remove(*given)
        gone.set()

    monkeypatch.setattr(new_child, "_remove_worktree", removing)
    return gone


@pytest.mark.this_machine
async def test_a_child_that_cannot_begin_leaves_no_worktree(
    tmp_path: Path, machine: str, removed: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> Any:
        raise RpcError(-32600, "no more")

    async with agent_scene(tmp_path, NO_TMP) as on:
        workspace = _make_repository(on)
        monkeypatch.setattr(child_threads, "make_child", fail)
        thread = await on.stage.start(sandbox="workspace-write", approvalPolicy="never")
        await on.stage.run(thread, do(spawn("c", isolation="worktree"), "e"))
        await removed.wait()
        assert _git(workspace, "worktree", "list", "--porcelain").count("worktree ") == 1
        assert "agents/" not in _git(workspace, "branch", "--list")


@pytest.mark.this_machine
async def test_an_interrupt_while_a_worktree_is_made_leaves_none(
    tmp_path: Path, removed: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = asyncio.Event()
    folder = Worktrees.folder

    async def make_and_hold(self: Worktrees, branch: str | None = None) -> str:
        await folder(self, branch)
        made.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(Worktrees, "folder", make_and_hold)
    async with agent_scene(tmp_path, NO_TMP) as on:
        workspace = _make_repository(on)
        thread = await on.stage.start(sandbox="workspace-write", approvalPolicy="never")
        turn = await on.stage.begin(thread, do(spawn("c", isolation="worktree"), "e"))
        await made.wait()
        assert _git(workspace, "worktree", "list", "--porcelain").count("worktree ") == 2
        await on.stage.interrupt(thread, turn)
        await removed.wait()
        assert _git(workspace, "worktree", "list", "--porcelain").count("worktree ") == 1
        assert "agents/" not in _git(workspace, "branch", "--list")


async def test_two_agents_that_start_one_at_once_do_not_exceed_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sub-agents work and one more may: the second asks while the one of the first is still being made."""
    refused, made = asyncio.Event(), []
    make_child = thread_making.make_child

    async def make_slowly(server: Any, parent: Any, new: NewChild, *more: Any) -> Any:
        if new.place.depth == 2:
            made.append(new.id)
            await refused.wait()
        return await make_child(server, parent, new, *more)

    monkeypatch.setattr(child_threads, "make_child", make_slowly)
    async with agent_scene(tmp_path, "[agents]\nmax_threads = 3\nmax_depth = 2\n") as on:
        thread = await on.stage.start()
        one = spawn(spawn({"hold": "never", "say": "x"}), "tried")
        await on.stage.run(thread, do(one, one, "e"))
        await on.stage.client.wait_for("item/completed", lambda params: params["item"].get("status") == "failed")
        refused.set()
        for child in on.spawned[:2]:
            await on.child_done(child)
        answers = [str(on.model.of(child)[-1].tool_outputs) for child in on.spawned[:2]]
        assert sum("agent thread limit reached" in each for each in answers) == 1
        assert len(made) == 1


async def test_what_another_server_does_with_a_child_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_children, "LOOK_S", 0.02)
    monkeypatch.setattr(thread_module, "CLAIM_GRACE_S", 0.0)  # what others did is looked for when the thread is claimed
    async with agent_scene(tmp_path) as on:
        thread = await on.stage.start()
        await on.run_waiting(thread, do(spawn({"hold": "go", "say": "first"}), wait("$1"), "e"))
        [child] = on.spawned
        async with on.stage.harness.server() as other, on.stage.harness.connect(server=other) as client:
            await client.request("thread/resume", {"threadId": child})
            text = {"type": "text", "text": do({"hold": "there", "say": "second"})}
            await client.request("turn/start", {"threadId": child, "input": [text]})
            await client.wait_for("turn/started")
            turn = await on.stage.begin(thread, do(wait(child), "e"))
            await on.stage.client.wait_for(
                "item/started", lambda params: (params["turnId"], params["item"].get("tool")) == (turn, "wait")
            )
            on.model.gates["there"].set()
            await on.stage.end(turn)
        output = list(on.model.of(thread)[-1].tool_outputs.values())[-1]
        assert "second" in output


async def test_a_child_keeps_no_more_than_its_parent_has(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, NO_TMP) as on:
        ask = on.stage.client.request
        thread = await on.stage.start(sandbox="workspace-write", approvalPolicy="never")
        write = {"call": "exec_command", "args": {"cmd": "echo x > made", "login": False}}
        await on.stage.run(thread, do(spawn({"hold": "go", "say": "c"}), "e"))
        [child] = on.spawned
        await on.stage.run(thread, do(call("send_input", target=child, message=do(write, "tried")), "e"))
        read_only = {"type": "readOnly", "networkAccess": False}
        await ask("thread/settings/update", {"threadId": thread, "sandboxPolicy": read_only})
        changed = await on.stage.client.wait_for("thread/settings/updated", lambda params: params["threadId"] == child)
        assert changed["params"]["threadSettings"]["sandboxPolicy"] == read_only
        on.model.gates["go"].set()
        await on.child_done(child)
        assert not (on.stage.workspace / "made").exists()
        # Also one that was not in memory then; and it does not get back by itself what was taken.
        await ask("thread/settings/update", {"threadId": thread, "sandboxPolicy": {"type": "dangerFullAccess"}})
        more = call("send_input", target=child, message=do(write, "tried"))
        await on.stage.run(thread, do(more, wait(child), "e"))
        assert not (on.stage.workspace / "made").exists()


async def test_one_that_was_not_in_memory_is_limited_when_it_is_given_something(tmp_path: Path) -> None:
    async with agent_scene(tmp_path, NO_TMP) as on:
        ask = on.stage.client.request
        thread = await on.stage.start(sandbox="workspace-write", approvalPolicy="on-request")
        await on.stage.run(thread, do(spawn("c"), wait("$1"), "e"))
        [child] = on.spawned
        await on.stage.server.agents.close(child)
        read_only = {"type": "readOnly", "networkAccess": False}
        changes = {"sandboxPolicy": read_only, "approvalPolicy": "untrusted"}
        await ask("thread/settings/update", {"threadId": thread, **changes})
        await on.stage.run(thread, do(call("send_input", target=child, message=do("c")), wait(child), "e"))
        loaded = on.stage.server.threads.get(child)
        assert loaded is not None
        assert isinstance(loaded.settings.sandbox, ReadOnlySandboxPolicy)
        assert loaded.settings.approval_policy == "untrusted"


async def test_a_guard_denies_the_command_of_a_child(tmp_path: Path) -> None:
    told: list[tuple[str, Any]] = []

    def guard(given: Any) -> HookResult | None:
        told.append((given.session_id, given.tool_input))
        return HookResult(block="not in this house") if "made" in str(given.tool_input) else None

    hooks = {"PreToolUse": PythonHook(guard, matcher="Bash", guard=True)}
    with AgentsModel() as model, AppServerHarness(tmp_path, model=model) as harness:
        async with (
            AppServer(home=harness.home, cwd=str(harness.workspace), hooks=hooks) as server,
            harness.connect(server=server) as client,
        ):
            on = AgentScene(Scene(harness, server, client), model)
            thread = await on.stage.start()
            write = {"call": "exec_command", "args": {"cmd": "echo x > made", "login": False}}
            await on.stage.run(thread, do(spawn(write, "c"), wait("$1"), "e"))
            [child] = on.spawned
            [output] = model.of(child)[-1].tool_outputs.values()
            assert output.startswith("Command blocked by PreToolUse hook: not in this house")
            assert not (harness.workspace / "made").exists()
            assert told == [(thread, {"command": "echo x > made"})]


async def test_a_thread_stays_in_memory_while_a_sub_agent_works_for_it(tmp_path: Path) -> None:
    """Its limit holds for the sub-agent also when nobody follows either of them."""
    async with agent_scene(tmp_path, usage=Usage(input_tokens=9, output_tokens=1)) as on:
        threads = on.stage.server.threads
        thread = await on.stage.start(maxThreadTokens=30, sandbox="danger-full-access", approvalPolicy="never")
        held = {"call": "exec_command", "args": shell("until [ -e go ]; do sleep 0.01; done")}
        await on.stage.run(thread, do(spawn(held, "never said"), "e"))
        [child] = on.spawned
        await on.stage.client.request("thread/unsubscribe", {"threadId": thread})
        await threads.unload_idle(2**62)
        assert set(threads.ids()) == {thread, child}
        (on.stage.workspace / "go").touch()
        working = threads.get(child)
        assert working is not None
        await working.wait_turn()
        [turn] = await on.stage.read(child)
        assert turn["error"]["message"].startswith(f"This thread works for {thread}. The thread is at its limit")
        while threads.ids():  # what follows an end is done in the background
            await threads.unload_idle(2**62)
            await asyncio.sleep(0.001)


async def test_a_thread_that_is_not_in_memory_is_woken(tmp_path: Path) -> None:
    async with agent_scene(tmp_path) as on:
        threads = on.stage.server.threads
        thread = await on.stage.start()
        await on.run_waiting(thread, do(spawn({"hold": "go", "say": "first"}, wake=True), wait("$1"), "e"))
        [child] = on.spawned
        await on.stage.client.request("thread/unsubscribe", {"threadId": thread})
        await threads.unload_idle(2**62)
        assert threads.ids() == []
        before = len(on.model.of(thread))
        await on.stage.client.request("thread/resume", {"threadId": child})
        await on.stage.run(child, do("second"))
        while len(on.model.of(thread)) == before:
            await asyncio.sleep(0.001)
        assert _statuses(on, thread) == [{"completed": "second"}]
