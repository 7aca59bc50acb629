"""`Process.read` and `Process.events` on a process that the test makes up."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.execution import (
    Closed,
    Data,
    Evicted,
    Exited,
    Failed,
    Output,
    OutputChunk,
    OutputStream,
    Process,
    ReadResponse,
    WriteResult,
    WriteStatus,
)
from treadle.protocol.exec import SignalName

pytestmark = pytest.mark.anyio

DEADLINE_S = 30
LONG_MS = DEADLINE_S * 1000
OUT, ERR = OutputStream.STDOUT, OutputStream.STDERR


class MadeUp(Process):
    """Its events are added by hand."""

    def __init__(self, *, retained_bytes: int = 1 << 20) -> None:
        super().__init__("p", retained_bytes=retained_bytes)

    def out(self, *chunks: bytes) -> MadeUp:
        for chunk in chunks:
            self._add_output(OUT, chunk)
        return self

    def exit(self, code: int = 0, denied: bool = False) -> MadeUp:
        self._add_exit(code, denied)
        return self

    def end(self) -> MadeUp:
        self._add_close()
        return self

    def lose(self, reason: str) -> MadeUp:
        self._fail(reason)
        return self

    async def write(self, data: Data) -> WriteResult:
        return WriteResult(WriteStatus.STDIN_CLOSED)

    async def close_stdin(self) -> None: ...

    async def signal(self, name: SignalName) -> None: ...

    async def terminate(self, grace_s: float = 0.0) -> bool:
        return False

    async def resize(self, rows: int, cols: int) -> None: ...


def _chunks(response: ReadResponse) -> list[tuple[int, bytes]]:
    return [(chunk.seq, chunk.chunk) for chunk in response.chunks]


async def _waits(process: MadeUp, after_seq: int) -> asyncio.Task[ReadResponse]:
    """A long poll that finds nothing at first."""
    reading = asyncio.create_task(process.read(after_seq, wait_ms=LONG_MS))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not reading.done()
    return reading


async def _result(reading: asyncio.Task[ReadResponse]) -> ReadResponse:
    async with asyncio.timeout(DEADLINE_S):
        return await reading


# --- what is returned ------------------------------------------------------------------------------------------------


async def test_nothing_yet() -> None:
    assert await MadeUp().read() == ReadResponse((), 1, False, None, False)


async def test_chunks_with_their_streams_after_a_number() -> None:
    process = MadeUp().out(b"a")
    process._add_output(ERR, b"b")
    process._add_output(OutputStream.PTY, b"c")
    response = await process.read()
    assert response.chunks == (
        OutputChunk(1, OUT, b"a"),
        OutputChunk(2, ERR, b"b"),
        OutputChunk(3, OutputStream.PTY, b"c"),
    )
    assert response.next_seq == 4
    assert _chunks(await process.read(2)) == [(3, b"c")]
    assert _chunks(await process.read(3)) == []
    assert _chunks(await process.read(99)) == []


async def test_whole_life() -> None:
    process = MadeUp().out(b"a").exit(7, denied=True).out(b"late").end()
    response = await process.read()
    assert _chunks(response) == [(1, b"a"), (3, b"late")]
    assert (response.next_seq, response.exited, response.exit_code, response.closed) == (5, True, 7, True)
    assert (response.sandbox_denied, response.exited_seq, response.evicted) == (True, 2, None)
    assert response.failure is None


async def test_exit_is_not_the_end_of_output() -> None:
    response = await MadeUp().exit(0).read()
    assert (response.exited, response.exit_code, response.closed) == (True, 0, False)


@pytest.mark.parametrize(
    ("max_bytes", "count"), [(0, 1), (1, 1), (2, 1), (3, 1), (4, 2), (7, 2), (8, 3), (100, 3), (None, 3)]
)
async def test_max_bytes_gives_one_chunk_at_least_then_what_fits(max_bytes: int | None, count: int) -> None:
    process = MadeUp().out(b"aa", b"bb", b"cccc")
    assert len((await process.read(max_bytes=max_bytes)).chunks) == count


async def test_next_seq_with_and_without_max_bytes() -> None:
    process = MadeUp().out(b"aa", b"bb").exit(0).end()
    assert (await process.read()).next_seq == 5
    assert (await process.read(max_bytes=2)).next_seq == 2
    assert (await process.read(1, max_bytes=100)).next_seq == 3
    assert (await process.read(2, max_bytes=2)).next_seq == 5, "nothing returned: the counter"


async def test_closed_can_come_with_chunks_unread() -> None:
    response = await MadeUp().out(b"aa", b"bb").exit(0).end().read(max_bytes=0)
    assert response.closed
    assert _chunks(response) == [(1, b"aa")]


@given(st.lists(st.binary(min_size=1, max_size=8), max_size=12), st.integers(0, 12), st.integers(0, 20))
def test_reading_piece_by_piece_gives_everything_once(chunks: list[bytes], exit_at: int, max_bytes: int) -> None:
    async def run() -> list[bytes]:
        process = MadeUp()
        process.out(*chunks[:exit_at]).exit(0).out(*chunks[exit_at:]).end()
        read: list[bytes] = []
        after = 0
        while True:
            response = await process.read(after, max_bytes=max_bytes, wait_ms=LONG_MS)
            if not response.chunks:
                return read
            assert len(response.chunks) == 1 or sum(len(chunk.chunk) for chunk in response.chunks) <= max_bytes
            read += [chunk.chunk for chunk in response.chunks]
            after = response.next_seq - 1

    assert asyncio.run(run()) == chunks


# --- waiting ---------------------------------------------------------------------------------------------------------


async def test_returns_at_once_with_chunks_an_exit_or_the_close() -> None:
    process = MadeUp().out(b"a")
    async with asyncio.timeout(DEADLINE_S / 2):
        assert (await process.read(0, wait_ms=LONG_MS)).chunks
        process.exit(3)
        assert (await process.read(1, wait_ms=LONG_MS)).exited
        process.end()
        assert (await process.read(2, wait_ms=LONG_MS)).closed
        assert (await process.read(3, wait_ms=LONG_MS)).closed
        assert (await process.read(1000, wait_ms=LONG_MS)).closed


async def test_waits_for_output() -> None:
    process = MadeUp().out(b"old")
    reading = await _waits(process, 1)
    process.out(b"new")
    assert _chunks(await _result(reading)) == [(2, b"new")]


async def test_waits_for_the_exit() -> None:
    process = MadeUp()
    reading = await _waits(process, 0)
    process.exit(9)
    response = await _result(reading)
    assert (response.exit_code, response.next_seq) == (9, 2)


async def test_an_exit_already_seen_does_not_wake_but_the_close_does() -> None:
    process = MadeUp().exit(0)
    reading = await _waits(process, 1)
    process.end()
    assert (await _result(reading)).closed


async def test_output_after_an_exit_already_seen_wakes() -> None:
    process = MadeUp().exit(0)
    reading = await _waits(process, 1)
    process.out(b"late")
    assert _chunks(await _result(reading)) == [(2, b"late")]


async def test_waits_past_numbers_that_are_not_there_yet() -> None:
    process = MadeUp()
    reading = await _waits(process, 2)
    process.out(b"1", b"2")
    for _ in range(10):
        await asyncio.sleep(0)
    assert not reading.done()
    process.out(b"3")
    assert _chunks(await _result(reading)) == [(3, b"3")]


async def test_waits_when_all_output_so_far_is_gone() -> None:
    process = MadeUp(retained_bytes=10).out(b"more than is retained")
    reading = await _waits(process, 0)
    process.out(b"new")
    response = await _result(reading)
    assert _chunks(response) == [(2, b"new")]
    assert response.evicted == Evicted(1, 1)


async def test_gives_up_after_the_time_asked_for() -> None:
    async with asyncio.timeout(DEADLINE_S):
        assert await MadeUp().read(wait_ms=1) == ReadResponse((), 1, False, None, False)


async def test_cancelled_wait_leaves_nothing_behind() -> None:
    process = MadeUp()
    reading = await _waits(process, 0)
    reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled()
    assert not process.log._waiters


# --- losses ----------------------------------------------------------------------------------------------------------


async def test_eviction_is_told() -> None:
    process = MadeUp(retained_bytes=10).out(b"aaaa", b"bbbb", b"cccc", b"dddd")
    response = await process.read()
    assert _chunks(response) == [(3, b"cccc"), (4, b"dddd")]
    assert response.evicted == Evicted(1, 2)
    assert (await process.read(1)).evicted == Evicted(2, 2)
    assert (await process.read(2)).evicted is None


async def test_exit_and_close_are_never_evicted() -> None:
    process = MadeUp(retained_bytes=10).out(b"aaaa").exit(5).out(b"bbbb", b"cccc", b"dddd").end()
    response = await process.read()
    assert (response.exit_code, response.closed, response.exited_seq) == (5, True, 2)
    assert response.evicted == Evicted(1, 1)
    assert [event async for event in process.events()] == [
        Evicted(1, 1),
        Exited(2, 5),
        Evicted(3, 3),
        Output(4, OUT, b"cccc"),
        Output(5, OUT, b"dddd"),
        Closed(6),
    ]


async def test_failure_ends_everything_and_says_why() -> None:
    process = MadeUp().out(b"kept")
    reading = await _waits(process, 1)
    process.lose("the executor went away")
    response = await _result(reading)
    assert (response.exited, response.exit_code, response.closed) == (True, None, True)
    assert response.failure == "the executor went away"
    assert response.chunks == ()
    assert _chunks(await process.read()) == [(1, b"kept")]
    async with asyncio.timeout(DEADLINE_S):
        assert await process.wait() is None


async def test_failure_after_the_close_is_none() -> None:
    process = MadeUp().exit(0).end().lose("too late")
    assert process.failure is None
    assert await process.wait() == 0


# --- events ----------------------------------------------------------------------------------------------------------


async def test_events_are_history_then_live() -> None:
    process = MadeUp().out(b"a")
    stream = process.events()

    async def read() -> list[object]:
        return [event async for event in stream]

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    process.out(b"b").exit(1).end()
    async with asyncio.timeout(DEADLINE_S):
        events = await reading
    assert events == [Output(1, OUT, b"a"), Output(2, OUT, b"b"), Exited(3, 1), Closed(4)]
    assert [event async for event in process.events(3)] == [Closed(4)]


async def test_failure_is_the_last_event_and_comes_once() -> None:
    process = MadeUp().out(b"a").lose("gone")
    stream = process.events()
    assert [event async for event in stream] == [Output(1, OUT, b"a"), Failed("gone")]
    assert [event async for event in stream] == []


async def test_subscriber_who_does_not_read_fills_the_log_and_one_who_leaves_frees_it() -> None:
    process = MadeUp(retained_bytes=100)
    stream = process.events()
    process.out(b"x" * 51)
    assert process.log.full
    stream.close()
    assert process.log.has_room
    assert [event async for event in stream] == []


async def test_changed_tells_the_last_number() -> None:
    process = MadeUp()
    changing = asyncio.create_task(process.changed())
    await asyncio.sleep(0)
    assert not changing.done()
    process.out(b"a")
    process.out(b"b")
    async with asyncio.timeout(DEADLINE_S):
        assert await changing == 2
        process.exit(0).end()
        assert await process.changed(100) == 4


async def test_state_in_words() -> None:
    process = MadeUp()
    states = [repr(process)]
    states.append(repr(process.exit(0)))
    states.append(repr(process.end()))
    states.append(repr(MadeUp().lose("x")))
    for state, word in zip(states, ("running", "exited", "closed", "failed"), strict=True):
        assert word in state
    info = process.info(("cat",), tty=True)
    assert (info.next_seq, info.exited, info.exit_code, info.closed, info.argv) == (3, True, 0, True, ("cat",))
