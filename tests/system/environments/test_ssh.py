"""Another machine by ssh: a real sshd where one is installed, and a stand-in for what goes wrong."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.ssh_server import MISSING, SshServer, ssh_server, write_program
from treadle.errors import ExecError
from treadle.execution import Environment, ExecParams, OpenedMachine, Output, SshProvider, find_provider

pytestmark = pytest.mark.anyio


# --- a real sshd -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    if MISSING:
        pytest.skip(MISSING)
    # Short: the path of a socket has at most 107 bytes.
    with ssh_server(tmp_path_factory.mktemp("ssh")) as running:
        yield running


@pytest.fixture
async def options(server: SshServer, tmp_path: Path) -> AsyncIterator[dict[str, Any]]:
    given = {"host": "box", "config": str(server.config)}
    yield given
    await SshProvider().stop("box", given, str(tmp_path / "state"))


async def opened(options: dict[str, Any], tmp_path: Path) -> OpenedMachine:
    """As in a program that has just been started."""
    return await SshProvider().open("box", options, str(tmp_path / "state"))


async def connected(options: dict[str, Any], tmp_path: Path, **more: Any) -> Environment:
    return await Environment.connect(through=(await opened(options, tmp_path)).through, **more)


async def test_commands_run_there_with_the_home_there(
    server: SshServer, options: dict[str, Any], tmp_path: Path
) -> None:
    async with await connected(options, tmp_path) as box:
        done = await box.run(["sh", "-c", "echo $HOME; cat; exit 3"], cwd="/", input="here", timeout=60)
    assert (done.stdout, done.exit_code) == (f"{server.home}\nhere".encode(), 3)


async def test_a_command_goes_on_when_the_connection_is_cut(
    server: SshServer, options: dict[str, Any], tmp_path: Path
) -> None:
    there: list[bool] = []
    async with await connected(options, tmp_path, recovery_s=100, on_connection=there.append) as box:
        words = ["sh", "-c", "echo first; read word; echo $word; exit 4"]
        process = await box.start(ExecParams(process_id="p", argv=words, cwd="/", env={}, pipe_stdin=True))
        events = process.events()
        assert isinstance(first := await anext(events), Output)
        assert first.chunk == b"first\n"
        server.cut()
        await process.write("second\n")
        rest = [event async for event in events]
        assert isinstance(rest[0], Output)
        assert rest[0].chunk == b"second\n"
        assert (process.exit_code, there) == (4, [False, True])


async def test_the_server_there_is_found_again_and_ends_when_it_is_stopped(
    server: SshServer, options: dict[str, Any], tmp_path: Path
) -> None:
    async def one_run() -> bytes:
        async with await connected(options, tmp_path) as box:
            return (await box.run(["sh", "-c", "echo $PPID"], cwd="/", timeout=60)).stdout

    first = await one_run()
    assert first == await one_run()
    assert await SshProvider().stop("box", options, str(tmp_path / "state"))
    assert not await SshProvider().stop("box", options, str(tmp_path / "state"))
    assert not (tmp_path / "state").exists()
    assert first != await one_run()


async def test_who_is_not_let_in_reads_what_ssh_says(server: SshServer, tmp_path: Path) -> None:
    options = {"host": "stranger@box", "config": str(server.config)}
    with pytest.raises(ExecError, match=r"ssh cannot log in to stranger@box: .*Permission denied.*BatchMode"):
        await opened(options, tmp_path)


# --- a stand-in ------------------------------------------------------------------------------------------------------


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


async def test_without_ssh_the_package_is_named(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(ExecError, match="apt install openssh-client"):
        await opened({"host": "box"}, tmp_path)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "echo 'ssh: connect to host box port 22: Connection refused' >&2; exit 255",
            "port 22: Connection refused; `ssh",
        ),
        ("echo 'sh: 1: exec: treadle: not found' >&2; exit 127", "no `treadle` on box .*pipx install treadle=="),
        ("echo 'codex-cli 0.1.0 (treadle 0.0.9, which speaks its protocol)'", "it is treadle 0.0.9.*pipx install"),
        ("echo 'codex-cli 0.1.0 (treadle 99.1.0, which speaks its protocol)'", "it is treadle 99.1.0.*update this one"),
        ("echo hello", "is not that of Treadle"),
        ("echo 'a trap' >&2; exit 9", "exit code 9: a trap"),
    ],
)
async def test_what_is_wrong_there_is_said_with_what_to_do(
    programs: Path, tmp_path: Path, script: str, said: str
) -> None:
    write_program(programs / "ssh", script)
    with pytest.raises(ExecError, match=said):
        await opened({"host": "box"}, tmp_path)


async def test_the_version_is_asked_for_once(programs: Path, tmp_path: Path) -> None:
    write_program(programs / "ssh", f'echo "$@" >> {tmp_path}/asked; echo "(treadle 0.1.0)"')
    provider = SshProvider()
    given = {"host": "me@box", "port": 2222, "command": "~/bin/a treadle", "args": ["x y"]}
    for _ in range(2):
        found = await provider.open("box", given, str(tmp_path / "state"))
    (asked,) = (tmp_path / "asked").read_text().splitlines()
    assert asked.endswith("""-- me@box exec "$HOME"/'bin/a treadle' 'x y' --version""")
    assert "-p 2222" in asked
    assert "BatchMode=yes" in asked
    assert found.through is not None
    assert found.through[-1].startswith("""exec "$HOME"/'bin/a treadle' 'x y' exec-server --attach box-""")


@pytest.mark.parametrize(
    "host", ["-oProxyCommand=touch x", "", "a b", "a;b", "a\nb", "-l@box", "u@-box", "$(x)", "ssh://-x"]
)
async def test_a_host_that_is_something_else_is_refused(programs: Path, tmp_path: Path, host: str) -> None:
    write_program(programs / "ssh", f"touch {tmp_path}/called")
    with pytest.raises(ExecError, match="cannot be a host"):
        await opened({"host": host}, tmp_path)
    assert not (tmp_path / "called").exists()


async def test_options_that_nobody_knows_are_named(tmp_path: Path) -> None:
    with pytest.raises(ExecError, match=r"`options` cannot be used with provider `ssh`: .*unknown field `hots`"):
        await opened({"host": "box", "hots": "box"}, tmp_path)
    assert find_provider("ssh").name == "ssh"
