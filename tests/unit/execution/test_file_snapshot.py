"""Files that look as they did, and the folders of which that is known without waiting: those that nothing but a disk of
this machine answers for.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from treadle.execution import FileSnapshot, LocalDisks, bounded_reads, is_local

MOUNTS = {"/": "ext4", "/home": "xfs", "/home/ann/far": "nfs4", "/proc": "proc", "/srv": "autofs", "/srv/disk": "ext4"}


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/var/lib", True),
        ("/home/ann/near", True),
        ("/home/ann/farther", True),
        ("/home/ann/far", False),
        ("/home/ann/far/deep/down", False),
        ("/srv/disk/work", False),  # who asks for it goes by way of the automounter
        ("/home/ann", False),  # a file in it may be on the other machine
        ("/", False),
        ("/proc/self", False),
    ],
)
def test_every_mount_on_the_way_and_inside_counts(folder: str, expected: bool) -> None:
    assert is_local(folder, MOUNTS) is expected


def _table(folder: Path, *mounts: tuple[str, str]) -> str:
    table = folder / "mounts"
    lines = [f"22 27 0:21 / {point} rw,relatime shared:1 - {kind} dev rw\n" for point, kind in mounts]
    table.write_text("".join(lines))
    return str(table)


def test_a_folder_is_known_after_a_look_at_it(tmp_path: Path) -> None:
    folder = tmp_path.resolve() / "work"
    folder.mkdir()
    disks = LocalDisks(_table(tmp_path, ("/", "rootfs"), ("/", "ext4")))
    assert not disks.hold(str(folder))
    assert disks.survey(str(folder))
    assert disks.hold(str(folder))
    assert not disks.hold(str(folder / "below"))


def test_a_name_with_spaces_is_found_in_the_table(tmp_path: Path) -> None:
    folder = tmp_path.resolve() / "my work"
    folder.mkdir()
    disks = LocalDisks(_table(tmp_path, ("/", "ext4"), (str(folder).replace(" ", "\\040"), "fuse.sshfs")))
    assert not disks.survey(str(folder))
    assert not disks.hold(str(folder))


def test_who_comes_by_a_link_is_not_known(tmp_path: Path) -> None:
    folder, link = tmp_path.resolve() / "work", tmp_path.resolve() / "link"
    (folder / "deep").mkdir(parents=True)
    link.symlink_to(folder)
    disks = LocalDisks(_table(tmp_path, ("/", "ext4")))
    for path in (f"{link}/deep", f"{folder}/../work", f"{folder}/", "work", "n\0n"):
        assert not disks.survey(path)
        assert not disks.hold(path)


def test_without_a_table_nothing_is_known(tmp_path: Path) -> None:
    disks = LocalDisks(str(tmp_path / "none"))
    assert not disks.survey(str(tmp_path))
    assert not disks.hold(str(tmp_path))


def test_it_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_reads, "MAX_FOLDERS", 3)
    disks = LocalDisks(_table(tmp_path, ("/", "ext4")))
    for number in range(10):
        disks.survey(f"{tmp_path}/{number}")
    assert sum(disks.hold(f"{tmp_path}/{number}") for number in range(10)) <= 3


def test_several_threads_may_ask_at_once(tmp_path: Path) -> None:
    folder = str(tmp_path.resolve())
    disks = LocalDisks(_table(tmp_path, ("/", "ext4")))
    disks.survey(folder)
    began = threading.Barrier(4)

    def ask() -> bool:
        began.wait(60)
        return all(disks.hold(folder) for _ in range(20_000))

    with ThreadPoolExecutor(4) as pool:
        assert all(asked.result(60) for asked in [pool.submit(ask) for _ in range(4)])


_IN_A_NAMESPACE = """
import subprocess, sys
from treadle.execution.bounded_reads import LocalDisks
disks, folder = LocalDisks(), sys.argv[1]
print(disks.survey(folder), disks.hold(folder), disks.hold(folder))
subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
print(disks.hold(folder))
print(disks.survey(folder), disks.hold(folder))
"""


def test_a_new_mount_makes_it_forget(tmp_path: Path) -> None:
    """In a namespace of its own, where mounting is allowed and nobody else sees it."""
    alone = ["unshare", "--map-root-user", "--mount"]
    try:
        subprocess.run([*alone, "true"], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine does not let a process have mounts of its own")
    folder = tmp_path.resolve() / "work"
    folder.mkdir()
    done = subprocess.run(
        [*alone, sys.executable, "-c", _IN_A_NAMESPACE, str(folder)], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["True True True", "False", "True True"]


# --- snapshots ---


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """On a local disk, whatever this machine has its temporary files on."""
    folder = tmp_path.resolve() / "work"
    folder.mkdir()
    monkeypatch.setattr(bounded_reads, "disks", LocalDisks(_table(tmp_path, ("/", "ext4"))))
    return folder


def _write(path: Path, text: str) -> None:
    """As if it were old; the time of the last change to its status cannot be set."""
    path.write_text(text)
    os.utime(path, (1_700_000_000, 1_700_000_000))


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_reads, "SETTLED_NS", 0)


def _snapshot(folder: Path) -> FileSnapshot:
    snapshot = FileSnapshot(str(folder))
    for name in ("there", "missing"):
        snapshot.note(str(folder / name))
    for name in (".mark", ".none"):
        snapshot.note_mark(str(folder / name))
    return snapshot


def _replace(folder: Path) -> None:
    _write(folder / "new", "content")
    (folder / "new").rename(folder / "there")


CHANGES: dict[str, Callable[[Path], object]] = {
    "another text": lambda folder: (folder / "there").write_text("another text"),
    "one as long and as old": lambda folder: _write(folder / "there", "CONTENT"),
    "another file with the same text": _replace,
    "other rights": lambda folder: (folder / "there").chmod(0),
    "gone": lambda folder: (folder / "there").unlink(),
    "one that was missing": lambda folder: (folder / "missing").touch(),
    "a link where nothing was": lambda folder: (folder / "missing").symlink_to("nowhere"),
    "a mark that was missing": lambda folder: (folder / ".none").mkdir(),
    "a mark that is gone": lambda folder: (folder / ".mark").rmdir(),
}


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_seen(folder: Path, change: str) -> None:
    _write(folder / "there", "content")
    (folder / ".mark").mkdir()
    snapshot = _snapshot(folder)
    assert snapshot.is_current()
    assert snapshot.is_current()
    CHANGES[change](folder)
    assert not snapshot.is_current()


@pytest.mark.usefixtures("settled")
def test_of_a_mark_only_matters_that_it_is_there(folder: Path) -> None:
    _write(folder / "there", "content")
    (folder / ".mark").mkdir()
    snapshot = _snapshot(folder)
    (folder / ".mark" / "index").write_text("")
    assert snapshot.is_current()


def test_what_was_changed_just_now_is_not_trusted(folder: Path) -> None:
    _write(folder / "there", "content")  # its status changes now, whatever its time says
    assert not _snapshot(folder).is_current()


@pytest.mark.usefixtures("settled")
def test_a_link_is_not_trusted(folder: Path) -> None:
    """What it leads to may change, or not answer."""
    (folder / "there").symlink_to("elsewhere")
    assert not _snapshot(folder).is_current()


@pytest.mark.usefixtures("settled")
def test_a_folder_elsewhere_is_not_trusted(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(folder / "there", "content")
    assert _snapshot(folder).is_current()
    monkeypatch.setattr(bounded_reads, "disks", LocalDisks(_table(tmp_path, ("/", "nfs4"))))
    assert not _snapshot(folder).is_current()


@pytest.mark.usefixtures("settled")
def test_a_change_of_mounts_ends_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(folder / "there", "content")
    snapshot = _snapshot(folder)
    monkeypatch.setattr(bounded_reads, "disks", LocalDisks())  # as after a change: nothing is known
    assert not snapshot.is_current()
