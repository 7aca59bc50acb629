"""File operations under a policy: the canonical location decides, and nothing redirects the operation afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.errors import INTERNAL_ERROR, INVALID_REQUEST, NOT_FOUND, ExecError
from treadle.execution import Access, FileAccess, FilePermissions, PathAt, PathRule, Policy, WalkLimits
from treadle.execution.files import safe_open

DENIED_READ = INVALID_REQUEST
DENIED_WRITE = INTERNAL_ERROR


@pytest.fixture(autouse=True, params=["openat2", "components"])
def opener(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "components":
        monkeypatch.setattr(safe_open, "_kernel_opener", lambda: None)
    elif safe_open._kernel_opener() is None:
        pytest.skip("this kernel has no openat2, or a filter forbids it")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """`work` is writable, with a read-only `.git` and a hidden `secret`; `lib` is readable; `out` is neither."""
    base = Path(os.path.realpath(tmp_path))
    for name in ("work/.git", "work/secret", "work/src", "lib", "out"):
        (base / name).mkdir(parents=True)
    (base / "work" / "a.txt").write_bytes(b"a")
    (base / "work" / ".git" / "config").write_bytes(b"git")
    (base / "work" / "secret" / "key").write_bytes(b"key")
    (base / "lib" / "l.txt").write_bytes(b"lib")
    (base / "out" / "o.txt").write_bytes(b"out")
    return base


def policy(base: Path, more: dict[str, Access] | None = None) -> Policy:
    access: dict[str, Access] = {"work": "write", "work/.git": "read", "work/secret": "none", "lib": "read"}
    access.update(more or {})
    rules = sorted((str(base / name), right) for name, right in access.items())
    return Policy(tuple(PathRule(path, right) for path, right in rules), network=False)


@pytest.fixture
def files(base: Path) -> FileAccess:
    return FileAccess(policy(base))


def refusal(function: Callable[[], object]) -> ExecError:
    with pytest.raises(ExecError) as caught:
        function()
    return caught.value


def snapshot(base: Path) -> dict[str, bytes | str | None]:
    found: dict[str, bytes | str | None] = {}
    for directory, names, file_names in os.walk(base):
        for name in (*names, *file_names):
            path = Path(directory) / name
            content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
            found[str(path.relative_to(base))] = content
    return found


def test_what_is_granted_works(files: FileAccess, base: Path) -> None:
    work = base / "work"
    assert files.read(f"{base}/lib/l.txt") == b"lib"
    files.write(f"{work}/new", b"n")
    files.create_directory(f"{work}/x/y")
    files.copy(f"{base}/lib", f"{work}/x/lib", recursive=True)
    files.copy(f"{work}/a.txt", f"{work}/b.txt")
    assert files.stat(f"{work}/b.txt").size == 1
    assert [entry.name for entry in files.list(f"{work}/x")] == ["lib", "y"]
    files.remove(f"{work}/x")
    assert not (work / "x").exists()
    assert (work / "new").read_bytes() == b"n"
    assert files.read(f"{work}/.git/config") == b"git"


@pytest.mark.parametrize("name", ["out/o.txt", "out/missing", "work/secret/key", "work/secret/missing"])
def test_reading_is_denied_alike_whether_or_not_it_exists(files: FileAccess, base: Path, name: str) -> None:
    path = f"{base}/{name}"
    for operation in (files.read, files.stat, files.canonicalize, files.list):
        error = refusal(lambda operation=operation: operation(path))  # type: ignore[misc]
        assert error.code == DENIED_READ
        assert "Permission denied (os error 13)" in error.message
        assert "sandbox" in error.message
    assert refusal(lambda: files.walk(path, WalkLimits())).code == DENIED_READ
    assert refusal(lambda: files.copy(path, f"{base}/work/stolen")).code == DENIED_READ
    assert refusal(lambda: files.open(path, "read")).code == DENIED_READ


@pytest.mark.parametrize("name", ["lib/l.txt", "lib/new", "out/o.txt", "work/.git/config", "work/.git/new"])
def test_writing_is_denied_and_changes_nothing(files: FileAccess, base: Path, name: str) -> None:
    before, path = snapshot(base), f"{base}/{name}"
    operations: list[Callable[[], object]] = [
        lambda: files.write(path, b"x"),
        lambda: files.open(path, "replace"),
        lambda: files.create_directory(path),
        lambda: files.create_directory(path, recursive=False),
        lambda: files.remove(path),
        lambda: files.copy(f"{base}/work/a.txt", path),
        lambda: files.copy(f"{base}/work/src", path, recursive=True),
    ]
    for operation in operations:
        error = refusal(operation)
        assert error.code == DENIED_WRITE
        assert "Read-only file system (os error 30)" in error.message
    assert snapshot(base) == before


def test_links_that_lead_out_grant_nothing(files: FileAccess, base: Path) -> None:
    work = base / "work"
    (work / "file").symlink_to(base / "out" / "o.txt")
    (work / "dir").symlink_to(base / "out")
    (work / "fresh").symlink_to(base / "out" / "created")
    (work / "up").symlink_to("../out")
    before = snapshot(base)
    for name in ("file", "dir/o.txt", "up/o.txt"):
        assert refusal(lambda name=name: files.read(f"{work}/{name}")).code == DENIED_READ  # type: ignore[misc]
        assert refusal(lambda name=name: files.write(f"{work}/{name}", b"x")).code == DENIED_WRITE  # type: ignore[misc]
    assert refusal(lambda: files.write(f"{work}/fresh", b"x")).code == DENIED_WRITE
    assert refusal(lambda: files.create_directory(f"{work}/dir/sub")).code == DENIED_WRITE
    assert refusal(lambda: files.remove(f"{work}/dir/o.txt")).code == DENIED_WRITE
    assert refusal(lambda: files.copy(f"{work}/a.txt", f"{work}/file")).code == DENIED_WRITE
    assert refusal(lambda: files.copy(f"{work}/src", f"{work}/dir/src", recursive=True)).code == DENIED_WRITE
    assert refusal(lambda: files.list(f"{work}/dir")).code == DENIED_READ
    assert snapshot(base) == before


def test_links_inside_and_links_to_the_sandbox_work(files: FileAccess, base: Path) -> None:
    (base / "work" / "link").symlink_to("a.txt")
    (base / "entry").symlink_to(base / "work")
    assert files.read(f"{base}/work/link") == b"a"
    assert files.stat(f"{base}/work/link").is_symlink
    files.write(f"{base}/entry/via", b"v")
    assert (base / "work" / "via").read_bytes() == b"v"
    assert files.canonicalize(f"{base}/entry/link") == f"{base}/work/a.txt"
    assert refusal(lambda: files.read(f"{base}/work/link", follow=False)).code == INTERNAL_ERROR


def test_listing_and_walking_leave_out_what_may_not_be_read(files: FileAccess, base: Path) -> None:
    work = base / "work"
    (work / "dir").symlink_to(base / "out")
    (work / "file").symlink_to(base / "out" / "o.txt")
    (work / "hidden").symlink_to("secret")
    (work / "library").symlink_to(base / "lib")
    assert [entry.name for entry in files.list(str(work))] == [".git", "a.txt", "library", "src"]
    outcome = files.walk(str(work), WalkLimits(follow_directory_symlinks=True))
    assert [os.path.relpath(entry.path, work) for entry in outcome.entries] == [
        ".git",
        "a.txt",
        "library",
        "src",
        ".git/config",
        "library/l.txt",
    ]
    assert outcome.errors == ()


def test_recursive_removal_is_refused_before_anything_is_removed(base: Path) -> None:
    files = FileAccess(policy(base, {"work/src/deep/kept": "read", "work/srcs": "read"}))
    (base / "work" / "src" / "deep" / "kept").mkdir(parents=True)
    (base / "work" / "srcs").mkdir()
    for number in range(30):  # whatever the order of the directory is, some come before `deep`
        (base / "work" / "src" / f"a{number}").touch()
    before = snapshot(base)
    assert refusal(lambda: files.remove(f"{base}/work/src")).code == DENIED_WRITE
    assert snapshot(base) == before
    files.remove(f"{base}/work/src/a0")
    os.rmdir(base / "work" / "src" / "deep" / "kept")
    files.remove(f"{base}/work/src")
    assert not (base / "work" / "src").exists()


def test_a_protected_directory_that_appears_during_a_removal_is_kept(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FileAccess(policy(base, {"work/src/kept": "read"}))
    (base / "work" / "src" / "kept").mkdir()
    monkeypatch.setattr(FilePermissions, "unwritable_below", lambda _self, _path: [])
    assert refusal(lambda: files.remove(f"{base}/work/src")).code == DENIED_WRITE
    assert (base / "work" / "src" / "kept").is_dir()


def test_the_writable_root_itself_cannot_be_removed(base: Path) -> None:
    files = FileAccess(Policy((PathRule(f"{base}/work/src", "write"),), network=False))
    assert refusal(lambda: files.remove(f"{base}/work/src")).code == DENIED_WRITE
    assert (base / "work" / "src").is_dir()


def test_a_copy_respects_rules_inside_its_source_and_its_target(base: Path) -> None:
    files = FileAccess(policy(base, {"work/dst": "write", "work/dst/.git": "read"}))
    before = snapshot(base)
    assert refusal(lambda: files.copy(f"{base}/work", f"{base}/work2", recursive=True)).code == DENIED_WRITE
    (base / "tree" / ".git").mkdir(parents=True)
    (base / "tree" / "a").touch()
    granted = FileAccess(policy(base, {"tree": "read", "work/dst/.git": "read"}))
    assert refusal(lambda: granted.copy(f"{base}/tree", f"{base}/work/dst", recursive=True)).code == DENIED_WRITE
    assert not (base / "work" / "dst").exists()
    os.rmdir(base / "tree" / ".git")
    granted.copy(f"{base}/tree", f"{base}/work/dst", recursive=True)
    assert sorted(os.listdir(base / "work" / "dst")) == ["a"]
    holder = FileAccess(policy(base, {"out": "write"}))
    assert refusal(lambda: holder.copy(f"{base}/work", f"{base}/out/w", recursive=True)).code == DENIED_READ
    assert not (base / "out" / "w").exists()
    assert set(before) <= set(snapshot(base))


def test_a_protected_name_that_does_not_exist_cannot_be_made(base: Path) -> None:
    files = FileAccess(policy(base, {"work/src/.git": "read", "work/src/.git/open": "write"}))
    assert refusal(lambda: files.create_directory(f"{base}/work/src/.git/open/sub")).code == DENIED_WRITE
    assert refusal(lambda: files.create_directory(f"{base}/work/src/.git/hooks")).code == DENIED_WRITE
    assert refusal(lambda: files.write(f"{base}/work/src/.git", b"")).code == DENIED_WRITE
    assert os.listdir(base / "work" / "src") == []


def test_missing_below_what_may_be_read_is_missing(files: FileAccess, base: Path) -> None:
    assert refusal(lambda: files.read(f"{base}/lib/none")).code == NOT_FOUND
    assert refusal(lambda: files.canonicalize(f"{base}/work/none")).code == NOT_FOUND
    files.remove(f"{base}/work/none")


# --- a link swapped in between the check and the operation ---


@pytest.fixture
def swapped(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is known where a path in `work/src` leads, `src` becomes a link that leads out of the sandbox."""
    real, source = FilePermissions.location, base / "work" / "src"

    def swap_after(self: FilePermissions, path: str, *, link: bool = False) -> str:
        location = real(self, path, link=link)
        if path.startswith(f"{source}/") and not source.is_symlink():
            source.rename(base / "work" / "moved")
            source.symlink_to(base / "out")
        return location

    monkeypatch.setattr(FilePermissions, "location", swap_after)


