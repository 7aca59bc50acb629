"""Versions of the files of a folder: what they were at one time and at another, and how one becomes the other again.

    list_files ─▶ FileCopies.look ─▶ versions by path; contents in a folder of the home, by their hash
    differences(before, after) ─▶ VersionChange by path ─▶ put_back, one path at a time

Owns which files count, what is copied of them, and that nothing is written outside of the folder. A repository's files
are those that git tracks or would track; elsewhere all but a few folders. The folder may be hostile: no link is
followed, on the way to a file neither, and what cannot be read, or is large, is only known to have changed.

Contents are copied once: a file that looks as it did when it was last copied is not read. Several processes may do so
at a time. Who needs the copies holds a lock; whoever is alone with it removes copies that no file has any more.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import Struct

from treadle.errors import ExecError, TreadleError
from treadle.execution.bounded_reads import SETTLED_NS, look_at
from treadle.execution.environment import Environment
from treadle.execution.file_search import SKIPPED
from treadle.execution.files.safe_open import SEARCH, open_for_reading, open_no_symlinks, path_at, write_all
from treadle.execution.sandbox.policy import contains
from treadle.execution.worktrees import MAX_OUTPUT, Git, GitError

# More than that takes longer to look at than anybody wants to wait for before a command.
MAX_FILES: Final = 20_000
MAX_BYTES: Final = 128 << 20
MAX_FILE_BYTES: Final = 4 << 20
LOOK_S: Final = 10.0
# Folders whose files are copied; the one that was used least recently goes.
MAX_FOLDERS: Final = 16
# Of one folder; more of them are put together.
MAX_PACKS: Final = 16
_TEMPORARY: Final = ".treadle-undo.tmp"
_Look = tuple[int, ...]


class NotCopied(TreadleError):
    """The files of a folder were not copied; the message says why."""


class Version(Struct, frozen=True, array_like=True):
    """What a file was. `content` is the hash of a file's bytes, or the text of a link; of one that was not copied
    (`unknown`) it differs from that of any other version."""

    kind: Literal["file", "link", "unknown"]
    mode: int
    content: bytes


class VersionChange(Struct, frozen=True, array_like=True):
    """None is no file."""

    before: Version | None
    after: Version | None


class Listing(NamedTuple):
    """The files of a folder, by absolute path. `hidden` are those that are there and do not count; a folder ends with a
    slash."""

    paths: list[str]
    hidden: frozenset[str]
    by_git: bool


class Versions(NamedTuple):
    """The files of a folder at one time. `repositories` are others in this one, whose files are theirs."""

    files: dict[str, Version]
    listing: Listing
    taken_ns: int
    repositories: frozenset[str] = frozenset()


# --- which files ------------------------------------------------------------------------------------------------------


async def list_files(environment: Environment, root: str, left_out: str) -> Listing:
    """The files below `root`, without those in the folder `left_out`. Raises `NotCopied`."""
    if root == "/":
        raise NotCopied("the folder is the whole disk")
    git = Git(environment, root)
    try:
        listed, ignored = await asyncio.gather(
            git.ask("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"),
            git.ask("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"),
        )
    except GitError:
        listed = ignored = None
    if listed is None or ignored is None:
        paths, hidden = await asyncio.to_thread(_walk, root)
    else:
        if max(len(listed), len(ignored)) >= MAX_OUTPUT // 4:  # it may have been cut, and a character has four bytes
            raise _too_many()
        paths, hidden = ([os.path.join(root, name) for name in text.split("\0") if name] for text in (listed, ignored))
    paths = [path for path in paths if not contains(left_out, path)]
    if len(paths) > MAX_FILES:
        raise _too_many()
    return Listing(paths, frozenset(hidden), listed is not None)


def _walk(root: str) -> tuple[list[str], list[str]]:
    deadline = time.monotonic() + LOOK_S
    paths: list[str] = []
    hidden: list[str] = []
    pending = [root]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        paths.append(entry.path)
                    elif entry.name in SKIPPED:
                        hidden.append(f"{entry.path}/")
                    else:
                        pending.append(entry.path)
                    if len(paths) > MAX_FILES or len(pending) > MAX_FILES or time.monotonic() > deadline:
                        raise _too_many()
        except OSError:
            hidden.append(f"{folder}/")
    return paths, hidden


def _too_many() -> NotCopied:
    return NotCopied(f"the folder has more than {MAX_FILES:,} files, or they take more than {LOOK_S:g} s to be listed")


# --- copies -----------------------------------------------------------------------------------------------------------


class _Index(Struct, frozen=True):
    """What was seen last: how each file looked, what it was, and which pack has its content where."""

    files: dict[bytes, tuple[_Look, Version]] = {}
    contents: dict[bytes, tuple[str, int, int]] = {}


class FileCopies:
    """The contents of the files below `root`, as they were when somebody looked, in a folder of `home`. From `hold` on
    none of them goes. All of it is blocking.

    What is new at a look is written as one file, a pack: to make a file for each content takes ten times as long.
    """

    def __init__(self, home: str, root: str) -> None:
        self._home = home
        self.folder: str = os.path.join(home, hashlib.sha256(os.fsencode(root)).hexdigest()[:32])
        self._lock = -1
        self._contents: dict[bytes, tuple[str, int, int]] = {}

    def hold(self) -> None:
        is_new = not os.path.isdir(self.folder)
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        self._lock = _open_lock(self.folder)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        if is_new:
            self._make_room()

    def close(self) -> None:
        """Release the copies, and remove packs of which nothing is known any more, unless somebody else holds them."""
        lock, self._lock = self._lock, -1
        if lock < 0:
            return
        with suppress(OSError):  # somebody else holds them, and tidies up
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            index = self._read_index()
            if len({pack for pack, _, _ in index.contents.values()}) > MAX_PACKS:
                contents = {name: self._read(place) for name, place in index.contents.items()}
                index = _Index(index.files, self._write_pack(contents))
                write_whole(self._path("index"), msgspec.msgpack.encode(index))
            needed = {"lock", "index", *(pack for pack, _, _ in index.contents.values())}
            for name in os.listdir(self.folder):
                if name not in needed:
                    os.unlink(self._path(name))
        os.close(lock)

    def look(self, listing: Listing) -> Versions:
        """The versions of these files, whose contents are copied. Raises `NotCopied` and `OSError`."""
        taken_ns, deadline = time.time_ns(), time.monotonic() + LOOK_S
        index = self._read_index()
        looks = {path: look for path in listing.paths if (look := look_at(path))}
        repositories = frozenset(os.path.join(path, "") for path, look in looks.items() if stat.S_ISDIR(look[0]))
        # Before any is read: what is too large today is so in every turn.
        if sum(min(look[3], MAX_FILE_BYTES) for look in looks.values() if not stat.S_ISDIR(look[0])) > MAX_BYTES:
            raise NotCopied(f"the files have more than {MAX_BYTES >> 20} MiB")
        files: dict[bytes, tuple[_Look, Version]] = {}
        new: dict[bytes, bytes] = {}
        for path, look in looks.items():
            if stat.S_ISDIR(look[0]):
                continue
            if time.monotonic() > deadline:
                raise NotCopied(f"to copy the files takes more than {LOOK_S:g} s")
            name = os.fsencode(path)
            entry = index.files.get(name)
            if entry is None or entry[0] != look:
                version, data = read_version(path)
                if version is None:  # it went away this moment
                    continue
                if version.kind == "file" and version.content not in index.contents:
                    new[version.content] = data
                # The clock of a file system is coarse: what was changed just now may change and look the same.
                entry = (look if taken_ns - max(look[-2:]) > SETTLED_NS else (), version)
            files[name] = entry
        if new or files != index.files:
            contents = index.contents | self._write_pack(new)
            needed = {version.content for _, version in files.values() if version.kind == "file"}
            index = _Index(files, {name: contents[name] for name in needed})
            write_whole(self._path("index"), msgspec.msgpack.encode(index))
        self._contents |= index.contents
        listing = listing._replace(hidden=listing.hidden | repositories)
        versions = {os.fsdecode(name): version for name, (_, version) in files.items()}
        return Versions(versions, listing, taken_ns, repositories)

    def content(self, version: Version) -> bytes:
        """The content of a file that was seen since `hold`."""
        return self._read(self._contents[version.content])

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _read(self, place: tuple[str, int, int]) -> bytes:
        pack, offset, size = place
        with open(self._path(pack), "rb") as file:
            return os.pread(file.fileno(), size, offset)

    def _read_index(self) -> _Index:
        try:
            with open(self._path("index"), "rb") as file:
                return msgspec.msgpack.decode(file.read(), type=_Index)
        except (OSError, msgspec.DecodeError):  # there is none, or another version of us wrote it
            return _Index()

    def _write_pack(self, contents: Mapping[bytes, bytes]) -> dict[bytes, tuple[str, int, int]]:
        if not contents:
            return {}
        pack, offset, places = f"pack.{os.getpid()}.{time.monotonic_ns()}", 0, {}
        for name, data in contents.items():
            places[name] = (pack, offset, len(data))
            offset += len(data)
        write_whole(self._path(pack), *contents.values())
        return places

    def _make_room(self) -> None:
        with suppress(OSError):
            for folder in newest(self._home)[MAX_FOLDERS:]:
                lock = _open_lock(folder)
                try:
                    with suppress(BlockingIOError):
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        shutil.rmtree(folder)
                finally:
                    os.close(lock)


def newest(folder: str) -> list[str]:
    """What is in a folder, the newest first."""
    with os.scandir(folder) as entries:
        return [entry.path for entry in sorted(entries, key=lambda entry: -entry.stat().st_mtime_ns)]


def _open_lock(folder: str) -> int:
    return os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def write_whole(path: str, *data: bytes) -> None:
    """Write a file for its owner alone, which is there whole or not at all."""
    temporary = f"{path}.new"
    with suppress(FileNotFoundError):  # of a process that was killed
        os.unlink(temporary)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.writelines(data)
    os.rename(temporary, path)


def read_version(path: str) -> tuple[Version | None, bytes]:
    """What is at a path now, and the content of a file. None for no file."""
    try:
        with path_at(path, no_symlinks=True) as at:
            found = at.lstat()
            if stat.S_ISLNK(found.st_mode):
                return Version("link", 0, os.fsencode(os.readlink(at.name, dir_fd=at.directory))), b""
            if stat.S_ISDIR(found.st_mode):
                return None, b""
            if stat.S_ISREG(found.st_mode) and found.st_size <= MAX_FILE_BYTES:
                with open(open_for_reading(at), "rb") as file:
                    data = file.read(MAX_FILE_BYTES + 1)
                if len(data) <= MAX_FILE_BYTES:
                    return Version("file", found.st_mode & 0o777, hashlib.sha256(data).digest()), data
    except (OSError, ExecError) as error:
        if getattr(error, "errno", None) in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):  # a link stands for a folder
            return None, b""
    look = look_at(path)
    return Version("unknown", 0, repr(look).encode()) if look else None, b""


# --- from one version to another --------------------------------------------------------------------------------------


def differences(before: Versions, after: Versions) -> dict[str, VersionChange]:
    """What has changed between two looks at a folder."""
    changes: dict[str, VersionChange] = {}
    # A file that was not listed before may still have been there. It counts only as known to have changed.
    hidden = before.listing.hidden if before.listing.by_git == after.listing.by_git else frozenset({"/"})
    for path in before.files.keys() | after.files.keys():
        old, new = before.files.get(path), after.files.get(path)
        if old == new:
            continue
        if old is None:
            if any(name in hidden for name in _names_of(path)):
                old = Version("unknown", 0, b"not listed")
            elif (look := look_at(path)) and look[-1] < before.taken_ns - SETTLED_NS:
                continue  # it has not changed since long before
        changes[path] = VersionChange(old, new)
    return changes


def _names_of(path: str) -> Iterator[str]:
    """The path, and the folders that it is in, as a listing has them."""
    yield path
    while path != "/":
        path = os.path.dirname(path)
        yield path if path == "/" else f"{path}/"


def changed_repositories(before: Versions) -> list[str]:
    """The repositories in the folder in which something may have changed since."""
    folders = sorted(map(os.path.normpath, before.repositories))
    return [folder for folder in folders if _may_have_changed(folder, before.taken_ns)]


def _may_have_changed(folder: str, since_ns: int) -> bool:
    """Whether something below a folder, but what git writes for itself, is newer than that, or is too much to see."""
    deadline, left = time.monotonic() + LOOK_S, MAX_FILES
    pending = [folder]
    while pending:
        path = pending.pop()
        look = look_at(path)
        if not look or look[-1] >= since_ns:
            return True
        if stat.S_ISDIR(look[0]):
            try:
                names = set(os.listdir(path)) - SKIPPED
            except OSError:
                return True
            left -= len(names)
            if left < 0 or time.monotonic() > deadline:
                return True
            pending += (os.path.join(path, name) for name in names)
    return False


def new_folders(before: Versions, changes: Mapping[str, VersionChange], root: str) -> list[str]:
    """The folders that files were made in where none were before, the deepest first."""
    had: set[str] = set()
    for path in before.files:
        while (path := os.path.dirname(path)) not in had and contains(root, path):
            had.add(path)
    made: set[str] = set()
    for path, change in changes.items():
        if change.before is None:
            while (path := os.path.dirname(path)) not in had and path != root and contains(root, path):
                made.add(path)
    return sorted(made, key=len, reverse=True)


def put_back(path: str, root: str, version: Version | None, content: bytes) -> None:
    """Make a file below `root` what it was. Raises `OSError` and `ExecError`."""
    if not contains(root, path) or path != os.path.normpath(path) or path == root:
        raise ExecError(f"{path} is not in {root}")
    *folders, name = os.path.relpath(path, root).split("/")
    directory = open_no_symlinks(root, SEARCH)
    try:
        for folder in folders:
            if version is not None:
                with suppress(FileExistsError):
                    os.mkdir(folder, dir_fd=directory)
            inner = os.open(folder, SEARCH | os.O_NOFOLLOW, dir_fd=directory)
            os.close(directory)
            directory = inner
        if version is None:
            os.unlink(name, dir_fd=directory)
            return
        with suppress(FileNotFoundError):  # of a process that was killed
            os.unlink(_TEMPORARY, dir_fd=directory)
        if version.kind == "link":
            os.symlink(os.fsdecode(version.content), _TEMPORARY, dir_fd=directory)
        else:
            _write_temporary(directory, version, content, name)
        os.rename(_TEMPORARY, name, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        os.close(directory)


def _write_temporary(directory: int, version: Version, content: bytes, name: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(_TEMPORARY, flags, 0o600, dir_fd=directory)
    try:
        write_all(descriptor, content)
        with suppress(OSError):  # it stays whose it was, where we may say so
            owner = os.stat(name, dir_fd=directory, follow_symlinks=False)
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        os.fchmod(descriptor, version.mode)
    finally:
        os.close(descriptor)


def remove_empty(folder: str) -> None:
    """Remove a folder, if there is nothing in it."""
    with suppress(OSError), path_at(folder, no_symlinks=True) as at:
        os.rmdir(at.name, dir_fd=at.directory)
