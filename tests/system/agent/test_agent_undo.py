"""What turns have changed in files is put back: what patches and commands did, and nothing that somebody did since."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from kit.agents_model import AgentsModel, do, spawn, wait
from system.agent.scene import Json, Scene, scene
from treadle.agent.thread import file_undo
from treadle.errors import RpcError
from treadle.execution import Version, file_versions
from treadle.testing import ToolCall

pytestmark = [pytest.mark.anyio, pytest.mark.this_machine]
PATCH = """*** Begin Patch
*** Update File: kept.txt
@@
-one
+two
*** Add File: made/deep/new.txt
+new
*** Delete File: gone.txt
*** End Patch
"""


def _files(folder: Path) -> dict[str, bytes | str]:
    """All that is in a folder, links by their text, but git's own."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.startswith(".git/") or (path.is_dir() and not path.is_symlink()):
            continue
        found[name] = str(path.readlink()) if path.is_symlink() else path.read_bytes()
    return found


def _prepare(folder: Path) -> None:
    (folder / "kept.txt").write_text("one\n")
    (folder / "gone.txt").write_text("gone\n")
    (folder / "bytes.bin").write_bytes(bytes(range(256)))
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("kept.txt")


async def _run(stage: Scene, thread: str, *calls: ToolCall) -> str:
    """A turn with these calls; its id."""
    for each in calls:
        stage.model.enqueue_calls(each)
    stage.model.enqueue_assistant_message("done")
    turn = await stage.run(thread)
    assert turn["status"] == "completed", turn
    turn_id: str = turn["id"]
    return turn_id


def _command(text: str, call_id: str = "c1") -> ToolCall:
    return ToolCall("exec_command", {"cmd": text}, call_id)


async def _revert(stage: Scene, thread: str, turn: str, **more: Any) -> Json:
    given = {"threadId": thread, "beforeTurnId": turn, "files": True, **more}
    answer: Json = await stage.client.request("thread/revert", given)
    return answer


def _actions(answer: Json, workspace: Path) -> dict[str, str]:
    assert answer["files"]["unavailable"] is None
    return {os.path.relpath(each["path"], workspace): each["action"] for each in answer["files"]["changes"]}


@pytest.fixture(params=["a repository", "a folder"])
def repository(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "a repository")


def _init_committed(folder: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    commit = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "one"]
    subprocess.run(commit, cwd=folder, check=True)


