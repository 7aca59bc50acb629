"""Watching for paths that do not exist yet: one notice when one appears, or when a path that exists goes away.

`Inotify` is the kernel's interface, through ctypes. `MissingWatches` are the watches of one connection. A path is
watched by every lookup that the kernel makes to resolve it: a directory and a name in it. Nothing can change the answer
without changing one of those, so ancestors that are moved away, links that are re-pointed and trees that appear step by
step are all noticed. Where inotify is missing or used up, the paths are looked at once a second instead.

Runs on the event loop, without threads. Does not know the protocol.
"""

from __future__ import annotations

import asyncio
import errno
import os
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, NamedTuple

from treadle.execution.files.files_interface import os_error

MAX_WATCHES: Final = 1024
MAX_PATHS: Final = 64  # per watch; clients send a handful
MAX_IDS: Final = 65_536  # ids are never reused, so the used ones are recorded
POLL_SECONDS: Final = 1.0
_POLLED_AT_ONCE: Final = 64
_MAX_LINKS: Final = 40  # the kernel's own limit
_ATTEMPTS: Final = 8

OVERFLOW: Final = -1
"""The watch number of a record that says: records were lost."""

_IN_MOVED_FROM: Final = 0x40
_IN_MOVED_TO: Final = 0x80
_IN_CREATE: Final = 0x100
_IN_DELETE: Final = 0x200
_IN_DELETE_SELF: Final = 0x400
_IN_MOVE_SELF: Final = 0x800
_IN_IGNORED: Final = 0x8000
_IN_ONLYDIR: Final = 0x01000000
_MASK: Final = _IN_MOVED_FROM | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE | _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_ONLYDIR
_RECORD: Final = struct.Struct("iIII")
_BUFFER: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Change:
    watch: int
    name: str
    """Empty when the directory itself is meant."""
    ended: bool
    """The directory is no longer watched: it went away, or the watch was removed."""


class _Calls(NamedTuple):
    init: Callable[[int], int]
    add: Callable[[int, bytes, int], int]
    remove: Callable[[int, int], int]
    errno: Callable[[], int]


class Inotify:
    """One inotify instance; `OSError` where the system has none left."""

    def __init__(self) -> None:
        self._calls = _calls()
        self.descriptor: int = self._checked(self._calls.init(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, directory: str) -> int:
        """Watch a directory; the same directory has the same number."""
        return self._checked(self._calls.add(self.descriptor, os.fsencode(directory), _MASK))

    def remove(self, watch: int) -> None:
        # This fails only for a watch that ended by itself, and that is what was wanted.
        self._calls.remove(self.descriptor, watch)

    def read(self) -> list[Change]:
        """What happened since the last read, at most one buffer of it."""
        try:
            return list(parse(os.read(self.descriptor, _BUFFER)))
        except BlockingIOError:
            return []

    def close(self) -> None:
        os.close(self.descriptor)

    def _checked(self, result: int) -> int:
        if result < 0:
            raise os_error(self._calls.errno())
        return result


def parse(data: bytes) -> Iterator[Change]:
    offset = 0
    while offset + _RECORD.size <= len(data):
        watch, mask, _, length = _RECORD.unpack_from(data, offset)
        offset += _RECORD.size
        name = data[offset : offset + length].rstrip(b"\0")
        offset += length
        yield Change(watch, os.fsdecode(name), bool(mask & _IN_IGNORED))


@cache
def _calls() -> _Calls:
    import ctypes  # loaded at the first use: it takes 4 ms

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "inotify_init1"):
        raise os_error(errno.ENOSYS)
    return _Calls(library.inotify_init1, library.inotify_add_watch, library.inotify_rm_watch, ctypes.get_errno)


Lookup = tuple[str, str]


@dataclass(slots=True)
class _Watch:
    number: int
    missing: tuple[str, ...]
    present: str | None
    armed: set[tuple[int, str]] = field(default_factory=set)
    """Inotify watch numbers with the name of interest; empty when the watch is polled."""

    def changed(self) -> bool:
        if self.present is not None and not os.path.exists(self.present):
            return True
        return any(os.path.exists(path) for path in self.missing)

    def lookups(self) -> set[Lookup]:
        paths = self.missing if self.present is None else (*self.missing, self.present)
        return {lookup for path in paths for lookup in lookups(path)}


