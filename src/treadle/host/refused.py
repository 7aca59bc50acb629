"""`Refused`: what memory and skills refuse to do, and why: a kind for programs, and words that a model can act on."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal, TypeAlias

from treadle.errors import TreadleError

RefusalKind: TypeAlias = Literal[
    "invalid",  # it cannot be kept in this form
    "injection",  # it reads like an attack on the agent, or has a secret in it
    "full",  # it does not fit
    "duplicate",  # it is there already
    "not_found",
    "ambiguous",  # it could be several
    "protected",  # it is not for the agent to change
    "unread",  # it was not read before
    "changed",  # somebody else changed it since it was read
    "unreadable",  # the file or folder cannot be read
    "unwritable",  # or not be written
    "busy",  # somebody else holds the lock
]

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_LINKS: Final = (errno.ELOOP, errno.ENOTDIR)


class Refused(TreadleError):
    """Something was not kept, changed or read. Nothing has changed on the disk.

    Args:
        kind: Why, for programs.
        message: What happened and what to do about it.
    """

    def __init__(self, kind: RefusalKind, message: str) -> None:
        super().__init__(message)
        self.kind: RefusalKind = kind


@contextmanager
def said_clearly(path: str, kind: Literal["unreadable", "unwritable"]) -> Iterator[None]:
    """Errors of the operating system about a path, as refusals."""
    try:
        yield
    except OSError as error:
        verb = "read" if kind == "unreadable" else "written"
        raise Refused(kind, f"{path} cannot be {verb}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    if error.errno in _NO_ROOM:
        return "the disk is full; make room. What was there is still there"
    if error.errno in _LINKS:
        return (
            "it is a symbolic link, or not what it should be, and links are not followed here; put the real thing there"
        )
    return f"{error.strerror or os.strerror(error.errno or errno.EIO)}; correct the permissions, or use another folder"
