"""`fs/*`: the files of this machine by absolute path, contents as base64 text; and what a client watches
(`FileWatches`).

This module owns the texts and codes of the answers; `treadle.execution.files` does the work, and no helper process is
started for it. A client of these methods may do what the server itself may do: there is no sandbox here.

A directory is watched for the names in it, any other path for itself, also while it does not exist. Every lookup that
leads to the path is watched too, so that what is moved away, replaced or made later is noticed. Changes are collected
for a moment and sent together. One inotify instance per client, on the event loop, without threads; no content is read.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from treadle.agent.event import Event, now_ms
from treadle.errors import INTERNAL_ERROR, INVALID_REQUEST, ExecError, RpcError
from treadle.execution.files.file_watching import OVERFLOW, Inotify, lookups
from treadle.execution.files.files_interface import os_text
from treadle.execution.files.local_files import LocalFiles
from treadle.execution.uris import native_path
from treadle.protocol.app.base import Empty
from treadle.protocol.app.machine_methods import (
    FsChangedNotification,
    FsCopyParams,
    FsCreateDirectoryParams,
    FsGetMetadataParams,
    FsGetMetadataResponse,
    FsReadDirectoryEntry,
    FsReadDirectoryParams,
    FsReadDirectoryResponse,
    FsReadFileParams,
    FsReadFileResponse,
    FsRemoveParams,
    FsUnwatchParams,
    FsWatchParams,
    FsWatchResponse,
    FsWriteFileParams,
)
from treadle.server.clients import ServerCall

_FILES: Final = LocalFiles()
_WATCHES: Final = "fs/watch"
MAX_WATCHES: Final = 1024


@contextmanager
def _failing() -> Iterator[None]:
    """The codes of this protocol: what the system refuses is internal, what is wrong in itself is the request's."""
    try:
        yield
    except ExecError as error:
        cause = error.__cause__
        internal = isinstance(cause, OSError) and cause.errno != errno.EINVAL
        raise RpcError(INTERNAL_ERROR if internal else INVALID_REQUEST, error.message) from None


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise RpcError(INVALID_REQUEST, "Invalid request: AbsolutePathBuf deserialized without a base path")
    with _failing():
        return native_path(path)


async def read_file(call: ServerCall[FsReadFileParams]) -> FsReadFileResponse:
    path = _absolute(call.params.path)
    with _failing():
        data = await _FILES.read(path)
    text = await asyncio.to_thread(base64.b64encode, data)
    return FsReadFileResponse(data_base64=text.decode())


async def write_file(call: ServerCall[FsWriteFileParams]) -> Empty:
    path = _absolute(call.params.path)
    try:
        data = binascii.a2b_base64(call.params.data_base64, strict_mode=True)
    except ValueError as error:
        raise RpcError(INVALID_REQUEST, f"fs/writeFile requires valid base64 dataBase64: {error}") from None
    with _failing():
        await _FILES.write(path, data)
    return Empty()


async def create_directory(call: ServerCall[FsCreateDirectoryParams]) -> Empty:
    path = _absolute(call.params.path)
    with _failing():
        await _FILES.mkdir(path, parents=call.params.recursive is not False)
    return Empty()


async def get_metadata(call: ServerCall[FsGetMetadataParams]) -> FsGetMetadataResponse:
    path = _absolute(call.params.path)
    with _failing():
        found = await _FILES.stat(path)
    return FsGetMetadataResponse(
        is_directory=found.is_directory,
        is_file=found.is_file,
        is_symlink=found.is_symlink,
        created_at_ms=found.created_at_ms,
        modified_at_ms=found.modified_at_ms,
    )


async def read_directory(call: ServerCall[FsReadDirectoryParams]) -> FsReadDirectoryResponse:
    path = _absolute(call.params.path)
    with _failing():
        entries = await _FILES.list(path)
    return FsReadDirectoryResponse(
        entries=tuple(
            FsReadDirectoryEntry(file_name=entry.name, is_directory=entry.is_directory, is_file=entry.is_file)
            for entry in entries
        )
    )


async def remove(call: ServerCall[FsRemoveParams]) -> Empty:
    path = _absolute(call.params.path)
    recursive, force = call.params.recursive is not False, call.params.force is not False
    with _failing():
        await _FILES.remove(path, recursive=recursive, missing_ok=force)
    return Empty()