class MissingWatches:
    """The watches of one connection. `changed` is called once per watch, on the event loop."""

    def __init__(self, changed: Callable[[int], None], *, poll_seconds: float = POLL_SECONDS) -> None:
        self._changed = changed
        self._poll_seconds = poll_seconds
        self._watches: dict[int, _Watch] = {}
        self._used: set[int] = set()
        self._interest: dict[int, dict[str, set[int]]] = {}
        self._inotify: Inotify | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._polled: deque[int] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._watches)

    def add(self, number: int, missing: Sequence[str], present: str | None = None) -> bool:
        """Start a watch; False when there is nothing to wait for, the id is used up, or a limit is reached."""
        if self._closed or number in self._used or not 0 < len(missing) <= MAX_PATHS:
            return False
        if len(self._watches) >= MAX_WATCHES or len(self._used) >= MAX_IDS:
            return False
        watch = _Watch(number, tuple(missing), present)
        if watch.changed():
            return False
        self._watches[number] = watch
        if not self._arm(watch):
            self._disarm(watch)
            del self._watches[number]
            return False
        self._used.add(number)
        return True

    def close(self) -> None:
        self._closed = True
        self._watches.clear()
        self._interest.clear()
        self._polled.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._inotify is not None and self._loop is not None:
            self._loop.remove_reader(self._inotify.descriptor)
            self._inotify.close()
            self._inotify = None

    def _arm(self, watch: _Watch) -> bool:
        """Register all lookups of the watch, or have it polled where that fails; False when it has changed already."""
        for _ in range(_ATTEMPTS):
            wanted = watch.lookups()
            try:
                complete = self._register(watch, wanted)
            except OSError:  # no instance or no watches left, or a directory that may not be read
                break
            if watch.changed():
                return False
            # A change between looking and registering went unseen; then the second look differs.
            if complete and watch.lookups() == wanted:
                return True
        self._disarm(watch)
        if watch.number not in self._polled:
            self._polled.append(watch.number)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._poll_seconds, self._tick)
        return not watch.changed()

    def _register(self, watch: _Watch, wanted: set[Lookup]) -> bool:
        """Register lookups with inotify; False when a directory went away since it was looked up."""
        if self._inotify is None:
            self._inotify = Inotify()
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._inotify.descriptor, self._readable)
        inotify, complete = self._inotify, True
        fresh: set[tuple[int, str]] = set()
        for directory, name in wanted:
            try:
                fresh.add((inotify.add(directory), name))
            except (FileNotFoundError, NotADirectoryError):
                complete = False
            except OSError:
                watch.armed |= fresh
                raise
        self._disarm(watch, keep={number for number, _ in fresh})
        watch.armed = fresh
        for number, name in fresh:
            self._interest.setdefault(number, {}).setdefault(name, set()).add(watch.number)
        return complete

    def _disarm(self, watch: _Watch, keep: set[int] | frozenset[int] = frozenset()) -> None:
        for number, name in watch.armed:
            names = self._interest.get(number, {})
            numbers = names.get(name, set())
            numbers.discard(watch.number)
            if not numbers:
                names.pop(name, None)
            if not names:
                self._interest.pop(number, None)
                if self._inotify is not None and number not in keep:
                    self._inotify.remove(number)
        watch.armed = set()

    def _readable(self) -> None:
        if self._inotify is None:
            return
        touched: set[int] = set()
        for change in self._inotify.read():
            if change.watch == OVERFLOW:
                touched.update(self._watches)
            names = self._interest.get(change.watch, {})
            if change.name:
                touched |= names.get(change.name, set())
            else:
                touched.update(*names.values())
            if change.ended:
                self._interest.pop(change.watch, None)
        for number in touched:
            self._look(number)

    def _look(self, number: int) -> None:
        watch = self._watches.get(number)
        if watch is None:
            return
        if not watch.changed() and self._arm(watch):
            return
        self._disarm(watch)
        del self._watches[number]
        self._changed(number)

    def _tick(self) -> None:
        """Look at some of the polled watches, in turn; those that are still waiting go to the end of the line."""
        self._timer = None
        for _ in range(min(len(self._polled), _POLLED_AT_ONCE)):
            self._look(self._polled.popleft())
        if self._polled and self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(self._poll_seconds, self._tick)


def lookups(path: str) -> Iterator[Lookup]:
    """The directories, without links in their paths, and the names in them that lead to `path`, as far as it exists."""
    here, links = "/", 0
    ahead = path.split("/")[::-1]
    while ahead:
        part = ahead.pop()
        if part in ("", "."):
            continue
        if part == "..":
            here = os.path.dirname(here)
            continue
        yield here, part
        step = os.path.join(here, part)
        try:
            target = os.readlink(step)
        except OSError:  # no link, or nothing there: either way the path does not turn here
            if not os.path.isdir(step):
                return
            here = step
            continue
        links += 1
        if links > _MAX_LINKS:
            return
        here = "/" if target.startswith("/") else here
        ahead.extend(target.split("/")[::-1])
