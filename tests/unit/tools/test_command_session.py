"""A session over a process that is played: what comes in pieces, too much, too late, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from treadle.errors import ExecError
from treadle.execution import Data, OutputStream, Process, WriteResult, WriteStatus, as_bytes
from treadle.protocol.exec import SignalName
from treadle.tools import MAX_DELTA, MAX_DELTA_BYTES, CommandSession, Taken, ToolInputError
from treadle.tools.command import command_sessions as module

pytestmark = pytest.mark.anyio
OUT, ERR = OutputStream.STDOUT, OutputStream.STDERR


class PlayedProcess(Process):
    """A process whose events the test adds."""

    def __init__(self) -> None:
        super().__init__("played")
        self.written: list[bytes] = []
        self.signals: list[str] = []
        self.status = WriteStatus.ACCEPTED
        self.deaf = False
        self.broken: ExecError | None = None

    def say(self, chunk: bytes, stream: OutputStream = OUT) -> None:
        self._add_output(stream, chunk)

    def exit(self, code: int = 0, denied: bool = False) -> None:
        self._add_exit(code, denied)

    def close(self) -> None:
        self._add_close()

    def lose(self, why: str) -> None:
        self._fail(why)

    async def write(self, data: Data) -> WriteResult:
        if self.deaf:
            await asyncio.Event().wait()
        if self.broken is not None:
            raise self.broken
        self.written.append(as_bytes(data, "data"))
        return WriteResult(self.status)

    async def close_stdin(self) -> None: ...

    async def signal(self, name: SignalName) -> None:
        self.signals.append(name)

    async def terminate(self, grace_s: float = 1.0) -> bool:
        if self.broken is not None:
            raise self.broken
        self.signals.append("terminate")
        if not self.deaf:
            self.exit(143)
            self.close()
        return True

    async def resize(self, rows: int, cols: int) -> None: ...


class Play:
    """A session, its process, its reader and what it showed."""

    def __init__(self, tty: bool = False) -> None:
        self.process = PlayedProcess()
        self.deltas: list[str] = []
        self.session = CommandSession(12345, self.process, tty, self.deltas.append)
        self.reader = asyncio.create_task(self.session.read())

    async def seen(self) -> None:
        """The reader has read everything that there is."""
        while not self.reader.done() and self.process.log.stats().backlog_bytes:
            await asyncio.sleep(0)
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
async def deadline() -> AsyncIterator[None]:
    async with asyncio.timeout(60):
        yield


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    play = Play()
    yield play
    play.reader.cancel()
    await asyncio.gather(play.reader, return_exceptions=True)


async def test_a_character_in_two_chunks_is_one_also_with_the_other_stream_between(play: Play) -> None:
    euro, umlaut = "€".encode(), "ü".encode()
    for chunk, stream in [(euro[:1], OUT), (umlaut[:1], ERR), (euro[1:2], OUT), (umlaut[1:], ERR), (euro[2:], OUT)]:
        play.process.say(chunk, stream)
        await play.seen()
    play.process.exit()
    play.process.close()
    await play.reader
    assert play.deltas == ["ü", "€"]
    assert play.session.aggregated == "ü€"


async def test_bad_bytes_are_replaced_also_at_the_end(play: Play) -> None:
    play.process.say(b"a\xffb\xe2\x82")
    play.process.exit()
    play.process.close()
    await play.reader
    assert play.session.aggregated == "a\ufffdb\ufffd"


async def test_output_is_taken_once(play: Play) -> None:
    play.process.say(b"one ")
    await play.seen()
    assert play.session.take_output(100) == Taken("one ", 1)
    assert play.session.take_output(100) == Taken("", 0)
    play.process.say(b"x" * 4000)
    await play.seen()
    taken = play.session.take_output(10)
    assert taken.original_tokens == 1000
    assert taken.text == f"{'x' * 20}\n[… 990 tokens of output were cut here …]\n{'x' * 20}"
    assert play.session.aggregated == "one " + "x" * 4000


async def test_deltas_are_cut_and_end_but_the_aggregate_goes_on(play: Play) -> None:
    for _ in range(6):
        play.process.say(b"\xff" * (256 << 10))  # three times as long as text
        await play.seen()
    play.process.say(b"the end")
    play.process.exit()
    play.process.close()
    await play.reader
    assert max(len(delta.encode()) for delta in play.deltas) <= MAX_DELTA
    assert MAX_DELTA_BYTES - 3 < sum(len(delta.encode()) for delta in play.deltas) <= MAX_DELTA_BYTES
    assert play.session.aggregated.endswith("the end")
    assert len(play.session.aggregated.encode()) <= module.MAX_AGGREGATED


async def test_very_many_deltas_end_too(play: Play) -> None:
    assert play.session._deltas is not None
    play.session._deltas._count_left = 3
    for _ in range(5):
        play.process.say(b"x")
        await play.seen()
    assert play.deltas == ["x", "x", "x"]
    assert play.session.aggregated == "xxxxx"


async def test_a_listener_that_fails_is_not_called_again_and_breaks_nothing(play: Play) -> None:
    calls: list[str] = []

    def fail(text: str) -> None:
        calls.append(text)
        raise RuntimeError("no")

    assert play.session._deltas is not None
    play.session._deltas._on_output = fail
    for chunk in (b"a", b"b"):
        play.process.say(chunk)
        await play.seen()
    assert calls == ["a"]
    assert play.session.aggregated == "ab"


async def test_the_end_is_told_once(play: Play) -> None:
    ended: list[CommandSession] = []
    play.session.on_end = ended.append
    assert play.session.running
    assert not await play.session.wait(0)
    play.process.exit(3, denied=True)
    play.process.close()
    assert await play.session.wait(60)
    await play.reader
    assert ended == [play.session]
    assert (play.session.exit_code, play.session.sandbox_denied, play.session.running) == (3, True, False)
    before = play.session.duration_ms
    play.session._started -= 1000  # as if time went by
    assert play.session.duration_ms == before


async def test_a_hook_that_comes_late_is_called_too(play: Play) -> None:
    play.process.exit()
    play.process.close()
    await play.reader
    told = asyncio.Event()
    play.session.on_end = lambda _session: told.set()
    assert not told.is_set()
    await told.wait()


async def test_a_hook_that_fails_breaks_nothing(play: Play) -> None:
    def fail(_session: CommandSession) -> None:
        raise RuntimeError("no")

    play.session.on_end = fail
    play.process.exit()
    play.process.close()
    await play.reader
    assert play.session.closed


async def test_an_exit_without_a_close_is_an_end_after_a_while(play: Play) -> None:
    play.process.say(b"before")
    play.process.exit(0)
    assert await play.session.wait(60)
    assert not play.session.closed
    play.process.say(b" after")
    await play.seen()
    assert play.session.aggregated == "before after"
    assert play.deltas == ["before"]
    play.process.close()
    await play.reader
    assert play.session.closed


async def test_a_lost_process_has_ended_without_a_code(play: Play) -> None:
    play.process.lose("the executor went away")
    assert await play.session.wait(60)
    assert (play.session.exit_code, play.session.failure) == (None, "the executor went away")


async def test_a_reader_that_is_cancelled_wakes_those_who_wait(play: Play) -> None:
    waiting = asyncio.create_task(play.session.wait(60))
    await asyncio.sleep(0)
    play.reader.cancel()
    assert await waiting
    assert play.process.log.stats().cursors == 0


# --- writing and ending ----------------------------------------------------------------------------------------------


async def test_text_is_written() -> None:
    play = Play(tty=True)
    await play.session.write("hé\n")
    await play.session.write("")
    await play.session.write("\x03")
    assert play.process.written == ["hé\n".encode(), b"\x03"]
    play.process.exit()
    play.process.close()
    await play.reader
    await play.session.write("too late")
    assert len(play.process.written) == 2


async def test_without_a_terminal_only_an_interrupt_can_be_sent(play: Play) -> None:
    play.process.status = WriteStatus.STDIN_CLOSED
    with pytest.raises(ToolInputError, match="tty set to true"):
        await play.session.write("x")
    await play.session.write("\x03")
    assert play.process.signals == ["interrupt"]


async def test_a_command_that_does_not_read(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITE_DEADLINE_S", 0.01)
    play.process.deaf = True
    with pytest.raises(ToolInputError, match=r"does not read its input.*It may still get it"):
        await play.session.write("x")


async def test_a_write_that_meets_the_end_is_no_error(play: Play) -> None:
    play.process.broken = ExecError("gone")
    with pytest.raises(ExecError):
        await play.session.write("x")
    play.process.exit()
    await play.session.write("x")


async def test_termination_with_a_notice(play: Play) -> None:
    play.process.say(b"working")
    await play.seen()
    await play.session.terminate("no room")
    assert play.session.closed
    assert play.session.exit_code == 143
    assert play.session.aggregated == "working\n[no room]\n"
    await play.session.terminate("again")
    assert play.process.signals == ["terminate"]


async def test_a_process_that_cannot_be_ended_counts_as_ended(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TERMINATE_DEADLINE_S", 0.01)
    play.process.deaf = True
    await play.session.terminate()
    assert not play.session.running
    assert not play.session.closed


async def test_an_executor_that_refuses_to_end_it(play: Play) -> None:
    play.process.broken = ExecError("connection lost")
    await play.session.terminate()
    assert not play.session.running