@pytest.mark.usefixtures("swapped")
@pytest.mark.parametrize(
    "verb", ["read", "write", "remove", "stat", "list", "walk", "mkdir", "mkdir all", "to", "from"]
)
def test_a_swapped_parent_makes_the_operation_fail(files: FileAccess, base: Path, verb: str) -> None:
    path = f"{base}/work/src/o.txt"
    operations: dict[str, Callable[[], object]] = {
        "read": lambda: files.read(path),
        "write": lambda: files.write(path, b"x"),
        "remove": lambda: files.remove(path),
        "stat": lambda: files.stat(path),
        "list": lambda: files.list(f"{base}/work/src/sub"),
        "walk": lambda: files.walk(f"{base}/work/src/sub", WalkLimits()),
        "mkdir": lambda: files.create_directory(f"{base}/work/src/new", recursive=False),
        "mkdir all": lambda: files.create_directory(f"{base}/work/src/new/er"),
        "to": lambda: files.copy(f"{base}/work/a.txt", path),
        "from": lambda: files.copy(path, f"{base}/work/stolen"),
    }
    assert refusal(operations[verb]).code == INTERNAL_ERROR
    assert (base / "out" / "o.txt").read_bytes() == b"out"
    assert os.listdir(base / "out") == ["o.txt"]
    assert not (base / "work" / "stolen").exists()


def test_a_swapped_last_component_makes_the_operation_fail(
    files: FileAccess, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = PathAt.open

    def swap_first(self: PathAt, flags: int, mode: int = 0) -> int:
        if self.name == "a.txt" and not (base / "work" / "a.txt").is_symlink():
            (base / "work" / "a.txt").unlink()
            (base / "work" / "a.txt").symlink_to(base / "out" / "o.txt")
        return real_open(self, flags, mode)

    monkeypatch.setattr(PathAt, "open", swap_first)
    assert "symbolic links" in refusal(lambda: files.read(f"{base}/work/a.txt")).message
    (base / "work" / "a.txt").unlink()
    (base / "work" / "a.txt").touch()
    assert "symbolic links" in refusal(lambda: files.write(f"{base}/work/a.txt", b"x")).message
    assert (base / "out" / "o.txt").read_bytes() == b"out"
