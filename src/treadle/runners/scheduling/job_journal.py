"""`Journal`: the unfinished jobs, in a file that survives the death of its process.

Lines of JSON are appended and synced by a thread of its own; lines that arrive together share a sync. The `Ledger` is
their sum; when the file has grown to twice its size, it is rewritten, and when nothing is left to do, it is emptied. It
contains prompts, so only its owner may read it.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from treadle.config.atomic_write import PRIVATE, replace_file
from treadle.config.home_directory import find_home
from treadle.errors import TreadleError
from treadle.runners.scheduling.ledger import Done, Entry, Ledger, Line, Session, decode, encode

logger: logging.Logger = logging.getLogger(__name__)

# Below this it is not worth writing the file anew.
COMPACT_BYTES: Final = 64 << 10
# A disk that hangs must not keep a program from ending.
CLOSE_S: Final = 10.0


class JournalError(TreadleError):
    """The journal cannot be read or written; `path` is its name."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class JournalInUse(JournalError):
    """Another scheduler, here or in another process, has the journal open."""


def journal_path(home: str | os.PathLike[str] | None = None) -> str:
    """`runs/journal` in a home; without one, in `$TREADLE_HOME`, `$CODEX_HOME` or `~/.treadle`."""
    return os.path.join(find_home(os.environ) if home is None else os.path.abspath(home), "runs", "journal")


class JournalFile:
    """The file, its lock and its ledger. It blocks; it is used by one thread at a time."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._ledger = Ledger()
        self._fd = self._lock_fd = -1
        self._size = self._compacted = 0
        # Lines that must be told and could not be: they go first as soon as there is room.
        self._owed: list[Line] = []

    def open(self) -> list[Entry]:
        """Lock it, read it and tidy it up. Raises `JournalError`."""
        try:
            folder = os.path.dirname(self._path)
            os.makedirs(folder, mode=0o700, exist_ok=True)
            os.chmod(folder, 0o700)
            self._lock()
            self._fd = self._opened()
            self._read()
        except OSError as error:
            self.close()
            raise self._failure("opened", error) from None
        except JournalError:
            self.close()
            raise
        self._sweep(folder)
        self._compact(at_least=0)
        return self._ledger.entries()

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
            data = file.read()
        self._size = data.rfind(b"\n") + 1
        if self._size < len(data):
            logger.info("%s: the last line is not complete; whoever wrote it was not told that it is kept", self._path)
            os.ftruncate(self._fd, self._size)
        for number, text in enumerate(data[: self._size].split(b"\n"), 1):
            if not text.strip():
                continue
            try:
                self._ledger.apply(decode(text))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                logger.warning("%s: line %d is damaged and was skipped: a job may be lost", self._path, number)

    def _sweep(self, folder: str) -> None:
        """Remove what a process that died while it wrote the file anew left behind: there are prompts in it."""
        for left in Path(folder).glob(f"{os.path.basename(self._path)}.*.new"):
            with suppress(OSError):
                left.unlink()

    def write(self, lines: Sequence[Line]) -> list[JournalError | None]:
        """Append lines and sync. Returns what went wrong, line by line; of a line that failed nothing is kept."""
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

    def _failed(self, lines: Sequence[Line], failures: list[JournalError | None]) -> list[JournalError | None]:
        self._owed += [
            line for line, failure in zip(lines, failures, strict=True) if failure and isinstance(line, Done | Session)
        ]
        return failures

    def _append(self, lines: Sequence[Line]) -> JournalError | None:
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
        """Let go of it. What is still owed gets its last chance."""
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


class Journal:
    """A `JournalFile` on a thread of its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = JournalFile(path)
        self._thread = ThreadPoolExecutor(1, "treadle-journal")
        self._pending: deque[tuple[Line, Future[None]]] = deque()

    async def open(self) -> list[Entry]:
        """The jobs that were not done when the last writer ended. Raises `JournalError`."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._file.open)
        except BaseException:
            # Whoever gave up waiting does not want the lock either.
            self._thread.submit(self._file.close)
            self._thread.shutdown(wait=False)
            raise

    async def write(self, *lines: Line) -> None:
        """Return when the lines are safe. Raises `JournalError`. They are written even if nobody waits any more."""
        futures: list[Future[None]] = [Future() for _ in lines]
        self._pending.extend(zip(lines, futures, strict=True))
        self._thread.submit(self._flush)
        results = await asyncio.shield(asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True))
        for result in results:
            if result is not None:
                raise result

    async def note(self, *lines: Line) -> None:
        """The same for what has happened already: a failure is logged, and made good when writing works again."""
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
    """Takes a journal's place where nothing has to survive."""

    async def open(self) -> list[Entry]:
        return []

    async def write(self, *lines: Line) -> None:
        pass

    async def note(self, *lines: Line) -> None:
        pass

    async def close(self) -> None:
        pass
