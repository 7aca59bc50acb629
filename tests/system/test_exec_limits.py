"""Limits that the commands of a client are started with: they have them before they run, and cannot raise them."""

from __future__ import annotations

import os
import resource
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from treadle.errors import ExecError
from treadle.execution import ExecParams, LocalBackend, Policy, Process, ProcessLimits, Supervisor

pytestmark = pytest.mark.anyio
# Root with this capability may raise every limit, when nothing confines it.
CAP_SYS_RESOURCE = 24
STATUS = Path("/proc/self/status").read_text()
MAY_RAISE = int(STATUS.partition("CapEff:")[2].split()[0], 16) >> CAP_SYS_RESOURCE & 1


@dataclass
class Held:
    limits: ProcessLimits | None
    confined: bool = False

    def command_policy(self) -> Policy | None:
        return None


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    supervisor = Supervisor()
    yield supervisor
    await supervisor.close()


async def ended(process: Process) -> tuple[int | None, bytes]:
    output = b""
    async for event in process.events():
        output += getattr(event, "chunk", b"")
    return process.exit_code, output


async def run(
    supervisor: Supervisor, limits: ProcessLimits, argv: list[str], cwd: Path, **more: object
) -> tuple[int | None, bytes]:
    backend = LocalBackend(supervisor, bounds=Held(limits))
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    params = ExecParams(process_id="p", argv=argv, cwd=cwd, env=env, **more)  # type: ignore[arg-type]
    try:
        return await ended(await backend.start(params))
    finally:
        await backend.close()


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "tty"])
async def test_limits_are_hard(supervisor: Supervisor, tmp_path: Path, tty: bool) -> None:
    limits = ProcessLimits(files=64, file_bytes=1 << 20, cpu_s=7, memory=1 << 30)
    script = "ulimit -Hn; ulimit -Hf; ulimit -Ht; ulimit -Hv; ulimit -n 65 2>/dev/null || echo no"
    code, output = await run(supervisor, limits, ["/bin/bash", "-c", script], tmp_path, tty=tty)
    raised = [] if MAY_RAISE else ["no"]
    assert (code, output.decode().split()) == (0, ["64", "1024", "7", str(1 << 20), *raised])


async def test_a_command_is_the_same_with_limits(supervisor: Supervisor, tmp_path: Path) -> None:
    """Session, group, signals, descriptors, working directory and name: all as without."""
    look = (
        "import os, signal, sys; print(os.getsid(0) == os.getpgrp() == os.getpid(), os.getcwd(), sorted(os.listdir("
        "'/proc/self/fd'))[:4], signal.getsignal(signal.SIGINT) is signal.default_int_handler, "
        "signal.pthread_sigmask(0, ()), open('/proc/self/cmdline').read().split(chr(0))[0], "
        "int(open('/proc/self/status').read().partition('SigIgn:')[2].split()[0], 16) & 0x7fffffff, os.isatty(0))"
    )
    for tty in (False, True):
        outputs = []
        for limits in (ProcessLimits(), ProcessLimits(files=64)):
            backend = LocalBackend(supervisor, bounds=Held(limits if limits.files else None))
            params = ExecParams(
                process_id="p",
                argv=["python3", "-S", "-c", look],
                cwd=tmp_path,
                env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
                tty=tty,
                arg0="another name",
            )
            outputs.append(await ended(await backend.start(params)))
            await backend.close()
        assert outputs[0] == outputs[1]
        assert outputs[0][0] == 0, outputs


async def test_what_is_too_much_is_refused_by_the_system(supervisor: Supervisor, tmp_path: Path) -> None:
    code, _ = await run(supervisor, ProcessLimits(cpu_s=1), ["/bin/sh", "-c", "while :; do :; done"], tmp_path)
    assert code in (137, 152)
    command = ["/bin/sh", "-c", "head -c 10000 /dev/zero > file"]
    code, _ = await run(supervisor, ProcessLimits(file_bytes=4096), command, tmp_path)
    assert code != 0
    assert (tmp_path / "file").stat().st_size == 4096
    eat = ["/usr/bin/env", "python3", "-S", "-c", "bytearray(600 << 20)"]
    assert (await run(supervisor, ProcessLimits(memory=1 << 30), eat, tmp_path))[0] == 0
    code, output = await run(supervisor, ProcessLimits(memory=512 << 20), eat, tmp_path)
    assert (code, b"MemoryError" in output) == (1, True)


async def test_a_start_that_fails_says_why_as_without_limits(supervisor: Supervisor, tmp_path: Path) -> None:
    limits = ProcessLimits(files=64)
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for argv, cwd, says in (
        (["no-such-program"], tmp_path, "No such file or directory (os error 2): program 'no-such-program'"),
        ([str(plain)], tmp_path, "Permission denied (os error 13): program"),
        (["true"], tmp_path / "missing", "No such file or directory (os error 2): cwd"),
    ):
        with pytest.raises(ExecError) as caught:
            await run(supervisor, limits, argv, cwd)
        assert says in str(caught.value)
    with pytest.raises(ExecError, match="limits"):
        await run(supervisor, ProcessLimits(cgroup=str(tmp_path / "none")), ["true"], tmp_path)


async def test_a_command_joins_its_group_before_it_runs(supervisor: Supervisor, tmp_path: Path) -> None:
    """A folder stands in for the kernel's: whoever writes 0 to the file of a group is in it."""
    procs = tmp_path / "cgroup.procs"
    procs.touch()
    limits = ProcessLimits(memory=1 << 30, cgroup=str(tmp_path))
    code, output = await run(supervisor, limits, ["cat", str(procs)], tmp_path)
    assert (code, output) == (0, b"0")
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    code, output = await run(supervisor, limits, ["/bin/bash", "-c", "ulimit -v"], tmp_path)
    unlimited = b"unlimited\n" if soft == resource.RLIM_INFINITY else b"%d\n" % (soft >> 10)
    assert output == unlimited, "the group limits memory, and address space is something else"


async def test_many_at_a_time(supervisor: Supervisor, tmp_path: Path) -> None:
    backend = LocalBackend(supervisor, bounds=Held(ProcessLimits(files=64)))
    env = {"PATH": os.environ["PATH"]}
    started = [
        await backend.start(ExecParams(process_id=f"p{n}", argv=["sh", "-c", f"exit {n}"], cwd=tmp_path, env=env))
        for n in range(30)
    ]
    assert [(await ended(process))[0] for process in started] == list(range(30))
    await backend.close()
