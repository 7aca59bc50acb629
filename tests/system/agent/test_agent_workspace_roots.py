"""Workspace roots that a client names, and settings that a thread is resumed with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from system.agent.scene import Json, Scene, gate, patch, scene, shell
from treadle.errors import RpcError

pytestmark = pytest.mark.anyio

SETTINGS = {"sandbox_mode": "workspace-write"}
# The folders of the test are below /tmp.
EXTRA = "[sandbox_workspace_write]\nexclude_slash_tmp = true\nexclude_tmpdir_env_var = true\n"


async def _writable(stage: Scene, thread: str, **params: Any) -> list[str]:
    """Which of the two folders a command of the next turn can write."""
    other = _other(stage)
    line = f"for d in {stage.workspace} {other}; do if (echo x > $d/x) 2>/dev/null; then echo $d; fi; done"
    stage.model.enqueue_function_call("exec_command", shell(line), call_id="c1")
    stage.model.enqueue_assistant_message("done")
    assert (await stage.run(thread, **params))["status"] == "completed"
    names = {str(stage.workspace): "workspace", str(other): "other"}
    item = stage.completed("commandExecution")[-1]
    assert item["exitCode"] == 0
    return [names[word] for word in (item["aggregatedOutput"] or "").split()]


def _other(stage: Scene) -> Path:
    other = stage.workspace.parent / "other"
    other.mkdir(exist_ok=True)
    return other


async def _resume(stage: Scene, thread: str, **params: Any) -> Json:
    return await stage.client.request("thread/resume", {"threadId": thread, **params})


async def test_commands_and_patches_write_below_the_roots_alone(tmp_path: Path) -> None:
    async with scene(tmp_path, settings=SETTINGS, extra_toml=EXTRA) as stage:
        other = str(_other(stage))
        thread = await stage.start()
        assert await _writable(stage, thread) == ["workspace"]
        assert await _writable(stage, thread, runtimeWorkspaceRoots=[str(stage.workspace), other]) == [
            "workspace",
            "other",
        ]
        assert await _writable(stage, thread, runtimeWorkspaceRoots=[other]) == ["other"]
        stage.model.enqueue_custom_call("apply_patch", patch("*** Add File: made", "+made"), call_id="p1")
        stage.model.enqueue_assistant_message("done")
        await stage.run(thread)
        assert not (stage.workspace / "made").exists()
        assert await _writable(stage, thread, runtimeWorkspaceRoots=[]) == []


async def test_the_roots_are_kept_with_the_thread(tmp_path: Path) -> None:
    async with scene(tmp_path, settings=SETTINGS, extra_toml=EXTRA) as stage:
        other = str(_other(stage))
        thread = await stage.start(runtimeWorkspaceRoots=[other, f"{other}/"])
        assert await _writable(stage, thread) == ["other"]
    async with scene(tmp_path, settings=SETTINGS, extra_toml=EXTRA) as stage:
        assert (await _resume(stage, thread))["runtimeWorkspaceRoots"] == [other]
        assert await _writable(stage, thread) == ["other"]


async def test_a_fork_has_the_roots_of_its_source_or_its_own(tmp_path: Path) -> None:
    async with scene(tmp_path, settings=SETTINGS, extra_toml=EXTRA) as stage:
        workspace, other = str(stage.workspace), str(_other(stage))
        thread = await stage.start(runtimeWorkspaceRoots=[other])
        assert await _writable(stage, thread) == ["other"]
        for given, root in (({}, other), ({"runtimeWorkspaceRoots": [workspace]}, workspace)):
            fork = await stage.client.request("thread/fork", {"threadId": thread, **given})
            assert fork["runtimeWorkspaceRoots"] == [root]
            assert await _writable(stage, fork["thread"]["id"]) == [Path(root).name]


async def test_roots_that_are_no_paths_are_refused(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        for method, params in (
            ("thread/start", {}),
            ("thread/fork", {"threadId": thread}),
            ("turn/start", {"threadId": thread, "input": [{"type": "text", "text": "go"}]}),
        ):
            with pytest.raises(RpcError, match="must be absolute paths, which 'here' is not"):
                await stage.client.request(method, {**params, "runtimeWorkspaceRoots": ["here"]})


async def test_a_thread_in_memory_is_resumed_with_other_settings(tmp_path: Path) -> None:
    """Whether somebody follows it or not, who does is told, and they stay with the thread."""
    async with scene(tmp_path, settings=SETTINGS, extra_toml=EXTRA) as stage:
        other = str(_other(stage))
        thread = await stage.start()
        assert await _writable(stage, thread) == ["workspace"]
        assert (await _resume(stage, thread, permissions=":read-only"))["sandbox"]["type"] == "readOnly"
        told = stage.client.told("thread/settings/updated")[-1]["params"]["threadSettings"]
        assert told["activePermissionProfile"]["id"] == ":read-only"
        assert await _writable(stage, thread) == []
        await stage.client.request("thread/unsubscribe", {"threadId": thread})
        answer = await _resume(stage, thread, sandbox="workspace-write", runtimeWorkspaceRoots=[other])
        assert (answer["sandbox"]["type"], answer["runtimeWorkspaceRoots"]) == ("workspaceWrite", [other])
        assert await _writable(stage, thread) == ["other"]
        assert (await _resume(stage, thread))["runtimeWorkspaceRoots"] == [other]
    async with scene(tmp_path, settings=SETTINGS, extra_toml=EXTRA) as stage:
        assert (await _resume(stage, thread))["runtimeWorkspaceRoots"] == [other]


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"permissions": ":read-only", "sandbox": "read-only"}, "cannot be combined"),
        ({"permissions": "gone"}, "`gone` is no permission profile"),
        ({"modelProvider": "gone"}, "model provider `gone` not found"),
        ({"runtimeWorkspaceRoots": ["here"]}, "must be absolute paths"),
    ],
)
async def test_settings_that_cannot_be_had_are_refused_for_a_thread_in_memory_too(
    tmp_path: Path, params: Json, problem: str
) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        before = await _resume(stage, thread)
        with pytest.raises(RpcError, match=problem):
            await _resume(stage, thread, **params)
        assert await _resume(stage, thread) == before


async def test_a_thread_is_resumed_while_a_turn_runs(tmp_path: Path) -> None:
    """With what a turn/start would change at that moment, too; what the turn began with is refused."""
    async with scene(tmp_path, settings=SETTINGS, extra_toml=EXTRA) as stage:
        opened = gate()
        stage.model.enqueue_assistant_message("first", gate=opened)
        stage.model.enqueue_assistant_message("second")
        thread = await stage.start(developerInstructions="be kind")
        turn = await stage.begin(thread)
        assert (await _resume(stage, thread, sandbox="read-only"))["sandbox"]["type"] == "readOnly"
        assert await _resume(stage, thread, developerInstructions="be kind")  # that is nothing new
        for params in ({"developerInstructions": "be terse"}, {"baseInstructions": "x"}, {"config": {"model": "y"}}):
            with pytest.raises(RpcError, match=f"has a turn running, during which {next(iter(params))} cannot"):
                await _resume(stage, thread, **params)
        opened.set()
        await stage.end(turn)
        await _resume(stage, thread, developerInstructions="be terse")
        await stage.run(thread)
        first, second = ("\n".join(request.input_texts("developer")) for request in stage.model.requests())
        assert ("be kind" in first, "be terse" in first) == (True, False)
        assert ("be kind" in second, "be terse" in second) == (False, True)
