"""The writing end of a child's stdin, over a pipe that the test reads."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator

import pytest

from treadle.errors import INTERNAL_ERROR, ExecError
from treadle.execution import MAX_QUEUED, MAX_WRITE_IDS, Stdin, WriteStatus

pytestmark = pytest.mark.anyio

DEADLINE_S = 30
# More than the pipe and the queue hold together.
MUCH = b"x" * (1 << 20)


class Pipe:
    """A `Stdin` and the child's end of it."""

    def __init__(self, *, owns_fd: bool = True) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self.writer, False)
        self.stdin = Stdin(self.writer, owns_fd=owns_fd)

    async def read(self, count: int) -> bytes:
        """So many bytes, or what there is until the end."""
        data = bytearray()
        done = asyncio.Event()

        def readable() -> None:
            chunk = os.read(self.reader, count - len(data))
            data.extend(chunk)
            if not chunk or len(data) == count:
                loop.remove_reader(self.reader)
                done.set()

        loop = asyncio.get_running_loop()
        loop.add_reader(self.reader, readable)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await done.wait()
        finally:
            loop.remove_reader(self.reader)
        return bytes(data)

    def close_reader(self) -> None:
        os.close(self.reader)
        self.reader = -1

    def writer_is_open(self) -> bool:
        try:
            os.fstat(self.writer)
        except OSError:
            return False
        return True


@pytest.fixture
async def pipe() -> AsyncIterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.stdin.end()
    if pipe.reader >= 0:
        pipe.close_reader()


async def _turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def _blocked(pipe: Pipe) -> asyncio.Task[WriteStatus]:
    """Fill pipe and queue, then one more write that has to wait."""
    assert await pipe.stdin.write(MUCH) is WriteStatus.ACCEPTED
    waiting = asyncio.create_task(pipe.stdin.write(b"waited"))
    await _turns()
    assert not waiting.done()
    return waiting


async def test_writes_arrive_in_order(pipe: Pipe) -> None:
    data = [b"%d " % number * (number % 50) for number in range(2000)]

    async def write(chunk: bytes) -> None:
        assert await pipe.stdin.write(chunk) is WriteStatus.ACCEPTED

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        for chunk in data:
            group.create_task(write(chunk))
        assert await pipe.read(len(b"".join(data))) == b"".join(data)


async def test_accepted_before_the_child_reads(pipe: Pipe) -> None:
    async with asyncio.timeout(DEADLINE_S):
        assert await pipe.stdin.write(b"a") is WriteStatus.ACCEPTED
        assert await pipe.stdin.write(MUCH) is WriteStatus.ACCEPTED


async def test_writer_waits_for_a_child_that_does_not_read(pipe: Pipe) -> None:
    waiting = await _blocked(pipe)
    # Then the pipe is full again and half of the queue is in use: room enough.
    left = fcntl.fcntl(pipe.reader, fcntl.F_GETPIPE_SZ) + MAX_QUEUED // 2
    assert await pipe.read(len(MUCH) - left) == MUCH[left:]
    async with asyncio.timeout(DEADLINE_S):
        assert await waiting is WriteStatus.ACCEPTED
    assert pipe.stdin._queued > 0
    assert await pipe.read(left + 6) == MUCH[:left] + b"waited"


async def test_writer_that_gives_up_has_written_nothing(pipe: Pipe) -> None:
    waiting = await _blocked(pipe)
    waiting.cancel()
    await asyncio.wait([waiting])
    after = asyncio.create_task(pipe.stdin.write(b"after"))
    assert await pipe.read(len(MUCH) + 5) == MUCH + b"after"
    assert await after is WriteStatus.ACCEPTED


async def test_repeated_write_id_is_written_once(pipe: Pipe) -> None:
    for write_id in ("1", "2", "1", "2", "1"):
        assert await pipe.stdin.write(write_id.encode(), write_id) is WriteStatus.ACCEPTED
    await pipe.stdin.write(b"|")
    await pipe.stdin.write(b"|")
    assert await pipe.read(4) == b"12||"


