"""The home and its files: where it is, reading a TOML file with its version, locking, and replacing a file atomically.

`treadle.home` has the rule where the home is; here it is checked. The first writer creates it. What the keys of a file
mean is known to others. A server loads this module before it answers `initialize`: hence the late imports.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from treadle.arguments import text_problem
from treadle.config.problems import ConfigError
from treadle.home import home_place

if TYPE_CHECKING:
    from pathlib import Path

CONFIG_FILE: Final = "config.toml"
PRIVATE: Final = 0o600
# Clients on other systems look for keys too, and Windows has neither of the two.
READING: Final[int] = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
MAX_BYTES: Final = 4 * 1024 * 1024  # a thousand times a long one; more is not a configuration

# A process that rewrites a file has the lock for milliseconds: one that is held longer belongs to a process that hangs.
LOCK_S: Final = 10.0
_LOCK_AGAIN_S: Final = 0.01

_BOM: Final = b"\xef\xbb\xbf"


def find_home(environ: Mapping[str, str]) -> Path:
    """`$TREADLE_HOME`, else `$CODEX_HOME`, else `~/.treadle`; absolute, and a directory if it exists."""
    from pathlib import Path  # 4 ms, which the answer to `initialize` does not wait for

    return Path(home_name(environ))


def home_name(environ: Mapping[str, str]) -> str:
    """The home as text: a server sends it in its answer to `initialize`, before it loads anything for paths."""
    place = home_place(environ)
    if place is None:
        raise ConfigError("there is no home directory for this user; set TREADLE_HOME to a directory")
    path, source = place
    if (problem := text_problem(path)) is not None:  # requests, answers and the database hold the paths of the home
        raise ConfigError(f"{path!a} {problem}; set TREADLE_HOME to a directory", source=source)
    try:
        absolute = os.path.abspath(path)
        mode = os.stat(absolute).st_mode
    except FileNotFoundError:
        if not os.path.islink(absolute):
            return absolute
        problem = "is a symbolic link to nothing"
    except (OSError, ValueError) as error:
        problem = f"cannot be used ({getattr(error, 'strerror', None) or error})"
    else:
        if stat.S_ISDIR(mode):
            return absolute
        problem = "is not a directory"
    raise ConfigError(f"`{path}` {problem}; set TREADLE_HOME to a directory", source=source)


# --- replacing files ---


def make_home(home: Path) -> None:
    """Make the directory, for its owner alone, unless it exists."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)


def replace_file(path: Path, data: bytes, mode: int) -> None:
    """Replace a file atomically: a reader sees the old content or the new, never a mixture. The file gets exactly
    `mode`; a symbolic link stays one, and what it points to is replaced."""
    target = os.path.realpath(path)
    temporary = f"{target}.{os.getpid()}.{os.urandom(6).hex()}.new"
    # Never wider than the final mode, not even for a moment: there may be a key in it.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, mode)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    # So that the new name survives a power cut, where the file system can promise it.
    with suppress(OSError):
        directory = os.open(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


# --- TOML files ---


class Document(Struct, frozen=True, kw_only=True):
    """A TOML file of the home. `version` changes with every byte. A missing file is an empty document."""

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
    """A file after an edit."""

    path: str
    version: str


def config_path(home: Path) -> Path:
    return home / CONFIG_FILE


def read_document(home: Path, name: str = CONFIG_FILE) -> Document:
    """Read a file of the home; `ConfigError` has the line and the column of what is no TOML in it."""
    path = home / name
    data = _read(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        raise ConfigError("it is not UTF-8; save it as UTF-8", path=str(path), line=line, column=column) from None
    return Document(path=str(path), text=text, values=parse_document(path, text), has_bom=data.startswith(_BOM))


def version_of(data: bytes) -> str:
    import hashlib  # only when a client asks for the version

    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _read(path: Path) -> bytes:
    try:
        # Not blocking: the name could be that of a pipe.
        descriptor = os.open(path, READING)
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


def parse_document(path: Path, text: str) -> dict[str, Any]:
    """The values of a text that is, or is to be, in a file."""
    if not text.strip():
        return {}
    from treadle.config.toml_edit import TomlError, parse  # a start without a config file parses no TOML

    try:
        return parse(text)
    except TomlError as error:
        problem = f"it is no TOML: {error.problem}"
        raise ConfigError(problem, path=str(path), line=error.line, column=error.column) from None


def rewrite_document(home: Path, edit: Callable[[Document], str], name: str = CONFIG_FILE) -> Written:
    """Replace a file of the home by what `edit` makes of it; no other process rewrites it in between."""
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
    """Guard read-edit-write against other processes. The lock is on the directory, so no file is left behind."""
    import fcntl  # only when writing

    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    held = f"another process has held the lock of its folder for {LOCK_S:.0f} s"
                    problem = f"it cannot be written: {held}; `fuser {home}` names it"
                    raise ConfigError(problem, path=str(home)) from None
            time.sleep(_LOCK_AGAIN_S)
        yield
    finally:
        os.close(descriptor)
