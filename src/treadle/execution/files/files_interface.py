"""`Files`: what `env.files` offers, and the values that it answers with.

`local_files` and `remote_files` implement it, with the same results and the same error codes. Paths are absolute, and
`..` is resolved by text first (`/a/../b` is `/b`), as the protocol does. At the end are the errors of file operations:
which code of the protocol an OS error has, and the text.
"""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from treadle.arguments import wrong_type
from treadle.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, NOT_FOUND, ExecDenied, ExecError
from treadle.execution.process_values import Data, as_bytes

MAX_READ_BYTES: Final = 512 * 1024 * 1024
MAX_ENTRIES: Final = 50_000
MAX_WALK_DEPTH: Final = 64
MAX_WALK_DIRECTORIES: Final = 10_000
MAX_BLOCK: Final = 1024 * 1024

_SHOWN: Final = 300  # characters of a path that an error repeats
_CODES: Final = {
    errno.ENOENT: NOT_FOUND,
    errno.EACCES: INVALID_REQUEST,
    errno.EPERM: INVALID_REQUEST,
    errno.EINVAL: INVALID_REQUEST,
}

OpenMode = Literal["read", "replace"]
EntryKind = Literal["directory", "file"]
Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class FileStat:
    """A path, described by what it leads to; only `is_symlink` is about the path itself.

    `created_at_ms` is 0 where the creation time is not known.
    """

    is_directory: bool
    is_file: bool
    is_symlink: bool
    size: int
    created_at_ms: int
    modified_at_ms: int


@dataclass(frozen=True, slots=True)
class DirEntry:
    """A name in a directory, described by what it leads to. Bytes that are no UTF-8 show as U+FFFD in `name`."""

    name: str
    is_directory: bool
    is_file: bool


@dataclass(frozen=True, slots=True)
class WalkEntry:
    path: str
    kind: EntryKind


@dataclass(frozen=True, slots=True)
class WalkFailure:
    """A directory that could not be read."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class WalkOutcome:
    """Breadth first, each directory sorted by name. `truncated` means that a limit left something out."""

    entries: tuple[WalkEntry, ...]
    errors: tuple[WalkFailure, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class WalkLimits:
    """How far a walk goes. With `max_depth` 0 only the names in the root itself are listed."""

    max_depth: int = MAX_WALK_DEPTH
    max_directories: int = MAX_WALK_DIRECTORIES
    max_entries: int = MAX_ENTRIES
    follow_directory_symlinks: bool = False
    prune_hidden_directories: bool = False


class Files(ABC):
    """Files by absolute path. Every failure is an `ExecError` whose `code` is the protocol's."""

    @abstractmethod
    async def read(self, path: Path) -> bytes:
        """The content of a regular file of at most 512 MiB."""

    @abstractmethod
    async def write(self, path: Path, data: Data) -> None:
        """Create the file, or replace its content in place; its directory must exist. Text is written as UTF-8."""

    @abstractmethod
    async def stat(self, path: Path) -> FileStat: ...

    @abstractmethod
    async def list(self, path: Path) -> list[DirEntry]:
        """The names in a directory, sorted; links that lead nowhere are left out."""

    @abstractmethod
    async def mkdir(self, path: Path, *, parents: bool = True) -> None:
        """Make a directory. With `parents` an existing one is fine and missing ones above it are made too."""

    @abstractmethod
    async def remove(self, path: Path, *, recursive: bool = True, missing_ok: bool = True) -> None:
        """Remove a file, a link (not its target) or a directory."""

    @abstractmethod
    async def copy(self, source: Path, destination: Path, *, recursive: bool = False) -> None:
        """Copy a file or link, or with `recursive` a directory."""

    @abstractmethod
    async def canonicalize(self, path: Path) -> str:
        """The path without symbolic links; it must exist."""

    @abstractmethod
    async def _walk(self, path: Path, limits: WalkLimits) -> WalkOutcome: ...

    @abstractmethod
    def _blocks(self, path: Path, block_size: int) -> AsyncGenerator[bytes, None]: ...

    @abstractmethod
    async def write_blocks(self, path: Path, blocks: AsyncIterable[Data] | Iterable[Data]) -> None:
        """Create the file, or empty it at once, and write the blocks as they come. Not atomic."""

    async def read_text(self, path: Path, encoding: str = "utf-8", errors: str = "strict") -> str:
        return (await self.read(path)).decode(encoding, errors)

    async def write_text(self, path: Path, text: str, encoding: str = "utf-8", errors: str = "strict") -> None:
        if not isinstance(text, str):
            raise wrong_type("text", "a str", text, ": `write` takes bytes")
        await self.write(path, text.encode(encoding, errors))

    async def exists(self, path: Path) -> bool:
        """Whether the path leads to something; an error other than "not found" is raised."""
        try:
            await self.stat(path)
        except ExecError as error:
            if error.code == NOT_FOUND:
                return False
            raise
        return True

    async def walk(
        self,
        path: Path,
        *,
        max_depth: int = MAX_WALK_DEPTH,
        max_directories: int = MAX_WALK_DIRECTORIES,
        max_entries: int = MAX_ENTRIES,
        follow_directory_symlinks: bool = False,
        prune_hidden_directories: bool = False,
    ) -> WalkOutcome:
        """The directories and files below a directory, breadth first; look at `truncated` of the outcome."""
        if min(max_depth, max_directories, max_entries) < 0:
            raise ExecError("the limits of a walk cannot be negative", INVALID_PARAMS)
        limits = WalkLimits(
            max_depth, max_directories, max_entries, follow_directory_symlinks, prune_hidden_directories
        )
        return await self._walk(path, limits)

    def read_blocks(self, path: Path, *, block_size: int = MAX_BLOCK) -> AsyncIterator[bytes]:
        """The content piece by piece, for files of any size."""
        if not 1 <= block_size <= MAX_BLOCK:
            raise ExecError(f"block_size must be between 1 and {MAX_BLOCK}, not {block_size}", INVALID_PARAMS)
        return self._blocks(path, block_size)


