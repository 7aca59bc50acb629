"""Commands and patches of a thread on another machine stay in its workspace, with either mechanism of that machine.
What they could harm is planted beside the workspace, and looked at from outside."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.exec_program import running
from kit.sandboxes import usable
from system.agent.scene import Json, Scene, patch, scene, shell
from system.environments.far import CONFINED, call, executor_environment, far_thread, snapshot
from treadle.errors import RpcError
from treadle.execution import UNPROTECTED, Mechanism
from treadle.testing import ToolCall

pytestmark = [pytest.mark.anyio, pytest.mark.this_machine]  # it has a machine of its own

SECRET = "sesame-8f2a71"
WRITABLE_TMP: Json = {"type": "workspaceWrite"}


class Ground:
    """A workspace on the executor's machine, and what is around it."""

    def __init__(self, stage: Scene, root: Path, thread: str, mechanism: Mechanism) -> None:
        self.stage = stage
        self.address = f"unix://{root / 'socket'}"
        self.root = root
        self.work = root / "work"
        self.outside = root / "outside"
        self.home = root / "home"
        self.thread = thread
        self.mechanism = mechanism

    async def run(self, command: str, **params: Any) -> str:
        (told,) = await call(self.stage, self.thread, ToolCall("exec_command", shell(command), None), **params)
        return told

    async def patch(self, *lines: str, **params: Any) -> str:
        call_of = ToolCall("apply_patch", {"input": patch(*lines)}, None)
        (told,) = await call(self.stage, self.thread, call_of, **params)
        return told


def planted(root: Path) -> None:
    for folder in ("work/sub", "outside/folder", "home/environments", "tmp", "user", "beside"):
        (root / folder).mkdir(parents=True)
    (root / "home").chmod(0o700)
    (root / "outside/victim").write_text("precious\n")
    (root / "home/auth.json").write_text(SECRET)
    (root / "home/exec-server.token").write_text(SECRET)
    (root / "work/file").write_text("mine\n")


@pytest.fixture(scope="module", params=["bubblewrap", "landlock"])
def machine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Mechanism, Path]]:
    """One executor for the attempts of a mechanism, with its address and the folder around it."""
    mechanism = usable(request.param)
    root = tmp_path_factory.mktemp("machine")
    planted(root)
    # The home is the one of `running`, where the executor has its own tokens.
    environ = executor_environment(root, TREADLE_SANDBOX=mechanism, TMPDIR=str(root / "tmp"))
    address = f"unix://{root / 'socket'}"
    with running(root, "--listen", address, env=environ) as server:
        yield address, mechanism, root
        server.check_well()


@pytest.fixture
def executor(machine: tuple[str, Mechanism, Path]) -> Iterator[tuple[str, Mechanism, Path]]:
    """The executor with everything around it as it was planted."""
    yield machine
    _, _, root = machine
    for entry in root.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name not in ("socket", "server.stderr"):
            entry.unlink()
    planted(root)


@pytest.fixture
async def ground(executor: tuple[str, Mechanism, Path], tmp_path: Path) -> AsyncIterator[Ground]:
    address, mechanism, root = executor
    async with scene(tmp_path / "app", extra_toml=PROFILES.replace("{beside}", str(root / "beside"))) as stage:
        yield Ground(stage, root, await far_thread(stage, address, root / "work"), mechanism)


@asynccontextmanager
async def nothing_changes(*folders: Path) -> AsyncIterator[None]:
    before = [snapshot(folder) for folder in folders]
    yield
    for folder, was in zip(folders, before, strict=True):
        assert snapshot(folder) == was


PROFILES = """
[permissions.open.filesystem]
":root" = "write"

[permissions.globs.filesystem]
":root" = "read"
":workspace_roots" = { "." = "write", "**/*.env" = "deny", "sub/keys" = "deny" }

[permissions.beside.filesystem]
":root" = "read"
"{beside}" = "write"
"""

COMMANDS = {
    "absolute": "echo x > {outside}/victim",
    "append": "echo x >> {outside}/victim",
    "dots": "echo x > ../outside/victim",
    "dots in the middle": "echo x > sub/../../outside/victim",
    "a new file": "touch {outside}/new",
    "a link": "ln -s {outside} way && echo x > way/victim",
    "a link to a file": "ln -s {outside}/victim way && echo x > way",
    "a hard link": "ln {outside}/victim way && echo x > way",
    "moved away": "mv {outside}/victim here",
    "removed": "rm -rf {outside}/folder",
    "mode": "chmod 777 {outside}/victim",
    "by proc": "echo x > /proc/self/cwd/../outside/victim",
    "root of init": "echo x > /proc/1/root{outside}/victim",
    "the executor's memory": "for pid in /proc/[0-9]*; do echo x > $pid/root{outside}/victim; done",
    "tmp": "echo x > {root}/tmp/new",
    "the executor's home": "echo x > {home}/auth.json; echo x > {home}/new; rm -rf {home}",
    "a folder beside": "mkdir {root}/new; touch {root}/beside/new",
    "a folder of the user": "mkdir -p {root}/user/.config && echo x > {root}/user/.profile",
    "the socket": "rm {root}/socket",
    "moved workspace": "mv {work} {root}/elsewhere",
}


