from __future__ import annotations

import os
from pathlib import Path

import pytest

from treadle.agent import file_rules
from treadle.errors import ExecError
from treadle.execution import DIRECTORIES, FILES, protected_names, sandbox_for
from treadle.protocol.app import DangerFullAccessSandboxPolicy, ReadOnlySandboxPolicy, WorkspaceWriteSandboxPolicy
from treadle.protocol.exec import FileSystemPermissions, Permissions, Sandbox, SandboxEntry, SandboxPath
from treadle.runners import BUILT_IN, find_engine

CLOSED = WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)


def may_write(sandbox: Sandbox | None, path: str) -> bool:
    """As far as the rules say; symbolic links are followed first."""
    policy = file_rules(sandbox)
    return policy is None or policy.access(os.path.realpath(path)) == "write"


def _can(policy: WorkspaceWriteSandboxPolicy | ReadOnlySandboxPolicy, cwd: Path, path: Path) -> bool:
    return may_write(sandbox_for(policy, str(cwd)), str(path))


def test_full_access_is_no_sandbox(tmp_path: Path) -> None:
    assert sandbox_for(DangerFullAccessSandboxPolicy(), str(tmp_path)) is None
    assert may_write(None, "/etc/passwd")


def test_read_only_writes_nothing(tmp_path: Path) -> None:
    sandbox = sandbox_for(ReadOnlySandboxPolicy(), str(tmp_path))
    assert sandbox is not None
    assert sandbox.permissions.network == "restricted"
    assert not may_write(sandbox, str(tmp_path / "a"))
    assert not may_write(sandbox, "/tmp/a")


def test_workspace_write_writes_below_its_roots(tmp_path: Path) -> None:
    ws, more = tmp_path / "ws", tmp_path / "more"
    for directory in (ws, more):
        directory.mkdir()
    wider = WorkspaceWriteSandboxPolicy(
        writable_roots=(str(more),), exclude_slash_tmp=True, exclude_tmpdir_env_var=True
    )
    assert _can(CLOSED, ws, ws / "new/deep/a")
    assert not _can(CLOSED, ws, more / "a")
    assert _can(wider, ws, more / "a")
    assert not _can(wider, ws, tmp_path / "a")
    assert not _can(wider, ws, ws / "../a")
    assert not _can(CLOSED, ws, tmp_path / "ws-not")


def _with_root(root: Path) -> WorkspaceWriteSandboxPolicy:
    return WorkspaceWriteSandboxPolicy(writable_roots=(str(root),), exclude_slash_tmp=True, exclude_tmpdir_env_var=True)


