"""Linux inotify through ctypes: which names in which directories changed.

Owns the descriptor and the binary records. Knows nothing of what the changes mean.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

from treadle.execution.files.failures import os_error

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
        # It fails only for a watch that ended by itself, and that is what was wanted.
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
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "inotify_init1"):
        raise os_error(errno.ENOSYS)
    return _Calls(library.inotify_init1, library.inotify_add_watch, library.inotify_rm_watch, ctypes.get_errno)
