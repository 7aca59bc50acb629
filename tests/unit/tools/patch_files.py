"""Files in memory for the tests of patches: with directories, and with failures on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from posixpath import dirname

from treadle.errors import INTERNAL_ERROR, NOT_FOUND, ExecError


class MemoryFiles:
    """`before` is called with the number of each changing operation, and may raise: a write is then half done."""

    def __init__(self, files: dict[str, bytes], before: Callable[[int], None] | None = None) -> None:
        self.files = dict(files)
        self.directories = {"/"}
        for path in files:
            while path != "/":
                path = dirname(path)
                self.directories.add(path)
        self.operations = 0
        self.before = before

    def snapshot(self) -> tuple[dict[str, bytes], set[str]]:
        return dict(self.files), set(self.directories)

    async def read(self, path: str, /) -> bytes:
        await asyncio.sleep(0)
        if path in self.directories:
            raise ExecError(f"{path} is a directory", INTERNAL_ERROR)
        if path not in self.files:
            raise ExecError(f"{path}: no such file", NOT_FOUND)
        return self.files[path]

    async def write(self, path: str, data: bytes, /) -> None:
        await asyncio.sleep(0)
        if dirname(path) not in self.directories:
            raise ExecError(f"{path}: no such directory", NOT_FOUND)
        if path in self.directories:
            raise ExecError(f"{path} is a directory", INTERNAL_ERROR)
        self.files[path] = data[: len(data) // 2]
        self._count()
        await asyncio.sleep(0)
        self.files[path] = data

    async def remove(self, path: str, /, *, recursive: bool, missing_ok: bool) -> None:
        assert not recursive, "a patch never removes a directory with what is in it"
        await asyncio.sleep(0)
        if path not in self.files and path not in self.directories:
            if missing_ok:
                return
            raise ExecError(f"{path}: no such file", NOT_FOUND)
        self._count()
        if path in self.directories:
            if any(dirname(other) == path for other in {*self.files, *self.directories} - {path}):
                raise ExecError(f"{path} is not empty", INTERNAL_ERROR)
            self.directories.remove(path)
        else:
            del self.files[path]

    async def mkdir(self, path: str, /, *, parents: bool) -> None:
        assert not parents, "what is made must be known, to be taken away again"
        await asyncio.sleep(0)
        if path in self.directories or path in self.files:
            raise ExecError(f"{path} exists", INTERNAL_ERROR)
        if dirname(path) not in self.directories:
            raise ExecError(f"{path}: no such directory", NOT_FOUND)
        self._count()
        self.directories.add(path)

    def _count(self) -> None:
        self.operations += 1
        if self.before is not None:
            self.before(self.operations)
