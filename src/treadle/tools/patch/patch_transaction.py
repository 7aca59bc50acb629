"""`apply`: carry planned changes out, all or none.

Owns the order of writes and the way back. Nothing is written when a file is not as the plan read it. When a write
fails, or the caller is cancelled, everything written so far is put back, new directories included; what could not be
put back is named. Files are removed last, because a file that has to be made again loses its mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from posixpath import dirname
from typing import Final, NamedTuple, Protocol

from treadle.errors import NOT_FOUND, ExecError
from treadle.tools.patch.grammar import FileChange, PatchError

RESTORE_S: Final = 60.0  # putting back is not cancelled, so it must end by itself


class PatchFiles(Protocol):
    """What `apply` needs of files, by absolute path. A missing file is an `ExecError` with the code `NOT_FOUND`, or a
    `FileNotFoundError`."""

    async def read(self, path: str, /) -> bytes: ...

    async def write(self, path: str, data: bytes, /) -> None: ...

    async def remove(self, path: str, /, *, recursive: bool, missing_ok: bool) -> None: ...

    async def mkdir(self, path: str, /, *, parents: bool) -> None: ...


class _Step(NamedTuple):
    """One file from one content to another; `None` is no file."""

    path: str
    old: bytes | None
    new: bytes | None


async def apply(changes: Sequence[FileChange], files: PatchFiles) -> None:
    """Make the changes. `PatchError` is `stale` or `failed`.

    A cancellation is passed on after everything is back; a note on it says so, or what could not be put back.
    """
    steps = []
    for change in changes:
        if change.move_path is None:
            steps.append(_Step(change.path, change.old, change.new))
        else:
            steps.append(_Step(change.move_path, change.move_old, change.new))
            steps.append(_Step(change.path, change.old, None))
    steps.sort(key=lambda step: step.new is None)  # writes first, then removals
    for step in steps:
        try:
            there = await _read(step.path, files)
        except Exception as error:
            message = f"nothing was changed: {step.path} cannot be read: {error}"
            raise PatchError(message, "failed", path=step.path) from error
        if there != step.old:
            what = "was created" if step.old is None else "is gone" if there is None else "was changed"
            raise PatchError(
                f"nothing was changed: {step.path} {what} after the patch was checked; read it again and write a new "
                "patch",
                "stale",
                path=step.path,
            )
    work = _Work(files)
    forward = asyncio.create_task(work.run(steps))
    cancelled = await _settled(forward, work)
    if cancelled is None:
        forward.result()
        return
    if not forward.cancelled() and forward.exception() is None:
        # It came after the last write. The caller will never hear that the files changed, so they must not have.
        forward = asyncio.create_task(work.go_back())
        await _settled(forward, work)
    if not forward.cancelled():
        cancelled.add_note(str(forward.exception()))
    raise cancelled


async def _settled(task: asyncio.Task[None], work: _Work) -> asyncio.CancelledError | None:
    """Wait for the task whatever happens to the caller; the cancellation that arrived meanwhile.

    The task is not cancelled: a write that is cancelled in a thread or on another machine goes on there, and would
    race with putting the file back.
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
            work.stop()
    return cancelled


async def _read(path: str, files: PatchFiles) -> bytes | None:
    try:
        return await files.read(path)
    except FileNotFoundError:
        return None
    except ExecError as error:
        if error.code == NOT_FOUND:
            return None
        raise


class _Work:
    """What was done so far, and the way back."""

    def __init__(self, files: PatchFiles) -> None:
        self._files = files
        self._begun: list[_Step] = []
        self._directories: list[str] = []
        self._stopped = False
        self._forward = False
        self._deadline = asyncio.timeout(None)

    def stop(self) -> None:
        """Go back after the operation that is under way, or when that takes too long."""
        if self._forward and not self._stopped:
            self._deadline.reschedule(asyncio.get_running_loop().time() + RESTORE_S)
        self._stopped = True

    async def run(self, steps: list[_Step]) -> None:
        path = ""
        try:
            async with self._deadline:
                self._forward = True
                for step in steps:
                    path = step.path
                    await self._do(step)
                    if self._stopped:
                        raise InterruptedError("it was cancelled")
            self._forward = False
        except Exception as error:
            raise _failed(path, error, await self._undo()) from error
        except asyncio.CancelledError as error:  # the event loop itself is being shut down
            error.add_note(_failed(path, InterruptedError("it was cancelled"), await self._undo()).message)
            raise

    async def go_back(self) -> None:
        """Undo what was done in full, and say so by the error of a cancelled run."""
        error = InterruptedError("it was cancelled")
        raise _failed(self._begun[-1].path if self._begun else "", error, await self._undo())

    async def _do(self, step: _Step) -> None:
        if step.new is None:
            self._begun.append(step)
            await self._files.remove(step.path, recursive=False, missing_ok=False)
            return
        if step.old is None:
            # Make what is missing, one by one, to know what to take away again.
            path = dirname(step.path)
            missing = []
            while path not in ("/", "") and not await self._make_one(path):
                missing.append(path)
                path = dirname(path)
            for below in reversed(missing):
                await self._files.mkdir(below, parents=False)
                self._directories.append(below)
        if step.old != step.new:
            self._begun.append(step)
            await self._files.write(step.path, step.new)

    async def _make_one(self, path: str) -> bool:
        """Whether the directory is there now; `False` when the one above it is missing."""
        try:
            await self._files.mkdir(path, parents=False)
        except FileNotFoundError:
            return False
        except ExecError as error:
            # Any other refusal is taken for "exists": if it was not that, the write will say what is wrong.
            return error.code != NOT_FOUND
        except OSError:
            return True
        self._directories.append(path)
        return True

    async def _undo(self) -> tuple[str, ...]:
        """Put everything back, also the step that failed, which may be half done; the paths where that failed."""
        self._forward = False
        left = dict.fromkeys([step.path for step in self._begun] + self._directories)
        try:
            async with asyncio.timeout(RESTORE_S):
                # A second pass for what another step stood in the way of.
                for step in [*reversed(self._begun), *reversed(self._begun)]:
                    if step.path in left and await self._restored(step):
                        left.pop(step.path)
                for path in reversed(self._directories):
                    with suppress(Exception):  # reported by name; most likely somebody else has put a file there
                        await self._files.remove(path, recursive=False, missing_ok=True)
                        left.pop(path)
        except TimeoutError:
            return tuple(left)
        return tuple(left)

    async def _restored(self, step: _Step) -> bool:
        """Whether the file is as it was: what counts is what is there, not whether a write was refused."""
        try:
            if await _read(step.path, self._files) == step.old:
                return True
            if step.old is None:
                await self._files.remove(step.path, recursive=False, missing_ok=True)
            else:
                await self._files.write(step.path, step.old)
        except Exception:
            return False  # reported by name; the first failure is the one that explains
        return True


def _failed(path: str, error: Exception, lost: tuple[str, ...]) -> PatchError:
    what = f"changing {path} failed: {str(error) or type(error).__name__}"
    if not lost:
        return PatchError(f"{what}; everything was put back, no file is changed", "failed", path=path)
    names = ", ".join(lost)
    return PatchError(
        f"{what}; these could not be put back and must be looked at: {names}", "failed", path=path, unrestored=lost
    )
