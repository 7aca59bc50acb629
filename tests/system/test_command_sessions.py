"""Commands of a model, as real processes: of this program, and of an exec-server."""

from __future__ import annotations

import asyncio
import sys
import tracemalloc
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kit.processes import processes_left, processes_with
from treadle.errors import ExecError
from treadle.execution import Environment, Sandbox
from treadle.protocol.exec import FileSystemPermissions, Permissions, SandboxEntry, SandboxPath
from treadle.tools import MAX_AGGREGATED, MAX_DELTA_BYTES, CommandSession, CommandSessions, CommandSpec, ToolInputError
from treadle.tools.command import command_sessions as module

pytestmark = pytest.mark.anyio

PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
LONG = 60.0
TOKENS = 10_000


@pytest.fixture(autouse=True)
async def deadline() -> AsyncIterator[None]:
    async with asyncio.timeout(100):
        yield


class Shown:
    """What a client would be shown of a command, and a way to wait for it."""

    def __init__(self) -> None:
        self.deltas: list[str] = []
        self._news = asyncio.Event()

    def __call__(self, delta: str) -> None:
        self.deltas.append(delta)
        self._news.set()

    @property
    def text(self) -> str:
        return "".join(self.deltas)

    async def has(self, text: str) -> str:
        while text not in self.text:
            self._news.clear()
            await self._news.wait()
        return self.text


class Terminal:
    """The sessions of a thread in a folder; `await terminal("script")` starts one."""

    def __init__(self, env: Environment, cwd: Path) -> None:
        self.cwd = cwd
        self.asked = 0

        async def environment(environment_id: str) -> Environment:
            self.asked += 1
            return env

        self.sessions = CommandSessions(environment)

    async def __call__(
        self,
        script: str | tuple[str, ...],
        shown: Shown | None = None,
        *,
        tty: bool = False,
        cwd: str | None = None,
        sandbox: Sandbox | None = None,
    ) -> CommandSession:
        spec = CommandSpec(
            command=("/bin/bash", "-c", script) if isinstance(script, str) else script,
            cwd=str(self.cwd) if cwd is None else cwd,
            env=PATH,
            tty=tty,
            sandbox=sandbox,
        )
        return await self.sessions.start(spec, Shown() if shown is None else shown)


EXEC_SERVER = (sys.executable, "-m", "treadle", "exec-server", "--listen", "stdio://")


@pytest.fixture(params=[None, EXEC_SERVER], ids=["local", "exec-server"])
async def env(request: pytest.FixtureRequest) -> AsyncIterator[Environment]:
    async with await Environment.connect(request.param) as env:
        yield env


@pytest.fixture
async def terminal(env: Environment, tmp_path: Path) -> AsyncIterator[Terminal]:
    terminal = Terminal(env, tmp_path)
    yield terminal
    await terminal.sessions.close()
    assert not terminal.sessions._readers


# --- output and end --------------------------------------------------------------------------------------------------


async def test_output_of_both_streams_and_exit_code(terminal: Terminal) -> None:
    shown = Shown()
    session = await terminal("echo hi; echo err >&2; exit 3", shown)
    assert await session.wait(LONG)
    assert (session.exit_code, session.running, session.sandbox_denied) == (3, False, False)
    assert sorted(session.aggregated.split()) == ["err", "hi"]
    assert session.aggregated == shown.text
    assert session.take_output(TOKENS).text == shown.text
    assert session.duration_ms >= 0
    assert session.process_id == str(session.id)
    assert 10_000 <= session.id < 100_000


async def test_output_comes_before_the_exit(terminal: Terminal) -> None:
    shown = Shown()
    session = await terminal("mkfifo pipe; echo first; cat pipe; exit 4", shown)
    await shown.has("first")
    assert session.running
    assert session.take_output(TOKENS).text == "first\n"
    assert not await session.wait(0)
    with (terminal.cwd / "pipe").open("w") as pipe:
        pipe.write("second\n")
    assert await session.wait(LONG)
    assert (session.exit_code, session.take_output(TOKENS).text) == (4, "second\n")
    assert session.aggregated == "first\nsecond\n"


async def test_streams_keep_their_order_when_the_reader_saw_each(terminal: Terminal) -> None:
    shown = Shown()
    session = await terminal("mkfifo a b; echo out1; cat a; echo err1 >&2; cat b; echo out2", shown)
    await shown.has("out1")
    (terminal.cwd / "a").open("w").close()
    await shown.has("err1")
    (terminal.cwd / "b").open("w").close()
    assert await session.wait(LONG)
    assert session.aggregated == "out1\nerr1\nout2\n"


