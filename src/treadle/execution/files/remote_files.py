"""`RemoteFiles`: the files of another machine, by requests of the exec-server protocol.

Owns which requests an operation takes. Does not own the connection: `call` sends one request and gives its result.
"""

from __future__ import annotations

import asyncio
import binascii
import os
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from typing import Final, TypeVar

from msgspec import Struct

from treadle.errors import TreadleError
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
)
from treadle.execution.files.safe_open import too_large
from treadle.execution.process_values import Data, as_bytes, blocks_of
from treadle.execution.uris import native_path, path_from_uri, uri_from_path
from treadle.protocol import exec as wire

_WHOLE: Final = 8 * 1024 * 1024  # larger files go in blocks: a message, base64 and all, has to stay below 16 MiB
_CLOSE_SECONDS: Final = 5.0

R = TypeVar("R", bound=Struct)
Call = Callable[[str, Struct], Awaitable[Struct]]


class RemoteFiles(Files):
    """Files behind `call`. `sandbox` goes with every request that takes one."""

    def __init__(self, call: Call, *, sandbox: wire.Sandbox | None = None) -> None:
        self._call = call
        self._sandbox = sandbox

    async def read(self, path: Path) -> bytes:
        uri = uri_from_path(path)
        size = (await self._metadata(uri)).size
        if size > MAX_READ_BYTES:
            raise too_large(native_path(path))
        if size > _WHOLE:
            return b"".join([block async for block in self._blocks(path, MAX_BLOCK)])
        params = wire.FollowParams(path=uri, sandbox=self._sandbox)
        return (await self._ask("fs/readFile", params, wire.ReadFileResult)).data_base64

    async def write(self, path: Path, data: Data) -> None:
        content = as_bytes(data, "data")
        if len(content) > _WHOLE:
            await self.write_blocks(path, [content])
            return
        text = binascii.b2a_base64(content, newline=False).decode()
        params = wire.WriteFileParams(path=uri_from_path(path), data_base64=text, sandbox=self._sandbox)
        await self._ask("fs/writeFile", params, wire.Empty)

    async def stat(self, path: Path) -> FileStat:
        found = await self._metadata(uri_from_path(path))
        return FileStat(
            is_directory=found.is_directory,
            is_file=found.is_file,
            is_symlink=found.is_symlink,
            size=found.size,
            created_at_ms=found.created_at_ms,
            modified_at_ms=found.modified_at_ms,
        )

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
            path=uri_from_path(path), recursive=recursive, force=missing_ok, sandbox=self._sandbox
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
        return path_from_uri((await self._ask("fs/canonicalize", params, wire.CanonicalizeResult)).path)

    async def _walk(self, path: Path, limits: WalkLimits) -> WalkOutcome:
        options = wire.WalkOptions(
            max_depth=limits.max_depth,
            max_directories=limits.max_directories,
            max_entries=limits.max_entries,
            follow_directory_symlinks=limits.follow_directory_symlinks,
            prune_hidden_directories=limits.prune_hidden_directories,
        )
        params = wire.WalkParams(path=uri_from_path(path), options=options, sandbox=self._sandbox)
        result = await self._ask("fs/walk", params, wire.WalkResult)
        return WalkOutcome(
            tuple(WalkEntry(path_from_uri(entry.path), entry.kind) for entry in result.entries),
            tuple(WalkFailure(path_from_uri(error.path), error.message) for error in result.errors),
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


def _new_handle() -> str:
    return os.urandom(16).hex()
