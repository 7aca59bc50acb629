"""`LocalFiles`: the files of this machine.

Owns the hop to worker threads. What is done there is the business of `FileAccess`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from treadle.execution.data import Data, as_bytes, blocks_of
from treadle.execution.files.access import FileAccess
from treadle.execution.files.base import Files, Path, pieces
from treadle.execution.files.file_values import DirEntry, FileStat, WalkLimits, WalkOutcome
from treadle.execution.files.handles import FileHandles
from treadle.execution.files.worker import Run
from treadle.execution.uris import native_path

if TYPE_CHECKING:
    from treadle.execution.sandbox.policy import Policy


class LocalFiles(Files):
    """The files of this machine, under `policy` when there is one. Work is done by `run`, in worker threads."""

    def __init__(self, policy: Policy | None = None, *, run: Run = asyncio.to_thread) -> None:
        self._access = FileAccess(policy)
        self._run = run

    async def read(self, path: Path) -> bytes:
        native = native_path(path)
        return await self._run(lambda: self._access.read(native))

    async def write(self, path: Path, data: Data) -> None:
        native, content = native_path(path), as_bytes(data, "data")
        await self._run(lambda: self._access.write(native, content))

    async def stat(self, path: Path) -> FileStat:
        native = native_path(path)
        return await self._run(lambda: self._access.stat(native))

    async def list(self, path: Path) -> list[DirEntry]:
        native = native_path(path)
        return await self._run(lambda: self._access.list(native))

    async def mkdir(self, path: Path, *, parents: bool = True) -> None:
        native = native_path(path)
        await self._run(lambda: self._access.create_directory(native, parents))

    async def remove(self, path: Path, *, recursive: bool = True, missing_ok: bool = True) -> None:
        native = native_path(path)
        await self._run(lambda: self._access.remove(native, recursive, missing_ok))

    async def copy(self, source: Path, destination: Path, *, recursive: bool = False) -> None:
        origin, target = native_path(source), native_path(destination)
        await self._run(lambda: self._access.copy(origin, target, recursive))

    async def canonicalize(self, path: Path) -> str:
        native = native_path(path)
        return await self._run(lambda: self._access.canonicalize(native))

    async def _walk(self, path: Path, limits: WalkLimits) -> WalkOutcome:
        native = native_path(path)
        return await self._run(lambda: self._access.walk(native, limits))

    async def _blocks(self, path: Path, block_size: int) -> AsyncGenerator[bytes, None]:
        native = native_path(path)
        # A table of one: it closes the file also when we are cancelled while a thread still opens or reads it.
        handles = FileHandles()
        try:
            await self._run(lambda: handles.open("", native, "read", self._access))
            offset, eof = 0, False
            while not eof:
                block, eof = await self._run(partial(handles.read_block, "", offset, block_size))
                offset += len(block)
                if block:
                    yield block
        finally:
            handles.close_all()

    async def write_blocks(self, path: Path, blocks: AsyncIterable[Data] | Iterable[Data]) -> None:
        native, given = native_path(path), blocks_of(blocks)
        handles = FileHandles()
        try:
            await self._run(lambda: handles.open("", native, "replace", self._access))
            offset = 0
            async for piece in pieces(given):
                await self._run(partial(handles.write_block, "", offset, piece))
                offset += len(piece)
        finally:
            handles.close_all()
