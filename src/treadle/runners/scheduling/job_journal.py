"""`JobJournal`: the unfinished jobs of a scheduler, in a file that survives the death of its process.

    queued ─▶ running ─▶ session ─▶ done     the life of a job
    queued ─▶ done                           cancelled before it ran
    running ─▶ queued                        the scheduler stopped before the runner did anything
    repeat ─▶ repeat ─▶ … ─▶ repeat_removed  a job that is repeated: again whenever its time has come
    counted                                  a job of a person, until it does not count any more

A line of the file says one of these about one job, and the `Ledger` is their sum: the jobs that are not done. A line is
synced to the disk before what it says happens: `queued` before `submit` returns, `running` before the runner is
started, so that a job that may have done something is never simply run again; `session` and `done` afterwards, and a
disk that is full delays them (they are owed) without holding up the jobs.

Lines are appended and synced by a thread of its own; lines that arrive together share a sync. When the file has grown
to twice its size, it is rewritten, and when nothing is left to do, it is emptied. It contains prompts, so only its
owner may read it.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from treadle.config.home_files import PRIVATE, find_home, replace_file
from treadle.errors import TreadleError
from treadle.runners.run_events import ResumeToken
from treadle.runners.scheduling.jobs import Job
from treadle.runners.scheduling.repeats import Repeat
from treadle.runners.session_lock import RUNS, make_runs_folder

logger: logging.Logger = logging.getLogger(__name__)

# Below this it is not worth writing the file anew.
COMPACT_BYTES: Final = 64 << 10
DAMAGED: Final = ".damaged"
# Of lines that are not understood; more are not stored.
MAX_DAMAGED: Final = 64 << 20
# A disk that hangs must not stop a program from ending.
CLOSE_S: Final = 10.0


# --- lines and their sum ---------------------------------------------------------------------------------------------


class JobQueued(msgspec.Struct, frozen=True, tag="queued", omit_defaults=True):
    """A job waits. A job that is there already waits again, in its old place.

    Args:
        job: The job.
        after: The id of the job whose session it needs, while that is not known.
        starts: How often it was started before.
    """

    job: Job
    after: str | None = None
    starts: int = 0


class JobRunning(msgspec.Struct, frozen=True, tag="running"):
    """A job is being started."""

    id: str


class JobSession(msgspec.Struct, frozen=True, tag="session"):
    """The session of a running job became known."""

    id: str
    resume: ResumeToken


class JobDone(msgspec.Struct, frozen=True, tag="done"):
    """A job has ended, or was taken out."""

    id: str


class RepeatStored(msgspec.Struct, frozen=True, tag="repeat"):
    """A job is repeated, or its times have been seen to until later."""

    repeat: Repeat


class RepeatRemoved(msgspec.Struct, frozen=True, tag="repeat_removed"):
    """A job is not repeated any more."""

    id: str


class JobCounted(msgspec.Struct, frozen=True, tag="counted"):
    """A job of a person counts until then, in seconds since 1970."""

    person: str
    until: float


JournalLine: TypeAlias = JobQueued | JobRunning | JobSession | JobDone | RepeatStored | RepeatRemoved | JobCounted

_decoder: Final[msgspec.json.Decoder[JournalLine]] = msgspec.json.Decoder(JournalLine)
_encoder: Final = msgspec.json.Encoder()


def encode(line: JournalLine) -> bytes:
    return _encoder.encode(line) + b"\n"


def decode(data: bytes) -> JournalLine:
    """Raises `msgspec.MsgspecError` or `UnicodeDecodeError` for what is no line."""
    return _decoder.decode(data)


@dataclass(frozen=True, slots=True)
class UnfinishedJob:
    """A job that is not done.

    Args:
        job: The job. A follow-up's session is in it as soon as it is known.
        after: The id of the job whose session it still needs.
        running: Whether it was started and has not ended since.
        starts: How often it was started.
        session: The session of its run, if that is known.
    """

    job: Job
    after: str | None = None
    running: bool = False
    starts: int = 0
    session: ResumeToken | None = None


class Ledger:
    """Entries by id, in the order in which the jobs came; what is repeated; and what counts for a person."""

    def __init__(self) -> None:
        self._entries: dict[str, UnfinishedJob] = {}
        self.repeats: dict[str, Repeat] = {}
        self.counted: dict[str, list[float]] = {}

    def __len__(self) -> int:
        now = time.time()
        counted = {person: [until for until in times if until > now] for person, times in self.counted.items()}
        self.counted = {person: times for person, times in counted.items() if times}
        return len(self._entries) + len(self.repeats) + len(self.counted)

    def entries(self) -> list[UnfinishedJob]:
        return list(self._entries.values())

    def apply(self, line: JournalLine) -> None:
        """Add a line. One about a job that is not there changes nothing: the line before it may have been damaged."""
        match line:
            case JobQueued(job, after, starts):
                before = self._entries.get(after) if after is not None else None
                self._entries[job.id] = UnfinishedJob(job, after, starts=starts)
                if before is not None and before.session is not None:
                    self._resolve(job.id, before.session)
            case JobRunning(id) if id in self._entries:
                entry = self._entries[id]
                self._entries[id] = replace(entry, running=True, starts=entry.starts + 1, session=entry.job.resume)
            case JobSession(id, session) if id in self._entries:
                self._entries[id] = replace(self._entries[id], session=session)
                for other in [entry.job.id for entry in self._entries.values() if entry.after == id]:
                    self._resolve(other, session)
            case JobDone(id):
                self._entries.pop(id, None)
            case RepeatStored(repeat):
                self.repeats[repeat.id] = repeat
            case RepeatRemoved(id):
                self.repeats.pop(id, None)
            case JobCounted(person, until):
                self.counted.setdefault(person, []).append(until)

    def _resolve(self, id: str, session: ResumeToken) -> None:
        entry = self._entries[id]
        self._entries[id] = replace(entry, after=None, job=msgspec.structs.replace(entry.job, resume=session))

    def lines(self) -> Iterator[JournalLine]:
        """The fewest lines that add up to the same."""
        for entry in self._entries.values():
            yield JobQueued(entry.job, entry.after, entry.starts - entry.running)
            if entry.running:
                yield JobRunning(entry.job.id)
                if entry.session is not None and entry.session != entry.job.resume:
                    yield JobSession(entry.job.id, entry.session)
        yield from (RepeatStored(repeat) for repeat in self.repeats.values())
        yield from (JobCounted(person, until) for person, times in self.counted.items() for until in times)


# --- the file --------------------------------------------------------------------------------------------------------


class JournalError(TreadleError):
    """The journal cannot be read or written; `path` is its name."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class JournalInUse(JournalError):
    """Another scheduler, here or in another process, has the journal open."""


