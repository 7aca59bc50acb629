"""`treadle exec-server --attach NAME`: a server that outlives who connects to it, and connections through programs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.exec_program import running
from kit.processes import DEADLINE_S
from treadle.errors import SESSION_ATTACHED, ExecError
from treadle.execution import Environment, ExecParams, Output
from treadle.own_python import treadle_command

pytestmark = pytest.mark.anyio

ATTACH = treadle_command("exec-server", "--attach", "box")
# The process that starts commands is a child of the server's.
SERVER = ["sh", "-c", "echo $PPID"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / ("h" * 100)  # with the name of a socket more than a path of one has room for
    monkeypatch.setenv("TREADLE_HOME", str(folder))
    yield folder
    stop("box")


def stop(name: str) -> str:
    words = treadle_command("exec-server", "--stop", name)
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=DEADLINE_S).stdout


async def server_of(place: Environment) -> str:
    return (await place.run(SERVER, timeout=DEADLINE_S)).text


async def test_all_who_come_at_a_time_get_one_server(home: Path) -> None:
    async def one() -> str:
        async with await Environment.connect(through=ATTACH) as place:
            return await server_of(place)

    assert len(set(await asyncio.gather(*(one() for _ in range(4))))) == 1


async def test_another_program_goes_on_in_the_session_through_it(home: Path) -> None:
    async with await Environment.connect(through=ATTACH) as place:
        with pytest.raises(ExecError) as caught:  # of itself it would open a new one
            await Environment.connect(through=ATTACH, session_id=place.session_id)
        assert caught.value.code == SESSION_ATTACHED


async def test_a_command_outlives_the_program_between(home: Path, tmp_path: Path) -> None:
    """It is killed, as by the end of a machine on the way; the session is taken up again by another one."""
    pids = tmp_path / "pids"
    noted = ["sh", "-c", f'echo $$ >> {pids}; exec "$@"', "sh", *ATTACH]
    async with await Environment.connect(through=noted, recovery_s=DEADLINE_S) as place:
        words = ["sh", "-c", "read word; seq 20000; echo $word"]
        process = await place.start(ExecParams(process_id="p", argv=words, cwd="/", env={}, pipe_stdin=True))
        os.kill(int(pids.read_text()), signal.SIGKILL)
        await process.write("end\n")
        said = b"".join([event.chunk async for event in process.events() if isinstance(event, Output)])
    assert said == b"".join(b"%d\n" % number for number in range(1, 20001)) + b"end\n"
    assert len(pids.read_text().split()) == 2


async def test_another_program_goes_on_in_the_session_of_one_that_was_killed(home: Path) -> None:
    words = ["sh", "-c", "echo begun; read word; echo $word"]
    begun = f"""
import asyncio, os
from treadle.execution import Environment, ExecParams
async def main():
    place = await Environment.connect(through={ATTACH!r})
    await place.start(ExecParams(process_id="p", argv={words!r}, cwd="/", env={{}}, pipe_stdin=True))
    print(place.session_id, flush=True)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", begun], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == -signal.SIGKILL, done.stderr

    async def entered() -> Environment:
        while True:
            try:
                return await Environment.connect(through=ATTACH, session_id=done.stdout.strip())
            except ExecError as error:
                if error.code != SESSION_ATTACHED:  # the server has not seen yet that the other one is gone
                    raise
            await asyncio.sleep(0.05)

    async with asyncio.timeout(DEADLINE_S), await entered() as place:
        process = await place.take_up("p")
        await process.write("end\n")
        said = b"".join([event.chunk async for event in process.events() if isinstance(event, Output)])
    assert said == b"begun\nend\n"


async def test_it_ends_when_it_is_stopped_and_another_one_begins(home: Path) -> None:
    assert stop("box") == "no exec-servers of the name box stopped\n"
    async with await Environment.connect(through=ATTACH) as place:
        first = await server_of(place)
        assert stop("box") == "1 exec-server of the name box stopped\n"
    async with await Environment.connect(through=ATTACH) as place:
        assert await server_of(place) != first


async def test_one_that_nobody_uses_ends_by_itself(tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/s"
    with running(tmp_path, "--listen", address, "--idle-s", "1") as server:
        async with await Environment.connect(address, detach_s=0) as place:
            await place.run(["sleep", "2"], timeout=DEADLINE_S)
        assert await asyncio.to_thread(server.process.wait, DEADLINE_S) == 0


@pytest.mark.parametrize("name", ["../x", "a b", "", "x" * 65])
def test_a_name_that_leads_elsewhere_is_refused(home: Path, name: str) -> None:
    done = subprocess.run(
        treadle_command("exec-server", "--attach", name), capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 2
    assert "cannot be the name" in done.stderr
    assert not home.exists()


def test_a_folder_that_others_can_write_is_refused(home: Path) -> None:
    (home / "executors").mkdir(parents=True)
    (home / "executors").chmod(0o777)
    done = subprocess.run(ATTACH, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 1
    assert "is open to other users" in done.stderr
    (home / "executors").chmod(0o700)


# --- programs that are no way to a server ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'no way\x1b[31m' >&2; exit 1", r"sh: no way\[31m"),
        ("echo first >&2; echo last >&2; echo >&2; exit 1", "sh: first; last"),
        ("exit 0", "sh: the connection ended during the handshake"),
        ("cat", "sh: "),
        ("yes >&2 & yes; kill %1", "sh: "),
    ],
)
async def test_a_program_that_does_not_connect_says_why(script: str, said: str) -> None:
    with pytest.raises(ExecError, match=f"cannot reach the exec-server: {said}") as caught:
        await Environment.connect(through=["sh", "-c", script])
    assert "\x1b" not in str(caught.value)


async def test_what_cannot_be_started_is_named() -> None:
    with pytest.raises(ExecError, match="cannot start /nowhere/ssh: No such file"):
        await Environment.connect(through=["/nowhere/ssh"])
    with pytest.raises(ExecError, match="not both"):
        await Environment.connect("ws://127.0.0.1:1", through=["ssh"])
