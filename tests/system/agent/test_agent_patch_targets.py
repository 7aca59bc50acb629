"""What a patch writes is what its names led to when it was checked and shown, or nothing."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from system.agent.order import check_thread
from system.agent.scene import Json, Scene, patch, scene, shell
from treadle.agent.thread import authority
from treadle.agent.tools import patch_call
from treadle.execution import PathRule, PinnedFiles, Policy
from treadle.testing import ToolCall

pytestmark = pytest.mark.anyio  # what a wire API may change is tried on each, and the rest on one

ASKED = "item/fileChange/requestApproval"
CONFINED: Json = {"type": "workspaceWrite", "excludeSlashTmp": True, "excludeTmpdirEnvVar": True}
FULL: Json = {"type": "dangerFullAccess"}
VICTIM = "the victim\n"


class Ground:
    """A directory in the workspace, and one outside of it with a file of the same name."""

    def __init__(self, stage: Scene) -> None:
        self.stage = stage
        self.workspace = stage.workspace
        self.sub = stage.workspace / "sub"
        self.outside = stage.workspace.parent / "outside"
        for directory in (self.sub, self.outside):
            directory.mkdir()
        (self.sub / "f").write_text("old\n")
        self.victim = self.outside / "f"
        self.victim.write_text(VICTIM)

    def lead_astray(self) -> None:
        self.sub.rename(self.workspace / "away")
        self.sub.symlink_to(self.outside)

    def check_victim(self, content: str = VICTIM) -> None:
        assert self.victim.read_text() == content
        assert [path.name for path in self.outside.iterdir()] == ["f"]

    def statuses(self) -> list[str]:
        return [item["status"] for item in self.stage.completed("fileChange")]

    def told(self) -> str:
        """What the model heard of the last call."""
        return list(self.stage.model.requests()[-1].tool_outputs.values())[-1]

    async def begin(self, *calls: ToolCall, thread: str | None = None, **params: Any) -> tuple[str, str]:
        self.stage.model.enqueue_calls(*calls)
        self.stage.model.enqueue_assistant_message("done")
        thread = thread or await self.stage.start()
        return thread, await self.stage.begin(thread, **params)


ADD = patch("*** Add File: sub/g", "+mine")
UPDATE = patch("*** Update File: sub/f", "-old", "+new")
DELETE = patch("*** Delete File: sub/f")
MOVE = patch("*** Update File: sub/f", "*** Move to: sub/g", "-old", "+new")


def _call(text: str) -> ToolCall:
    return ToolCall("apply_patch", {"input": text}, None)


def _heredoc(text: str) -> ToolCall:
    return ToolCall("exec_command", shell(f"apply_patch <<'EOF'\n{text}EOF"), None)


@pytest.mark.parametrize("make", [_call, _heredoc], ids=["tool", "heredoc"])
@pytest.mark.parametrize("sandbox", [CONFINED, FULL], ids=["confined", "full"])
@pytest.mark.parametrize("text", [ADD, UPDATE, DELETE, MOVE], ids=["add", "update", "delete", "move"])
async def test_a_directory_swapped_while_the_user_is_asked(
    tmp_path: Path, text: str, sandbox: Json, make: Callable[[str], ToolCall]
) -> None:
    async with scene(tmp_path) as stage:
        ground = Ground(stage)
        thread, turn = await ground.begin(make(text), approvalPolicy="untrusted", sandboxPolicy=sandbox)
        ask = await stage.asked(ASKED)
        ground.lead_astray()
        ground.victim.write_text("old\n")  # so that the content does not give it away
        stage.client.reply(ask, {"decision": "accept"})
        await stage.end(turn)
        ground.check_victim("old\n")
        assert (ground.workspace / "away/f").read_text() == "old\n"
        assert ground.statuses() == ["failed"]
        assert "leads elsewhere now than when it was checked" in ground.told()
        await check_thread(stage, thread)


def _before(operation: str, number: int, swap: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something right before the `number`th call of an operation of the files."""
    inner = getattr(PinnedFiles, operation)
    calls = 0

    def outer(self: PinnedFiles, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            swap()
        return inner(self, *arguments)

    monkeypatch.setattr(PinnedFiles, operation, outer)


@pytest.mark.this_machine
@pytest.mark.parametrize(
    ("text", "operation"),
    [(ADD, "_write"), (UPDATE, "_write"), (DELETE, "_remove"), (MOVE, "_write"), (MOVE, "_remove")],
    ids=["add", "update", "delete", "move-write", "move-remove"],
)
@pytest.mark.parametrize("sandbox", [CONFINED, FULL], ids=["confined", "full"])
async def test_a_directory_swapped_between_the_check_and_the_write(
    tmp_path: Path, text: str, operation: str, sandbox: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(tmp_path) as stage:
        ground = Ground(stage)
        _before(operation, 1, ground.lead_astray, monkeypatch)
        _, turn = await ground.begin(_call(text), approvalPolicy="never", sandboxPolicy=sandbox)
        await stage.end(turn)
        ground.check_victim()
        assert ground.statuses() == ["failed"]
        assert "leads elsewhere now than when it was checked" in ground.told()


@pytest.mark.this_machine
async def test_putting_back_does_not_follow_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first file is written, its directory is swapped, the second write fails: the way back leads nowhere else."""
    async with scene(tmp_path) as stage:
        ground = Ground(stage)
        (ground.workspace / "second").write_text("2\n")

        def swap() -> None:
            ground.lead_astray()
            raise OSError("the disk is full")

        _before("_write", 2, swap, monkeypatch)
        text = patch("*** Update File: sub/f", "-old", "+new", "*** Update File: second", "-2", "+3")
        _, turn = await ground.begin(_call(text), approvalPolicy="never", sandboxPolicy=CONFINED)
        await stage.end(turn)
        ground.check_victim()
        assert ground.statuses() == ["failed"]
        assert "the disk is full; these could not be put back" in ground.told()
        assert str(ground.sub / "f") in ground.told()
        assert (ground.workspace / "second").read_text() == "2\n"


# --- for the session -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("swap", ["file", "directory"])
async def test_a_yes_for_the_session_is_for_the_file_and_not_for_its_name(tmp_path: Path, swap: str) -> None:
    async with scene(tmp_path) as stage:
        ground = Ground(stage)
        stage.client.answer = lambda ask: {"decision": "acceptForSession"}
        thread, turn = await ground.begin(_call(UPDATE), approvalPolicy="untrusted", sandboxPolicy=CONFINED)
        await stage.end(turn)
        assert ground.statuses() == ["completed"]
        if swap == "file":
            (ground.sub / "f").unlink()
            (ground.sub / "f").symlink_to(ground.victim)
        else:
            ground.lead_astray()
        stage.client.answer = lambda ask: {"decision": "decline"}
        again = patch("*** Update File: sub/f", "-the victim", "+mine")
        _, turn = await ground.begin(_call(again), thread=thread)
        await stage.end(turn)
        assert len(stage.client.told(ASKED)) == 2
        assert f"leads to {ground.victim}" in stage.client.told(ASKED)[1]["params"]["reason"]
        assert ground.statuses() == ["completed", "declined"]
        ground.check_victim()
        await check_thread(stage, thread)


async def test_a_yes_for_the_session_lasts_when_the_patch_made_the_directory(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        ground = Ground(stage)
        stage.client.answer = lambda ask: {"decision": "acceptForSession"}
        make = patch("*** Add File: new/deep/f", "+1")
        thread, turn = await ground.begin(_call(make), approvalPolicy="untrusted", sandboxPolicy=CONFINED)
        await stage.end(turn)
        change = patch("*** Update File: new/deep/f", "-1", "+2")
        _, turn = await ground.begin(_call(change), thread=thread)
        await stage.end(turn)
        assert len(stage.client.told(ASKED)) == 1
        assert (ground.workspace / "new/deep/f").read_text() == "2\n"


# --- beyond the sandbox ----------------------------------------------------------------------------------------------


@pytest.mark.every_wire
async def test_a_link_to_the_outside_is_shown_and_written_when_allowed(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        ground = Ground(stage)
        (ground.workspace / "link").symlink_to(ground.outside)
        text = patch("*** Update File: link/f", "-the victim", "+allowed")
        _, turn = await ground.begin(_call(text), approvalPolicy="on-request", sandboxPolicy=CONFINED)
        ask = await stage.asked(ASKED)
        assert ask["params"]["reason"] == (
            f"it writes outside of the sandbox; {ground.workspace}/link/f leads to {ground.victim}"
        )
        stage.client.reply(ask, {"decision": "accept"})
        await stage.end(turn)
        assert ground.victim.read_text() == "allowed\n"
        assert ground.statuses() == ["completed"]


@pytest.mark.parametrize("second", ["another directory", "another file"])
async def test_a_yes_for_the_outside_is_for_what_was_shown(tmp_path: Path, second: str) -> None:
    async with scene(tmp_path) as stage:
        ground = Ground(stage)
        other = tmp_path / "other"
        other.mkdir()
        link = ground.workspace / "link"
        link.symlink_to(other)
        (other / "f").write_text("old\n")
        text = patch("*** Update File: link/f", "-old", "+new")
        _, turn = await ground.begin(_call(text), approvalPolicy="on-request", sandboxPolicy=CONFINED)
        ask = await stage.asked(ASKED)
        ground.victim.write_text("old\n")
        if second == "another directory":
            link.unlink()
            link.symlink_to(ground.outside)
        else:
            (other / "f").unlink()
            (other / "f").symlink_to(ground.victim)
        stage.client.reply(ask, {"decision": "accept"})
        await stage.end(turn)
        assert ground.victim.read_text() == "old\n"
        assert (other / "f").read_text() == "old\n"
        assert ground.statuses() == ["failed"]
        assert "leads elsewhere now" in ground.told()


@pytest.mark.parametrize("name", [".git/hooks/pre-commit", ".treadle/config.toml", ".codex/config.toml"])
async def test_what_carries_orders_is_not_made_where_it_is_missing(tmp_path: Path, name: str) -> None:
    async with scene(tmp_path) as stage:
        ground = Ground(stage)
        call = _call(patch(f"*** Add File: {name}", "+x"))
        _, turn = await ground.begin(call, approvalPolicy="never", sandboxPolicy=CONFINED)
        await stage.end(turn)
        assert ground.statuses() == ["failed"]
        assert sorted(path.name for path in ground.workspace.iterdir()) == ["sub"]


@pytest.mark.this_machine
async def test_a_link_is_deleted_and_not_what_it_leads_to(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        ground = Ground(stage)
        (ground.workspace / "link").symlink_to(ground.victim)
        call = _call(patch("*** Delete File: link"))
        _, turn = await ground.begin(call, approvalPolicy="never", sandboxPolicy=CONFINED)
        await stage.end(turn)
        assert ground.statuses() == ["completed"]
        assert not (ground.workspace / "link").is_symlink()
        ground.check_victim()


# --- reading ---------------------------------------------------------------------------------------------------------


def _hides(path: Path) -> Callable[..., Awaitable[Policy]]:
    async def policy(*_: object) -> Policy:
        return Policy((PathRule("/", "read"), PathRule(os.path.realpath(path), "none")), network=False)

    return policy


@pytest.mark.this_machine
async def test_what_the_sandbox_hides_is_neither_patched_nor_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(tmp_path) as stage:
        ground = Ground(stage)
        for module in (patch_call, authority):
            monkeypatch.setattr(module, "file_policy", _hides(ground.outside))
        (ground.workspace / "link").symlink_to(ground.victim)
        calls = [
            ToolCall("apply_patch", {"input": patch("*** Update File: link", "-guess", "+x")}, "patch"),
            ToolCall("view_image", {"path": "link"}, "link"),
            ToolCall("view_image", {"path": str(ground.victim)}, "image"),
        ]
        _, turn = await ground.begin(*calls, approvalPolicy="never", sandboxPolicy=CONFINED)
        await stage.end(turn)
        outputs = stage.model.requests()[-1].tool_outputs
        for call in ("patch", "link", "image"):
            assert "the sandbox does not allow reading" in outputs[call]
            assert "victim" not in outputs[call].replace(str(ground.victim), "")


@pytest.mark.every_wire
async def test_an_image_is_a_regular_file(tmp_path: Path) -> None:
    async with scene(tmp_path) as stage:
        ground = Ground(stage)
        os.mkfifo(ground.workspace / "fifo")
        _, turn = await ground.begin(ToolCall("view_image", {"path": "fifo"}, None), sandboxPolicy=CONFINED)
        await stage.end(turn)
        assert "not a regular file" in ground.told()