def journal_path(home: str | os.PathLike[str] | None = None) -> str:
    """`runs/journal` in a home; without one, in `$TREADLE_HOME`, `$CODEX_HOME` or `~/.treadle`."""
    return os.path.join(find_home(os.environ) if home is None else os.path.abspath(home), RUNS, "journal")


class JournalFile:
    """The file, its lock and its ledger. It blocks; it is used by one thread at a time."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._ledger = Ledger()
        self._fd = self._lock_fd = -1
        self._size = self._compacted = 0
        # Lines about what has happened that could not be written: they go first as soon as there is room.
        self._owed: list[JournalLine] = []

    def open(self) -> list[UnfinishedJob]:
        """Lock it, read it and tidy it up. Raises `JournalError`."""
        try:
            folder = make_runs_folder(Path(self._path).parents[1])
            self._lock()
            self._fd = self._opened()
            self._read()
        except OSError as error:
            self.close()
            raise self._failure("opened", error) from None
        except JournalError:
            self.close()
            raise
        # A process that died while it rewrote the file left its copy behind: there are prompts in it.
        for left in folder.glob(f"{os.path.basename(self._path)}.*.new"):
            with suppress(OSError):
                left.unlink()
        self._compact(at_least=0)
        return self._ledger.entries()

    def kept(self) -> tuple[list[Repeat], dict[str, list[float]]]:
        """What is repeated, and what counts for each person."""
        return list(self._ledger.repeats.values()), {person: [*times] for person, times in self._ledger.counted.items()}

    def _lock(self) -> None:
        # A file of its own: the journal is replaced when it is written anew.
        self._lock_fd = os.open(
            self._path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode=PRIVATE
        )
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(self._lock_fd, 20, 0).decode("ascii", "replace").strip() or "unknown"
            raise JournalInUse(
                self._path,
                f"{self._path} is in use by another scheduler (process {pid}): end that one, or give this one "
                "a home of its own (home=…), or none (durable=False)",
            ) from None
        with suppress(OSError):  # It only makes the message better, and the disk may be full.
            os.ftruncate(self._lock_fd, 0)
            os.pwrite(self._lock_fd, b"%d\n" % os.getpid(), 0)

    def _opened(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self._path, flags, mode=PRIVATE)
        os.fchmod(fd, PRIVATE)
        return fd

    def _read(self) -> None:
        with open(self._fd, "rb", closefd=False) as file:
            for number, text in enumerate(file, 1):
                if not text.endswith(b"\n"):
                    logger.info("%s: the last line is not complete; its writer got no confirmation", self._path)
                    os.ftruncate(self._fd, self._size)
                    break
                self._size += len(text)
                if not text.strip():
                    continue
                try:
                    self._ledger.apply(decode(text))
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    # Beside the journal, which is soon rewritten without it.
                    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                    with open(os.open(self._path + DAMAGED, flags, mode=PRIVATE), "ab") as damaged:
                        if damaged.tell() < MAX_DAMAGED:
                            damaged.write(text)
                    logger.warning(
                        "%s: line %d is damaged, or of a newer version, and was skipped: a job may be missing; "
                        "the line is in %s",
                        *(self._path, number, self._path + DAMAGED),
                    )

    def write(self, lines: Sequence[JournalLine]) -> list[JournalError | None]:
        """Append lines and sync. Returns what went wrong, line by line; of a line that failed nothing is stored."""
        failure = self._append([*self._owed, *lines])
        if failure is None:
            self._owed = []
            self._compact()
            return [None] * len(lines)
        if len(lines) + len(self._owed) == 1:
            return self._failed(lines, [failure] * len(lines))
        # A long line that does not fit is no reason to lose the short ones that came with it.
        self._owed = [line for line in self._owed if self._append([line]) is not None]
        return self._failed(lines, [self._append([line]) for line in lines])

    def _failed(self, lines: Sequence[JournalLine], failures: list[JournalError | None]) -> list[JournalError | None]:
        failed = [line for line, failure in zip(lines, failures, strict=True) if failure is not None]
        self._owed += [line for line in failed if isinstance(line, JobDone | JobSession)]
        return failures

    def _append(self, lines: Sequence[JournalLine]) -> JournalError | None:
        data = b"".join(map(encode, lines))
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(self._fd, left) :]
            os.fdatasync(self._fd)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._fd, self._size)
            return self._failure("written", error)
        self._size += len(data)
        for line in lines:
            self._ledger.apply(line)
        return None

    def _compact(self, at_least: int = COMPACT_BYTES) -> None:
        """Write the file anew, if that is worth it. If it cannot be done, the long one is as good."""
        if not self._ledger and self._size:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
                self._size = self._compacted = 0
            return
        if not self._size or self._size < max(at_least, 2 * self._compacted):
            return
        data = b"".join(map(encode, self._ledger.lines()))
        try:
            replace_file(Path(self._path), data, PRIVATE)
            fd = self._opened()
        except OSError as error:
            logger.warning("%s", self._failure("written anew", error))
            self._compacted = self._size
            return
        os.close(self._fd)
        self._fd, self._size, self._compacted = fd, len(data), len(data)

    def close(self) -> None:
        """Close the file and release its lock. What is still owed gets its last chance."""
        if self._owed and self._fd >= 0:
            self.write([])
        for fd in (self._fd, self._lock_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock_fd = -1

    def _failure(self, what: str, error: OSError) -> JournalError:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "make room on its disk" if full else "see that this user may write there"
        reason = error.strerror or type(error).__name__
        return JournalError(self._path, f"{self._path} could not be {what} ({reason}): {advice} and try again")


class JobJournal:
    """A `JournalFile` on a thread of its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = JournalFile(path)
        self._thread = ThreadPoolExecutor(1, "treadle-journal")
        self._pending: deque[tuple[JournalLine, Future[None]]] = deque()

    async def open(self) -> list[UnfinishedJob]:
        """The jobs that were not done when the last writer ended. Raises `JournalError`."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._file.open)
        except BaseException:
            # A caller that was cancelled does not want the lock either.
            self._thread.submit(self._file.close)
            self._thread.shutdown(wait=False)
            raise

    def kept(self) -> tuple[list[Repeat], dict[str, list[float]]]:
        """What was repeated, and what counted for each person, when it was opened: before the first `write`."""
        return self._file.kept()

    async def write(self, *lines: JournalLine) -> None:
        """Return when the lines are safe. Raises `JournalError`. They are written even if the caller is cancelled."""
        futures: list[Future[None]] = [Future() for _ in lines]
        self._pending.extend(zip(lines, futures, strict=True))
        self._thread.submit(self._flush)
        results = await asyncio.shield(asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True))
        for result in results:
            if result is not None:
                raise result

    async def note(self, *lines: JournalLine) -> None:
        """Write what has happened already: a failure is logged, and made good when writing works again."""
        try:
            await self.write(*lines)
        except JournalError as error:
            logger.warning("%s; until then a restart will not know what became of a job", error)

    def _flush(self) -> None:
        batch = [self._pending.popleft() for _ in range(len(self._pending))]
        batch = [(line, future) for line, future in batch if future.set_running_or_notify_cancel()]
        if not batch:
            return
        try:
            results = self._file.write([line for line, _ in batch])
        except Exception as error:
            logger.exception("%s could not be written", self._path)
            results = [JournalError(self._path, f"{self._path} could not be written: {error}")] * len(batch)
        for (_, future), result in zip(batch, results, strict=True):
            if result is None:
                future.set_result(None)
            else:
                future.set_exception(result)

    async def close(self) -> None:
        closing = asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)
        await asyncio.wait({closing}, timeout=CLOSE_S)
        self._thread.shutdown(wait=False)


class NoJournal:
    """A journal that stores nothing, for a scheduler whose jobs need not survive it."""

    async def open(self) -> list[UnfinishedJob]:
        return []

    def kept(self) -> tuple[list[Repeat], dict[str, list[float]]]:
        return [], {}

    async def write(self, *lines: JournalLine) -> None:
        pass

    async def note(self, *lines: JournalLine) -> None:
        pass

    async def close(self) -> None:
        pass
