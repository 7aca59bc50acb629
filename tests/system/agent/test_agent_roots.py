"""What a thread may write is settled when it gets its directories, and its home is out of reach; on both mechanisms."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from system.agent.scene import Json, Scene, patch, scene, shell
from treadle.execution import UNPROTECTED, Mechanism
from treadle.testing import ToolCall

pytestmark = [pytest.mark.anyio, pytest.mark.this_machine]

CONFINED: Json = {"type": "workspaceWrite", "excludeSlashTmp": True, "excludeTmpdirEnvVar": True}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A writable directory with a workspace in it, which has another writable directory in it; and a victim beside."""
    (tmp_path / "base/ws/out").mkdir(parents=True)
    (tmp_path / "victim").mkdir()
    return tmp_path / "base"


async def run(stage: Scene, thread: str, cmd: str, **params: Any) -> str:
    """A turn with one command that nobody is asked about; what the model is told of it."""
    given = shell(cmd, **({"workdir": params.pop("workdir")} if "workdir" in params else {}))
    stage.model.enqueue_calls(ToolCall("exec_command", given, None))
    stage.model.enqueue_assistant_message("done")
    await stage.run(thread, approvalPolicy="never", **params)
    return list(stage.model.requests()[-1].tool_outputs.values())[-1]


def roots(base: Path) -> Json:
    return {**CONFINED, "writableRoots": [str(base), str(base / "ws/out")]}


SWAPS = {
    "the working directory": ("cd ..; mv ws old; ln -s {victim} ws", "echo x > escaped"),
    "a root below it": ("rmdir out || mv out old; ln -s {victim} out", "echo x > out/escaped"),
}


@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize("resent", [False, True], ids=["once", "with every turn"])
async def test_two_commands_do_not_lead_out(
    tmp_path: Path, base: Path, mechanism: Mechanism, swap: str, resent: bool
) -> None:
    first, second = SWAPS[swap]
    settings = {"cwd": str(base / "ws"), "sandboxPolicy": roots(base)}
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        await run(stage, thread, first.format(victim=tmp_path / "victim"), **settings)
        told = await run(stage, thread, second, **(settings if resent else {}))
        assert list((tmp_path / "victim").iterdir()) == []
        if mechanism == "landlock":  # there the swap itself cannot be stopped
            assert f"leads to '{tmp_path}/victim" in told
            assert "start a new thread" in told
        else:
            assert (base / "ws").is_dir()
            assert (base / "ws/out").is_dir()


@pytest.mark.parametrize("way", ["resume", "fork"])
async def test_a_swap_is_noticed_after_a_restart(tmp_path: Path, base: Path, mechanism: Mechanism, way: str) -> None:
    settings = {"cwd": str(base / "ws"), "sandboxPolicy": roots(base)}
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        await run(stage, thread, "true", **settings)
    (base / "ws").rename(base / "old")
    (base / "ws").symlink_to(tmp_path / "victim")
    async with scene(tmp_path) as stage:
        answer = await stage.client.request(f"thread/{way}", {"threadId": thread, "cwd": str(base / "ws")})
        told = await run(stage, answer["thread"]["id"], "echo x > escaped")
        assert "leads to" in told
        assert list((tmp_path / "victim").iterdir()) == []
        fresh = await stage.start(cwd=str(base / "ws"))  # a new thread takes what is there
        assert "exit" in (await run(stage, fresh, "echo x > here", sandboxPolicy=CONFINED)).lower()
        assert (tmp_path / "victim/here").exists()


async def test_another_directory_of_the_same_name_is_another_directory(
    tmp_path: Path, base: Path, mechanism: Mechanism
) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start(cwd=str(base / "ws"))
        await run(stage, thread, "true", sandboxPolicy=CONFINED)
        (base / "ws").rename(base / "old")
        (base / "ws").mkdir()
        assert "is not the directory any more" in await run(stage, thread, "echo x > in")
        assert list((base / "ws").iterdir()) == []


async def test_a_missing_root_is_not_taken_for_a_link_that_comes_later(
    tmp_path: Path, base: Path, mechanism: Mechanism
) -> None:
    missing = base / "later"
    policy = {**CONFINED, "writableRoots": [str(missing)]}
    async with scene(tmp_path) as stage:
        thread = await stage.start(cwd=str(base / "ws"))
        await run(stage, thread, "true", sandboxPolicy=policy)
        missing.symlink_to(tmp_path / "victim")
        assert "leads to" in await run(stage, thread, f"echo x > {missing}/escaped")
        missing.unlink()
        missing.mkdir()
        await run(stage, thread, f"echo x > {missing}/in")
        assert (missing / "in").exists()
        assert list((tmp_path / "victim").iterdir()) == []


