"""What a user says, in two forms: checked on arrival, and as items of the model's input.

Local images and skills are read when the message is handed to the model; one that cannot be read becomes a text that
says so, because the rest of what the user said is worth sending.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from treadle.errors import INVALID_PARAMS, INVALID_REQUEST, ExecError, RpcError
from treadle.protocol.app.base import Unknown
from treadle.protocol.app.inputs import (
    ImageUserInput,
    LocalImageUserInput,
    SkillUserInput,
    TextUserInput,
    UserInput,
)

MAX_CHARS: Final = 1 << 20
MAX_SKILL_BYTES: Final = 1 << 20


def check_input(inputs: Sequence[UserInput]) -> None:
    """Raises `RpcError` for input that cannot be taken."""
    chars = sum(len(part.text) for part in inputs if isinstance(part, TextUserInput))
    if chars > MAX_CHARS:
        raise RpcError(
            INVALID_PARAMS,
            f"Input exceeds the maximum length of {MAX_CHARS} characters.",
            {"input_error_code": "input_too_large", "max_chars": MAX_CHARS, "actual_chars": chars},
        )
    for part in inputs:
        if isinstance(part, ImageUserInput) and not isinstance(part.url, str) and not isinstance(part.file_id, str):
            raise RpcError(INVALID_REQUEST, "Invalid request: an image needs a `url` or a `fileId`")


def text_of(inputs: Sequence[UserInput | Unknown]) -> str:
    """What was typed, for previews and for search."""
    return "\n".join(part.text for part in inputs if isinstance(part, TextUserInput))


async def model_items(inputs: Sequence[UserInput], cwd: str) -> list[dict[str, Any]]:
    """One user message, and one more for each skill."""
    content: list[dict[str, Any]] = []
    skills: list[dict[str, Any]] = []
    images = 0
    for part in inputs:
        match part:
            case TextUserInput():
                content.append({"type": "input_text", "text": part.text})
            case ImageUserInput():
                images += 1
                content.append(_image(part))
            case LocalImageUserInput():
                images += 1
                content += await _local_image(part, images, cwd)
            case SkillUserInput():
                skills.append(_message([{"type": "input_text", "text": await _skill(part)}]))
            case _:
                pass  # a mention is in the text already; sound is for models that are not here yet
    return ([_message(content)] if content else []) + skills


def _message(content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": content}


def _image(part: ImageUserInput) -> dict[str, Any]:
    image: dict[str, Any] = {"type": "input_image"}
    if isinstance(part.url, str):
        image["image_url"] = part.url
    else:
        image["file_id"] = part.file_id
    if part.detail is not None:
        image["detail"] = part.detail
    return image


async def _local_image(part: LocalImageUserInput, number: int, cwd: str) -> list[dict[str, Any]]:
    from treadle.execution.files.local_files import LocalFiles
    from treadle.tools.tool_errors import ToolInputError
    from treadle.tools.view_image import load_image

    try:
        image = await load_image(LocalFiles(), part.path, cwd)
    except (ToolInputError, ExecError) as error:
        return [{"type": "input_text", "text": f"The image {part.path} could not be read: {error}"}]
    shown: dict[str, Any] = {"type": "input_image", "image_url": image.data_url}
    if part.detail is not None:
        shown["detail"] = part.detail
    return [
        {"type": "input_text", "text": f'<image name=[Image #{number}] path="{part.path}">'},
        shown,
        {"type": "input_text", "text": "</image>"},
    ]


async def _skill(part: SkillUserInput) -> str:
    from treadle.execution.files.local_files import LocalFiles

    try:
        body = (await LocalFiles().read(part.path))[:MAX_SKILL_BYTES].decode("utf-8", "replace")
    except ExecError as error:
        body = f"This skill could not be read: {error}"
    return f"<skill>\n<name>{part.name}</name>\n<path>{part.path}</path>\n{body}\n</skill>"
