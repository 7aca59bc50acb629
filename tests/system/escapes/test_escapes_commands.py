"""What a confined command leaves behind when it ends, and what it does to the terminal that it runs on."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from backends import output_of, story, wait_for_text
from treadle.execution import Environment, ExecParams, Mechanism, Process, uri_from_path
from treadle.protocol.exec import (
    FileSystemPermissions,
    Permissions,
    Sandbox,
    SandboxEntry,
    SandboxPath,
    SandboxPathValue,
)

pytestmark = pytest.mark.anyio

DEADLINE_S = 60.0
PYTHON = os.path.realpath(sys.executable)
DAEMON = "setsid sleep {marker} </dev/null >/dev/null 2>&1 &"
# The tag by which a family is found is a limit, which a process may change as it likes.
RENAMED_DAEMON = """
import os, resource
if os.fork() == 0:
    os.setsid()
    try:
        resource.setrlimit(10, (12345, resource.RLIM_INFINITY))
    except (OSError, ValueError):
        pass
    null = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.execv("/bin/sleep", ["sleep", "{marker}"])
"""
TYPED = """
import fcntl
try:
    fcntl.ioctl(0, {request}, b"x")
    print("pushed")
except OSError as error:
    print("refused", error.errno)
"""
TIOCSTI = 0x5412


@pytest.fixture(autouse=True)
def nothing_is_left(marker: str) -> Iterator[None]:
    """Also of a test that failed."""
    yield
    for pid in having(marker):
        os.kill(pid, signal.SIGKILL)


class Commands:
    """`await commands.start(["sh", …])`, confined to the folder."""

    def __init__(self, environment: Environment, folder: Path) -> None:
        self._environment = environment
        self._folder = folder
        self._hidden: Path | None = None

    def hide(self, name: str) -> Path:
        """A folder of the user that commands must not see."""
        self._hidden = self._folder.parent / f"{self._folder.name}-{name}"
        self._hidden.mkdir(mode=0o700)
        for file in ("auth.json", "log"):
            (self._hidden / file).touch(0o600)
        return self._hidden

    async def start(
        self,
        *argv: str,
        confined: bool = True,
        tty: bool = False,
        pipe_stdin: bool = False,
        process_id: str = "it",
    ) -> Process:
        return await self._environment.start(
            ExecParams(
                process_id=process_id,
                argv=argv,
                cwd=self._folder,
                env={"PATH": "/usr/bin:/bin"},
                tty=tty,
                pipe_stdin=pipe_stdin,
                sandbox=workspace(self._folder, self._hidden) if confined else None,
            )
        )


def workspace(folder: Path, hidden: Path | None) -> Sandbox:
    entries = [
        SandboxEntry(path=SandboxPath(type="special", value=SandboxPathValue(kind="root")), access="read"),
        SandboxEntry(path=SandboxPath(type="path", path=uri_from_path(str(folder))), access="write"),
    ]
    if hidden is not None:
        path = SandboxPath(type="path", path=uri_from_path(str(hidden)))
        entries.append(SandboxEntry(path=path, access="none"))
    files = FileSystemPermissions(type="restricted", entries=tuple(entries))
    return Sandbox(permissions=Permissions(type="managed", network="restricted", file_system=files))


@pytest.fixture
async def commands(tmp_path: Path) -> AsyncIterator[Commands]:
    async with asyncio.timeout(DEADLINE_S), await Environment.connect(None) as environment:
        yield Commands(environment, Path(os.path.realpath(tmp_path)))


def having(marker: str) -> list[int]:
    """The processes that have exactly this argument."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if marker.encode() in words:
            found.append(int(name))
    return found


async def until(marker: str, *, there: bool) -> list[int]:
    while bool(found := having(marker)) != there:
        await asyncio.sleep(0.02)
    return found


# --- daemons ---


async def test_a_daemon_ends_with_its_command(mechanism: Mechanism, commands: Commands, marker: str) -> None:
    process = await commands.start("/bin/sh", "-c", DAEMON.format(marker=marker))
    assert await process.wait() == 0
    await until(marker, there=False)


async def test_a_daemon_that_changed_its_tag_ends_with_its_command(
    mechanism: Mechanism, commands: Commands, marker: str
) -> None:
    process = await commands.start(PYTHON, "-I", "-S", "-c", RENAMED_DAEMON.format(marker=marker))
    assert await process.wait() == 0
    await until(marker, there=False)


async def test_a_daemon_that_holds_the_output_open_ends_too(
    mechanism: Mechanism, commands: Commands, marker: str
) -> None:
    process = await commands.start("/bin/sh", "-c", f"setsid sleep {marker} & echo done")
    assert output_of(await story(process)) == b"done\n"
    await until(marker, there=False)


