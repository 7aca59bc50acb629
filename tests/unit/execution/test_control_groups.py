"""Control groups for clients, on a folder that stands in for the file system of the kernel."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.execution import ControlGroups, NoControlGroups, ProcessLimits, Rights, TokenEntry, apply_groups

FILES = ("memory.max", "memory.swap.max", "pids.max", "cpu.max", "cgroup.procs")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As the kernel does: a group has its files from the start."""
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (tmp_path / "cgroup.subtree_control").touch()
    (tmp_path / "cgroup.procs").touch()
    mkdir: Callable[[str, int], None] = os.mkdir

    def make(path: str, mode: int = 0o777) -> None:
        mkdir(path, mode)
        for name in FILES:
            (Path(path) / name).touch()

    monkeypatch.setattr("os.mkdir", make)
    return tmp_path


def rights(name: str, **limits: object) -> Rights:
    made = Rights(name, TokenEntry(sandbox="none"))
    made.limits = ProcessLimits(**limits)  # type: ignore[arg-type]
    return made


def test_each_client_with_such_limits_has_a_group(folder: Path) -> None:
    all_rights = {
        "a": rights("a", memory=1 << 30, pids=50, cpus=1.5, files=100),
        "b": rights("b", cpus=0.001),
        "c": rights("c", files=100),
    }
    groups = apply_groups(all_rights, lambda: ControlGroups(str(folder)))
    assert groups is not None
    own = folder / f"treadle-{os.getpid()}"
    assert (own / "cgroup.procs").read_text() == "0", "nobody is left in the group that hands on controllers"
    assert (folder / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    limits = {name: each.limits for name, each in all_rights.items()}
    assert limits["a"] is not None
    assert limits["a"].cgroup == str(folder / f"treadle-{os.getpid()}-a")
    assert [number for number, _ in limits["a"].rlimits()] != []
    made = Path(limits["a"].cgroup)
    assert [(made / name).read_text() for name in FILES] == [str(1 << 30), "0", "50", "150000 100000", ""]
    assert limits["b"] is not None
    assert (Path(limits["b"].cgroup or "") / "cpu.max").read_text() == "1000 100000"
    assert limits["c"] == ProcessLimits(files=100)


def test_without_control_groups_memory_is_limited_for_each_process(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "cgroup.controllers").write_text("cpuset\n")
    memory = {"a": rights("a", memory=1 << 30)}
    assert apply_groups(memory, lambda: ControlGroups(str(folder))) is None
    assert memory["a"].limits == ProcessLimits(memory=1 << 30)
    assert "no controller for cpu, memory, pids" in caplog.text
    with pytest.raises(NoControlGroups, match="`pids` and `cpus` of a need control groups"):
        apply_groups({"a": rights("a", memory=1 << 30, pids=3)}, lambda: ControlGroups(str(folder)))


def test_a_group_that_is_shared_with_others_is_left_alone(folder: Path) -> None:
    (folder / "cgroup.subtree_control").unlink()
    (folder / "cgroup.subtree_control").mkdir()  # stands for EBUSY: it cannot be written
    with pytest.raises(NoControlGroups, match="cannot be used"):
        ControlGroups(str(folder))
    assert (folder / "cgroup.procs").read_text() == "0", "we are back where we were"
    with pytest.raises(NoControlGroups, match="No such file"):
        ControlGroups(str(folder / "missing"))
