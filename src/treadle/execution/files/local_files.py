"""The files of this machine: `FileAccess` by path, `FileHandles` block by block, and `LocalFiles` for asyncio.

The exec-server and local users reach the disk through here. The first two are synchronous, and callers run them in a
worker thread; `LocalFiles` does that itself. Paths are absolute and normalised, as `native_path` makes them; every
refusal is an `ExecError`.
"""

from __future__ import annotations

import errno
import os
import stat
from asyncio import to_thread
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final

from treadle.errors import NOT_FOUND, ExecError
from treadle.execution.files.directories import copy, create_directory, list_directory, remove, walk
from treadle.execution.files.files_interface import (
    MAX_BLOCK,
    DirEntry,
    Files,
    FileStat,
    OpenMode,
    Path,
    WalkLimits,
    WalkOutcome,
    pieces,
    refused,
    reported,
    shown,
)
from treadle.execution.files.safe_open import FilePermissions, open_for_reading, open_for_writing, read_all, write_all
from treadle.execution.process_values import Data, as_bytes, blocks_of
from treadle.execution.uris import native_path

if TYPE_CHECKING:
    from treadle.execution.sandbox.policy import Policy

MAX_HANDLES: Final = 128
MAX_HANDLE_ID: Final = 32  # bytes
_MAX_OFFSET: Final = 2**63 - 1 - MAX_BLOCK  # what the kernel can address


class FileAccess:
    """What may be done with files under `policy`; without one, whatever the user of this process may do."""

    __slots__ = ("_permissions",)

    def __init__(self, policy: Policy | None = None) -> None:
        self._permissions = FilePermissions(policy)

    def read(self, path: str, follow: bool = True) -> bytes:
        descriptor = self.open(path, "read", follow)
        try:
            with reported(path):
                return read_all(descriptor, path)
        finally:
            os.close(descriptor)

    def write(self, path: str, data: bytes, follow: bool = True) -> None:
        """Create the file, or replace its content in place."""
        descriptor = self.open(path, "replace", follow)
        try:
            with reported(path):
                write_all(descriptor, data)
        finally:
            os.close(descriptor)

    def open(self, path: str, mode: OpenMode, follow: bool = True) -> int:
        """A descriptor of a regular file, for the caller to close; `replace` creates it or empties it at once."""
        writing = mode == "replace"
        with reported(path), self._permissions.path_at(path, write=writing, follow=follow) as at:
            if not writing:
                return open_for_reading(at)
            descriptor = open_for_writing(at)
            try:
                os.ftruncate(descriptor, 0)
            except BaseException:
                os.close(descriptor)
                raise
            return descriptor

    def stat(self, path: str, follow: bool = True) -> FileStat:
        with reported(path):
            try:
                with self._permissions.path_at(path, write=False, follow=follow) as at:
                    found = at.stat()
            except OSError as error:
                if not follow and error.errno == errno.ELOOP:
                    raise refused(f"path contains a symbolic link: {shown(path)}") from error
                raise
        return FileStat(
            is_directory=stat.S_ISDIR(found.st_mode),
            is_file=stat.S_ISREG(found.st_mode),
            is_symlink=follow and os.path.islink(path),
            size=found.st_size,
            created_at_ms=0,
            modified_at_ms=max(0, found.st_mtime_ns // 1_000_000),
        )

    def canonicalize(self, path: str) -> str:
        """The path without symbolic links; it must exist."""
        with reported(path):
            if not self._permissions.confined:
                return os.path.realpath(path, strict=True)
            with self._permissions.path_at(path, write=False) as at:
                at.stat()
                return at.path

    def create_directory(self, path: str, recursive: bool = True) -> None:
        create_directory(self._permissions, path, recursive)

    def list(self, path: str) -> list[DirEntry]:
        return list_directory(self._permissions, path)

    def walk(self, path: str, limits: WalkLimits) -> WalkOutcome:
        return walk(self._permissions, path, limits)

    def remove(self, path: str, recursive: bool = True, force: bool = True, follow: bool = True) -> None:
        remove(self._permissions, path, recursive=recursive, force=force, follow=follow)

    def copy(self, source: str, destination: str, recursive: bool = False) -> None:
        copy(self._permissions, source, destination, recursive=recursive)


@dataclass(slots=True)
class _Handle:
    path: str
    descriptor: int | None = None
    """None while it is being opened."""
    users: int = 0
    closed: bool = False


class FileHandles:
    """Open files by the names that the client gave them.

    Its methods run in worker threads, several at once. A handle that is closed while a block of it is moved is really
    closed when that is done, so a descriptor is never used after its number went to another file.
    """

    def __init__(self) -> None:
        self._handles: dict[str, _Handle] = {}
        self._closed = False
        self._lock = Lock()  # guards the table and the fields of its handles

    def __len__(self) -> int:
        return len(self._handles)

    def open(self, handle_id: str, path: str, mode: OpenMode, access: FileAccess) -> None:
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


class LocalFiles(Files):
    """The files of this machine, under `policy` when there is one. Work is done in worker threads."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._access = FileAccess(policy)

    async def read(self, path: Path) -> bytes:
        return await to_thread(self._access.read, native_path(path))

    async def write(self, path: Path, data: Data) -> None:
        await to_thread(self._access.write, native_path(path), as_bytes(data, "data"))

    async def stat(self, path: Path) -> FileStat:
        return await to_thread(self._access.stat, native_path(path))

    async def list(self, path: Path) -> list[DirEntry]:
        return await to_thread(self._access.list, native_path(path))

    async def mkdir(self, path: Path, *, parents: bool = True) -> None:
        await to_thread(self._access.create_directory, native_path(path), parents)

    async def remove(self, path: Path, *, recursive: bool = True, missing_ok: bool = True) -> None:
        await to_thread(self._access.remove, native_path(path), recursive, missing_ok)

    async def copy(self, source: Path, destination: Path, *, recursive: bool = False) -> None:
        await to_thread(self._access.copy, native_path(source), native_path(destination), recursive)

    async def canonicalize(self, path: Path) -> str:
        return await to_thread(self._access.canonicalize, native_path(path))

    async def _walk(self, path: Path, limits: WalkLimits) -> WalkOutcome:
        return await to_thread(self._access.walk, native_path(path), limits)

    async def _blocks(self, path: Path, block_size: int) -> AsyncGenerator[bytes, None]:
        native = native_path(path)
        # A table of one: it closes the file also when we are cancelled while a thread still opens or reads it.
        handles = FileHandles()
        try:
            await to_thread(handles.open, "", native, "read", self._access)
            offset, eof = 0, False
            while not eof:
                block, eof = await to_thread(handles.read_block, "", offset, block_size)
                offset += len(block)
                if block:
                    yield block
        finally:
            handles.close_all()

    async def write_blocks(self, path: Path, blocks: AsyncIterable[Data] | Iterable[Data]) -> None:
        native, given = native_path(path), blocks_of(blocks)
        handles = FileHandles()
        try:
            await to_thread(handles.open, "", native, "replace", self._access)
            offset = 0
            async for piece in pieces(given):
                await to_thread(handles.write_block, "", offset, piece)
                offset += len(piece)
        finally:
            handles.close_all()