async def pieces(blocks: AsyncIterable[Data] | Iterable[Data]) -> AsyncIterator[bytes]:
    """The blocks, cut to what one request may carry; empty ones are left out."""
    if isinstance(blocks, AsyncIterable):
        async for block in blocks:
            for piece in _cut(block):
                yield piece
        return
    for block in blocks:
        for piece in _cut(block):
            yield piece


def _cut(block: Data) -> Iterator[bytes]:
    data = as_bytes(block, "a block")
    return (data[start : start + MAX_BLOCK] for start in range(0, len(data), MAX_BLOCK))


# --- errors ----------------------------------------------------------------------------------------------------------


@contextmanager
def reported(path: str) -> Iterator[None]:
    """Turn an OS error of the body into the protocol's error about `path`."""
    try:
        yield
    except OSError as error:
        number = error.errno or errno.EIO
        raise ExecError(f"{os_text(number)}: {shown(path)}", _CODES.get(number, INTERNAL_ERROR)) from error


def denied_read(path: str) -> ExecError:
    text = f"{os_text(errno.EACCES)}: the sandbox does not allow reading {shown(path)}; ask for read access to it"
    return ExecDenied(text)


def denied_write(path: str) -> ExecError:
    text = f"{os_text(errno.EROFS)}: the sandbox does not allow writing {shown(path)}; ask for write access to it"
    return ExecDenied(text, INTERNAL_ERROR)


def not_a_file(path: str) -> ExecError:
    return ExecError(f"path {shown(path)} is not a file; only regular files can be read or written", INVALID_REQUEST)


def refused(text: str) -> ExecError:
    """The error for a request that is wrong in itself or over a limit."""
    return ExecError(text, INVALID_REQUEST)


def too_large(path: str, limit: int = MAX_READ_BYTES) -> ExecError:
    return refused(f"file {shown(path)} is too large to read at once: the limit is {limit} bytes; use blocks")


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def os_text(number: int) -> str:
    return f"{os.strerror(number)} (os error {number})"


def shown(path: str) -> str:
    """The path for a message: bounded, and valid UTF-8 also when the name is not."""
    text = path if len(path) <= _SHOWN else path[:_SHOWN] + "…"
    return f"`{text.encode('utf-8', 'backslashreplace').decode()}`"