async def test_a_command_that_still_runs_can_be_found_again(terminal: Terminal) -> None:
    session = await terminal("exec sleep 1000")
    assert not await session.wait(0.01)
    assert terminal.sessions.get(session.id) is session
    terminal.sessions.forget(session)  # it runs: it is not forgotten
    assert terminal.sessions.get(session.id) is session
    await session.terminate()
    assert (session.exit_code, session.closed) == (143, True)
    terminal.sessions.forget(session)
    assert terminal.sessions.get(session.id) is None


async def test_a_character_that_is_written_in_two_parts(terminal: Terminal) -> None:
    shown = Shown()
    session = await terminal(r"mkfifo a; printf 'x\xe2\x82'; cat a; printf '\xacy\xff'", shown)
    await shown.has("x")
    (terminal.cwd / "a").open("w").close()
    assert await session.wait(LONG)
    assert session.aggregated == "x€y\ufffd"


async def test_very_much_output_in_bounded_memory(terminal: Terminal) -> None:
    shown = Shown()
    tracemalloc.start()
    try:
        session = await terminal("echo BEGIN; head -c 50000000 /dev/zero | tr '\\0' x; echo END", shown)
        assert await session.wait(90)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20
    assert len(shown.text) <= MAX_DELTA_BYTES
    assert len(session.aggregated.encode()) <= MAX_AGGREGATED
    assert session.aggregated.startswith("BEGIN\nxxx")
    assert session.aggregated.endswith("xxxEND\n")
    taken = session.take_output(100)
    assert taken.original_tokens == 12_500_003  # 50,000,010 bytes
    assert len(taken.text) < 500


# --- input -----------------------------------------------------------------------------------------------------------


async def test_writing_to_a_terminal(terminal: Terminal) -> None:
    shown = Shown()
    session = await terminal("stty -echo; echo ready; read x; echo got:$x", shown, tty=True)
    await shown.has("ready")
    await session.write("42\n")
    assert await session.wait(LONG)
    assert session.exit_code == 0
    assert session.aggregated == "ready\r\ngot:42\r\n"


async def test_an_interrupt_with_and_without_a_terminal(terminal: Terminal) -> None:
    for tty in (True, False):
        shown = Shown()
        # Nothing is forked: bash hangs for good when an interrupt ends its child between fork and exec.
        script = "trap 'echo caught; exit 7' INT; echo ready; while :; do :; done"
        session = await terminal(script, shown, tty=tty)
        await shown.has("ready")
        await session.write("\x03")
        assert await session.wait(LONG)
        assert session.exit_code == 7
        assert "caught" in session.aggregated


async def test_without_a_terminal_there_is_no_input(terminal: Terminal) -> None:
    session = await terminal("cat; echo end of input")
    assert await session.wait(LONG)
    assert session.aggregated == "end of input\n"
    session = await terminal("exec sleep 1000")
    with pytest.raises(ToolInputError, match="tty"):
        await session.write("x")


# --- background, and the end of everything ---------------------------------------------------------------------------


async def test_a_child_that_holds_the_output_open_does_not_hold_the_session(terminal: Terminal) -> None:
    shown = Shown()
    session = await terminal("mkfifo a; { cat a; echo late; } & echo $!", shown)
    assert await session.wait(LONG)
    assert (session.exit_code, session.closed) == (0, False)
    terminal.sessions.forget(session)
    assert terminal.sessions.get(session.id) is session
    (terminal.cwd / "a").open("w").close()
    await session._closed.wait()
    assert session.aggregated.endswith("late\n")
    assert "late" not in shown.text  # a client was told of the end before
    await asyncio.sleep(0)
    assert terminal.sessions.get(session.id) is None


FAMILY = """
trap '' TERM HUP INT
sleep 1000.{marker}1 &
setsid sleep 1000.{marker}2 &
echo ready
while :; do sleep 1000.{marker}3; done
"""


async def _family(terminal: Terminal, tty: bool = False) -> tuple[CommandSession, str]:
    """Deaf to TERM, with a child, and a child in a session of its own."""
    marker, shown = str(uuid.uuid4().int)[:20], Shown()
    session = await terminal(FAMILY.format(marker=marker), shown, tty=tty)
    await shown.has("ready")
    while len(processes_with(f"1000.{marker}")) < 3:
        await asyncio.sleep(0.01)
    return session, f"1000.{marker}"


