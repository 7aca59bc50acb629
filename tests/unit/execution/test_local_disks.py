"""Which folders may be read without a thread: those that nothing but a disk of this machine answers for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from treadle.execution import local_disks
from treadle.execution.local_disks import LocalDisks, is_local

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
    disks.survey(str(folder))
    assert disks.hold(str(folder))
    assert not disks.hold(str(folder / "below"))


def test_a_name_with_spaces_is_found_in_the_table(tmp_path: Path) -> None:
    folder = tmp_path.resolve() / "my work"
    folder.mkdir()
    disks = LocalDisks(_table(tmp_path, ("/", "ext4"), (str(folder).replace(" ", "\\040"), "fuse.sshfs")))
    disks.survey(str(folder))
    assert not disks.hold(str(folder))


def test_who_comes_by_a_link_is_not_known(tmp_path: Path) -> None:
    folder, link = tmp_path.resolve() / "work", tmp_path.resolve() / "link"
    (folder / "deep").mkdir(parents=True)
    link.symlink_to(folder)
    disks = LocalDisks(_table(tmp_path, ("/", "ext4")))
    for path in (f"{link}/deep", f"{folder}/../work", f"{folder}/", "work", "n\0n"):
        disks.survey(path)
        assert not disks.hold(path)


def test_without_a_table_nothing_is_known(tmp_path: Path) -> None:
    disks = LocalDisks(str(tmp_path / "none"))
    disks.survey(str(tmp_path))
    assert not disks.hold(str(tmp_path))


def test_it_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_disks, "MAX_FOLDERS", 3)
    disks = LocalDisks(_table(tmp_path, ("/", "ext4")))
    disks.hold("/")
    for number in range(10):
        disks.survey(f"{tmp_path}/{number}")
    assert sum(disks.hold(f"{tmp_path}/{number}") for number in range(10)) <= 3


_IN_A_NAMESPACE = """
import subprocess, sys
from treadle.execution.local_disks import LocalDisks
disks, folder = LocalDisks(), sys.argv[1]
disks.hold(folder)
disks.survey(folder)
print(disks.hold(folder), disks.hold(folder))
subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
print(disks.hold(folder))
disks.survey(folder)
print(disks.hold(folder))
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
    assert done.stdout.splitlines() == ["True True", "False", "True"]
