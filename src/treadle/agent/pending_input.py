"""What a user says, or a program has to tell: checked on arrival, waiting for the model, and handed to it.

It owns how much may wait (`PendingInput`), and the way from there into the model's history and onto the clients'
screens. Local images and skills are read when the message is handed to the model; one that cannot be read becomes a
text that says so, because the rest of what the user said is worth sending.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from treadle.agent.ids import new_id
from treadle.errors import INVALID_PARAMS, INVALID_REQUEST, OVERLOAD_DATA, OVERLOADED, ExecError, RpcError
from treadle.protocol.app.base import Unknown
from treadle.protocol.app.inputs import (
    ImageUserInput,
    LocalImageUserInput,
    SkillUserInput,
    TextUserInput,
    UserInput,
)
from treadle.protocol.app.items import FunctionCallOutputThreadItem, UserMessageThreadItem
from treadle.protocol.app.turns import TurnToolOutput
from treadle.store.contract import DropQueued

if TYPE_CHECKING:
    from treadle.agent.aside import Aside
    from treadle.agent.thread import Thread
    from treadle.agent.turn_items import TurnItems

# Messages that may wait for the running response; each may be a mebibyte.
MAX_PENDING: Final = 64
MAX_PREVIEW: Final = 2_000
MAX_CHARS: Final = 1 << 20
MAX_SKILL_BYTES: Final = 1 << 20


class Input(Struct, frozen=True):
    parts: tuple[UserInput, ...]
    client_id: str | None = None
    tool_output: TurnToolOutput | None = None
    queued_id: str | None = None  # of a message that waited in the thread's queue

    @property
    def is_empty(self) -> bool:
        return not self.parts and self.tool_output is None


class PendingInput:
    """Of one turn, whose number it is. `memory` has what its model has seen."""

    def __init__(self, thread: Thread, memory: Thread | Aside, number: int, items: TurnItems) -> None:
        self._thread = thread
        self._memory = memory
        self._number = number
        self._items = items
        self._waiting: deque[Input] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, given: Input) -> None:
        """Raises `RpcError` when too much waits already. Nothing is not added."""
        if given.is_empty:
            return
        if len(self._waiting) >= MAX_PENDING:
            raise RpcError(
                OVERLOADED, f"{MAX_PENDING} messages wait for the model already; retry later.", OVERLOAD_DATA
            )
        self._waiting.append(given)

    @property
    def queued_ids(self) -> frozenset[str]:
        """What was taken from the thread's queue, and is still in it for the store."""
        return frozenset(given.queued_id for given in self._waiting if given.queued_id is not None)

    def clear(self) -> None:
        self._waiting.clear()

    async def take(self) -> None:
        """Hand what waits to the model, and show it."""
        await self._thread.load_history()
        while self._waiting:
            given = self._waiting[0]  # until it was read: an interrupt meanwhile must not lose it
            if given.tool_output is not None:
                self._waiting.popleft()
                self._take_tool_output(given.tool_output)
                continue
            items = await model_items(given.parts, self._thread.settings.cwd)
            self._waiting.popleft()
            self._take_message(given, items)
            if given.queued_id is not None:
                # Before the model hears of it: a server that dies now must not send it again.
                await self._thread.journal.flush()

    def _take_message(self, given: Input, items: list[dict[str, object]]) -> None:
        thread = self._thread
        writes = self._memory.remember(items, self._number)
        if not thread.record.listed:
            preview = thread.record.preview or text_of(given.parts)[:MAX_PREVIEW]
            writes.append(thread.save(preview=preview, listed=True))
        if given.queued_id is not None:
            writes.append(DropQueued(thread.id, given.queued_id))
        item = UserMessageThreadItem(id=new_id(), content=given.parts, client_id=given.client_id)
        self._items.show(item, *writes)

    def _take_tool_output(self, told: TurnToolOutput) -> None:
        item = FunctionCallOutputThreadItem(
            id=f"fco_{new_id()}", name=told.name, output=told.output, namespace=told.namespace
        )
        output = {"type": "function_call_output", "name": told.name, "output": told.output}
        if told.namespace is not None:
            output["namespace"] = told.namespace
        self._items.show(item, *self._memory.remember([output], self._number))


# --- what was said, as it is checked and as the model gets it -------------------------------------------------------


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
    # Loaded with the first picture.
    from treadle.execution.files.local_files import LocalFiles
    from treadle.tools.tool_arguments import ToolInputError
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
    from treadle.execution.files.local_files import LocalFiles  # loaded with the first skill

    try:
        body = (await LocalFiles().read(part.path))[:MAX_SKILL_BYTES].decode("utf-8", "replace")
    except ExecError as error:
        body = f"This skill could not be read: {error}"
    return f"<skill>\n<name>{part.name}</name>\n<path>{part.path}</path>\n{body}\n</skill>"
