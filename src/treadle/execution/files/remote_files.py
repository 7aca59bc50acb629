"""`RemoteFiles`: the files of another machine, by requests of the exec-server protocol.

Owns which requests an operation takes, and what is believed of the answers: no more comes than was asked for. Does not
own the connection: `call` sends one request and gives its result.
"""

from __future__ import annotations

import asyncio
import binascii
import os
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from msgspec import Struct, convert

from treadle.errors import INVALID_REQUEST, ExecError, TreadleError
from treadle.execution.files.files_interface import (
    MAX_BLOCK,
    MAX_READ_BYTES,
    DirEntry,
    Files,
    FileStat,
    OpenMode,
    Path,
    WalkEntry,
    WalkFailure,
    WalkLimits,
    WalkOutcome,
    pieces,
    shown,
    too_large,
)
from treadle.execution.process_values import Data, as_bytes, blocks_of
from treadle.execution.uris import native_path, path_from_uri, uri_from_path
from treadle.protocol import exec as wire

_WHOLE: Final = 8 * 1024 * 1024  # larger files go in blocks: a message, base64 and all, has to stay below 16 MiB
_CLOSE_SECONDS: Final = 5.0
_LONGEST_PATH: Final = 3 * 4096 + 64  # characters of a URI: no kernel takes longer paths, and each byte may be quoted

R = TypeVar("R", bound=Struct)
Call = Callable[[str, Struct], Awaitable[Struct]]


