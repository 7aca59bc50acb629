"""Workspace roots that a client names, and settings that a thread is resumed with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from system.agent.scene import Json, Scene, patch, scene, shell
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


async def test_a_thread_is_resumed_with_other_settings_when_nobody_uses_it(tmp_path: Path) -> None:
    async with scene(tmp_path, settings=SETTINGS, extra_toml=EXTRA) as stage:
        thread = await stage.start()
        assert await _writable(stage, thread) == ["workspace"]
        other = {"permissions": ":read-only"}
        assert (await _resume(stage, thread, **other))["sandbox"]["type"] == "workspaceWrite"
        with pytest.raises(RpcError, match="cannot be combined"):
            await _resume(stage, thread, **other, sandbox="read-only")
        await stage.client.request("thread/unsubscribe", {"threadId": thread})
        assert (await _resume(stage, thread))["sandbox"]["type"] == "workspaceWrite"
        await stage.client.request("thread/unsubscribe", {"threadId": thread})
        assert (await _resume(stage, thread, **other))["sandbox"]["type"] == "readOnly"
        assert await _writable(stage, thread) == []


async def test_a_turn_that_nobody_follows_keeps_its_settings(tmp_path: Path) -> None:
    async with scene(tmp_path, settings=SETTINGS, extra_toml=EXTRA) as stage:
        stage.model.enqueue_function_call("exec_command", shell("sleep 600"), call_id="c1")
        stage.model.enqueue_assistant_message("done")
        thread = await stage.start()
        turn = await stage.begin(thread)
        await stage.client.wait_for("item/started", lambda params: params["item"]["id"] == "c1")
        await stage.client.request("thread/unsubscribe", {"threadId": thread})
        assert (await _resume(stage, thread, sandbox="read-only"))["sandbox"]["type"] == "workspaceWrite"
        await stage.interrupt(thread, turn)
        assert (await stage.end(turn))["status"] == "interrupted"
