"""Logging: what the environment asks for (`TREADLE_LOG`, `TREADLE_LOG_FORMAT`, `TREADLE_LOG_FILE`,
`TREADLE_LOG_FILES`), how a record becomes a line, and where lines go.

A value of the environment that cannot be used is logged as a warning, and the program runs: a log is no reason not to.
Secrets are taken out of lines, and what could fool a terminal.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import select
import stat
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from treadle import secrets
from treadle.logs.trace import IDS

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_LEVEL_HELP: Final = "one of debug, info, warning and error, and pairs such as treadle.llm=debug, with commas"

logger: logging.Logger = logging.getLogger(__name__)


# --- lines ---

# A newline in what a client has sent would begin a line that nobody logged; escape sequences would reach the terminal.
_ESCAPED: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {10: "\\n", 13: "\\r", 9: "\\t"}
_ESCAPED_IN_TRACE: Final = {code: shown for code, shown in _ESCAPED.items() if code != 10}


class LogLine(logging.Formatter):
    """A log record as a line: what both formats share. `hidden` are values that no line shows, beside those that become
    known later."""

    def __init__(self, hidden: Iterable[str] = ()) -> None:
        super().__init__()
        self._hidden = tuple(hidden)

    def clean(self, text: str) -> str:
        return secrets.redact(text, (*self._hidden, *secrets.known()))

    def members(self, record: logging.LogRecord) -> dict[str, Any]:
        """The fields that were logged, and the ids."""
        given = record.args if isinstance(record.args, Mapping) else {}
        fields = {
            name: value if isinstance(value, bool | int | float) else self.clean(str(value))
            for name, value in given.items()
            if value is not None
        }
        return fields | {name: value for name, value in IDS.get().items() if name not in fields}

    def error_of(self, record: logging.LogRecord) -> dict[str, str] | None:
        if not record.exc_info or record.exc_info[1] is None:
            return None
        error = record.exc_info[1]
        return {
            "type": type(error).__name__,
            "message": self.clean(str(error)),
            "traceback": self.clean(self.formatException(record.exc_info)),
        }


class JsonLine(LogLine):
    """A JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.clean(record.getMessage()),
        }
        for name, value in self.members(record).items():
            line.setdefault(name, value)
        error = self.error_of(record)
        if error is not None:
            line["error"] = error
        return _json(line)


class TextLine(LogLine):
    """Text for people."""

    def format(self, record: logging.LogRecord) -> str:
        members = ""
        for name, value in self.members(record).items():
            text = str(value)
            if isinstance(value, str) and (not text or any(sign in text for sign in ' "=')):
                text = _json(text)
            members += f" {name}={text.translate(_ESCAPED)}"
        message = self.clean(record.getMessage()).translate(_ESCAPED)
        line = f"{self.formatTime(record)} {record.levelname} {record.name}: {message}{members}"
        error = self.error_of(record)
        return line if error is None else f"{line}\n{error['traceback'].translate(_ESCAPED_IN_TRACE)}"


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # half a surrogate pair, from a file name say
        import json  # for those alone: it writes them as escapes

        return json.dumps(value)


# --- where lines go ---

MAX_BYTES: Final = 10 << 20
FILES: Final = 1
MAX_FILES: Final = 1000


class RotatedFile:
    """A file of lines with a bounded size, for its owner alone, to which several processes may append, as an SDK and
    its servers do when they inherit the same environment. The full file becomes `PATH.1`, what was that `PATH.2`, and
    so on; so many `files` stay beside it.

    Raises `OSError` when it cannot be opened. After an error of `write` the next one opens it again.
    """

    def __init__(self, path: str, max_bytes: int = MAX_BYTES, files: int = FILES) -> None:
        self.path: str = os.path.abspath(os.path.expanduser(path))
        self._max_bytes = max_bytes
        self._files = files
        self._is_cut = False  # the last line has no end: the disk was full
        self._fd = self._open()

    def write(self, line: bytes) -> None:
        """Append a line in one piece, which does not mix with those of other processes. Raises `OSError`, also when
        only a part of it fits on the disk."""
        try:
            if self._fd < 0:
                self._fd = self._open()
            self._make_room(len(line))
            line = b"\n" * self._is_cut + line
            if os.write(self._fd, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._is_cut = False
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _open(self) -> int:
        fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = os.fstat(fd).st_size
        self._is_cut = bool(size) and os.pread(fd, 1, size - 1) != b"\n"
        return fd

    def _make_room(self, size: int) -> None:
        ours = os.fstat(self._fd)
        if not stat.S_ISREG(ours.st_mode) or ours.st_size + size <= self._max_bytes:
            return
        # Only who has the file that is full may move it and those before it, and only once. Names are moved, nothing is
        # written: a full disk does not matter.
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self.path), ours):
                for number in range(self._files - 1, 0, -1):
                    with contextlib.suppress(FileNotFoundError):
                        os.replace(f"{self.path}.{number}", f"{self.path}.{number + 1}")
                os.replace(self.path, f"{self.path}.1")
        self.close()  # and the lock with it
        self._fd = self._open()