async def test_in_a_shell_that_goes_on_a_background_job_does_too(
    mechanism: Mechanism, commands: Commands, marker: str
) -> None:
    script = f"(setsid sleep {marker} &); echo ready; read line; echo $line"
    process = await commands.start("/bin/sh", "-c", script, pipe_stdin=True)
    await wait_for_text(process, b"ready")
    await until(marker, there=True)
    await process.write(b"still here\n")
    await wait_for_text(process, b"still here")
    await until(marker, there=False)


@pytest.mark.parametrize("program", [("/bin/sh", "-c", DAEMON), (PYTHON, "-I", "-S", "-c", RENAMED_DAEMON)])
async def test_without_a_sandbox_daemons_stay(commands: Commands, marker: str, program: tuple[str, ...]) -> None:
    *before, script = program
    process = await commands.start(*before, script.format(marker=marker), confined=False)
    assert await process.wait() == 0
    await until(marker, there=True)


NESTED = """
import asyncio
from treadle.execution import Environment

async def main():
    async with await Environment.connect(None) as environment:
        print(await environment.run(["/bin/echo", "inner"]))

asyncio.run(main())
"""


async def test_commands_can_be_run_from_inside(mechanism: Mechanism, commands: Commands) -> None:
    """Where the tag cannot be put on, families are told by their session."""
    process = await commands.start(sys.executable, "-c", NESTED)
    assert b"inner" in output_of(await story(process))


@pytest.mark.parametrize("tty", [False, True])
async def test_its_environment_comes_along(mechanism: Mechanism, commands: Commands, tty: bool) -> None:
    process = await commands.start("/usr/bin/env", tty=tty)
    assert output_of(await story(process)).split() == [b"PATH=/usr/bin:/bin"]


# --- modes of what is hidden ---


@pytest.mark.parametrize("tty", [False, True])
async def test_landlock_puts_modes_of_what_is_hidden_back(landlock: Mechanism, commands: Commands, tty: bool) -> None:
    home = commands.hide("home")
    before = {path: path.stat().st_mode for path in (home, *home.iterdir())}
    process = await commands.start("/bin/sh", "-c", f"chmod 777 {home} {home}/auth.json; chmod 0 {home}/log", tty=tty)
    told = output_of(await story(process)).decode()
    assert {path: path.stat().st_mode for path in before} == before
    assert all(str(path) in told for path in before), told
    process = await commands.start("/bin/sh", "-c", "chmod 700 .", tty=tty, process_id="next")
    assert output_of(await story(process)) == b""


async def test_landlock_puts_modes_back_when_all_has_ended(
    landlock: Mechanism, commands: Commands, marker: str
) -> None:
    """Two at a time: neither takes for the right mode what the other has made of it."""
    home = commands.hide("home")
    endless = f"chmod 777 {home}; echo ready; read line"
    first = await commands.start("/bin/sh", "-c", endless, pipe_stdin=True)
    await wait_for_text(first, b"ready")
    daemon = f"(while :; do chmod 755 {home}; done; : {marker}) </dev/null >/dev/null 2>&1 & echo started"
    second = await commands.start("/usr/bin/setsid", "/bin/sh", "-c", daemon, process_id="second")
    await story(second)
    await first.write(b"\n")
    await story(first)
    while stat.S_IMODE(home.stat().st_mode) != 0o700:
        await asyncio.sleep(0.02)


# --- the terminal ---


def typing(request: int) -> tuple[str, ...]:
    return PYTHON, "-I", "-S", "-c", TYPED.format(request=request)


@pytest.mark.parametrize("request_number", [TIOCSTI, 0x541C])
async def test_nothing_is_typed_into_its_terminal(
    mechanism: Mechanism, commands: Commands, request_number: int
) -> None:
    process = await commands.start(*typing(request_number), tty=True)
    assert b"refused 1\r\n" in output_of(await story(process))


async def test_without_a_sandbox_it_can_be_typed(commands: Commands) -> None:
    switch = Path("/proc/sys/dev/tty/legacy_tiocsti")
    if switch.exists() and switch.read_text() == "0\n":
        pytest.skip("this kernel lets nobody type into a terminal")
    process = await commands.start(*typing(TIOCSTI), confined=False, tty=True)
    assert b"pushed\r\n" in output_of(await story(process))


async def test_its_own_terminal_works(mechanism: Mechanism, commands: Commands) -> None:
    process = await commands.start(
        "/bin/sh", "-c", "echo hello > /dev/tty; test -t 0 && echo one > /dev/stdout", tty=True
    )
    assert output_of(await story(process)).split() == [b"hello", b"one"]


async def test_its_own_terminal_works_by_name(
    mechanism: Mechanism, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mechanism == "bubblewrap":
        pytest.skip("under bubblewrap the terminal has no name")
    process = await commands.start("/bin/sh", "-c", 'echo hello > "$(tty)"', tty=True)
    assert output_of(await story(process)).split() == [b"hello"]
