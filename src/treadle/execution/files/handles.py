"""Open files of one connection, read and written block by block.

Owns the table of handles and its limits. Its methods run in worker threads, several at once: a handle that is closed
while a block of it is moved is really closed when that is done, so a descriptor is never used after its number went
to another file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Final

from treadle.errors import NOT_FOUND, ExecError
from treadle.execution.files.access import FileAccess
from treadle.execution.files.failures import refused, reported, shown
from treadle.execution.files.file_values import MAX_BLOCK, OpenMode

MAX_HANDLES: Final = 128
MAX_HANDLE_ID: Final = 32  # bytes
_MAX_OFFSET: Final = 2**63 - 1 - MAX_BLOCK  # what the kernel can address


@dataclass(slots=True)
class _Handle:
    path: str
    descriptor: int | None = None
    """None while it is being opened."""
    users: int = 0
    closed: bool = False


class FileHandles:
    """Handles by the names that the client gave them."""

    def __init__(self) -> None:
        self._handles: dict[str, _Handle] = {}
        self._closed = False
        self._lock = Lock()  # guards the table and the fields of its handles

    def __len__(self) -> int:
        return len(self._handles)

    def open(self, handle_id: str, path: str, mode: OpenMode, access: FileAccess) -> None:
        handle = self._reserve(handle_id, path)
        try:
            descriptor = access.open(path, mode)
        except BaseException:
            with self._lock:
                self._forget(handle_id, handle)
            raise
        with self._lock:
            if not handle.closed:
                handle.descriptor = descriptor
                return
        os.close(descriptor)
        raise refused(f"file handle {shown(handle_id)} was closed while it was opened")

    def read_block(self, handle_id: str, offset: int, length: int) -> tuple[bytes, bool]:
        """The bytes, and whether the file ended before `length` of them."""
        if not 1 <= length <= MAX_BLOCK:
            raise refused(f"file read block length must be between 1 and {MAX_BLOCK}")
        with self._use(handle_id, offset) as descriptor:
            pieces: list[bytes] = []
            left = length
            while left and (piece := os.pread(descriptor, left, offset)):
                pieces.append(piece)
                left -= len(piece)
                offset += len(piece)
        return b"".join(pieces), left > 0

    def write_block(self, handle_id: str, offset: int, chunk: bytes) -> None:
        if not 1 <= len(chunk) <= MAX_BLOCK:
            raise refused(f"file write block length must be between 1 and {MAX_BLOCK}")
        with self._use(handle_id, offset) as descriptor:
            view = memoryview(chunk)
            while view:
                written = os.pwrite(descriptor, view, offset)
                view = view[written:]
                offset += written

    def close(self, handle_id: str) -> None:
        """Close the handle; one that is not open is fine."""
        with self._lock:
            handle = self._handles.get(handle_id)
            if handle is not None:
                self._forget(handle_id, handle)

    def close_all(self) -> None:
        """Close every handle; from now on none can be opened."""
        with self._lock:
            self._closed = True
            for handle_id, handle in list(self._handles.items()):
                self._forget(handle_id, handle)

    def _reserve(self, handle_id: str, path: str) -> _Handle:
        if len(handle_id.encode("utf-8", "surrogatepass")) > MAX_HANDLE_ID:
            raise refused(f"file handle ids are at most {MAX_HANDLE_ID} bytes long")
        with self._lock:
            if self._closed:
                raise refused("the connection of this file handle is closed")
            if handle_id in self._handles:
                raise refused(f"file handle {shown(handle_id)} already exists")
            if len(self._handles) >= MAX_HANDLES:
                raise refused(f"too many open file handles: at most {MAX_HANDLES} per connection; close some first")
            handle = self._handles[handle_id] = _Handle(path)
            return handle

    @contextmanager
    def _use(self, handle_id: str, offset: int) -> Iterator[int]:
        if offset > _MAX_OFFSET:
            raise refused(f"file offset {offset} is too large")
        with self._lock:
            handle = self._handles.get(handle_id)
            if handle is None or handle.descriptor is None:
                raise ExecError(f"unknown file handle {shown(handle_id)}", NOT_FOUND)
            handle.users += 1
            descriptor = handle.descriptor
        try:
            with reported(handle.path):
                yield descriptor
        finally:
            with self._lock:
                handle.users -= 1
                self._release(handle)

    def _forget(self, handle_id: str, handle: _Handle) -> None:
        if self._handles.get(handle_id) is handle:
            del self._handles[handle_id]
        handle.closed = True
        self._release(handle)

    def _release(self, handle: _Handle) -> None:
        """Close the descriptor of a closed handle that nobody uses. The lock is held."""
        if handle.closed and not handle.users and handle.descriptor is not None:
            descriptor, handle.descriptor = handle.descriptor, None
            os.close(descriptor)