async def test_a_link_that_a_command_could_replace_is_no_root(tmp_path: Path, base: Path, mechanism: Mechanism) -> None:
    (base / "ws/link").symlink_to(tmp_path / "victim")
    policy = {**CONFINED, "writableRoots": [str(base / "ws/link")]}
    async with scene(tmp_path) as stage:
        thread = await stage.start(cwd=str(base / "ws"))
        assert "which a command could replace" in await run(
            stage, thread, "echo x > link/escaped", sandboxPolicy=policy
        )
        assert list((tmp_path / "victim").iterdir()) == []


async def test_the_temporary_directory_is_settled_too(
    tmp_path: Path, base: Path, mechanism: Mechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    (base / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(base / "tmp"))
    policy = {"type": "workspaceWrite", "excludeSlashTmp": True}
    async with scene(tmp_path) as stage:
        thread = await stage.start(cwd=str(base / "ws"))
        await run(stage, thread, "echo x > $TMPDIR/in", sandboxPolicy=policy)
        assert (base / "tmp/in").exists()
        (base / "tmp").rename(base / "old")
        (base / "tmp").symlink_to(tmp_path / "victim")
        assert "leads to" in await run(stage, thread, "echo x > $TMPDIR/escaped")
        assert list((tmp_path / "victim").iterdir()) == []


async def test_a_link_as_workdir_opens_nothing(tmp_path: Path, base: Path, mechanism: Mechanism) -> None:
    (base / "ws/link").symlink_to(tmp_path / "victim")
    async with scene(tmp_path) as stage:
        thread = await stage.start(cwd=str(base / "ws"))
        await run(stage, thread, "echo x > escaped", sandboxPolicy=CONFINED, workdir="link")
        assert list((tmp_path / "victim").iterdir()) == []


# --- the home --------------------------------------------------------------------------------------------------------

STEAL = "cat {home}/config.toml {home}/auth.json; echo 'sandbox_mode = \"danger-full-access\"' > {home}/config.toml"


def _furnish(home: Path) -> None:
    (home / "auth.json").write_text("secret")
    (home / "skills").mkdir()
    (home / "skills/one").write_text("a skill")
    (home / "AGENTS.md").write_text("an order")


@pytest.mark.parametrize("policy", [CONFINED, {"type": "readOnly"}], ids=["workspaceWrite", "readOnly"])
async def test_the_home_is_out_of_reach(tmp_path: Path, base: Path, mechanism: Mechanism, policy: Json) -> None:
    async with scene(tmp_path) as stage:
        home = stage.harness.home
        _furnish(home)
        settings = (home / "config.toml").read_text()
        thread = await stage.start(cwd=str(base / "ws"))
        told = await run(stage, thread, STEAL.format(home=home), sandboxPolicy=policy)
        assert "secret" not in told
        assert "mock_provider" not in told
        told = await run(stage, thread, f"cat {home}/skills/one {home}/AGENTS.md; echo x >> {home}/AGENTS.md")
        assert "a skill" in told
        assert "an order" in told
        assert (home / "AGENTS.md").read_text() == "an order"
        assert (home / "config.toml").read_text() == settings


async def test_the_home_in_a_writable_root_is_protected_or_the_command_refused(
    tmp_path: Path, mechanism: Mechanism
) -> None:
    async with scene(tmp_path) as stage:
        home = stage.harness.home
        _furnish(home)
        settings = (home / "config.toml").read_text()
        thread = await stage.start(cwd=str(tmp_path))
        attack = STEAL.format(home="home") + "; mv home h; rm -r home; echo x > in"
        told = await run(stage, thread, attack, sandboxPolicy=CONFINED)
        assert (home / "config.toml").read_text() == settings
        assert (home / "auth.json").read_text() == "secret"
        assert "secret" not in told
        if mechanism == "landlock":
            assert "install bubblewrap" in told
        assert (tmp_path / "in").exists() is (mechanism == "bubblewrap")


async def test_a_workspace_in_the_home_works(tmp_path: Path, mechanism: Mechanism) -> None:
    async with scene(tmp_path) as stage:
        home = stage.harness.home
        (home / "work/ws").mkdir(parents=True)
        _furnish(home)
        for policy in (CONFINED, {"type": "readOnly"}):
            thread = await stage.start(cwd=str(home / "work/ws"))
            told = await run(stage, thread, "echo x > in; ls; cat ../../auth.json", sandboxPolicy=policy)
            assert "in" in told.split()
            assert "secret" not in told
        refused = await stage.start(cwd=str(home))
        assert "is the home of Treadle itself" in await run(stage, refused, "true", sandboxPolicy=CONFINED)


async def test_a_root_in_the_home_does_not_open_its_instructions(
    tmp_path: Path, base: Path, bubblewrap: Mechanism
) -> None:
    async with scene(tmp_path) as stage:
        home = stage.harness.home
        _furnish(home)
        policy = {**CONFINED, "writableRoots": [str(home), str(home / "skills"), str(home / "config.toml")]}
        thread = await stage.start(cwd=str(base / "ws"))
        attack = f"echo x > {home}/skills/one; echo x > {home}/new; {STEAL.format(home=home)}"
        assert "secret" not in await run(stage, thread, attack, sandboxPolicy=policy)
        assert (home / "skills/one").read_text() == "a skill"
        assert not (home / "new").exists()


async def test_a_link_to_the_home_cannot_be_swapped(tmp_path: Path, mechanism: Mechanism) -> None:
    home = tmp_path / "home"
    (tmp_path / "real").mkdir()
    home.symlink_to("real")
    async with scene(tmp_path) as stage:
        assert stage.harness.home == home
        thread = await stage.start(cwd=str(tmp_path))
        told = await run(stage, thread, "rm home; mkdir home", sandboxPolicy=CONFINED)
        assert "found through the symbolic link" in told
        assert home.is_symlink()


async def test_a_patch_does_not_reach_the_home_or_a_replaced_root(tmp_path: Path, mechanism: Mechanism) -> None:
    async with scene(tmp_path) as stage:
        home, ws = stage.harness.home, tmp_path / "ws"
        _furnish(home)
        ws.mkdir()
        for cwd, target in ((tmp_path, "home/AGENTS.override.md"), (ws, "made")):
            thread = await stage.start(cwd=str(cwd))
            await run(stage, thread, "true", sandboxPolicy=CONFINED)
            if cwd == ws:
                ws.rename(tmp_path / "old")
                ws.symlink_to("workspace")
            text = patch(f"*** Add File: {target}", "+x")
            stage.model.enqueue_calls(ToolCall("apply_patch", {"input": text}, None))
            stage.model.enqueue_assistant_message("done")
            await stage.run(thread, approvalPolicy="never")
        # The second is refused before it is an item: there is no directory that its name could be resolved in.
        assert [item["status"] for item in stage.completed("fileChange")] == ["failed"]
        *_, told = stage.model.requests()[-1].tool_outputs.values()
        assert told.startswith("the patch was not applied: sandbox: ")
        assert not (home / "AGENTS.override.md").exists()
        assert list(stage.workspace.iterdir()) == []


# --- what git takes orders from --------------------------------------------------------------------------------------


async def test_missing_names_cannot_be_made_and_leave_nothing(
    tmp_path: Path, base: Path, bubblewrap: Mechanism
) -> None:
    attack = "; ".join(f"mkdir -p {name}/hooks; echo x > {name}/config" for name in (".git", ".codex", ".treadle"))
    async with scene(tmp_path) as stage:
        thread = await stage.start(cwd=str(base / "ws"))
        await run(stage, thread, f"{attack}; git init .; echo x > in", sandboxPolicy=CONFINED)
        assert sorted(os.listdir(base / "ws")) == ["in", "out"]


async def test_what_is_behind_a_git_file_is_protected(tmp_path: Path, base: Path, bubblewrap: Mechanism) -> None:
    shared = base / "main/.git"
    (shared / "worktrees/ws").mkdir(parents=True)
    (shared / "worktrees/ws/commondir").write_text("../..\n")
    (base / "ws/.git").write_text("gitdir: ../main/.git/worktrees/ws\n")
    attack = (
        "echo x > ../main/.git/config; echo x > ../main/.git/worktrees/ws/config; echo x > .git; rm .git; mv ../main m"
    )
    async with scene(tmp_path) as stage:
        thread = await stage.start(cwd=str(base / "ws"))
        policy = {**CONFINED, "writableRoots": [str(base)]}
        await run(stage, thread, f"{attack}; echo x > ../main/in", sandboxPolicy=policy)
        assert (base / "main/in").exists()
        assert sorted(os.listdir(shared)) == ["worktrees"]
        assert os.listdir(shared / "worktrees/ws") == ["commondir"]
        assert (base / "ws/.git").read_text().startswith("gitdir")


async def test_a_git_file_opens_nothing(tmp_path: Path, bubblewrap: Mechanism) -> None:
    async with scene(tmp_path) as stage:
        _furnish(stage.harness.home)
        (tmp_path / ".git").write_text("gitdir: home/auth.json\n")
        thread = await stage.start(cwd=str(tmp_path))
        assert "secret" not in await run(stage, thread, "cat home/auth.json", sandboxPolicy=CONFINED)


@pytest.mark.parametrize("name", [".git", ".codex"])
@pytest.mark.parametrize(
    ("links", "end"),
    [
        ({"{name}": "../store"}, "../store"),
        ({"{name}": "sub/store"}, "sub/store"),
        ({"{name}": "sub/link", "sub/link": "store"}, "sub/store"),
        ({"{name}": "sub/missing/too"}, None),
        ({"{name}": "../missing"}, None),
    ],
)
async def test_a_link_is_protected_with_what_it_leads_to(
    tmp_path: Path, base: Path, bubblewrap: Mechanism, name: str, links: dict[str, str], end: str | None
) -> None:
    ws = base / "ws"
    for folder in (base / "store", ws / "sub", ws / "sub/store", ws / "evil"):
        folder.mkdir()
        (folder / "config").write_text("good")
    for link, target in links.items():
        (ws / link.format(name=name)).symlink_to(target)
    script = f"""
    for path in {name} sub/link; do rm $path; mv $path moved; ln -sfn evil $path; mv -T evil $path; done
    mv sub elsewhere; mkdir sub; mkdir -p sub/missing/too
    echo evil > {name}/config; echo evil > {end or name}/config; echo evil > {name}/new
    cat /proc/self/status | grep -E 'Cap(Prm|Eff|Bnd|Amb)'; touch made
    """
    async with scene(tmp_path) as stage:
        thread = await stage.start(cwd=str(ws))
        told = await run(stage, thread, script, sandboxPolicy=CONFINED)
        assert told.count("0000000000000000") == 4, told
    assert (ws / "made").exists()
    assert {link: os.readlink(ws / link.format(name=name)) for link in links} == links
    if end is None:
        assert not (ws / name).exists()
    else:
        assert (os.listdir(ws / name), (ws / name / "config").read_text()) == (["config"], "good")


@pytest.mark.parametrize(("target", "reason"), [(".git", "circle of symbolic links"), ("..", "commands may write")])
async def test_a_link_that_cannot_be_protected_is_refused(
    tmp_path: Path, base: Path, bubblewrap: Mechanism, target: str, reason: str
) -> None:
    (base / "ws/.git").symlink_to(target)
    async with scene(tmp_path) as stage:
        thread = await stage.start(cwd=str(base / "ws"))
        assert reason in await run(stage, thread, "touch made", sandboxPolicy=CONFINED)
    assert not (base / "ws/made").exists()


async def test_landlock_warns_once_per_thread_and_per_client(tmp_path: Path, base: Path, landlock: Mechanism) -> None:
    async with scene(tmp_path) as stage:
        thread = await stage.start(cwd=str(base / "ws"))
        for _ in range(2):
            await run(stage, thread, "true", sandboxPolicy=CONFINED)
        assert [told["params"] for told in stage.client.told("warning")] == [
            {"message": UNPROTECTED, "threadId": thread}
        ]
        given = {"command": ["true"], "cwd": str(base / "ws"), "sandboxPolicy": CONFINED}
        for _ in range(2):
            assert (await stage.client.request("command/exec", given))["exitCode"] == 0
        assert [told["params"]["threadId"] for told in stage.client.told("warning")] == [thread, None]


async def test_a_command_of_a_client_sees_no_home_either(tmp_path: Path, base: Path, mechanism: Mechanism) -> None:
    async with scene(tmp_path) as stage:
        _furnish(stage.harness.home)
        (base / "ws/link").symlink_to(tmp_path / "victim")
        script = STEAL.format(home=stage.harness.home) + "; echo x > link/escaped"
        given = {"command": ["sh", "-c", script], "cwd": str(base / "ws"), "sandboxPolicy": CONFINED}
        done = await stage.client.request("command/exec", given)
        assert "secret" not in done["stdout"]
        assert list((tmp_path / "victim").iterdir()) == []