async def copy(call: ServerCall[FsCopyParams]) -> Empty:
    source, destination = _absolute(call.params.source_path), _absolute(call.params.destination_path)
    with _failing():
        await _FILES.copy(source, destination, recursive=call.params.recursive)
    return Empty()


def watch(call: ServerCall[FsWatchParams]) -> FsWatchResponse:
    path, name = _absolute(call.params.path), call.params.watch_id
    table = call.server.watches(call.client)
    watches = table.get(_WATCHES)
    if not isinstance(watches, FileWatches):
        watches = FileWatches(call.client.notify)
    if name in watches:
        raise RpcError(INVALID_REQUEST, f"watchId already exists: {name[:200]}")
    if len(watches) >= MAX_WATCHES:
        raise RpcError(INVALID_REQUEST, f"{MAX_WATCHES} paths are watched: end some with fs/unwatch first")
    try:
        watches.add(name, path)
    except OSError as error:
        if not len(watches):
            watches.cancel()
        raise RpcError(INTERNAL_ERROR, f"{path} cannot be watched: {os_text(error.errno or errno.EIO)}") from None
    table[_WATCHES] = watches
    return FsWatchResponse(path=path)


def unwatch(call: ServerCall[FsUnwatchParams]) -> Empty:
    """Stop a watch. One that does not exist is no error: it does not go on, and that is what was wanted."""
    table = call.server.watches(call.client)
    watches = table.get(_WATCHES)
    if isinstance(watches, FileWatches):
        watches.remove(call.params.watch_id)
        if not len(watches):
            del table[_WATCHES]
            watches.cancel()
    return Empty()


# --- watching ---------------------------------------------------------------------------------------------------------


# Long enough to report the steps of one save together, short enough to seem immediate.
COLLECT_S: Final = 0.2
# Names in one notice. When more have changed the notice names the watched path alone: look at it anew.
MAX_NAMES: Final = 1000
_ATTEMPTS: Final = 8
_MODIFY: Final = 0x2
_ATTRIB: Final = 0x4
_ENTRIES: Final = 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800  # names come, go and move; the directory itself too
_ONLY_DIRECTORIES: Final = 0x01000000
_ADD_TO_MASK: Final = 0x20000000


class _Contents(Inotify):
    """Inotify that can also see that a file was written. Two watches of one directory see what either asked for."""

    def watch(self, directory: str, *, contents: bool) -> int:
        mask = _ENTRIES | _ONLY_DIRECTORIES | _ADD_TO_MASK | (_MODIFY | _ATTRIB) * contents
        return self._checked(self._calls.add(self.descriptor, os.fsencode(directory), mask))


class _Watch:
    __slots__ = ("changed", "existed", "inside", "name", "path", "steps", "timer", "whole")

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path
        self.existed = os.path.lexists(path)
        self.inside: int | None = None
        """The number of the directory itself, when the path is one."""
        self.steps: dict[tuple[int, str], bool] = {}
        """The lookups that lead to the path; whether each is that of the path itself."""
        self.changed: set[str] = set()
        self.whole = False
        self.timer: asyncio.TimerHandle | None = None

    def numbers(self) -> set[int]:
        own = set() if self.inside is None else {self.inside}
        return own | {number for number, _ in self.steps}


