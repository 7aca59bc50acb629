"""What becomes of the result of an MCP tool: `model_output` is what the model gets, `item_result` what people see;
`prompt_input` is the same for a prompt.

They are pure and bounded: a server can send more than a model can read, or a client would want. What is cut for the
model is stored as a whole in a file, in the `ResultFiles` of its thread, and the model gets its path.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
import threading
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec

from treadle.protocol.app.item_parts import ImageUserInput, TextUserInput
from treadle.tools.command.command_output import cut_to, tokens
from treadle.tools.view_image import image_type

Output: TypeAlias = str | list[dict[str, Any]]
"""Text, or content parts as the Responses API has them."""

MAX_TOKENS: Final = 10_000
"""Tokens of a result that a model gets, as many as of the output of a command."""
MAX_IMAGE_CHARS: Final = 8 * 1024 * 1024  # of base64, in one result: a history is sent again with every request
_NOTE_TOKENS: Final = 128  # room for the first line and the note
_MIN_TOKENS: Final = 64
MAX_IMAGES: Final = 20  # in one result: providers refuse a request with a hundred, and the thread with it, for ever
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")

logger: logging.Logger = logging.getLogger(__name__)

Keep: TypeAlias = Callable[[str], str | None]
"""Writes a whole text into a file; its path, or None when that cannot be done."""


def model_output(
    content: Sequence[object],
    structured: object,
    *,
    seconds: float,
    keep: Keep,
    max_tokens: int = MAX_TOKENS,
    sees_images: bool = True,
) -> Output:
    """What the model gets of a result. `isError` is not marked: its content says what went wrong.

    Args:
        content: The content blocks, decoded.
        structured: The structured content, which goes before the text; None when there is none.
        seconds: How long the call took.
        keep: Keeps the whole text when it is cut. It may write megabytes: then call this off the loop.
        max_tokens: How much of it the model may get.
        sees_images: Whether the model takes images.
    """
    room = _Room() if sees_images else None
    parts = [_part(block, room) for block in content]
    header = f"Wall time: {seconds:.4f} seconds\nOutput:"
    if structured is not None:
        text = _json(structured)
        images = [part for part in parts if part["type"] == "input_image"]
        parts = [_text(text), *images]
    limit = max(max_tokens - _NOTE_TOKENS, _MIN_TOKENS)
    texts = [part["text"] for part in parts if part["type"] == "input_text"]
    if sum(map(_cost, texts)) > limit:
        whole = "\n".join(texts)
        path = keep(whole)
        size = len(whole.encode("utf-8", "replace"))
        note = f"[The whole output has {size} bytes"
        note += "; it could not be stored.]" if path is None else f" and is in {path}: read what you need of it.]"
        parts = [*_within(parts, limit), _text(note)]
    if structured is not None and len(parts) == 1:
        return f"{header}\n{parts[0]['text']}"
    return [_text(header), *parts]


class _Room:
    """What images may still have."""

    def __init__(self) -> None:
        self.chars = MAX_IMAGE_CHARS
        self.images = MAX_IMAGES


def _part(block: object, room: _Room | None) -> dict[str, Any]:
    """One block. `room` is None where the model takes no images."""
    if not isinstance(block, Mapping):
        return _text(_json(block))
    kind, data = block.get("type"), block.get("data")
    if kind == "text" and isinstance(block.get("text"), str):
        return _text(block["text"])
    if kind == "audio":
        return _text("<audio content omitted because you do not support audio input>")
    if kind == "image" and isinstance(data, str):
        if room is None:
            return _text("<image content omitted because you do not support image input>")
        # Not as the server calls it: one picture that a provider cannot read makes it refuse the whole thread.
        data = "".join(data.split())
        media_type = image_type(b64decode(data[:64])) if len(data) % 4 == 0 and _BASE64.fullmatch(data) else None
        if media_type is None:
            return _text("<image content omitted because it is no PNG, JPEG, GIF or WebP in base64>")
        if len(data) + 100 > room.chars:
            return _text(f"<image content omitted because it is too large: {len(data)} characters of base64>")
        if not room.images:
            return _text("<image content omitted because there are too many>")
        room.chars -= len(data) + 100
        room.images -= 1
        return {"type": "input_image", "image_url": f"data:{media_type};base64,{data}", "detail": "high"}
    return _text(_json(block))


def _text(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text.encode("utf-8", "replace").decode()}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _cost(text: str) -> int:
    """In tokens; an empty text is a part all the same."""
    return tokens(len(text)) + 4 if text.isascii() else tokens(len(text.encode("utf-8", "replace"))) + 4


def _within(parts: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """The parts with so many tokens of text together: the one that is too much is cut in the middle, those after it
    are left out."""
    kept: list[dict[str, Any]] = []
    left_out = 0
    for part in parts:
        if part["type"] != "input_text":
            kept.append(part)
        elif limit < _MIN_TOKENS:
            left_out += 1
        else:
            kept.append(_text(cut_to(part["text"], limit - 4)))
            limit -= _cost(part["text"])
    return [*kept, _text(f"[{left_out} more texts were left out]")] if left_out else kept


# --- prompts ----------------------------------------------------------------------------------------------------------


def prompt_input(messages: Sequence[object]) -> list[TextUserInput | ImageUserInput]:
    """The messages of a prompt as the input of one turn, in their order. What the assistant is supposed to have said is
    marked, because it comes from the user now."""
    room = _Room()
    found: list[TextUserInput | ImageUserInput] = []
    for message in messages:
        role, block = (message.get("role"), message.get("content")) if isinstance(message, Mapping) else (None, message)
        part = _part(_embedded(block), room)
        if part["type"] == "input_image":
            found.append(ImageUserInput(url=part["image_url"]))
        else:
            found.append(TextUserInput(text="Assistant: " * (role == "assistant") + part["text"]))
    return found


def _embedded(block: object) -> object:
    """An embedded resource as the text or the image that it is; anything else as it is."""
    resource = block.get("resource") if isinstance(block, Mapping) and block.get("type") == "resource" else None
    if not isinstance(resource, Mapping):
        return block
    if isinstance(resource.get("text"), str):
        return {"type": "text", "text": resource["text"]}
    if isinstance(resource.get("blob"), str) and str(resource.get("mimeType")).startswith("image/"):
        return {"type": "image", "data": resource["blob"], "mimeType": resource["mimeType"]}
    return block


# --- items ------------------------------------------------------------------------------------------------------------

MAX_ITEM_BYTES: Final = 1024 * 1024
_PREVIEW_TOKENS: Final = 16 * 1024


def item_result(content: Sequence[object], structured: object, meta: object) -> tuple[Sequence[object], object, object]:
    """Content, structured content and meta for the item of a call: as they are, or one text when that is over a
    mebibyte of JSON, because every reader of the thread gets it."""
    encoded = msgspec.json.encode((content, structured, meta))
    if len(encoded) <= MAX_ITEM_BYTES:
        return content, structured, meta
    whole = msgspec.json.encode({"content": content, "structuredContent": structured}).decode()
    return [{"type": "text", "text": cut_to(whole, _PREVIEW_TOKENS)}], None, None


# --- files ------------------------------------------------------------------------------------------------------------

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
MAX_FILES: Final = 64


class ResultFiles:
    """The large results of one thread, in a folder of their own under the system's temporary folder: nobody else can
    read it, and sandboxed commands of the thread can. It is made with the first file; `close` removes it.

    What runs in the sandbox may be able to write there and put something else in the folder's place. So files are only
    made and removed through the open folder, and nothing that is not ours is removed.
    """

    def __init__(self) -> None:
        self._folder = ""
        self._fd: int | None = None
        self._names: list[str] = []
        self._count = 0
        self._closed = False
        self._lock = threading.Lock()  # large results are written off the loop

    def keep(self, text: str) -> str | None:
        """Write a text; its path, or None when there is no place for it. Old ones give way to new ones."""
        with self._lock:
            try:
                return None if self._closed else self._write(text)
            except OSError as error:  # the model reads that it was not stored
                logger.warning("a large result of a tool could not be stored: %s", error)
                return None

    def _write(self, text: str) -> str:
        if self._fd is None:
            self._folder = tempfile.mkdtemp(prefix="treadle-results-")
            self._fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        while len(self._names) >= MAX_FILES:
            self._remove(self._names.pop(0))
        self._count += 1
        name = f"result-{self._count}.txt"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(name, flags, 0o600, dir_fd=self._fd), "wb") as file:
            self._names.append(name)
            file.write(text.encode("utf-8", "replace")[:MAX_FILE_BYTES])
        return os.path.join(self._folder, name)

    def close(self) -> None:
        """Remove them all."""
        with self._lock:
            self._closed = True
            if self._fd is None:
                return
            for name in self._names:
                self._remove(name)
            os.close(self._fd)
            self._fd = None
            with suppress(OSError):  # something else is in it, or in its place
                os.rmdir(self._folder)

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(name, dir_fd=self._fd)