@pytest.mark.parametrize("attempt", COMMANDS)
async def test_a_command_writes_nothing_outside(ground: Ground, attempt: str) -> None:
    command = COMMANDS[attempt].format(**vars(ground))
    (ground.root / "server.stderr").touch()
    places = [ground.outside, *(ground.root / name for name in ("tmp", "beside", "user")), ground.home]
    if (ground.mechanism, attempt) == ("landlock", "mode"):  # which docs/sandbox.md says
        places.remove(ground.outside)
    async with nothing_changes(*places):
        told = await ground.run(f"{command}; echo tried")
        assert "\ntried" in told, told
    assert sorted(path.name for path in ground.root.iterdir()) == sorted(
        ["work", "outside", "home", "tmp", "beside", "user", "socket", "server.stderr", *extra(ground)]
    )


def extra(ground: Ground) -> list[str]:
    """Locks of the listener."""
    return [path.name for path in ground.root.iterdir() if path.name.startswith("socket.")]


async def test_without_a_sandbox_they_would(ground: Ground) -> None:
    """Else the attempts proved nothing."""
    for attempt in ("absolute", "dots", "a link", "by proc"):
        (ground.outside / "victim").write_text("precious\n")
        shutil.rmtree(ground.work / "way", ignore_errors=True)
        (ground.work / "way").unlink(missing_ok=True)
        await ground.run(COMMANDS[attempt].format(**vars(ground)), sandboxPolicy={"type": "dangerFullAccess"})
        assert (ground.outside / "victim").read_text() == "x\n", attempt


@pytest.mark.parametrize("name", ["auth.json", "exec-server.token"])
@pytest.mark.parametrize("policy", [CONFINED, WRITABLE_TMP, {"type": "readOnly"}], ids=["work", "tmp", "read"])
async def test_the_executors_own_home_is_not_read(ground: Ground, name: str, policy: Json) -> None:
    told = await ground.run(f"cat {ground.home}/{name}; ln -s {ground.home} way; cat way/{name}", sandboxPolicy=policy)
    assert SECRET not in told
    (ground.work / "lead").unlink(missing_ok=True)
    (ground.work / "lead").symlink_to(ground.home / name)
    for path in (ground.home / name, ground.work / "lead"):
        told = await ground.patch(f"*** Update File: {path}", f"-{SECRET}", "+x", sandboxPolicy=policy)
        assert "not applied" in told or "denied" in told or "refused" in told or "not allow" in told, told
        (told,) = await call(
            ground.stage, ground.thread, ToolCall("view_image", {"path": str(path)}, None), sandboxPolicy=policy
        )
        assert "not allow" in told, told
    assert (ground.home / name).read_text() == SECRET


ORDERS = (".git/hooks/pre-commit", ".git/config", ".codex/config.toml", ".claude/settings.json", ".treadle/config.toml")


@pytest.mark.parametrize("there", [True, False], ids=["there", "missing"])
@pytest.mark.parametrize("name", ORDERS)
async def test_orders_are_not_written(ground: Ground, name: str, there: bool) -> None:
    if there:
        (ground.work / name).parent.mkdir(parents=True)
        (ground.work / name).write_text("old\n")
    before = snapshot(ground.work)
    line = f"*** {'Update' if there else 'Add'} File: {name}"
    told = await ground.patch(line, *(["-old"] if there else []), "+new")
    assert "Success" not in told
    assert snapshot(ground.work) == before
    if ground.mechanism == "landlock":
        return  # commands can there, and the thread's owner is told
    folder = name.split("/")[0]
    await ground.run(f"mkdir -p {name.rpartition('/')[0]}; echo new > {name}; rm -rf {folder}; mv {folder} away")
    await ground.run(f"mkdir away; echo new > away/config; mv away {folder}; ln -s ../outside {folder}")
    assert (ground.work / name).exists() == there
    if there:
        assert (ground.work / name).read_text() == "old\n"


async def test_orders_are_protected_where_a_profile_opens_the_whole_disk(ground: Ground) -> None:
    (ground.work / ".git").mkdir()
    if ground.mechanism == "landlock":  # which cannot close the home then, here as there
        with pytest.raises(RpcError, match="the request was refused"):
            await ground.run("true", permissions="open", sandboxPolicy=None)
        return
    told = await ground.patch("*** Add File: .git/config", "+x", permissions="open", sandboxPolicy=None)
    assert "Success" not in told
    await ground.run("echo x > .git/config; echo x > ran", permissions="open", sandboxPolicy=None)
    assert not (ground.work / ".git/config").exists()


