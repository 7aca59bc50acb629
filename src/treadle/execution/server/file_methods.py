"""The `fs/*` methods of the exec-server: protocol params in, protocol results out.

Owns the translation between the wire (URIs, base64, sandbox objects) and `FileAccess`, and what a connection holds
open: file handles and watches. Does not decode messages and does not send replies.
"""

from __future__ import annotations

import binascii
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, convert

from treadle.errors import INVALID_REQUEST, ExecError
from treadle.execution.files.file_watching import MissingWatches
from treadle.execution.files.files_interface import WalkLimits
from treadle.execution.files.local_files import FileAccess, FileHandles
from treadle.execution.server.rights import Rights
from treadle.execution.uris import path_from_uri, uri_from_path
from treadle.protocol import exec as wire

if TYPE_CHECKING:
    from treadle.execution.sandbox.remote_sandbox import SeenRoots

# Each handler takes the params struct of its own method, as `wire.METHODS` names it.
Handler = Callable[[Any], Awaitable[Struct]]


class FileMethods:
    """The file side of one connection."""

    def __init__(
        self, notify: Callable[[str, Struct], None], rights: Rights | None = None, seen: SeenRoots | None = None
    ) -> None:
        self._rights = rights or Rights()
        self._seen = seen
        self._handles = FileHandles()
        self._watches = MissingWatches(
            lambda watch_id: notify("fs/missingChanged", wire.MissingChangedNotice(watch_id=watch_id))
        )
        self.handlers: Mapping[str, Handler] = {
            "fs/readFile": self._read_file,
            "fs/writeFile": self._write_file,
            "fs/createDirectory": self._create_directory,
            "fs/getMetadata": self._get_metadata,
            "fs/look": self._look,
            "fs/canonicalize": self._canonicalize,
            "fs/readDirectory": self._read_directory,
            "fs/walk": self._walk,
            "fs/remove": self._remove,
            "fs/copy": self._copy,
            "fs/open": self._open,
            "fs/readBlock": self._read_block,
            "fs/writeBlock": self._write_block,
            "fs/close": self._close,
            "fs/watchMissing": self._watch_missing,
        }

    async def close(self) -> None:
        """Release everything that the connection held."""
        self._watches.close()
        self._handles.close_all()

    async def _read_file(self, params: wire.FollowParams) -> Struct:
        path = path_from_uri(params.path)
        data = await to_thread(lambda: self._access(params.sandbox).read(path, params.follow_symlinks))
        return wire.ReadFileResult(data_base64=data)

    async def _write_file(self, params: wire.WriteFileParams) -> Struct:
        path = path_from_uri(params.path)

        def write() -> None:
            data = decode_base64(params.data_base64)
            self._access(params.sandbox).write(path, data, params.follow_symlinks)

        await to_thread(write)
        return wire.Empty()

    async def _create_directory(self, params: wire.CreateDirectoryParams) -> Struct:
        path = path_from_uri(params.path)
        await to_thread(lambda: self._access(params.sandbox).create_directory(path, params.recursive))
        return wire.Empty()

    async def _get_metadata(self, params: wire.FollowParams) -> Struct:
        path = path_from_uri(params.path)
        found = await to_thread(lambda: self._access(params.sandbox).stat(path, params.follow_symlinks))
        return convert(found, wire.Metadata, from_attributes=True)

    async def _look(self, params: wire.LookParams) -> Struct:
        paths = [path_from_uri(path) for path in params.paths]

        def look() -> Struct:
            access = self._access(params.sandbox)

            def stat(path: str) -> wire.Metadata | None:
                try:
                    return convert(access.stat(path), wire.Metadata, from_attributes=True)
                except ExecError:  # whatever is wrong with one path, the others can be looked at
                    return None

            return wire.LookResult(found=tuple(map(stat, paths)))

        return await to_thread(look)

    async def _canonicalize(self, params: wire.PathParams) -> Struct:
        path = path_from_uri(params.path)
        canonical = await to_thread(lambda: self._access(params.sandbox).canonicalize(path))
        return wire.CanonicalizeResult(path=uri_from_path(canonical))

    async def _read_directory(self, params: wire.PathParams) -> Struct:
        path = path_from_uri(params.path)

        def read() -> Struct:
            entries = self._access(params.sandbox).list(path)
            return wire.ReadDirectoryResult(
                entries=tuple(
                    wire.DirectoryEntry(file_name=entry.name, is_directory=entry.is_directory, is_file=entry.is_file)
                    for entry in entries
                )
            )

        return await to_thread(read)

    async def _walk(self, params: wire.WalkParams) -> Struct:
        path = path_from_uri(params.path)
        limits = convert(params.options, WalkLimits, from_attributes=True)

        def walk() -> Struct:
            outcome = self._access(params.sandbox).walk(path, limits)
            return wire.WalkResult(
                entries=tuple(wire.WalkEntry(path=uri_from_path(e.path), kind=e.kind) for e in outcome.entries),
                errors=tuple(wire.WalkError(path=uri_from_path(e.path), message=e.message) for e in outcome.errors),
                truncated=outcome.truncated,
            )

        return await to_thread(walk)

    async def _remove(self, params: wire.RemoveParams) -> Struct:
        path = path_from_uri(params.path)
        await to_thread(
            lambda: self._access(params.sandbox).remove(path, params.recursive, params.force, params.follow_symlinks)
        )
        return wire.Empty()

    async def _copy(self, params: wire.CopyParams) -> Struct:
        source = path_from_uri(params.source_path, field="sourcePath")
        destination = path_from_uri(params.destination_path, field="destinationPath")
        await to_thread(lambda: self._access(params.sandbox).copy(source, destination, params.recursive))
        return wire.Empty()

    async def _open(self, params: wire.OpenParams) -> Struct:
        path = path_from_uri(params.path)
        await to_thread(lambda: self._handles.open(params.handle_id, path, params.mode, self._access(params.sandbox)))
        return wire.OpenResult(handle_id=params.handle_id)

    async def _read_block(self, params: wire.ReadBlockParams) -> Struct:
        chunk, eof = await to_thread(lambda: self._handles.read_block(params.handle_id, params.offset, params.length))
        return wire.ReadBlockResult(chunk=chunk, eof=eof)

    async def _write_block(self, params: wire.WriteBlockParams) -> Struct:
        await to_thread(lambda: self._handles.write_block(params.handle_id, params.offset, params.chunk))
        return wire.Empty()

    async def _close(self, params: wire.CloseParams) -> Struct:
        await to_thread(lambda: self._handles.close(params.handle_id))
        return wire.Empty()

    async def _watch_missing(self, params: wire.WatchMissingParams) -> Struct:
        missing = [path_from_uri(uri, field="missing") for uri in params.missing]
        present = None if params.present is None else path_from_uri(params.present, field="present")
        return wire.WatchMissingResult(watching=self._watches.add(params.watch_id, missing, present))

    def _access(self, sandbox: wire.Sandbox | None) -> FileAccess:
        """The files under a sandbox and the client's rights. Resolving a policy looks at the disk, so this belongs in
        the worker thread too."""
        held = self._rights.file_policy()
        if sandbox is None:
            return FileAccess(held)
        # With the first sandbox.
        from treadle.execution.sandbox.policy import both
        from treadle.execution.sandbox.remote_sandbox import enforced_policy

        return FileAccess(both(enforced_policy(sandbox, self._seen, mounts=False), held))


def decode_base64(text: str) -> bytes:
    """Standard alphabet, padded, and only the one spelling of each value."""
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
        tail = binascii.b2a_base64(data[len(data) - (len(data) % 3 or 3) :], newline=False).decode() if data else ""
        if tail != text[-4:]:
            raise ValueError("unused bits are not zero")
    except ValueError as error:
        message = f"fs/writeFile requires valid base64 dataBase64: {error}; use the standard alphabet with padding"
        raise ExecError(message, INVALID_REQUEST) from error
    return data
