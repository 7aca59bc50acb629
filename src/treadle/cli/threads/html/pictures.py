"""Pictures inside the page: which may be, and how large. What is told by the content is taken, and never a drawing with
code in it (SVG)."""

from __future__ import annotations

import binascii
import os
import re
import stat
from typing import Final

from pybase64 import b64decode, b64encode

from treadle.cli.threads.page_blocks import Picture
from treadle.tools.view_image import image_type

MAX_BYTES: Final = 2 * 1024 * 1024
MAX_ALL: Final = 20 * 1024 * 1024
_INLINE: Final = re.compile(r"data:image/[a-z+.-]{1,20};base64,", re.IGNORECASE)


class Pictures:
    """Of one page. Gives the addresses of pictures that are there, as long as there is room."""

    def __init__(self, room: int = MAX_ALL) -> None:
        self._room = room

    def address(self, picture: Picture) -> str | None:
        """A `data:` address whose content is known to be a picture; None when there is none to show."""
        data = _read(picture.path) if picture.path is not None else _decoded(picture.url or "")
        kind = None if data is None else image_type(data)
        if data is None or kind is None or len(data) > self._room:
            return None
        self._room -= len(data)
        return f"data:{kind};base64,{b64encode(data).decode()}"


def _read(path: str) -> bytes | None:
    """A thread says what it likes: devices and pipes must not be waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_BYTES:
            return None
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data if len(data) <= MAX_BYTES else None


def _decoded(url: str) -> bytes | None:
    found = _INLINE.match(url)
    if found is None or len(url) > MAX_BYTES * 4 // 3 + 100:
        return None
    try:
        return b64decode(url[found.end() :], validate=True)
    except (binascii.Error, ValueError):
        return None
