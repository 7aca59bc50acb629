"""A TOML file of the home as a document: reading it with its version, and rewriting it.

`config_edits` edits `config.toml`; what its keys mean is known to `configuration` alone.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from treadle.config.problems import ConfigError

FILE_NAME: Final = "config.toml"
MAX_BYTES: Final = 4 * 1024 * 1024  # a thousand times a long one; more is not a configuration

# Whoever rewrites a file has it for milliseconds: a lock that is held longer belongs to a process that hangs.
LOCK_S: Final = 10.0
_LOCK_AGAIN_S: Final = 0.01

_BOM: Final = b"\xef\xbb\xbf"


class Document(Struct, frozen=True, kw_only=True):
    """`version` changes with every byte. A missing file is an empty document."""

    path: str
    text: str
    values: Mapping[str, Any]
    has_bom: bool = False

    @property
    def version(self) -> str:
        return version_of(self.has_bom * _BOM + self.text.encode())

    def __repr__(self) -> str:
        return f"Document(path={self.path!r}, version={self.version!r})"


class Written(Struct, frozen=True, kw_only=True):
    path: str
    version: str


def config_path(home: Path) -> Path:
    return home / FILE_NAME


def read_document(home: Path, name: str = FILE_NAME) -> Document:
    """A file of a home; `ConfigError` has the line and the column of what is no TOML in it."""
    path = home / name
    data = _read(path)
    text = _decode(path, data)
    return Document(path=str(path), text=text, values=parse_document(path, text), has_bom=data.startswith(_BOM))


def version_of(data: bytes) -> str:
    import hashlib  # only when a client asks for the version

    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _read(path: Path) -> bytes:
    try:
        # Not blocking: the name could be that of a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if path.is_symlink():
            raise ConfigError("it is a symbolic link to nothing; correct the link", path=str(path)) from None
        return b""
    except OSError as error:
        raise ConfigError(f"it cannot be read ({error.strerror}); correct its permissions", path=str(path)) from None
    try:
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError("it is not a regular file; move it away", path=str(path))
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"it cannot be read ({error.strerror})", path=str(path)) from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"it is larger than {MAX_BYTES} bytes; shorten it", path=str(path))
    return data


def _decode(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        raise ConfigError("it is not UTF-8; save it as UTF-8", path=str(path), line=line, column=column) from None


def parse_document(path: Path, text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    from treadle.config.toml_scan import TomlError, parse  # a start without a config file parses no TOML

    try:
        return parse(text)
    except TomlError as error:
        problem = f"it is no TOML: {error.problem}"
        raise ConfigError(problem, path=str(path), line=error.line, column=error.column) from None


def rewrite_document(home: Path, edit: Callable[[Document], str], name: str = FILE_NAME) -> Written:
    """Put what `edit` makes of a file of the home in its place; nobody else rewrites one in between."""
    from treadle.config.atomic_write import PRIVATE, make_home, replace_file  # only when writing

    path = home / name
    try:
        make_home(home)
        with locked(home):
            document = read_document(home, name)
            data = document.has_bom * _BOM + edit(document).encode()
            mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else PRIVATE
            replace_file(path, data, mode)
    except OSError as error:
        raise ConfigError(f"it cannot be written ({error.strerror})", path=str(path)) from None
    return Written(path=str(path), version=version_of(data))


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """Guards read-edit-write against other processes. The lock is on the directory, so no file is left behind."""
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _wait_for_lock(descriptor, home)
        yield
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, home: Path) -> None:
    import fcntl  # only when writing

    end = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= end:
                held = f"another process has held the lock of its folder for {LOCK_S:.0f} s"
                raise ConfigError(f"it cannot be written: {held}; `fuser {home}` names it", path=str(home)) from None
        time.sleep(_LOCK_AGAIN_S)