class RemoteFiles(Files):
    """Files behind `call`. `sandbox` goes with every request that takes one. Without `follow`, a link on the way to a
    file that is read, written or removed is an error. Of no file more is read at once than `max_read`."""

    def __init__(
        self,
        call: Call,
        *,
        sandbox: wire.Sandbox | None = None,
        follow: bool = True,
        max_read: int = MAX_READ_BYTES,
    ) -> None:
        self._call = call
        self._sandbox = sandbox
        self._follow = follow
        # Larger files go by `fs/open`, which follows links.
        self._max_read = max_read if follow else min(max_read, _WHOLE)

    def confined(
        self, sandbox: wire.Sandbox | None, *, follow: bool = True, max_read: int = MAX_READ_BYTES
    ) -> RemoteFiles:
        """The same files, by what a sandbox allows."""
        return RemoteFiles(self._call, sandbox=sandbox, follow=follow, max_read=max_read)

    async def read(self, path: Path) -> bytes:
        uri = uri_from_path(path)
        size = (await self._metadata(uri)).size
        if size > self._max_read:
            raise too_large(native_path(path), self._max_read)
        if size > _WHOLE:
            content = bytearray()
            async for block in self._blocks(path, MAX_BLOCK):
                content += block
                if len(content) > self._max_read:  # it has grown
                    raise too_large(native_path(path), self._max_read)
            return bytes(content)
        params = wire.FollowParams(path=uri, follow_symlinks=self._follow, sandbox=self._sandbox)
        data = (await self._ask("fs/readFile", params, wire.ReadFileResult)).data_base64
        if len(data) > self._max_read:
            raise too_large(native_path(path), self._max_read)
        return data

    async def write(self, path: Path, data: Data) -> None:
        content = as_bytes(data, "data")
        if len(content) > _WHOLE:
            if not self._follow:
                raise ExecError(
                    f"{shown(native_path(path))} would have {len(content)} bytes, and without following links no more "
                    f"than {_WHOLE} can be written; do it by a command",
                    INVALID_REQUEST,
                )
            await self.write_blocks(path, [content])
            return
        text = binascii.b2a_base64(content, newline=False).decode()
        params = wire.WriteFileParams(
            path=uri_from_path(path), data_base64=text, follow_symlinks=self._follow, sandbox=self._sandbox
        )
        await self._ask("fs/writeFile", params, wire.Empty)

    async def stat(self, path: Path) -> FileStat:
        return convert(await self._metadata(uri_from_path(path)), FileStat, from_attributes=True)

    async def look(self, paths: Sequence[Path]) -> Sequence[FileStat | None]:
        """What is at many paths, on an executor that has `fs_look`; None where nothing is, or may be seen."""
        params = wire.LookParams(paths=tuple(map(uri_from_path, paths)), sandbox=self._sandbox)
        found = (await self._ask("fs/look", params, wire.LookResult)).found
        if len(found) != len(paths):
            raise ExecError(f"fs/look was asked for {len(paths)} paths and answered for {len(found)}")
        return [None if one is None else convert(one, FileStat, from_attributes=True) for one in found]

    async def list(self, path: Path) -> list[DirEntry]:
        params = wire.PathParams(path=uri_from_path(path), sandbox=self._sandbox)
        result = await self._ask("fs/readDirectory", params, wire.ReadDirectoryResult)
        entries = [DirEntry(entry.file_name, entry.is_directory, entry.is_file) for entry in result.entries]
        return sorted(entries, key=lambda entry: entry.name)  # other servers answer in any order

    async def mkdir(self, path: Path, *, parents: bool = True) -> None:
        params = wire.CreateDirectoryParams(path=uri_from_path(path), recursive=parents, sandbox=self._sandbox)
        await self._ask("fs/createDirectory", params, wire.Empty)

    async def remove(self, path: Path, *, recursive: bool = True, missing_ok: bool = True) -> None:
        params = wire.RemoveParams(
            path=uri_from_path(path),
            recursive=recursive,
            force=missing_ok,
            follow_symlinks=self._follow,
            sandbox=self._sandbox,
        )
        await self._ask("fs/remove", params, wire.Empty)

    async def copy(self, source: Path, destination: Path, *, recursive: bool = False) -> None:
        params = wire.CopyParams(
            source_path=uri_from_path(source),
            destination_path=uri_from_path(destination),
            recursive=recursive,
            sandbox=self._sandbox,
        )
        await self._ask("fs/copy", params, wire.Empty)

    async def canonicalize(self, path: Path) -> str:
        params = wire.PathParams(path=uri_from_path(path), sandbox=self._sandbox)
        return _path((await self._ask("fs/canonicalize", params, wire.CanonicalizeResult)).path)

    async def _walk(self, path: Path, limits: WalkLimits) -> WalkOutcome:
        options = convert(limits, wire.WalkOptions, from_attributes=True)
        params = wire.WalkParams(path=uri_from_path(path), options=options, sandbox=self._sandbox)
        result = await self._ask("fs/walk", params, wire.WalkResult)
        if len(result.entries) > limits.max_entries or len(result.errors) > limits.max_directories + 1:
            raise _unasked("fs/walk", f"{len(result.entries)} entries and {len(result.errors)} errors")
        return WalkOutcome(
            tuple(WalkEntry(_path(entry.path), entry.kind) for entry in result.entries),
            tuple(WalkFailure(_path(error.path), error.message) for error in result.errors),
            result.truncated,
        )

    async def _blocks(self, path: Path, block_size: int) -> AsyncGenerator[bytes, None]:
        handle = _new_handle()
        try:
            await self._open(handle, path, "read")
            offset, eof = 0, False
            while not eof:
                params = wire.ReadBlockParams(handle_id=handle, offset=offset, length=block_size)
                result = await self._ask("fs/readBlock", params, wire.ReadBlockResult)
                if len(result.chunk) > block_size:
                    raise _unasked("fs/readBlock", f"{len(result.chunk)} bytes for {block_size}")
                eof = result.eof or not result.chunk
                offset += len(result.chunk)
                if result.chunk:
                    yield result.chunk
        finally:
            await self._close(handle)

    async def write_blocks(self, path: Path, blocks: AsyncIterable[Data] | Iterable[Data]) -> None:
        given = blocks_of(blocks)
        handle = _new_handle()
        try:
            await self._open(handle, path, "replace")
            offset = 0
            async for piece in pieces(given):
                params = wire.WriteBlockParams(handle_id=handle, offset=offset, chunk=piece)
                await self._ask("fs/writeBlock", params, wire.Empty)
                offset += len(piece)
        finally:
            await self._close(handle)

    async def _open(self, handle: str, path: Path, mode: OpenMode) -> None:
        params = wire.OpenParams(handle_id=handle, path=uri_from_path(path), mode=mode, sandbox=self._sandbox)
        await self._ask("fs/open", params, wire.OpenResult)

    async def _close(self, handle: str) -> None:
        """Close a handle, also after a failed or cancelled open, whose request may still arrive: closing what is not
        open is fine."""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._call("fs/close", wire.CloseParams(handle_id=handle))
        except (TreadleError, TimeoutError):
            # A connection that cannot answer is gone or going, and its handles go with it; what the caller has to
            # hear is the error before this one.
            return

    async def _metadata(self, uri: str) -> wire.Metadata:
        return await self._ask("fs/getMetadata", wire.FollowParams(path=uri, sandbox=self._sandbox), wire.Metadata)

    async def _ask(self, method: str, params: Struct, kind: type[R]) -> R:
        result = await self._call(method, params)
        if not isinstance(result, kind):
            raise TypeError(f"{method} was answered with {type(result).__name__}, expected {kind.__name__}")
        return result


def _path(uri: str) -> str:
    """The path that an answer names. It stays a path of the other machine, and is never looked for on this one."""
    if len(uri) > _LONGEST_PATH:
        raise ExecError(f"the exec-server answered with a path of {len(uri)} characters")
    return path_from_uri(uri)


def _unasked(method: str, what: str) -> ExecError:
    return ExecError(f"the exec-server answered {method} with more than it was asked for: {what}")


def _new_handle() -> str:
    return os.urandom(16).hex()
