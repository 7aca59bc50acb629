"""Watching for paths that do not exist yet: one notice when one appears, or when a path that exists goes away.

Owns the watches of one connection. A path is watched by every lookup that the kernel makes to resolve it: a directory
and a name in it. Nothing can change the answer without changing one of those, so ancestors that are moved away, links
that are re-pointed and trees that appear step by step are all noticed. Where inotify is missing or used up, the paths
are looked at once a second instead.

Runs on the event loop, without threads. Does not know the protocol.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from treadle.execution.files.inotify import OVERFLOW, Inotify

MAX_WATCHES: Final = 1024
MAX_PATHS: Final = 64  # per watch; clients send a handful
MAX_IDS: Final = 65_536  # ids are never reused, so the used ones are kept
POLL_SECONDS: Final = 1.0
_POLLED_AT_ONCE: Final = 64
_MAX_LINKS: Final = 40  # the kernel's own limit
_ATTEMPTS: Final = 8

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
        """Register all lookups of the watch; False when it turned out to be changed already."""
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
        self._poll(watch)
        return not watch.changed()

    def _register(self, watch: _Watch, wanted: set[Lookup]) -> bool:
        """False when a directory went away since it was looked up."""
        inotify, complete = self._instance(), True
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

    def _instance(self) -> Inotify:
        if self._inotify is None:
            self._inotify = Inotify()
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._inotify.descriptor, self._readable)
        return self._inotify

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

    def _poll(self, watch: _Watch) -> None:
        if watch.number not in self._polled:
            self._polled.append(watch.number)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._poll_seconds, self._tick)

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
        target = _link_target(step)
        if target is None:
            if not os.path.isdir(step):
                return
            here = step
            continue
        links += 1
        if links > _MAX_LINKS:
            return
        here = "/" if target.startswith("/") else here
        ahead.extend(target.split("/")[::-1])


def _link_target(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:  # no link, or nothing there: either way the path does not turn here
        return None
