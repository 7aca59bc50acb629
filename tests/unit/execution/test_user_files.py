"""Files that nobody vouches for: what is read of them, and that a file system that hangs holds nobody up."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from treadle.execution import bounded_reads, read_in_thread, read_regular

pytestmark = pytest.mark.anyio


def content(path: Path, limit: int = 100) -> bytes | None:
    found = read_regular(str(path), limit)
    return None if found is None else found[0]


def test_a_file_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abcdef")
    assert content(tmp_path / "file", 4) == b"abcd"


def test_only_regular_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "none", tmp_path / "n\0n", Path("/dev/zero")):
        assert content(path) is None


async def test_a_look_answers_or_fails_as_its_function_does() -> None:
    assert await read_in_thread(lambda: threading.current_thread() is not threading.main_thread())
    with pytest.raises(ZeroDivisionError):
        await read_in_thread(lambda: 1 // 0)


async def test_a_look_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    monkeypatch.setattr(bounded_reads, "_readers", bounded_reads.Readers(2, "read"))
    try:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await read_in_thread(answers.wait, 0.01)
        with pytest.raises(TimeoutError, match="does not answer"):  # at once: those that hang are not joined
            await asyncio.wait_for(read_in_thread(lambda: None, 1000.0), 60)
    finally:
        answers.set()
    async with asyncio.timeout(60):  # when the file system answers again, so do we
        while True:
            try:
                assert await read_in_thread(lambda: "read") == "read"
                break
            except TimeoutError:
                await asyncio.sleep(0.001)


async def test_many_reads_at_once_share_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_reads, "_readers", bounded_reads.Readers(3, "read"))
    threads: set[threading.Thread] = set()
    reads = (read_in_thread(lambda: threads.add(threading.current_thread())) for _ in range(200))
    async with asyncio.timeout(60):
        await asyncio.gather(*reads)
        for _ in range(20):
            await read_in_thread(lambda: threads.add(threading.current_thread()))
    assert 1 <= len(threads) <= 3
