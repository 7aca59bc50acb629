"""Files that were resolved once: whatever is put in their place later is neither read, written nor removed."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec import structs

from treadle.errors import NOT_FOUND, ExecError
from treadle.execution import PathRule, PinnedFiles, Policy
from treadle.tools.patch import PatchError, apply, parse, plan
from unit.execution.exchange import exchange, exchanging

pytestmark = pytest.mark.anyio

VICTIM = b"the victim\n"
STRESS_S = 1.0


class Ground:
    """A workspace with a directory and a file, and a victim of the same name outside of it."""

    def __init__(self, tmp_path: Path) -> None:
        root = Path(os.path.realpath(tmp_path))
        self.workspace, self.outside = root / "ws", root / "outside"
        self.directory = self.workspace / "sub"
        for directory in (self.workspace, self.directory, self.outside):
            directory.mkdir()
        self.file = self.directory / "f"
        self.file.write_bytes(b"old\n")
        self.victim = self.outside / "f"
        self.victim.write_bytes(VICTIM)
        self.policy = Policy((PathRule("/", "read"), PathRule(str(self.workspace), "write")), network=False)

    async def files(self, *names: Path, confined: bool = True) -> PinnedFiles:
        return await PinnedFiles.resolve(map(str, names), self.policy if confined else None)

    def lead_astray(self) -> None:
        """The directory is a link to the outside now."""
        self.directory.rename(self.workspace / "away")
        self.directory.symlink_to(self.outside)

    def replace(self) -> None:
        """Another directory stands where the first one was."""
        self.directory.rename(self.workspace / "away")
        self.directory.mkdir()
        self.file.write_bytes(b"other\n")


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


Operation = Callable[[PinnedFiles, str], Awaitable[object]]
OPERATIONS: dict[str, Operation] = {
    "read": lambda files, path: files.read(path),
    "write": lambda files, path: files.write(path, b"new\n"),
    "remove": lambda files, path: files.remove(path, recursive=False, missing_ok=False),
    "check": lambda files, path: files.check(),
}


async def test_a_file_is_read_written_and_removed(ground: Ground) -> None:
    files = await ground.files(ground.file)
    path = files.targets[str(ground.file)].file.path
    assert await files.read(path) == b"old\n"
    await files.write(path, b"n\n")
    assert ground.file.read_bytes() == b"n\n"
    await files.check()
    await files.remove(path, recursive=False, missing_ok=False)
    assert not ground.file.exists()
    await files.remove(path, recursive=False, missing_ok=True)
    with pytest.raises(ExecError) as caught:
        await files.remove(path, recursive=False, missing_ok=False)
    assert caught.value.code == NOT_FOUND


@pytest.mark.parametrize("confined", [True, False], ids=["confined", "unconfined"])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("swap", [Ground.lead_astray, Ground.replace], ids=["link", "directory"])
async def test_a_directory_that_was_swapped_is_not_entered(
    ground: Ground, swap: Callable[[Ground], None], operation: str, confined: bool
) -> None:
    files = await ground.files(ground.file, confined=confined)
    swap(ground)
    there = ground.file.read_bytes()
    with pytest.raises(ExecError, match="leads elsewhere now"):
        await OPERATIONS[operation](files, str(ground.file))
    assert ground.file.read_bytes() == there
    assert ground.victim.read_bytes() == VICTIM


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_file_that_became_a_link_is_not_followed(ground: Ground, operation: str) -> None:
    files = await ground.files(ground.file, confined=False)
    ground.file.unlink()
    ground.file.symlink_to(ground.victim)
    with pytest.raises(ExecError, match="leads elsewhere now"):
        await OPERATIONS[operation](files, str(ground.file))
    assert ground.file.is_symlink()
    assert ground.victim.read_bytes() == VICTIM


async def test_a_link_is_followed_when_it_is_resolved_and_not_again(ground: Ground) -> None:
    link = ground.workspace / "link"
    link.symlink_to(ground.file)
    files = await ground.files(link)
    target = files.targets[str(link)]
    assert (target.file.path, target.entry.path) == (str(ground.file), str(link))
    link.unlink()
    link.symlink_to(ground.victim)
    await files.write(target.file.path, b"new\n")
    assert ground.file.read_bytes() == b"new\n"
    with pytest.raises(ExecError, match="leads elsewhere now"):
        await files.check()
    with pytest.raises(ExecError, match="leads elsewhere now"):
        await files.remove(target.entry.path, recursive=False, missing_ok=False)
    assert link.is_symlink()
    assert ground.victim.read_bytes() == VICTIM


async def test_a_link_that_is_removed_can_come_back(ground: Ground) -> None:
    link = ground.workspace / "link"
    link.symlink_to("sub/f")
    files = await ground.files(link)
    entry = files.targets[str(link)].entry.path
    await files.remove(entry, recursive=False, missing_ok=False)
    assert not link.is_symlink()
    await files.write(entry, b"old\n")
    assert os.readlink(link) == "sub/f"
    assert ground.file.read_bytes() == b"old\n"


async def test_what_is_missing_is_made_where_it_was_missing(ground: Ground) -> None:
    deep = ground.directory / "a/b/new"
    files = await ground.files(deep)
    for directory in (ground.directory / "a", ground.directory / "a/b"):
        await files.mkdir(str(directory), parents=False)
    await files.write(str(deep), b"x")
    location = files.current(files.targets[str(deep)].file)
    assert (await ground.files(deep)).targets[str(deep)].file == location
    await files.remove(str(deep), recursive=False, missing_ok=False)
    for directory in (ground.directory / "a/b", ground.directory / "a"):
        await files.remove(str(directory), recursive=False, missing_ok=False)
    assert sorted(path.name for path in ground.directory.iterdir()) == ["f"]


async def test_a_directory_that_somebody_else_made_meanwhile_is_not_used(ground: Ground) -> None:
    new = ground.directory / "a/new"
    files = await ground.files(new)
    (ground.directory / "a").mkdir()
    with pytest.raises(ExecError, match="leads elsewhere now"):
        await files.write(str(new), b"x")
    (ground.directory / "a").rmdir()
    (ground.directory / "a").symlink_to(ground.outside)
    with pytest.raises(ExecError, match="leads elsewhere now"):
        await files.write(str(new), b"x")
    assert [path.name for path in ground.outside.iterdir()] == ["f"]


async def test_the_policy_holds_until_it_is_lifted(ground: Ground) -> None:
    link = ground.workspace / "link"
    link.symlink_to(ground.outside)
    files = await ground.files(link / "f")
    target = files.targets[str(link / "f")]
    assert target.file.path == str(ground.victim)
    assert not files.may_write(target.file)
    assert not files.may_remove(target.entry)
    with pytest.raises(ExecError, match="does not allow writing"):
        await files.write(target.file.path, b"x")
    with pytest.raises(ExecError, match="does not allow writing"):
        await files.remove(target.file.path, recursive=False, missing_ok=False)
    assert ground.victim.read_bytes() == VICTIM
    files.lift()
    await files.write(target.file.path, b"x")
    assert ground.victim.read_bytes() == b"x"


async def test_what_may_not_be_read_is_not(ground: Ground) -> None:
    secret = Policy((*ground.policy.rules[:1], PathRule(str(ground.outside), "none")), network=False)
    (ground.workspace / "link").symlink_to(ground.victim)
    for name in (ground.victim, ground.workspace / "link"):
        files = await PinnedFiles.resolve([str(name)], secret)
        files.lift()
        with pytest.raises(ExecError, match="does not allow reading"):
            await files.read(files.targets[str(name)].file.path)


async def test_other_paths_than_the_resolved_ones_are_refused(ground: Ground) -> None:
    files = await ground.files(ground.file, confined=False)
    with pytest.raises(ExecError, match="not among the files"):
        await files.read(str(ground.victim))
    with pytest.raises(ExecError, match="not among the files"):
        await files.write(str(ground.directory / "g"), b"")


async def test_two_names_of_one_file_are_refused(ground: Ground) -> None:
    link = ground.workspace / "link"
    link.symlink_to(ground.directory)
    with pytest.raises(ExecError, match="are the same file"):
        await ground.files(ground.file, link / "f")


async def test_a_fifo_is_no_file(ground: Ground) -> None:
    fifo = ground.workspace / "fifo"
    os.mkfifo(fifo)
    files = await ground.files(fifo)
    for operation in ("read", "write", "remove"):
        with pytest.raises(ExecError, match="not a file"):
            await OPERATIONS[operation](files, str(fifo))


# --- whole patches ---------------------------------------------------------------------------------------------------

PATCH = "*** Begin Patch\n*** Update File: sub/f\n-old\n+new\n*** Add File: sub/g\n+g\n*** End Patch"


async def _patch(ground: Ground) -> None:
    """What a call does, without anybody to ask."""
    patch = parse(PATCH)
    files = await ground.files(ground.file, ground.directory / "g")
    there: dict[str, bytes | None] = {}
    for name, target in files.targets.items():
        try:
            there[name] = await files.read(target.file.path)
        except ExecError as error:
            if error.code != NOT_FOUND:
                raise
            there[name] = None
    changes = plan(patch, there.__getitem__, str(ground.workspace))
    await apply([structs.replace(change, path=files.targets[change.path].file.path) for change in changes], files)


async def test_a_directory_that_is_swapped_all_the_time_never_leads_out(ground: Ground) -> None:
    """A thread exchanges the directory and a link to the outside while patches are resolved, planned and written."""
    link = ground.workspace / "link"
    link.symlink_to(ground.outside)
    written = refused = 0
    until = time.monotonic() + STRESS_S
    while time.monotonic() < until:
        with exchanging(ground.directory, link):
            for _ in range(20):
                try:
                    await _patch(ground)
                    written += 1
                except (ExecError, PatchError):
                    refused += 1
        if ground.directory.is_symlink():
            exchange(ground.directory, link)
        ground.file.write_bytes(b"old\n")
        (ground.directory / "g").unlink(missing_ok=True)
        assert ground.victim.read_bytes() == VICTIM
        assert [path.name for path in ground.outside.iterdir()] == ["f"]
    assert refused > 0, f"no race in {written} rounds"