async def test_repeat_of_a_write_that_still_waits_is_written_once(pipe: Pipe) -> None:
    await pipe.stdin.write(MUCH)
    writes = [asyncio.create_task(pipe.stdin.write(b"once", "id")) for _ in range(2)]
    await pipe.read(len(MUCH))
    async with asyncio.timeout(DEADLINE_S):
        assert await asyncio.gather(*writes) == [WriteStatus.ACCEPTED] * 2
    await pipe.stdin.write(b"!")
    assert await pipe.read(5) == b"once!"


async def test_id_of_a_cancelled_write_can_be_used_again(pipe: Pipe) -> None:
    await pipe.stdin.write(MUCH)
    waiting = asyncio.create_task(pipe.stdin.write(b"again", "id"))
    await _turns()
    waiting.cancel()
    await asyncio.wait([waiting])
    await pipe.read(len(MUCH))
    assert await pipe.stdin.write(b"again", "id") is WriteStatus.ACCEPTED
    assert await pipe.read(5) == b"again"


async def test_as_many_ids_are_remembered_as_promised(pipe: Pipe) -> None:
    await pipe.stdin.write(b"a", "first")
    for number in range(MAX_WRITE_IDS - 1):
        await pipe.stdin.write(b"", str(number))
    await pipe.stdin.write(b"b", "first")
    await pipe.stdin.write(b"", "one too many")
    await pipe.stdin.write(b"c", "first")
    assert await pipe.read(2) == b"ac"


async def test_close_comes_after_what_was_accepted(pipe: Pipe) -> None:
    await pipe.stdin.write(MUCH)
    await pipe.stdin.close()
    assert await pipe.stdin.write(b"late") is WriteStatus.STDIN_CLOSED
    assert await pipe.read(len(MUCH) + 1) == MUCH
    assert not pipe.writer_is_open()
    await pipe.stdin.close()


async def test_close_of_an_idle_stdin_is_the_end_of_input(pipe: Pipe) -> None:
    await pipe.stdin.close()
    assert await pipe.read(1) == b""
    assert await pipe.stdin.write(b"late") is WriteStatus.STDIN_CLOSED


async def test_close_waits_its_turn(pipe: Pipe) -> None:
    waiting = await _blocked(pipe)
    closing = asyncio.create_task(pipe.stdin.close())
    assert await pipe.read(len(MUCH) + 7) == MUCH + b"waited"
    async with asyncio.timeout(DEADLINE_S):
        await closing
        assert await waiting is WriteStatus.ACCEPTED


async def test_child_that_closed_its_stdin(pipe: Pipe) -> None:
    pipe.close_reader()
    assert await pipe.stdin.write(b"lost") is WriteStatus.ACCEPTED
    assert await pipe.stdin.write(b"refused") is WriteStatus.STDIN_CLOSED
    assert not pipe.writer_is_open()


async def test_child_that_closes_its_stdin_frees_the_writers(pipe: Pipe) -> None:
    waiting = await _blocked(pipe)
    pipe.close_reader()
    async with asyncio.timeout(DEADLINE_S):
        assert await waiting is WriteStatus.STDIN_CLOSED


async def test_end_drops_what_is_queued_and_tells_the_writers(pipe: Pipe) -> None:
    waiting = await _blocked(pipe)
    pipe.stdin.end()
    with pytest.raises(ExecError, match="failed to write to process stdin") as caught:
        async with asyncio.timeout(DEADLINE_S):
            await waiting
    assert caught.value.code == INTERNAL_ERROR
    with pytest.raises(ExecError):
        await pipe.stdin.write(b"late")
    assert not pipe.writer_is_open()
    assert len(await pipe.read(len(MUCH))) < len(MUCH)
    pipe.stdin.end()


async def test_repeated_write_is_accepted_after_the_end(pipe: Pipe) -> None:
    await pipe.stdin.write(b"a", "id")
    pipe.stdin.end()
    assert await pipe.stdin.write(b"a", "id") is WriteStatus.ACCEPTED


async def test_descriptor_of_somebody_else_is_left_open() -> None:
    pipe = Pipe(owns_fd=False)
    await pipe.stdin.write(MUCH)
    pipe.stdin.end()
    assert pipe.writer_is_open()
    assert not asyncio.get_running_loop().remove_writer(pipe.writer)
    os.close(pipe.writer)
    pipe.close_reader()
