"""Tries `ControlGroups` on the kernel's own, in a mount namespace that the test has made.

The controllers for memory, processes and processors may belong to version 1 on a machine; `hugetlb` stands for them
then. What is made is removed again, also after a failure.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from treadle.execution import (
    HOST,
    ControlGroups,
    ExecParams,
    Installation,
    LocalBackend,
    NoControlGroups,
    PathRule,
    Policy,
    Process,
    ProcessLimits,
    Supervisor,
    process_limits,
)

NOBODY = 65534
PATH = {"PATH": "/usr/bin:/bin"}


def put(group: Path, name: str, text: str) -> None:
    descriptor = os.open(group / name, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def where() -> str:
    return Path("/proc/self/cgroup").read_text().rpartition("0::")[2].strip()


def populated(group: Path) -> bool:
    return "populated 1" in (group / "cgroup.events").read_text()


def refused(make: Callable[[], object]) -> str:
    try:
        make()
    except NoControlGroups as error:
        return str(error)
    raise AssertionError("it was not refused")


def groups_in(group: Path) -> list[str]:
    return sorted(path.name for path in group.iterdir() if path.is_dir())


class Bounds:
    def __init__(self, group: str, policy: Policy | None) -> None:
        self.limits: ProcessLimits | None = ProcessLimits(cgroup=group)
        self.policy = policy
        self.confined = policy is not None

    def command_policy(self) -> Policy | None:
        return self.policy


async def ended(process: Process) -> tuple[int | None, str]:
    output = b""
    async for event in process.events():
        output += getattr(event, "chunk", b"")
    return process.exit_code, output.decode()


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.01)


def what_is_not_offered_is_refused(own: Path) -> None:
    offered = (own / "cgroup.controllers").read_text().split()
    if not {"cpu", "memory", "pids"} <= set(offered):
        assert "has no controller for" in refused(lambda: ControlGroups(str(own)))
        assert groups_in(own) == []


def a_group_with_others_in_it_is_left_as_it_was(own: Path) -> None:
    bystander = subprocess.Popen(["sleep", "300"])
    try:
        assert "Device or resource busy" in refused(lambda: ControlGroups(str(own)))
        assert (groups_in(own), where(), (own / "cgroup.subtree_control").read_text()) == ([], f"/{own.name}", "")
    finally:
        bystander.kill()
        bystander.wait()


async def commands_are_in_the_group_of_their_client(own: Path) -> None:
    stale = own / f"treadle-{os.getpid()}-server"  # of a killed server with our number
    stale.mkdir()
    groups = ControlGroups(str(own))
    assert where() == f"/{own.name}/treadle-{os.getpid()}"
    assert "hugetlb" in (own / "cgroup.subtree_control").read_text()
    names = ("server", "ci")  # a client may have the name of anything
    group, other = (Path(groups.add(name, ProcessLimits())) for name in names)
    assert "hugetlb" in (group / "cgroup.controllers").read_text()
    supervisor = Supervisor()
    backend = LocalBackend(supervisor, bounds=Bounds(str(group), None))

    def params(name: str, script: str, **more: Any) -> ExecParams:
        return ExecParams(process_id=name, argv=["/bin/sh", "-c", script], cwd="/", env=PATH, **more)

    at = f"0::/{own.name}/{group.name}"
    for tty in (False, True):
        code, output = await ended(await backend.start(params(f"look {tty}", "tail -n1 /proc/self/cgroup", tty=tty)))
        assert (code, output.strip()) == (0, at)
    # What it leaves behind is in the group, and ended with the session.
    await ended(await backend.start(params("daemon", "setsid sleep 300 >/dev/null 2>&1 </dev/null &")))
    assert populated(group)
    assert not populated(other)
    # The kernel ends all of a group, and it is reported as any end.
    long = await backend.start(params("long", "sleep 300 & wait"))
    put(group, "cgroup.kill", "1")
    assert (await ended(long))[0] == 128 + signal.SIGKILL
    await until(lambda: not populated(group))
    await ended(await backend.start(params("daemon 2", "setsid sleep 300 >/dev/null 2>&1 </dev/null &")))
    assert populated(group)
    await backend.close(0.1)
    await until(lambda: not populated(group))
    # Who is confined does not leave.
    for mechanism in ("bubblewrap", "landlock"):
        if not (isinstance(HOST.bubblewrap(), Installation) if mechanism == "bubblewrap" else HOST.landlock()):
            continue
        os.environ["TREADLE_SANDBOX"] = mechanism
        policy = Policy((PathRule("/", "read"),), False)
        confined = LocalBackend(supervisor, bounds=Bounds(str(group), policy))
        script = f"echo $$ > {own}/cgroup.procs; echo 0 > {other}/cgroup.procs; tail -n1 /proc/self/cgroup"
        code, output = await ended(await confined.start(params("out", script)))
        assert (code, output.splitlines()[-1]) == (0, at), (mechanism, output)
        await confined.close(0.1)
    await supervisor.close()
    # One in which something runs stays, and the others go; we are where we were.
    left = subprocess.Popen(["sleep", "300"])
    put(other, "cgroup.procs", str(left.pid))
    groups.close()
    assert (groups_in(own), where()) == ([other.name], f"/{own.name}")
    assert (own / "cgroup.subtree_control").read_text() == ""
    left.kill()
    left.wait()
    await until(lambda: not populated(other))
    other.rmdir()


def a_group_is_handed_over_by_its_owner(own: Path) -> None:
    """As systemd does with `Delegate=yes`, to a user who may not do this anywhere else."""

    def made() -> object:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        try:
            groups = ControlGroups(str(own))
        except NoControlGroups as error:
            return str(error)
        group = groups.add("ci", ProcessLimits())
        names = groups_in(own)
        groups.close()
        return [len(names), os.path.isdir(group)]

    # The parent is in the group, and would be somebody else there.
    aside = own.parent / f"{own.name}-aside"
    aside.mkdir()
    try:

        def said() -> Any:
            begin, begun = os.pipe()
            answer, answered = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    os.close(begun)
                    os.read(begin, 1)
                    os.write(answered, json.dumps(made()).encode())
                finally:
                    os._exit(0)
            put(aside, "cgroup.procs", "0")
            for end in (begin, begun, answered):
                os.close(end)
            os.waitpid(child, 0)
            put(own, "cgroup.procs", "0")
            with open(answer, "rb") as file:
                return json.loads(file.read())

        assert "Permission denied" in said()
        for path in (own, own / "cgroup.procs", own / "cgroup.subtree_control", own / "cgroup.threads"):
            os.chown(path, NOBODY, NOBODY)
        found = said()
        assert found == [2, False], found
        assert groups_in(own) == []
    finally:
        put(own, "cgroup.procs", "0")
        aside.rmdir()


def main() -> None:
    top = Path(tempfile.mkdtemp(prefix="treadle-groups-"))  # where another user gets, too
    top.chmod(0o755)
    subprocess.run(["mount", "-t", "cgroup2", "none", str(top)], check=True)
    before, own = where(), top / f"treadle-test-{os.getpid()}"
    handed_on = (top / "cgroup.subtree_control").read_text().split()
    own.mkdir()
    try:
        put(own, "cgroup.procs", "0")
        what_is_not_offered_is_refused(own)
        put(top, "cgroup.subtree_control", "+hugetlb")
        process_limits._NEEDED = ("hugetlb",)  # type: ignore[misc, assignment]
        a_group_with_others_in_it_is_left_as_it_was(own)
        asyncio.run(commands_are_in_the_group_of_their_client(own))
        a_group_is_handed_over_by_its_owner(own)
    finally:
        put(top / before.lstrip("/"), "cgroup.procs", "0")
        put(own, "cgroup.kill", "1")
        deadline = time.monotonic() + 30
        while populated(own) and time.monotonic() < deadline:
            time.sleep(0.01)
        for group in (*map(own.joinpath, groups_in(own)), own):
            with suppress(OSError):
                group.rmdir()
        if "hugetlb" not in handed_on:
            put(top, "cgroup.subtree_control", "-hugetlb")
        subprocess.run(["umount", str(top)], check=True)
        top.rmdir()
    print("all of it")


if __name__ == "__main__":
    main()