class LogFile(logging.Handler):
    """A log in a `RotatedFile`.

    Lines that cannot be written are lost, and one line on standard error says so: a log is never worth more than the
    work.
    """

    def __init__(self, path: str, max_bytes: int = MAX_BYTES, files: int = FILES) -> None:
        super().__init__()
        self._file = RotatedFile(path, max_bytes, files)
        self._is_losing = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._file.write(self.format(record).encode("utf-8", "backslashreplace") + b"\n")
            self._is_losing = False
        except OSError as error:
            if not self._is_losing:
                self._is_losing = True
                path = self._file.path
                with contextlib.suppress(OSError, ValueError):  # standard error may be closed too
                    sys.stderr.write(f"treadle: lines are lost, {path} cannot be written: {error.strerror}\n")
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        self._file.close()
        super().close()


# What a pipe takes in one piece, without waiting, when it says that it takes something.
_PIECE: Final = select.PIPE_BUF


class LogStream(logging.Handler):
    """A log on standard error that nobody waits for. A pipe that is not read, or a terminal that was stopped, loses
    lines instead of holding up the program; how many is logged when it takes lines again."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._writable = select.poll()
        self._writable.register(fd, select.POLLOUT)
        self._lost = 0
        self._is_cut = False  # the last line has no end

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._line(record)
            if self._lost:
                lost, fields = "lines of the log are lost: nobody has read them", ({"lines": self._lost},)
                loss = logging.LogRecord(__name__, logging.WARNING, __file__, 0, lost, fields, None)
                line = self._line(loss) + line
            self._lost = 0 if self._write(line) else self._lost + 1
        except OSError:
            return  # it is closed, and nobody reads it
        except Exception:
            self.handleError(record)

    def _line(self, record: logging.LogRecord) -> bytes:
        return self.format(record).encode("utf-8", "backslashreplace") + b"\n"

    def _write(self, line: bytes) -> bool:
        """False when nothing was written. Of a long line the end may be missing."""
        line = b"\n" * self._is_cut + line
        for start in range(0, len(line), _PIECE):
            if not any(ready & select.POLLOUT for _, ready in self._writable.poll(0)):
                self._is_cut = self._is_cut or start > 0
                return start > 0
            os.write(self._fd, line[start : start + _PIECE])
        self._is_cut = False
        return True


# --- what the environment asks for ---

_FORMATS: Final[Mapping[str, type[LogLine]]] = {"json": JsonLine, "text": TextLine, "": TextLine}


def set_up_logging(
    environ: Mapping[str, str], default: str, given: str | None = None, settings: Iterable[str] = ()
) -> None:
    """Log as the environment says: to standard error, or to a file in place of it.

    `given` is the level of the command line, which comes before the environment, as the environment does before
    `default`. `settings` are those of the command line, whose secrets are not shown. A program that has set logging
    up before is left alone.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    problems: list[str] = []
    levels: dict[str, str] = {}  # by the name of a logger; that of all others is empty
    for part in filter(None, (part.strip() for part in environ.get("TREADLE_LOG", "").split(","))):
        name, _, level = part.rpartition("=")
        if level.strip().lower() in LEVELS and (name.strip() or "=" not in part):
            levels[name.strip()] = level.strip().lower()
        else:
            problems.append(f"TREADLE_LOG has {part!r}, which is no level; use {_LEVEL_HELP}")
    files = number_of(environ, "TREADLE_LOG_FILES", FILES, problems)
    handler = _handler(environ.get("TREADLE_LOG_FILE", ""), files, problems)
    name = environ.get("TREADLE_LOG_FORMAT", "")
    kind = _FORMATS.get(name.strip().lower())
    if kind is None:
        problems.append(f"TREADLE_LOG_FORMAT is {name!r}; use json or text")
        kind = TextLine
    handler.setFormatter(kind(secrets.secrets_in(environ, settings)))
    root.addHandler(handler)
    for name, level in {**levels, "": given or levels.get("", default)}.items():
        logging.getLogger(name).setLevel(level.upper())
    for problem in problems:  # whatever the level: who sets a variable wants to know
        handler.handle(logger.makeRecord(__name__, logging.WARNING, __file__, 0, "%s", (problem,), None))


def number_of(environ: Mapping[str, str], name: str, default: int, problems: list[str]) -> int:
    """How many files a variable says, or the default."""
    text = environ.get(name, "").strip()
    if text.isascii() and text.isdecimal() and 0 < int(text) <= MAX_FILES:
        return int(text)
    if text:
        problems.append(f"{name} is {text!r}; use a number from 1 to {MAX_FILES}")
    return default


def _handler(path: str, files: int, problems: list[str]) -> logging.Handler:
    if path:
        try:
            return LogFile(path, files=files)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            problems.append(f"TREADLE_LOG_FILE {path!r} cannot be opened: {why}; this goes to standard error instead")
    try:
        return LogStream(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # there is none, or it is something in memory
        return logging.StreamHandler(sys.stderr)
