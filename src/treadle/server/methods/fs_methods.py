"""`fs/*`: the files of this machine by absolute path, contents as base64 text.

It owns the words and codes of the answers; `treadle.execution.files` does the work, and no helper process is started
for it. A client of these methods may do what the server itself may do: there is no sandbox here.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from treadle.errors import INTERNAL_ERROR, INVALID_REQUEST, ExecError, RpcError
from treadle.execution.files.file_errors import os_text
from treadle.execution.files.local_files import LocalFiles
from treadle.execution.uris import native_path
from treadle.protocol.app.base import Empty
from treadle.protocol.app.files import (
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
from treadle.server.client_base import Call
from treadle.server.file_watches import FileWatches

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


async def read_file(call: Call[FsReadFileParams]) -> FsReadFileResponse:
    path = _absolute(call.params.path)
    with _failing():
        data = await _FILES.read(path)
    text = await asyncio.to_thread(base64.b64encode, data)
    return FsReadFileResponse(data_base64=text.decode())


async def write_file(call: Call[FsWriteFileParams]) -> Empty:
    path = _absolute(call.params.path)
    try:
        data = binascii.a2b_base64(call.params.data_base64, strict_mode=True)
    except ValueError as error:
        raise RpcError(INVALID_REQUEST, f"fs/writeFile requires valid base64 dataBase64: {error}") from None
    with _failing():
        await _FILES.write(path, data)
    return Empty()


async def create_directory(call: Call[FsCreateDirectoryParams]) -> Empty:
    path = _absolute(call.params.path)
    with _failing():
        await _FILES.mkdir(path, parents=call.params.recursive is not False)
    return Empty()


async def get_metadata(call: Call[FsGetMetadataParams]) -> FsGetMetadataResponse:
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


async def read_directory(call: Call[FsReadDirectoryParams]) -> FsReadDirectoryResponse:
    path = _absolute(call.params.path)
    with _failing():
        entries = await _FILES.list(path)
    return FsReadDirectoryResponse(
        entries=tuple(
            FsReadDirectoryEntry(file_name=entry.name, is_directory=entry.is_directory, is_file=entry.is_file)
            for entry in entries
        )
    )


async def remove(call: Call[FsRemoveParams]) -> Empty:
    path = _absolute(call.params.path)
    recursive, force = call.params.recursive is not False, call.params.force is not False
    with _failing():
        await _FILES.remove(path, recursive=recursive, missing_ok=force)
    return Empty()


async def copy(call: Call[FsCopyParams]) -> Empty:
    source, destination = _absolute(call.params.source_path), _absolute(call.params.destination_path)
    with _failing():
        await _FILES.copy(source, destination, recursive=call.params.recursive)
    return Empty()


def watch(call: Call[FsWatchParams]) -> FsWatchResponse:
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


def unwatch(call: Call[FsUnwatchParams]) -> Empty:
    """Also when there is no such watch: it does not go on, and that is what was wanted."""
    table = call.server.watches(call.client)
    watches = table.get(_WATCHES)
    if isinstance(watches, FileWatches):
        watches.remove(call.params.watch_id)
        if not len(watches):
            del table[_WATCHES]
            watches.cancel()
    return Empty()
