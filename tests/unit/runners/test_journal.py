"""The journal of jobs: what survives a cut at any byte, damage and a full disk; that it is private, alone and small."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from treadle.runners import (
    COMPACT_BYTES,
    Job,
    JobDone,
    JobJournal,
    JobQueued,
    JobRunning,
    JobSession,
    JournalError,
    JournalFile,
    JournalInUse,
    JournalLine,
    UnfinishedJob,
    journal_path,
    plan_recovery,
)
from unit.runners.scripted_runner import ENGINE, token

pytestmark = pytest.mark.anyio


def queued(id: str, prompt: str = "do it", after: str | None = None) -> JobQueued:
    return JobQueued(Job(engine=ENGINE, prompt=prompt, id=id), after)


def write(path: Path, *lines: JournalLine) -> list[UnfinishedJob]:
    """Add lines in a session of their own, and see what the next one finds."""
    file = JournalFile(str(path))
    file.open()
    assert not any(file.write(lines))
    file.close()
    return read(path)


def read(path: Path) -> list[UnfinishedJob]:
    file = JournalFile(str(path))
    entries = file.open()
    file.close()
    return entries


def ids(entries: list[UnfinishedJob]) -> list[str]:
    return [entry.job.id for entry in entries]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "journal"


# --- what it knows ---


def test_it_knows_what_waits_and_what_ran_and_forgets_what_is_done(path: Path) -> None:
    write(path, queued("a"), queued("b"), queued("c"), queued("d"))
    write(path, JobRunning("a"), JobSession("a", token("s")), JobRunning("b"), JobDone("c"))
    first, second, fourth = read(path)
    assert (first.running, first.session, first.starts) == (True, token("s"), 1)
    assert (second.running, second.session) == (True, None)
    assert (fourth.job, fourth.running) == (queued("d").job, False)
    assert ids(write(path, JobDone("a"), JobDone("d"))) == ["b"]
    assert write(path, JobDone("b")) == []
    assert path.read_bytes() == b""


def test_a_follow_up_gets_its_session_with_the_job_that_it_follows(path: Path) -> None:
    early = write(path, queued("a"), JobRunning("a"), queued("b", after="a"))
    assert early[1].after == "a"
    write(path, JobSession("a", token("s")), queued("c", after="a"))
    later = write(path, JobDone("a"))
    assert [(entry.job.resume, entry.after) for entry in later] == [(token("s"), None), (token("s"), None)]


def test_a_job_that_waits_again_keeps_its_place_and_its_count(path: Path) -> None:
    write(path, queued("a"), JobRunning("a"), queued("b"))
    again = write(path, JobQueued(queued("a", "continue").job, starts=1))
    assert ids(again) == ["a", "b"]
    assert (again[0].running, again[0].starts, again[0].job.prompt) == (False, 1, "continue")
    assert write(path, JobRunning("a"))[0].starts == 2
    assert read(path)[0].starts == 2


def test_the_home_says_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))
    assert journal_path() == str(tmp_path / "home" / "runs" / "journal")
    assert journal_path(tmp_path) == str(tmp_path / "runs" / "journal")


# --- private and alone ---


def test_nobody_else_can_read_the_prompts(path: Path) -> None:
    path.parent.mkdir(mode=0o755)
    path.touch(mode=0o644)
    journal = JournalFile(str(path))
    journal.open()
    journal.write([queued("a")])
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    journal.close()
    assert ids(read(path)) == ["a"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_second_writer_is_refused_until_the_first_is_gone(path: Path) -> None:
    first, second = JournalFile(str(path)), JournalFile(str(path))
    first.open()
    with pytest.raises(JournalInUse, match=f"process {os.getpid()}"):
        second.open()
    first.write([queued("a")])
    first.close()
    assert ids(second.open()) == ["a"]
    second.close()


async def test_who_gives_up_opening_does_not_keep_the_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go, opening = threading.Event(), threading.Event()
    plain = JournalFile.open

    def slow(file: JournalFile) -> list[UnfinishedJob]:
        opening.set()
        assert go.wait(30)
        return plain(file)

    monkeypatch.setattr(JournalFile, "open", slow)
    journal = JobJournal(str(path))
    task = asyncio.ensure_future(journal.open())
    await asyncio.to_thread(opening.wait, 30)
    task.cancel()
    await asyncio.wait({task})
    go.set()
    await asyncio.to_thread(journal._thread.shutdown)
    monkeypatch.undo()
    assert read(path) == []


# --- damage ---


def test_a_last_line_cut_anywhere_costs_only_that_line(path: Path) -> None:
    write(path, queued("a"), queued("b"))
    data = path.read_bytes()
    last = data.index(b"\n") + 1
    for cut in range(last, len(data)):
        path.write_bytes(data[:cut])
        assert ids(write(path, queued("c"))) == ["a", "c"]
    path.write_bytes(data)
    assert ids(read(path)) == ["a", "b"]


# Garbage, lines of a version to come, one that is too deep, and one that is long.
DAMAGE = {
    "zeros": b"\x00" * 40,
    "no text": b"\xff\xfe",
    "no text in a text": b'{"type":"done","id":"\xff"}',
    "list": b"[]",
    "no job": b'{"type":"queued"}',
    "half a character": rb'{"type":"done","id":"\ud800"}',
    "new type": b'{"type":"new","id":"x"}',
    "new shape": b'{"type":"queued","version":9,"job":{"engine":["a"],"prompt":"p","id":"z"}}',
    "deep": b'{"type":"queued","job":{"engine":"x","prompt":"p","id":"z","meta":{"a":' + b"[" * 200_000,
    "long": b"x" * (8 << 20),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_line_is_skipped_and_said_without_its_words(
    path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    write(path, queued("a", "private words"), queued("b", "private words"))
    first, second, _ = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([first, damage, b"", second, b""]))
    assert ids(read(path)) == ["a", "b"]
    assert "line 2 is damaged" in caplog.text
    assert "private" not in caplog.text
    assert damage not in path.read_bytes()
    aside = path.with_name("journal.damaged")
    assert aside.read_bytes() == damage + b"\n"
    assert stat.S_IMODE(aside.stat().st_mode) == 0o600
    assert aside.name in caplog.text


def test_lines_that_do_not_fit_together_cost_nothing_else(path: Path) -> None:
    write(path, queued("a", "first"), queued("b", after="c"), queued("c", after="b"), queued("d", after="d"))
    assert ids(write(path, JobDone("nobody"), JobRunning("nobody"), JobSession("nobody", token("s")))) == [
        "a",
        "b",
        "c",
        "d",
    ]
    again = write(path, queued("a", "second"), queued("e"))
    assert (again[0].job.id, again[0].job.prompt) == ("a", "second")
    plan = plan_recovery(again, "continue")
    assert [job.id for job, _ in plan.jobs] == ["a", "e"]
    assert [job.id for job in plan.orphaned] == ["b", "c", "d"]


def test_a_member_of_a_newer_version_is_no_damage(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(path, queued("a"))
    path.write_bytes(path.read_bytes().replace(b'"engine"', b'"newer":{"x":1},"engine"'))
    assert ids(read(path)) == ["a"]
    assert caplog.text == ""


def test_what_a_killed_writer_left_behind_is_removed(path: Path) -> None:
    write(path, queued("a"))
    left = path.with_name("journal.123.abc.new")
    left.write_text("half of it")
    other = path.with_name("notes.new")
    other.touch()
    assert ids(read(path)) == ["a"]
    assert not left.exists()
    assert other.exists()


def test_a_place_that_cannot_be_used_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(JournalError, match=r"runs/journal could not be opened \(.*exists.*\)"):
        JournalFile(journal_path(tmp_path)).open()


# --- small ---


def test_it_stays_small(path: Path) -> None:
    file = JournalFile(str(path))
    file.open()
    file.write([queued("stays", "x" * 1000), JobRunning("stays"), JobSession("stays", token("s"))])
    largest = 0
    for number in range(1000):
        id = f"job {number}"
        file.write([queued(id, "y" * 500), JobRunning(id), JobSession(id, token(id)), JobDone(id)])
        largest = max(largest, path.stat().st_size)
    file.close()
    assert COMPACT_BYTES // 2 < largest < 2 * COMPACT_BYTES
    (entry,) = read(path)
    assert (entry.job.id, entry.running, entry.session) == ("stays", True, token("s"))
    assert path.stat().st_size < 2000


# --- a full disk ---


class Disk:
    """A disk that ends a given number of bytes after what is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._end: int | None = None
        self._plain: Callable[[int, bytes], int] = os.write
        monkeypatch.setattr(os, "write", self._write)

    def fill(self, path: Path, room: int = 0) -> None:
        self._end = path.stat().st_size + room

    def empty(self) -> None:
        self._end = None

    def _write(self, fd: int, data: bytes) -> int:
        if self._end is None:
            return self._plain(fd, data)
        room = self._end - os.fstat(fd).st_size
        if room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._plain(fd, bytes(data)[:room])


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    yield Disk(monkeypatch)
    monkeypatch.undo()


