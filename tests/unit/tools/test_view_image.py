"""Images for a model: told by their content, refused with a reason."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from treadle.errors import NOT_FOUND, ExecError
from treadle.execution import FileStat, LocalFiles
from treadle.tools import MAX_IMAGE_BYTES, LoadedImage, ToolInputError, load_image

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 20


class OneFile:
    """A file of a given size on some machine."""

    def __init__(self, data: bytes, size: int | None = None) -> None:
        self._data = data
        self._size = len(data) if size is None else size
        self.read_paths: list[str] = []

    async def stat(self, path: str) -> FileStat:
        if path != "/work/a.png":
            raise ExecError("gone", NOT_FOUND)
        return FileStat(False, True, False, self._size, 0, 0)

    async def read(self, path: str) -> bytes:
        self.read_paths.append(path)
        return self._data


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89a rest", "image/gif"),
        (b"GIF87a rest", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
    ],
)
@pytest.mark.parametrize("path", ["a.png", "/work/a.png", "./x/../a.png"])
async def test_kinds_of_images(data: bytes, media_type: str, path: str) -> None:
    image = await load_image(OneFile(data), path, "/work")
    assert image == LoadedImage(f"data:{media_type};base64,{base64.b64encode(data).decode()}", "/work/a.png")
    assert "base64" not in repr(image)


@pytest.mark.parametrize("data", [b"", b"hello", b"RIFF\x00\x00\x00\x00WAVEfmt ", b"\x89PNG", b"<svg/>", b"BM"])
async def test_other_files_are_not_shown(data: bytes) -> None:
    with pytest.raises(ToolInputError, match=r"`/work/a\.png` is not an image"):
        await load_image(OneFile(data), "a.png", "/work")


async def test_a_large_image_is_not_even_read() -> None:
    files = OneFile(PNG, MAX_IMAGE_BYTES + 1)
    with pytest.raises(ToolInputError, match="make a smaller copy"):
        await load_image(files, "a.png", "/work")
    assert files.read_paths == []


async def test_an_image_that_grew_meanwhile_is_refused() -> None:
    with pytest.raises(ToolInputError, match="make a smaller copy"):
        await load_image(OneFile(PNG + bytes(MAX_IMAGE_BYTES), size=10), "a.png", "/work")


async def test_on_a_real_disk(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(PNG)
    assert (await load_image(LocalFiles(), "a.txt", str(tmp_path))).path == str(tmp_path / "a.txt")
    with pytest.raises(ToolInputError, match="no such file"):
        await load_image(LocalFiles(), "b.png", str(tmp_path))
    with pytest.raises(ToolInputError, match="is a directory"):
        await load_image(LocalFiles(), ".", str(tmp_path))
