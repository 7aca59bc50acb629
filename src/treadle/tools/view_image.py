"""`load_image`: an image file as a data URL, for a model to look at.

Owns which kinds of images there are and the limit. The kind follows from the content: names lie.
"""

from __future__ import annotations

from collections.abc import Callable
from posixpath import join, normpath
from typing import Final, Protocol

from msgspec import Struct

from treadle.errors import NOT_FOUND, ExecError
from treadle.execution.files.files_interface import FileStat
from treadle.tools.specs import ToolInputError

MAX_IMAGE_BYTES: Final = 20 * 1000 * 1000

_KINDS: Final[tuple[tuple[str, Callable[[bytes], bool]], ...]] = (
    ("image/png", lambda start: start.startswith(b"\x89PNG\r\n\x1a\n")),
    ("image/jpeg", lambda start: start.startswith(b"\xff\xd8\xff")),
    ("image/gif", lambda start: start.startswith((b"GIF87a", b"GIF89a"))),
    ("image/webp", lambda start: start.startswith(b"RIFF") and start[8:12] == b"WEBP"),
)


class ImageFiles(Protocol):
    """What it takes to read one: `Environment.files` is this."""

    async def stat(self, path: str) -> FileStat: ...

    async def read(self, path: str) -> bytes: ...


class LoadedImage(Struct, frozen=True):
    """`path` is absolute."""

    data_url: str
    path: str

    def __repr__(self) -> str:
        return f"LoadedImage(path={self.path!r}, {len(self.data_url)} characters)"


def image_type(data: bytes) -> str | None:
    """The media type of a picture that can be shown; None if it is none of those."""
    return next((media_type for media_type, is_kind in _KINDS if is_kind(data)), None)


async def load_image(files: ImageFiles, path: str, cwd: str) -> LoadedImage:
    """The image at `path`, which may be relative to `cwd`. Raises `ToolInputError`."""
    full = normpath(join(cwd, path))
    try:
        stat = await files.stat(full)
        if not stat.is_file:
            kind = "a directory" if stat.is_directory else "not a regular file"
            raise ToolInputError(f"image path `{full}` is {kind}; give the path of an image file")
        _check_size(full, stat.size)
        data = await files.read(full)
    except ExecError as error:
        if error.code == NOT_FOUND:
            raise ToolInputError(f"unable to locate image at `{full}`: there is no such file; check the path") from None
        raise ToolInputError(f"unable to read image at `{full}`: {error.message}") from None
    _check_size(full, len(data))  # it may have grown
    media_type = image_type(data)
    if media_type is None:
        raise ToolInputError(f"`{full}` is not an image that can be shown; PNG, JPEG, GIF and WebP can")
    from pybase64 import b64encode  # loaded with the first picture

    return LoadedImage(f"data:{media_type};base64,{b64encode(data).decode()}", full)


def _check_size(path: str, size: int) -> None:
    if size > MAX_IMAGE_BYTES:
        raise ToolInputError(
            f"the image at `{path}` has {size} bytes, more than {MAX_IMAGE_BYTES}; make a smaller copy and view that"
        )