class FileWatches:
    """The watches of one client, by its names for them. `notify` gets every notice."""

    def __init__(self, notify: Callable[[Event], None]) -> None:
        self._notify = notify
        self._watches: dict[str, _Watch] = {}
        self._loop = asyncio.get_running_loop()
        self._inotify: _Contents | None = None
        self._interest: dict[int, dict[_Watch, None]] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def __contains__(self, name: object) -> bool:
        return name in self._watches

    def names(self) -> set[str]:
        return set(self._watches)

    def add(self, name: str, path: str) -> None:
        """Raises `OSError` when the system has no watches left, or the directory may not be read."""
        watch = _Watch(name, path)
        self._arm(watch)
        self._watches[name] = watch

    def remove(self, name: str) -> None:
        watch = self._watches.pop(name, None)
        if watch is not None:
            if watch.timer is not None:
                watch.timer.cancel()
            self._release(watch, watch.numbers())

    def cancel(self) -> None:
        for name in tuple(self._watches):
            self.remove(name)
        if self._inotify is not None:
            self._loop.remove_reader(self._inotify.descriptor)
            self._inotify.close()
            self._inotify = None

    # --- arming ---

    def _arm(self, watch: _Watch) -> None:
        """Watch the lookups that lead to the path as it is now; what no longer leads to it is watched no more."""
        inotify, before = self._inotify, watch.numbers()
        if inotify is None:
            inotify = self._inotify = _Contents()
            self._loop.add_reader(inotify.descriptor, self._readable)
        way = list(lookups(watch.path))
        own = (os.path.realpath(os.path.dirname(watch.path)), os.path.basename(watch.path))
        steps: dict[tuple[int, str], bool] = {}
        for step in way:
            end = step == way[-1]
            itself = step == own or (end and os.path.exists(watch.path))
            # A directory on the way that may be passed but not read cannot be watched, and need not be.
            with _tolerating(() if end else (errno.EACCES,)):
                steps[inotify.watch(step[0], contents=itself), step[1]] = itself
        watch.steps, watch.inside = steps, None
        if os.path.isdir(watch.path):
            with _tolerating(()):
                watch.inside = inotify.watch(watch.path, contents=True)
        for number in watch.numbers():
            self._interest.setdefault(number, {})[watch] = None
        self._release(watch, before - watch.numbers())

    def _release(self, watch: _Watch, numbers: set[int]) -> None:
        for number in numbers:
            interested = self._interest.get(number, {})
            interested.pop(watch, None)
            if not interested:
                self._interest.pop(number, None)
                if self._inotify is not None:
                    self._inotify.remove(number)

    # --- noticing ---

    def _readable(self) -> None:
        if self._inotify is None:
            return
        unsure: dict[_Watch, None] = {}
        for change in self._inotify.read():
            if change.watch == OVERFLOW:
                for watch in self._watches.values():
                    watch.whole = True
                    self._notice(watch, watch.path)
                    unsure[watch] = None
            for watch in self._interest.get(change.watch, ()):
                if self._affects(watch, change.watch, change.name):
                    unsure[watch] = None
            if change.ended:
                self._interest.pop(change.watch, None)
        for watch in unsure:
            was_inside = watch.inside
            # Where the system has no watches left, what is armed stays: better than nothing.
            with contextlib.suppress(OSError):
                for _ in range(_ATTEMPTS):
                    way = list(lookups(watch.path))
                    self._arm(watch)
                    # What was made between looking and watching went unseen; then the second look differs.
                    if list(lookups(watch.path)) == way:
                        break
            exists = os.path.lexists(watch.path)  # now that nothing goes unseen any more
            if exists != watch.existed or watch.inside != was_inside:
                self._notice(watch, watch.path)
            watch.existed = exists

    def _affects(self, watch: _Watch, number: int, name: str) -> bool:
        """Note what has changed; True when the way to the path may be another one now."""
        if not name:
            return True  # a directory itself was moved or removed
        if number == watch.inside:
            self._notice(watch, os.path.join(watch.path, name))
        itself = watch.steps.get((number, name))
        if itself and watch.inside is None:
            self._notice(watch, watch.path)
        return itself is not None

    def _notice(self, watch: _Watch, path: str) -> None:
        if len(watch.changed) < MAX_NAMES:
            watch.changed.add(path)
        else:
            watch.whole = True
        if watch.timer is None:
            watch.timer = self._loop.call_later(COLLECT_S, self._report, watch)

    def _report(self, watch: _Watch) -> None:
        watch.timer = None
        paths = (watch.path,) if watch.whole else tuple(sorted(map(_shown, watch.changed)))
        watch.changed, watch.whole = set(), False
        self._notify(
            Event("fs/changed", FsChangedNotification(watch_id=watch.name, changed_paths=paths), None, now_ms())
        )


@contextlib.contextmanager
def _tolerating(numbers: tuple[int, ...]) -> Iterator[None]:
    """What went away since it was looked up is no error, nor are these."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, *numbers):
            raise


def _shown(path: str) -> str:
    """Bytes that are no UTF-8 show as U+FFFD: the notice is JSON."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
