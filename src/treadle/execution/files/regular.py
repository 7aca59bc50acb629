"""Regular files: opening them without ever blocking on something else, and moving all their bytes.

Owns the rule that only regular files are read or written. A fifo, device or socket is refused before it is opened,
because opening alone can block or act; the second look, at the opened file, is for a name that changed in between.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from treadle.errors import ExecError
from treadle.execution.files.failures import not_a_file, os_error, refused, shown
from treadle.execution.files.file_values import MAX_READ_BYTES
from treadle.execution.files.place import Place

_HARMLESS: Final = os.O_NONBLOCK | os.O_NOCTTY
_PIECE: Final = 64 * 1024


def open_for_reading(place: Place) -> int:
    _require_regular(place.stat().st_mode, place.path)
    return _checked(place.open(os.O_RDONLY | _HARMLESS), place.path)


def open_for_writing(place: Place, mode: int = 0o666) -> int:
    """Open, or create with `mode`; the content is left as it is."""
    try:
        found = place.stat().st_mode
    except FileNotFoundError:
        pass
    else:
        if stat.S_ISDIR(found):
            raise os_error(errno.EISDIR)
        _require_regular(found, place.path)
    return _checked(place.open(os.O_WRONLY | os.O_CREAT | _HARMLESS, mode), place.path)


def read_all(descriptor: int, path: str) -> bytes:
    size = os.fstat(descriptor).st_size
    pieces: list[bytes] = []
    total = 0
    if size <= MAX_READ_BYTES:
        # Sizes lie (kernel files say 0, others grow): read to the end, but not past the limit.
        while piece := os.read(descriptor, max(size - total, _PIECE)):
            pieces.append(piece)
            total += len(piece)
            if total > MAX_READ_BYTES:
                break
        else:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    raise too_large(path)


def too_large(path: str) -> ExecError:
    return refused(f"file {shown(path)} is too large to read at once: the limit is {MAX_READ_BYTES} bytes; use blocks")


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _checked(descriptor: int, path: str) -> int:
    try:
        _require_regular(os.fstat(descriptor).st_mode, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _require_regular(mode: int, path: str) -> None:
    if not stat.S_ISREG(mode):
        raise not_a_file(path)