def test_on_a_full_disk_a_job_is_refused_and_nothing_of_it_is_kept(path: Path, disk: Disk) -> None:
    file = JournalFile(str(path))
    file.open()
    assert file.write([queued("a")]) == [None]
    before = path.read_bytes()
    disk.fill(path, 20)
    (failure,) = file.write([queued("b")])
    assert isinstance(failure, JournalError)
    assert "No space left on device): make room on its disk and try again" in str(failure)
    assert failure.path == str(path)
    assert path.read_bytes() == before
    disk.empty()
    assert file.write([queued("c")]) == [None]
    file.close()
    assert ids(read(path)) == ["a", "c"]


def test_what_has_happened_is_written_as_soon_as_there_is_room(path: Path, disk: Disk) -> None:
    file = JournalFile(str(path))
    file.open()
    file.write([queued("a"), queued("b"), JobRunning("b")])
    disk.fill(path)
    assert all(file.write([JobDone("a")]))
    assert all(file.write([JobSession("b", token("s"))]))
    disk.empty()
    file.close()
    (entry,) = read(path)
    assert (entry.job.id, entry.session) == ("b", token("s"))


def test_a_long_line_that_does_not_fit_takes_no_short_one_with_it(path: Path, disk: Disk) -> None:
    file = JournalFile(str(path))
    file.open()
    file.write([queued("a")])
    disk.fill(path, 100)
    results = file.write([queued("b", "x" * 1000), JobDone("a")])
    assert isinstance(results[0], JournalError)
    file.close()
    disk.empty()
    assert read(path) == []