async def test_a_folder_of_orders_that_is_a_root_of_its_own_stays_protected(ground: Ground) -> None:
    """As it does on this machine; only a `.git` can be opened by naming it."""
    (ground.work / ".codex").mkdir()
    (ground.work / ".git").mkdir()
    policy = {**CONFINED, "writableRoots": [str(ground.work / ".codex"), str(ground.work / ".git")]}
    told = await ground.patch("*** Add File: .codex/config.toml", "+x", sandboxPolicy=policy)
    assert "Success" not in told
    if ground.mechanism == "bubblewrap":
        await ground.run("echo x > .codex/config.toml; echo x > .git/new", sandboxPolicy=policy)
        assert (ground.work / ".git/new").exists()
    assert list((ground.work / ".codex").iterdir()) == []


@pytest.mark.parametrize("given", ["sub", "link"])
async def test_a_root_that_was_replaced_is_not_followed(ground: Ground, given: str) -> None:
    (ground.work / "link").symlink_to(ground.work / "sub")
    # A root below the workspace, which a command of the workspace can replace.
    policy = {**CONFINED, "writableRoots": [str(ground.work / given)]}
    await ground.run("true", sandboxPolicy=policy)
    shutil.rmtree(ground.work / "sub")
    (ground.work / "sub").symlink_to(ground.outside)
    async with nothing_changes(ground.outside):
        for path in ("sub", given):
            await ground.run(f"echo x > {path}/victim; touch {path}/new", sandboxPolicy=policy)
            await ground.patch(f"*** Add File: {path}/new", "+x", sandboxPolicy=policy)
            await ground.patch(f"*** Update File: {path}/victim", "-precious", "+x", sandboxPolicy=policy)


async def test_a_workspace_that_was_replaced_is_not_followed(ground: Ground) -> None:
    await ground.run("true")
    ground.work.rename(ground.root / "away")
    ground.work.symlink_to(ground.outside)
    async with nothing_changes(ground.outside):
        told = await ground.run("echo x > victim; touch new; pwd")
        assert f"led to '{ground.work}' when the thread got it and leads to '{ground.outside}' now" in told
        for lines in (["*** Add File: new", "+x"], ["*** Update File: victim", "-precious", "+x"]):
            assert "Success" not in await ground.patch(*lines)


NOTICED = "is not the directory any more that it was when the thread got it"
ROOTS: dict[str, Json] = {
    "work": {},
    "work/sub": {"sandboxPolicy": {**CONFINED, "writableRoots": ["{root}/work/sub"]}},
    "work/later": {"sandboxPolicy": {**CONFINED, "writableRoots": ["{root}/work/later"]}},
    "tmp": {"sandboxPolicy": {**CONFINED, "excludeTmpdirEnvVar": False}},
    "beside": {"sandboxPolicy": None, "permissions": "beside"},
}


@pytest.mark.parametrize("name", ROOTS)
async def test_a_folder_that_was_replaced_by_another_one_is_noticed(ground: Ground, name: str) -> None:
    """Of the same name, as on this machine: by commands and by patches, until it is put back."""
    params: Json = json.loads(json.dumps(ROOTS[name]).replace("{root}", str(ground.root)))
    folder, away = ground.root / name, ground.root / "away"
    if name == "work":  # as it was when the thread got it, whether a command was run or not
        ground.thread = await far_thread(ground.stage, ground.address, ground.work, sandbox="workspace-write")
    else:
        await ground.run("true", **params)
    if name == "work/later":  # nothing was there before
        folder.mkdir()
        await ground.run("true", **params)
    folder.rename(away)
    shutil.copytree(away, folder)
    told = await ground.run("touch made later/made sub/made; echo tried", **params)
    assert NOTICED in told, told
    assert "Success" not in await ground.patch("*** Add File: patched", "+x", **params)
    assert not list(ground.root.rglob("made")) + list(ground.root.rglob("patched"))
    first, ground.thread = ground.thread, await far_thread(ground.stage, ground.address, ground.work)
    assert "\ntried" in await ground.run("echo tried", **params), "for a new thread it is the folder"
    ground.thread = first
    shutil.rmtree(folder)
    away.rename(folder)
    assert "\ntried" in await ground.run("echo tried", **params)


async def test_what_the_executor_cannot_protect_is_said_as_it_is_here(ground: Ground) -> None:
    for _ in range(2):
        await ground.run("true", sandboxPolicy={"type": "readOnly"})
        await ground.run("true")
    warnings = [message["params"] for message in ground.stage.client.told("warning")]
    there = UNPROTECTED.replace("This machine", "The machine `far`")
    told = [{"message": there, "threadId": ground.thread}] if ground.mechanism == "landlock" else []
    assert warnings == told


