"""A disk that is full: a small one of our own, in a namespace of our own."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from unit.store.store_process import store_process

# Mounts a disk of two megabytes over the folder in $0 and runs the rest there.
SMALL_DISK: Final = ("unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=2m none "$0" && exec "$@"')


def _can_mount(folder: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*SMALL_DISK, str(folder), "true"], capture_output=True).returncode == 0


def test_a_full_disk_is_a_clear_error_and_no_loss(tmp_path: Path) -> None:
    if not _can_mount(tmp_path):
        pytest.skip("no disk can be mounted here; the unit tests fill a file instead")
    with store_process(tmp_path, "fill", wrapper=(*SMALL_DISK, str(tmp_path))) as program:
        full = program.hear()
        assert full["error"] == "full"
        assert str(tmp_path) in full["message"]
        assert "make room" in full["message"]
        assert full["written"] > 5
        after = program.hear()
        while "error" in after:
            assert after["error"] == "full"
            after = program.hear()
        # What was there is there, also for a store that is opened while there is no room.
        assert after["read"] == after["written"] >= full["written"]
        assert after["found"] == 1
        # With room again, the same store goes on; so does the next one.
        last = program.hear()
        assert last["read"] == last["written"] == after["written"] + 1
        assert last["found"] == 2
        assert program.process.wait(60) == 0


def test_a_backup_to_a_full_disk_names_that_disk(tmp_path: Path) -> None:
    home, disk = tmp_path / "home", tmp_path / "disk"
    home.mkdir()
    disk.mkdir()
    if not _can_mount(disk):
        pytest.skip("no disk can be mounted here; the unit tests fill a file instead")
    with sqlite3.connect(home / "threads.db") as database:
        database.execute("CREATE TABLE much (what BLOB)")
        database.execute("INSERT INTO much VALUES (?)", (os.urandom(4 << 20),))
    database.close()
    treadle = [sys.executable, "-m", "treadle", "store", "backup", str(disk / "copy")]
    done = subprocess.run(
        [*SMALL_DISK, str(disk), *treadle], env={**os.environ, "TREADLE_HOME": str(home)}, capture_output=True
    )
    assert done.returncode == 1
    assert f"{disk}/copy cannot be written: No space left on device" in done.stderr.decode()