def test_if_it_cannot_be_written_anew_the_long_one_serves(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = JournalFile(str(path))
    file.open()
    monkeypatch.setattr("treadle.runners.scheduling.job_journal.replace_file", full)
    file.write([queued("stays")])
    for number in range(200):
        assert not any(file.write([queued(str(number), "y" * 500), JobDone(str(number))]))
    file.close()
    assert ids(read(path)) == ["stays"]
    assert 1 <= caplog.text.count("could not be written anew") <= 4


# --- off the loop ---


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[JobJournal]:
    journal = JobJournal(str(path))
    async with asyncio.timeout(60):
        await journal.open()
        try:
            yield journal
        finally:
            await journal.close()


async def test_a_slow_disk_does_not_block_the_loop_and_lines_share_its_syncs(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    syncs = 0
    plain = os.fdatasync

    def slow(fd: int) -> None:
        nonlocal syncs
        syncs += 1
        assert go.wait(30)
        plain(fd)

    async with opened(path) as journal:
        monkeypatch.setattr(os, "fdatasync", slow)
        writes = [asyncio.ensure_future(journal.write(queued(str(number)))) for number in range(100)]
        while not syncs:
            await asyncio.sleep(0)  # The loop runs, and the disk does not.
        assert not any(write.done() for write in writes)
        go.set()
        await asyncio.gather(*writes)
        assert syncs < 10
    assert ids(read(path)) == [str(number) for number in range(100)]


async def test_lines_are_written_even_if_nobody_waits_for_them(path: Path) -> None:
    async with opened(path) as journal:
        task = asyncio.ensure_future(journal.write(queued("a")))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        await journal.write(queued("b"))
    assert ids(read(path)) == ["a", "b"]


async def test_one_of_several_that_fails_is_told(path: Path, disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(path) as journal:
        disk.fill(path)
        with pytest.raises(JournalError, match="No space"):
            await journal.write(queued("a"))
        await journal.note(JobDone("x"))
        assert "will not know what became of a job" in caplog.text
        disk.empty()
        await journal.write(queued("b"))
    assert ids(read(path)) == ["b"]