@pytest.mark.parametrize("tty", [False, True])
async def test_termination_takes_the_descendants_too(terminal: Terminal, tty: bool) -> None:
    session, marker = await _family(terminal, tty)
    ended: list[CommandSession] = []
    session.on_end = ended.append
    await session.terminate("told to end")
    assert ended == [session]
    assert not session.running
    assert session.aggregated.endswith("[told to end]\n")
    assert await asyncio.to_thread(processes_left, marker) == []


async def test_closing_ends_what_runs(terminal: Terminal) -> None:
    session, marker = await _family(terminal)
    other = await terminal("sleep 1000 & exit 0")  # has ended, its child has not
    assert await other.wait(LONG)
    waiting = asyncio.create_task(session.wait(LONG))
    await terminal.sessions.close()
    assert await waiting
    assert other.closed
    assert await asyncio.to_thread(processes_left, marker) == []
    with pytest.raises(ExecError, match="closed"):
        await terminal("true")
    await terminal.sessions.close()


async def test_closing_while_a_command_starts(env: Environment, tmp_path: Path) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def environment(environment_id: str) -> Environment:
        asked.set()
        await go_on.wait()
        return env

    sessions = CommandSessions(environment)
    number = f"1000.{str(uuid.uuid4().int)[:20]}"
    spec = CommandSpec(command=("sleep", number), cwd=str(tmp_path), env=PATH)
    starting = asyncio.create_task(sessions.start(spec, Shown()))
    await asked.wait()
    await sessions.close()
    go_on.set()
    with pytest.raises(ExecError, match="closed"):
        await starting
    assert [info.argv for info in await env.processes()] == [spec.command]
    assert await asyncio.to_thread(processes_left, number) == []


async def test_a_start_that_is_given_up_leaves_nothing(terminal: Terminal) -> None:
    number = f"1000.{str(uuid.uuid4().int)[:20]}"
    starting = asyncio.create_task(terminal(("sleep", number)))
    while not terminal.asked:
        await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert terminal.sessions._starting == set()
    assert await (await terminal("true")).wait(LONG)  # whatever was still on its way has arrived
    assert await asyncio.to_thread(processes_left, number) == []


async def test_too_many_sessions(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SESSIONS", 3)
    first, second = await terminal("exec sleep 1000"), await terminal("exec sleep 1000")
    over = await terminal("true")
    assert await over.wait(LONG)
    assert terminal.sessions.get(first.id) is first  # used: the second one is now the first to go
    third = await terminal("exec sleep 1000")
    assert terminal.sessions.get(over.id) is None
    assert first.running
    assert second.running
    fourth = await terminal("exec sleep 1000")
    assert not second.running
    assert "ended to make room" in second.aggregated
    assert first.running
    assert third.running
    assert fourth.running
    assert len(terminal.sessions) == 3


async def test_many_starts_at_once_stay_below_the_limit(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SESSIONS", 3)
    started = await asyncio.gather(*(terminal("exec sleep 1000") for _ in range(9)))
    assert sum(session.running for session in started) <= 3
    assert len({session.id for session in started}) == 9


# --- what cannot be started ------------------------------------------------------------------------------------------


async def test_starts_that_fail(terminal: Terminal) -> None:
    pattern = SandboxEntry(path=SandboxPath(type="glob_pattern", pattern="*"), access="read")
    restricted = FileSystemPermissions(type="restricted", entries=(pattern,))
    for command, cwd, sandbox, told in (
        (("/bin/true",), "/no/such/folder", None, "/no/such/folder"),
        (("/no/such/program",), None, None, "/no/such/program"),
        (("no-such-program-at-all",), None, None, "no-such-program-at-all"),
        (("/bin/true",), "relative", None, "absolute"),
        ((), None, None, "empty"),
        (("/bin/true",), None, Sandbox(permissions=Permissions(type="managed", file_system=restricted)), "pattern"),
    ):
        with pytest.raises(ExecError, match=told):
            await terminal(command, cwd=cwd, sandbox=sandbox)
    assert len(terminal.sessions) == 0
    assert terminal.sessions._starting == set()
    assert await (await terminal("true")).wait(LONG)


async def test_an_environment_that_cannot_be_had(tmp_path: Path) -> None:
    async def environment(environment_id: str) -> Environment:
        raise ExecError("no machine")

    sessions = CommandSessions(environment)
    with pytest.raises(ExecError, match="no machine"):
        await sessions.start(CommandSpec(command=("true",), cwd=str(tmp_path)), Shown())
    await sessions.close()
