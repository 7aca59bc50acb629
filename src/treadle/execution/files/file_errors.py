"""The errors of file operations: which code of the protocol an OS error has, and what the text says.

Owns the wording. Every function returns an `ExecError` for the caller to raise.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from treadle.errors import INTERNAL_ERROR, INVALID_REQUEST, NOT_FOUND, ExecError

_SHOWN: Final = 300  # characters of a path that an error repeats
_CODES: Final = {
    errno.ENOENT: NOT_FOUND,
    errno.EACCES: INVALID_REQUEST,
    errno.EPERM: INVALID_REQUEST,
    errno.EINVAL: INVALID_REQUEST,
}


@contextmanager
def reported(path: str) -> Iterator[None]:
    """Turn an OS error of the body into the protocol's error about `path`."""
    try:
        yield
    except OSError as error:
        raise failure(error, path) from error


def failure(error: OSError, path: str) -> ExecError:
    number = error.errno or errno.EIO
    return ExecError(f"{os_text(number)}: {shown(path)}", _CODES.get(number, INTERNAL_ERROR))


def denied_read(path: str) -> ExecError:
    text = f"{os_text(errno.EACCES)}: the sandbox does not allow reading {shown(path)}; ask for read access to it"
    return ExecError(text, INVALID_REQUEST)


def denied_write(path: str) -> ExecError:
    text = f"{os_text(errno.EROFS)}: the sandbox does not allow writing {shown(path)}; ask for write access to it"
    return ExecError(text, INTERNAL_ERROR)


def not_a_file(path: str) -> ExecError:
    return ExecError(f"path {shown(path)} is not a file; only regular files can be read or written", INVALID_REQUEST)


def refused(text: str) -> ExecError:
    """A request that is wrong in itself or over a limit."""
    return ExecError(text, INVALID_REQUEST)


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def os_text(number: int) -> str:
    return f"{os.strerror(number)} (os error {number})"


def shown(path: str) -> str:
    """The path for a message: bounded, and valid UTF-8 also when the name is not."""
    text = path if len(path) <= _SHOWN else path[:_SHOWN] + "…"
    return f"`{text.encode('utf-8', 'backslashreplace').decode()}`"