def test_a_repository_that_is_named_as_a_root_is_writable(tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    (ws / ".git" / "hooks").mkdir(parents=True)
    assert not _can(CLOSED, ws, ws / ".git" / "index.lock")
    assert _can(_with_root(ws / ".git"), ws, ws / ".git" / "index.lock")
    for name in (".codex", ".treadle", ".agents"):
        assert not _can(_with_root(ws / ".git"), ws, ws / name / "x")
    assert not _can(_with_root(ws / ".git" / "hooks"), ws, ws / ".git" / "index.lock")
    # Where one works is not what one has named.
    assert not _can(_with_root(ws), ws / ".git", ws / ".git" / "index.lock")


def test_the_repository_of_a_worktree_can_be_named_too(tmp_path: Path) -> None:
    main, ws = tmp_path / "main" / ".git", tmp_path / "main" / "tree"
    private = main / "worktrees" / "tree"
    private.mkdir(parents=True)
    ws.mkdir()
    (ws / ".git").write_text(f"gitdir: {private}\n")
    (private / "commondir").write_text("../..\n")
    lock = private / "index.lock"
    assert not _can(CLOSED, ws, lock)
    assert not _can(_with_root(main.parent), ws, lock)
    assert _can(_with_root(main), ws, lock)
    assert _can(_with_root(main), ws, main / "objects" / "x")
    assert not _can(_with_root(main), ws, ws / ".git")


def test_temporary_directories_unless_excluded(tmp_path: Path) -> None:
    assert _can(WorkspaceWriteSandboxPolicy(), tmp_path, Path("/tmp/elsewhere"))
    assert not _can(CLOSED, tmp_path / "ws", Path("/tmp/elsewhere"))


def test_what_engines_take_orders_from_is_protected() -> None:
    orders = {order for name in BUILT_IN for order in find_engine(name).orders}
    assert orders == {*DIRECTORIES, *FILES} - {".git"}


def test_an_engine_of_another_package_names_what_it_takes_orders_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws, package = tmp_path / "ws", tmp_path / "site"
    ws.mkdir()
    for name, code in {"odd": "orders = ('.odd', '../out', '..')", "broken": "1 / 0"}.items():
        (package / f"{name}-1.0.dist-info").mkdir(parents=True)
        (package / f"{name}-1.0.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        points = f"[treadle.engines]\n{name} = {name}_engine:ENGINE\n"
        (package / f"{name}-1.0.dist-info/entry_points.txt").write_text(points)
        (package / f"{name}_engine.py").write_text(f"class ENGINE:\n    {code}\n")
    monkeypatch.syspath_prepend(package)
    protected_names.cache_clear()
    try:
        assert not _can(CLOSED, ws, ws / ".odd/hooks")
        assert _can(CLOSED, ws, ws / "other")
        assert protected_names() == (*DIRECTORIES, *FILES, ".odd")
    finally:
        protected_names.cache_clear()


@pytest.mark.parametrize("name", [*DIRECTORIES, *FILES])
def test_what_we_read_orders_from_is_protected(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert not _can(CLOSED, tmp_path, tmp_path / name / "config")
    assert _can(CLOSED, tmp_path, tmp_path / f"{name}ignore")
    unprotected = sandbox_for(CLOSED, str(tmp_path), protect=False)
    assert may_write(unprotected, str(tmp_path / name / "config"))


def test_a_git_link_is_protected_with_what_it_leads_to(tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    (ws / "store").mkdir(parents=True)
    (ws / ".git").symlink_to("store")
    sandbox = sandbox_for(CLOSED, str(ws))
    policy = file_rules(sandbox)
    assert policy is not None
    assert policy.access(str(ws / ".git")) == "read"  # the link itself, for who removes or replaces it
    assert not may_write(sandbox, str(ws / ".git/config"))
    assert may_write(sandbox, str(ws / "other"))
    assert _can(_with_root(ws / "store"), ws, ws / "store/index.lock")  # was named, as a `.git` can be


def test_a_git_link_to_a_pointer_is_followed_from_the_workspace(tmp_path: Path) -> None:
    ws, repository = tmp_path / "ws", tmp_path / "ws" / "behind"
    repository.mkdir(parents=True)
    (ws / "sub").mkdir()
    (ws / "sub/pointer").write_text("gitdir: behind\n")
    (ws / ".git").symlink_to("sub/pointer")
    assert not _can(CLOSED, ws, repository / "config")
    assert not _can(CLOSED, ws, ws / "sub/pointer")
    assert _can(CLOSED, ws, ws / "sub/other")


def test_links_are_followed_first(tmp_path: Path) -> None:
    ws, outside = tmp_path / "ws", tmp_path / "outside"
    for directory in (ws, outside, ws / ".git"):
        directory.mkdir()
    os.symlink(outside, ws / "link")
    os.symlink(ws / ".git", ws / "innocent")
    os.symlink(ws, tmp_path / "door")
    assert not _can(CLOSED, ws, ws / "link/a")
    assert not _can(CLOSED, ws, ws / "innocent/config")
    assert _can(CLOSED, tmp_path / "door", ws / "a")


def test_what_cannot_be_understood_is_refused(tmp_path: Path) -> None:
    entry = SandboxEntry(path=SandboxPath(type="odd"), access="write")
    files = FileSystemPermissions(type="restricted", entries=(entry,))
    sandbox = Sandbox(permissions=Permissions(type="managed", network="restricted", file_system=files))
    with pytest.raises(ExecError, match="unknown path type"):
        file_rules(sandbox)


def test_the_network_is_closed_unless_it_is_opened(tmp_path: Path) -> None:
    for policy, expected in ((CLOSED, "restricted"), (WorkspaceWriteSandboxPolicy(network_access=True), "enabled")):
        sandbox = sandbox_for(policy, str(tmp_path))
        assert sandbox is not None
        assert sandbox.permissions.network == expected


@pytest.mark.parametrize("name", FILES)
def test_the_name_of_a_missing_file_is_held_where_its_program_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert _can(CLOSED, tmp_path, tmp_path / name)
    program = tmp_path / "bin" / FILES[name]
    program.parent.mkdir()
    program.touch(0o755)
    assert not _can(CLOSED, tmp_path, tmp_path / name)
    program.unlink()
    (tmp_path / name).write_text("{}")
    assert not _can(CLOSED, tmp_path, tmp_path / name)
