"""Hooks from files: trust, projects, the list for clients, `notify`; and that nothing runs which nobody has trusted."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kit.hook_files import trusted
from system.agent.scene import Scene, scene, shell
from system.hooks.hooks_scene import (
    FULL_ACCESS,
    Json,
    command,
    hooked,
    runs,
    says,
    told,
    warnings,
    write_hooks,
)
from treadle.testing import ToolCall

pytestmark = pytest.mark.anyio


async def _turn(stage: Scene, thread: str | None = None, **params: Any) -> str:
    stage.model.enqueue_assistant_message("done")
    thread = thread or await stage.start(**params)
    assert (await stage.run(thread))["status"] == "completed"
    return thread


async def _listed(stage: Scene, **params: object) -> Json:
    (entry,) = (await stage.client.request("hooks/list", params))["data"]
    found: Json = entry
    return found


async def test_what_nobody_has_trusted_does_not_run_and_says_so(tmp_path: Path) -> None:
    note = tmp_path / "note"
    path = write_hooks(tmp_path / "home", {"UserPromptSubmit": [command(says(note=note)), command(says(note=note))]})
    async with scene(tmp_path, settings=FULL_ACCESS) as stage:
        thread = await _turn(stage)
        assert not note.exists()
        (warning,) = [text for text in warnings(stage) if "treadle hooks trust" in text]
        assert str(path) in warning
        assert f"--cd {stage.workspace}" in warning
        await _turn(stage, thread)
        assert [text for text in warnings(stage) if "treadle hooks trust" in text] == [warning]  # once

        # A client trusts it: it counts from the next turn on.
        hook = (await _listed(stage))["hooks"][0]
        assert hook["trustStatus"] == "untrusted"
        edit = {
            "keyPath": "hooks.state",
            "value": {hook["key"]: {"trusted_hash": hook["currentHash"]}},
            "mergeStrategy": "upsert",
        }
        await stage.client.request("config/batchWrite", {"edits": [edit], "reloadUserConfig": True})
        assert (await _listed(stage))["hooks"][0]["trustStatus"] == "trusted"
        await _turn(stage, thread)
        assert len(told(note)) == 1

        # It changes: it does not run any more.
        path.write_text(path.read_text().replace("cat", "CAT", 1).replace("tr -d", "tr  -d", 1))
        await _turn(stage, thread)
        assert len(told(note)) == 1
        assert any("changed since you trusted" in text for text in warnings(stage))
        assert (await _listed(stage))["hooks"][0]["trustStatus"] == "modified"


async def test_one_that_is_switched_off_is_silent(tmp_path: Path) -> None:
    note = tmp_path / "note"
    path = write_hooks(tmp_path / "home", {"UserPromptSubmit": [command(says(note=note))]})
    text = trusted(path) + "enabled = false\n"
    async with scene(tmp_path, settings=FULL_ACCESS, extra_toml=text) as stage:
        await _turn(stage)
        assert not note.exists()
        assert not [text for text in warnings(stage) if "hook" in text]
        assert (await _listed(stage))["hooks"][0]["enabled"] is False


async def test_a_project_gains_nothing_by_its_files(tmp_path: Path) -> None:
    """Its hooks wait for the user, whatever else its files say: also that they are trusted."""
    note = tmp_path / "note"
    project = tmp_path / "workspace" / ".codex"
    project.parent.mkdir()
    path = write_hooks(project, {"UserPromptSubmit": [command(says(note=note))]})
    (project / "config.toml").write_text(
        trusted(path)
        + f'[hooks]\nmax_continuations = 99\n[[hooks.Stop]]\nhooks = [{{type = "command", command = "touch {note}"}}]\n'
    )
    async with scene(tmp_path, settings=FULL_ACCESS) as stage:
        await _turn(stage)
        assert not note.exists()
        listed = (await _listed(stage, cwds=[str(stage.workspace)]))["hooks"]
        assert [(hook["source"], hook["trustStatus"]) for hook in listed] == [("project", "untrusted")] * 2
        assert any("prefer a single representation" in text for text in warnings(stage))


async def test_links_and_foreign_files_of_a_project_are_left_out(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    (workspace / ".codex").mkdir(parents=True)
    (tmp_path / "outside.json").write_text('{"hooks": {"Stop": []}}')
    (workspace / ".codex" / "hooks.json").symlink_to(tmp_path / "outside.json")
    os.mkfifo(workspace / ".codex" / "config.toml")
    async with scene(tmp_path, settings=FULL_ACCESS) as stage:
        await _turn(stage)
        left_out = [text for text in warnings(stage) if "is left out" in text]
        assert len(left_out) == 2


async def test_a_trusted_hook_of_a_project_runs_without_keys_of_providers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-a-project")
    monkeypatch.setenv("SOME_TOKEN", "yes")
    note = tmp_path / "note"
    (tmp_path / "workspace").mkdir()
    text = f"env > {note}"
    theirs = write_hooks(tmp_path / "workspace" / ".codex", {"Stop": [command(text)]})
    mine = write_hooks(tmp_path / "home", {"Stop": [command(text + ".mine")]})
    async with scene(tmp_path, settings=FULL_ACCESS, extra_toml=trusted(theirs) + trusted(mine)) as stage:
        await _turn(stage)
    assert "OPENAI_API_KEY" not in note.read_text()
    assert "SOME_TOKEN" in note.read_text()
    assert "sk-not-for-a-project" in (tmp_path / "note.mine").read_text()


async def test_a_file_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "hooks.json").write_text("{ nothing")
    async with scene(tmp_path, settings=FULL_ACCESS) as stage:
        await _turn(stage)
        (warning,) = [text for text in warnings(stage) if "failed to parse hooks config" in text]
        assert (await _listed(stage))["warnings"] == [warning]


async def test_hooks_of_the_config_file(tmp_path: Path) -> None:
    note = tmp_path / "note"
    text = f'[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "touch {note}"\n'
    async with scene(tmp_path, settings=FULL_ACCESS, extra_toml=text) as stage:
        (hook,) = (await _listed(stage))["hooks"]
        assert hook["sourcePath"] == str(tmp_path / "home" / "config.toml")
        value = {hook["key"]: {"trusted_hash": hook["currentHash"]}}
        edit = {"keyPath": "hooks.state", "value": value, "mergeStrategy": "upsert"}
        await stage.client.request("config/batchWrite", {"edits": [edit]})
        await _turn(stage)
        assert note.exists()
        assert not [text for text in warnings(stage) if "hooks" in text]


async def test_the_list_of_a_thread(tmp_path: Path) -> None:
    async with hooked(tmp_path, {"Stop": [command("true")]}) as stage:
        thread = await stage.start()
        assert [hook["eventName"] for hook in (await _listed(stage, threadId=thread))["hooks"]] == ["stop"]


async def test_notify(tmp_path: Path) -> None:
    program = tmp_path / "notify"
    note = tmp_path / "note"
    program.write_text(f'#!/bin/sh\nprintf %s "$2" > {note}.new && mv {note}.new {note}\n')
    program.chmod(0o755)
    async with scene(tmp_path, settings=FULL_ACCESS, extra_toml="") as stage:
        config = tmp_path / "home" / "config.toml"
        config.write_text(f"notify = {json.dumps([str(program), 'word'])}\n" + config.read_text())
        thread = await _turn(stage)
        while not note.exists():
            await asyncio.sleep(0.01)
        given = json.loads(note.read_text())
        assert given.pop("turn-id")
        assert given == {
            "type": "agent-turn-complete",
            "thread-id": thread,
            "cwd": str(stage.workspace),
            "client": "test",
            "input-messages": ["go"],
            "last-assistant-message": "done",
        }


async def test_a_reviewer_is_guarded_too(tmp_path: Path) -> None:
    async with hooked(tmp_path, {"PreToolUse": [command(says(stderr="no", code=2))]}) as stage:
        stage.model.enqueue_calls(ToolCall("exec_command", shell("touch there"), "c1"))
        stage.model.enqueue_assistant_message("fine")
        thread = await stage.start()
        target = {"type": "custom", "instructions": "look"}
        await stage.client.request("review/start", {"threadId": thread, "target": target})
        await stage.client.wait_for("turn/completed")
        assert not (stage.workspace / "there").exists()
        assert runs(stage) == [("preToolUse", "blocked", [("feedback", "no")])]