def _init(folder: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    (folder / ".gitignore").write_text("ignored/\n")
    subprocess.run(["git", "add", "kept.txt"], cwd=folder, check=True)


async def test_what_patches_and_commands_changed_is_put_back(tmp_path: Path, repository: bool) -> None:
    async with scene(tmp_path) as stage:
        _prepare(stage.workspace)
        if repository:
            _init(stage.workspace)
        before = _files(stage.workspace)
        thread = await stage.start()
        shell = "rm bytes.bin link && mv run.sh moved.sh && chmod 644 moved.sh && ln -s gone.txt link && mkdir d"
        turn = await _run(
            stage, thread, ToolCall("apply_patch", {"input": PATCH}, "p"), _command(f"{shell} && echo > d/y")
        )
        assert _files(stage.workspace) != before
        preview = await _revert(stage, thread, turn, preview=True)
        deleted, recreated = ("made/deep/new.txt", "moved.sh", "d/y"), ("gone.txt", "bytes.bin", "run.sh")
        expected = dict.fromkeys(deleted, "delete") | dict.fromkeys(recreated, "recreate")
        expected |= {"kept.txt": "restore", "link": "restore"}
        assert _actions(preview, stage.workspace) == expected
        assert len(await stage.read(thread)) == 1
        assert _files(stage.workspace) != before
        assert _actions(await _revert(stage, thread, turn), stage.workspace) == expected
        assert _files(stage.workspace) == before
        assert (stage.workspace / "run.sh").stat().st_mode & 0o777 == 0o755
        assert not (stage.workspace / "made").exists()
        assert not (stage.workspace / "d").exists()
        assert await stage.read(thread) == []


async def test_files_and_folders_that_changed_places_change_back(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        _prepare(stage.workspace)
        (stage.workspace / "folder").mkdir()
        (stage.workspace / "folder" / "below").write_text("below")
        before = _files(stage.workspace)
        thread = await stage.start()
        shell = "rm gone.txt && mkdir gone.txt && echo > gone.txt/x && rm -r folder && echo > folder"
        await _revert(stage, thread, await _run(stage, thread, _command(shell)))
        assert _files(stage.workspace) == before


async def test_the_files_of_a_repository_in_it_are_never_removed(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        _prepare(stage.workspace)
        _init(stage.workspace)
        inner = stage.workspace / "inner"
        inner.mkdir()
        (inner / "file").write_text("mine")
        _init_committed(inner)
        thread = await stage.start()
        turn = await _run(stage, thread, _command("rm -r inner/.git && echo more >> inner/file"))
        assert _actions(await _revert(stage, thread, turn), stage.workspace)["inner/file"] == "skip"
        assert (inner / "file").read_text() == "mine" + "more\n"


async def test_a_repository_in_it_that_was_changed_is_named(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        _prepare(stage.workspace)
        _init(stage.workspace)
        for name in ("module", "clone"):
            (stage.workspace / name / "deep").mkdir(parents=True)
            (stage.workspace / name / "deep" / "file").write_text("mine")
            _init_committed(stage.workspace / name)
        subprocess.run(["git", "add", "module"], cwd=stage.workspace, check=True, capture_output=True)
        thread = await stage.start()
        turn = await _run(stage, thread, _command("echo more >> kept.txt; git -C module status"))
        assert _actions(await _revert(stage, thread, turn, preview=True), stage.workspace) == {"kept.txt": "restore"}
        first = await _run(stage, thread, _command("echo more >> module/deep/file"))
        await _run(stage, thread, _command("rm clone/deep/file"))
        answer = await _revert(stage, thread, first)
        assert _actions(answer, stage.workspace) == {"module": "skip", "clone": "skip"}
        assert "a repository of its own" in answer["files"]["changes"][0]["reason"]
        assert (stage.workspace / "module" / "deep" / "file").read_text() == "mine" + "more\n"


async def test_what_was_changed_since_stays_and_is_named(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        _prepare(stage.workspace)
        thread = await stage.start()
        turn = await _run(stage, thread, _command("echo 2 > kept.txt; echo 2 > new.txt; rm gone.txt bytes.bin"))
        (stage.workspace / "kept.txt").write_text("mine\n")
        (stage.workspace / "new.txt").write_text("mine too\n")
        (stage.workspace / "gone.txt").write_text("back\n")
        answer = await _revert(stage, thread, turn)
        assert _actions(answer, stage.workspace) == {
            "kept.txt": "skip",
            "new.txt": "skip",
            "gone.txt": "skip",
            "bytes.bin": "recreate",
        }
        assert {each["reason"] for each in answer["files"]["changes"]} == {None, "it was changed since"}
        assert _files(stage.workspace)["kept.txt"] == b"mine\n"
        assert _files(stage.workspace)["gone.txt"] == b"back\n"


async def test_several_turns_go_back_as_far_as_nobody_came_between(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        _prepare(stage.workspace)
        before = _files(stage.workspace)
        thread = await stage.start()
        first = await _run(stage, thread, _command("echo 1 > kept.txt; echo 1 > gone.txt"))
        (stage.workspace / "gone.txt").write_text("between\n")
        await _run(stage, thread, _command("echo 2 > kept.txt; echo 2 > gone.txt", "c2"))
        answer = await _revert(stage, thread, first)
        assert _actions(answer, stage.workspace) == {"kept.txt": "restore", "gone.txt": "restore"}
        assert _files(stage.workspace) == {**before, "gone.txt": b"between\n"}


async def test_a_turn_that_cannot_write_copies_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        _prepare(stage.workspace)
        thread = await stage.start()
        turn = await _run(stage, thread, _command("cat kept.txt"), _command("ls", "c2"))
        await _run(stage, await stage.start(sandbox="read-only"), _command("echo 2 > kept.txt"))
        assert not (stage.harness.home / "undo").exists()
        assert (await _revert(stage, thread, turn))["files"] == {"changes": [], "unavailable": None}


async def test_what_a_command_did_that_was_let_out_of_the_sandbox_is_taken_back(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        _prepare(stage.workspace)
        before = _files(stage.workspace)
        thread = await stage.start(sandbox="read-only", approvalPolicy="on-request")
        stage.model.enqueue_calls(_command("echo 2 > kept.txt"))
        stage.model.enqueue_assistant_message("done")
        turn = await stage.begin(thread)
        stage.client.reply(await stage.asked("item/commandExecution/requestApproval"), {"decision": "accept"})
        assert (await stage.end(turn))["status"] == "completed"
        assert _files(stage.workspace) != before
        await _revert(stage, thread, turn)
        assert _files(stage.workspace) == before


async def test_ignored_files_stay_also_when_they_are_ignored_no_more(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        _prepare(stage.workspace)
        _init(stage.workspace)
        (stage.workspace / "ignored").mkdir()
        (stage.workspace / "ignored" / "mine").write_text("secret")
        thread = await stage.start()
        turn = await _run(stage, thread, _command("echo > .gitignore; echo more >> ignored/mine; echo > ignored/made"))
        answer = await _revert(stage, thread, turn)
        assert _actions(answer, stage.workspace) == {
            ".gitignore": "restore",
            "ignored/mine": "skip",
            "ignored/made": "skip",
        }
        assert _files(stage.workspace)["ignored/mine"] == b"secretmore\n"


async def test_without_copies_nothing_is_reverted_and_why_is_said(tmp_path: Path) -> None:
    async with scene(tmp_path, extra_toml="[features]\nundo = false\n") as stage:
        thread = await stage.start()
        turn = await _run(stage, thread, _command("echo 2 > new.txt"))
        preview = await _revert(stage, thread, turn, preview=True)
        assert preview["files"] == {"changes": [], "unavailable": "features.undo is off"}
        with pytest.raises(RpcError, match=r"features.undo is off") as caught:
            await _revert(stage, thread, turn)
        assert caught.value.data == {"kind": "filesUnavailable"}
        assert len(await stage.read(thread)) == 1
        await stage.client.request("thread/revert", {"threadId": thread, "beforeTurnId": turn})
        assert (stage.workspace / "new.txt").exists()


async def test_a_deleted_thread_leaves_no_copies(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        await _run(stage, thread, _command("echo 2 > new.txt"))
        stored = stage.harness.home / "undo" / "threads" / thread
        assert stored.stat().st_mode & 0o777 == 0o700
        gone = stored.with_name("0199a213-81a0-7e00-8000-00000000000a")
        gone.mkdir()
        await file_undo.forget_missing(str(stage.harness.home), await stage.server.store())
        assert stored.exists()
        assert not gone.exists()
        await stage.client.request("thread/delete", {"threadId": thread})
        assert not stored.exists()


async def test_a_link_in_the_place_of_a_folder_leads_nowhere(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("untouched")
    async with scene(tmp_path) as stage:
        (stage.workspace / "folder").mkdir()
        (stage.workspace / "folder" / "file").write_text("before")
        thread = await stage.start()
        shell = f"echo after > folder/file; echo > folder/new; rm -r folder; ln -s {victim} folder"
        turn = await _run(stage, thread, _command(shell))
        assert _actions(await _revert(stage, thread, turn), stage.workspace) == {
            "folder": "delete",
            "folder/file": "recreate",
        }
        assert _files(stage.workspace) == {"folder/file": b"before"}
        turn = await _run(stage, thread, _command("echo after > folder/file", "c2"))
        (stage.workspace / "folder" / "file").unlink()
        (stage.workspace / "folder").rmdir()
        (stage.workspace / "folder").symlink_to(victim)
        (victim / "file").write_text("after\n")
        answer = await _revert(stage, thread, turn)
        assert _actions(answer, stage.workspace) == {"folder/file": "skip"}
        assert _files(victim) == {"file": b"after\n"}


async def test_what_fails_half_way_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene(tmp_path) as stage:
        _prepare(stage.workspace)
        before = _files(stage.workspace)
        thread = await stage.start()
        turn = await _run(stage, thread, _command("for f in *.txt *.bin; do echo 2 > $f; done; echo > made"))
        left = [2]

        def put_back(path: str, root: str, version: Version | None, content: bytes) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(28, "No space left on device")
            file_versions.put_back(path, root, version, content)

        monkeypatch.setattr(file_undo, "put_back", put_back)
        with pytest.raises(RpcError, match="No space left on device") as caught:
            await _revert(stage, thread, turn)
        assert caught.value.data == {"kind": "filesFailed"}
        assert len(await stage.read(thread)) == 1
        left[0] = 100
        assert len(_actions(await _revert(stage, thread, turn, preview=True), stage.workspace)) == 2
        await _revert(stage, thread, turn)
        assert _files(stage.workspace) == before
        assert await stage.read(thread) == []


async def test_an_interrupted_turn_is_taken_back_and_one_whose_server_died_is_not(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        _prepare(stage.workspace)
        before = _files(stage.workspace)
        thread = await stage.start()
        stage.model.enqueue_calls(_command("echo 2 > kept.txt; echo there; sleep 600"))
        turn = await stage.begin(thread)
        await stage.command_output(thread, "there")
        await stage.interrupt(thread, turn)
        await stage.end(turn)
        with pytest.raises(RpcError, match="turn is in progress"):
            await _during_a_turn(stage, thread, turn)
        stored = stage.harness.home / "undo" / "threads" / thread
        (stored / turn).rename(stored / f"{turn}.begun")
        why = (await _revert(stage, thread, turn, preview=True))["files"]["unavailable"]
        assert why == "the server ended during that turn, so nobody knows what it has changed"
        (stored / f"{turn}.begun").rename(stored / turn)
        await _revert(stage, thread, turn)
        assert _files(stage.workspace) == before


async def _during_a_turn(stage: Scene, thread: str, turn: str) -> None:
    gate = threading.Event()
    stage.model.enqueue_assistant_message("on", gate=gate)
    running = await stage.begin(thread)
    try:
        await _revert(stage, thread, turn, preview=True)
    finally:
        gate.set()
        await stage.end(running)


async def test_copies_that_are_not_there_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_versions, "MAX_FILES", 3)
    async with scene(tmp_path) as stage:
        thread = await stage.start(ephemeral=True)
        turn = await _run(stage, thread, _command("echo 2 > new.txt"))
        preview = await _revert(stage, thread, turn, preview=True)
        assert preview["files"]["unavailable"] == "an ephemeral thread stores nothing"
        assert not (stage.harness.home / "undo").exists()
        thread = await stage.start()
        first = await _run(stage, thread, _command("echo 3 > new.txt"))
        fork = (await stage.client.request("thread/fork", {"threadId": thread}))["thread"]["id"]
        preview = await _revert(stage, fork, first, preview=True)
        assert "forked from; revert it there" in preview["files"]["unavailable"]
        monkeypatch.setattr(file_undo, "MAX_TURNS", 1)
        await _run(stage, thread, _command("echo 4 > new.txt"))
        preview = await _revert(stage, thread, first, preview=True)
        assert "removed to make room" in preview["files"]["unavailable"]
        _prepare(stage.workspace)
        for number in range(2):
            turn = await _run(stage, thread, _command("rm new.txt", f"c{number}"))
            preview = await _revert(stage, thread, turn, preview=True)
            assert preview["files"]["unavailable"].startswith("the folder has more than 3 files")
            monkeypatch.setattr(file_versions, "MAX_FILES", 1000)  # which nobody looks at again so soon


async def test_what_sub_agents_did_is_taken_back_with_the_turn_that_they_worked_for(tmp_path: Path) -> None:
    with AgentsModel() as model:
        async with scene(tmp_path, model=model) as stage:
            _prepare(stage.workspace)
            before = _files(stage.workspace)
            thread = await stage.start()
            child = spawn({"call": "exec_command", "args": {"cmd": "echo 2 > kept.txt"}}, "e")
            turn = await stage.run(thread, do(child, wait("$1"), "e"))
            assert _actions(await _revert(stage, thread, turn["id"]), stage.workspace) == {"kept.txt": "restore"}
            assert _files(stage.workspace) == before