async def test_a_profile_that_the_executor_cannot_enforce_is_refused_at_the_start(ground: Ground) -> None:
    (ground.work / "sub/keys").mkdir()
    profile = {"permissions": "globs"}
    if ground.mechanism == "bubblewrap":
        await far_thread(ground.stage, ground.address, ground.work, **profile)
        return
    for refused in (
        far_thread(ground.stage, ground.address, ground.work, **profile),
        ground.stage.client.request("thread/settings/update", {"threadId": ground.thread, **profile}),
        ground.run("true", sandboxPolicy=None, **profile),
    ):
        with pytest.raises(RpcError, match="Landlock cannot keep"):
            await refused


PATCHES = {
    "absolute": "{outside}/{name}",
    "dots": "../outside/{name}",
    "dots in the middle": "sub/../../outside/{name}",
    "a link": "way/{name}",
    "a link below": "sub/way/{name}",
    "dots behind a link": "way/folder/../{name}",
    "the executor's home": "{home}/{name}",
    "tmp": "{root}/tmp/{name}",
}


@pytest.mark.parametrize("attempt", PATCHES)
async def test_a_patch_writes_nothing_outside(ground: Ground, attempt: str) -> None:
    for way in (ground.work / "way", ground.work / "sub/way"):
        way.symlink_to(ground.outside)
    for folder in (ground.home, ground.root / "tmp"):
        (folder / "victim").write_text("precious\n")
    old, new = (PATCHES[attempt].format(**vars(ground), name=name) for name in ("victim", "new"))
    async with nothing_changes(ground.outside, ground.home, ground.root / "tmp"):
        for lines in (
            [f"*** Add File: {new}", "+x"],
            [f"*** Add File: {new}/deep/er", "+x"],
            [f"*** Update File: {old}", "-precious", "+x"],
            [f"*** Delete File: {old}"],
            ["*** Update File: file", f"*** Move to: {new}", "-mine", "+x"],
            [f"*** Update File: {old}", "*** Move to: here", "-precious", "+x"],
        ):
            assert "Success" not in await ground.patch(*lines), lines
    assert (ground.work / "file").read_text() == "mine\n"


@pytest.mark.parametrize("target", ["victim", "new"])
async def test_a_patch_of_a_link_writes_nothing_outside(ground: Ground, target: str) -> None:
    (ground.work / "link").symlink_to(ground.outside / target)
    async with nothing_changes(ground.outside):
        for lines in (["*** Add File: link", "+x"], ["*** Update File: link", "-precious", "+x"]):
            assert "Success" not in await ground.patch(*lines)


async def test_tmp_is_closed_when_the_thread_says_so(ground: Ground) -> None:
    """And open else: the one of that machine, not of this."""
    inside = ground.root / "tmp/of-the-thread"
    await ground.run(f"echo x > {inside}")
    assert not inside.exists()
    await ground.run(f"echo x > {inside}", sandboxPolicy={**CONFINED, "excludeTmpdirEnvVar": False})
    assert inside.read_text() == "x\n"


@pytest.mark.parametrize("network", [False, True], ids=["offline", "online"])
async def test_nobody_asks_the_executor_itself(ground: Ground, network: bool) -> None:
    """Its socket would start a command without a sandbox."""
    script = f"""
import socket
connection = socket.socket(socket.AF_UNIX)
connection.connect("{ground.root}/socket")
print("connec" + "ted")
"""
    (ground.work / "ask.py").write_text(script)
    told = await ground.run("python3 ask.py", sandboxPolicy={**CONFINED, "networkAccess": network})
    assert "connected" not in told


async def test_what_a_profile_denies_by_pattern_is_neither_read_nor_written(ground: Ground) -> None:
    (ground.work / "sub/keys").mkdir()
    (ground.work / "sub/keys/one").write_text(SECRET)
    (ground.work / "sub/a.env").write_text(SECRET)
    profile = {"permissions": "globs", "sandboxPolicy": None}
    if ground.mechanism == "landlock":
        with pytest.raises(RpcError, match="Landlock cannot keep"):  # something denied below a writable folder
            await ground.run("cat file", **profile)
        return
    for path in ("sub/keys/one", "sub/a.env"):
        told = await ground.run(f"cat {path}; cp {path} copy; cat copy; echo x > {path}", **profile)
        assert SECRET not in told
        (told,) = await call(ground.stage, ground.thread, ToolCall("view_image", {"path": path}, None), **profile)
        assert "not allow" in told
        assert "Success" not in await ground.patch(f"*** Update File: {path}", f"-{SECRET}", "+x", **profile)
        assert (ground.work / path).read_text() == SECRET
    assert "mine" in await ground.run("cat file", **profile)
