"""Input of a turn, from a user or a program: checked on arrival, waiting for the model, and handed to it.

It owns how much may wait (`PendingInput`), and the way from there into the model's history and onto the clients'
screens. Local images and skills are read when the message is handed to the model; one that cannot be read becomes a
text that says so, because the rest of what the user said is worth sending.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from treadle.agent.event import new_id
from treadle.errors import INVALID_PARAMS, INVALID_REQUEST, OVERLOAD_DATA, OVERLOADED, ExecError, RpcError
from treadle.execution.bounded_reads import read_in_thread
from treadle.execution.project_files import ProjectFiles
from treadle.execution.sandbox.policy import contains
from treadle.execution.uris import native_path
from treadle.execution.user_files import read_regular
from treadle.protocol.app.base import Unknown
from treadle.protocol.app.item_parts import (
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
    from treadle.agent.thread.thread import Thread
    from treadle.agent.turn.turn import SideConversation
    from treadle.agent.turn.turn_items import TurnItems
    from treadle.skills.skill_files import Skill

# Messages that may wait for the running response; each may be a mebibyte.
MAX_PENDING: Final = 64
MAX_PREVIEW: Final = 2_000
MAX_INPUT_CHARS: Final = 1 << 20
MAX_SKILL_BYTES: Final = 1 << 20
_SILENT: Final = "its file system does not answer"
# What stands before a picture that was sent by its path.
IMAGE_OPENING: Final = re.compile(r'<image name=\[LoadedImage #\d+\] path="(.*)">', re.DOTALL)


class Input(Struct, frozen=True):
    parts: tuple[UserInput, ...]
    client_id: str | None = None
    tool_output: TurnToolOutput | None = None
    queued_id: str | None = None  # of a message that waited in the thread's queue

    @property
    def is_empty(self) -> bool:
        return not self.parts and self.tool_output is None


class PendingInput:
    """The input of one turn, whose number it has. `memory` has what its model has seen."""

    def __init__(self, thread: Thread, memory: Thread | SideConversation, number: int, items: TurnItems) -> None:
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

    def drop(self) -> None:
        """Forget what waits, also for the queue that it came from: nobody gets it."""
        while self._waiting:
            self._refused(self._waiting.popleft())

    async def take(self, *, brief: bool = False) -> bool:
        """Hand what waits to the model, and show it; False when hooks have refused all of it. `brief`: somebody waits
        for the end of the turn."""
        if self._thread.history is None:
            await self._thread.load_history()
        taken = refused = False
        while self._waiting:
            given = self._waiting[0]  # until it was read: an interrupt meanwhile must not lose it
            if given.tool_output is not None:
                self._waiting.popleft()
                self._take_tool_output(given.tool_output)
                taken = True
                continue
            hooks, turn = self._thread.hooks, self._thread.turn
            decision = None
            if hooks is not None and turn is not None and self._memory is self._thread:
                decision = await hooks.submit_prompt(turn, text_of(given.parts), brief=brief)
                if decision.stop is not None or decision.refusals:
                    refused = True
                    self._refused(self._waiting.popleft())
                    continue
            items, skills = await self._read(given)
            self._waiting.popleft()
            taken = True
            self._take_message(given, items)
            if hooks is not None and turn is not None and decision is not None:
                hooks.add_contexts(turn, decision)
            if given.queued_id is not None:
                # Before the model hears of it: a server that dies now must not send it again.
                await self._thread.journal.flush()
            if skills:
                from treadle.agent.turn.turn_skills import start_servers  # likewise

                await start_servers(self._thread, skills)
        return taken or not refused

    def _refused(self, given: Input) -> None:
        if given.queued_id is not None:
            self._thread.journal.write(DropQueued(self._thread.id, given.queued_id))

    async def _read(self, given: Input) -> tuple[list[dict[str, Any]], Sequence[Skill]]:
        """What the model gets, and the skills that are used."""
        thread, settings = self._thread, self._thread.settings
        if not any(
            isinstance(part, SkillUserInput | LocalImageUserInput) or "$" in getattr(part, "text", "")
            for part in given.parts
        ):
            return await model_items(given.parts, ()), ()
        places = [ProjectFiles(settings.cwd, thread.services.home, settings.confinement)]
        problems: list[str] = []
        if settings.remote is not None:
            # What a client attaches is where the client is; what is not there may be where the thread works.
            places = [ProjectFiles(settings.shown_cwd, thread.services.home, None)]
            if any(isinstance(part, LocalImageUserInput | SkillUserInput) for part in given.parts):
                from treadle.agent.thread.remote_project import remote_project  # few threads are elsewhere

                try:
                    places.append(await remote_project(thread.services, settings))
                except ExecError as error:
                    problems.append(error.message)
        if not any(isinstance(part, SkillUserInput) or "$" in getattr(part, "text", "") for part in given.parts):
            return await model_items(given.parts, places), ()
        from treadle.agent.turn import turn_skills  # few messages name one

        try:
            used = await turn_skills.find_used(thread, given.parts)
        except TimeoutError:
            used = turn_skills.UsedSkills(given.parts)
            problems.append(f"skills were not looked for: {_SILENT}")
        items = await model_items(used.parts, places, own=used.own, problems=problems)
        for problem in problems:
            turn_skills.warn(thread, problem)
        return items, used.skills

    def _take_message(self, given: Input, items: list[dict[str, object]]) -> None:
        thread = self._thread
        writes = self._memory.add_history(items, self._number)
        if not thread.record.listed:
            preview = thread.record.preview or text_of(given.parts)[:MAX_PREVIEW]
            writes.append(thread.save(preview=preview, listed=True))
        if given.queued_id is not None:
            writes.append(DropQueued(thread.id, given.queued_id))
        item = UserMessageThreadItem(id=new_id(), content=given.parts, client_id=given.client_id)
        self._items.show(item, *writes)

    def _take_tool_output(self, given: TurnToolOutput) -> None:
        item = FunctionCallOutputThreadItem(
            id=f"fco_{new_id()}", name=given.name, output=given.output, namespace=given.namespace
        )
        output = {"type": "function_call_output", "name": given.name, "output": given.output}
        if given.namespace is not None:
            output["namespace"] = given.namespace
        self._items.show(item, *self._memory.add_history([output], self._number))


# --- what was said, as it is checked and as the model gets it -------------------------------------------------------


def check_input(inputs: Sequence[UserInput]) -> None:
    """Raises `RpcError` for input that cannot be taken."""
    chars = sum(len(part.text) for part in inputs if isinstance(part, TextUserInput))
    if chars > MAX_INPUT_CHARS:
        raise RpcError(
            INVALID_PARAMS,
            f"Input exceeds the maximum length of {MAX_INPUT_CHARS} characters.",
            {"input_error_code": "input_too_large", "max_chars": MAX_INPUT_CHARS, "actual_chars": chars},
        )
    for part in inputs:
        if isinstance(part, ImageUserInput) and not isinstance(part.url, str) and not isinstance(part.file_id, str):
            raise RpcError(INVALID_REQUEST, "Invalid request: an image needs a `url` or a `fileId`")


def text_of(inputs: Sequence[UserInput | Unknown]) -> str:
    """What was typed, for previews and for search."""
    return "\n".join(part.text for part in inputs if isinstance(part, TextUserInput))


async def model_items(
    inputs: Sequence[UserInput],
    places: Sequence[ProjectFiles],
    *,
    own: Collection[str] = (),
    problems: list[str] | None = None,
) -> list[dict[str, Any]]:
    """One user message, and one more for each skill. Files are read in the first of the places that has them, but for
    `own`: the paths of skills that are the user's. Skills that cannot be read are added to `problems`."""
    content: list[dict[str, Any]] = []
    skills: list[dict[str, Any]] = []
    images = 0
    for part in inputs:
        match part:
            case TextUserInput():
                content.append({"type": "input_text", "text": part.text})
            case ImageUserInput():
                images += 1
                image: dict[str, Any] = {"type": "input_image"}
                image |= {"image_url": part.url} if isinstance(part.url, str) else {"file_id": part.file_id}
                content.append(image if part.detail is None else {**image, "detail": part.detail})
            case LocalImageUserInput():
                images += 1
                content += await _local_image(part, images, places)
            case SkillUserInput():
                text = await _skill(part, places, own, problems)
                skills.append(_message([{"type": "input_text", "text": text}]))
            case _:
                pass  # a mention is in the text already; sound is for models that are not here yet
    return ([_message(content)] if content else []) + skills


def _message(content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": content}


async def _local_image(part: LocalImageUserInput, number: int, places: Sequence[ProjectFiles]) -> list[dict[str, Any]]:
    # Loaded with the first picture.
    from treadle.tools.specs import ToolInputError
    from treadle.tools.view_image import load_image

    image, reason = None, ""
    for place in places:
        try:
            image = await load_image(await place.readable(), part.path, place.cwd)
            break
        except (ToolInputError, ExecError, TimeoutError) as error:
            reason = reason or str(error) or _SILENT
    if image is None:
        return [{"type": "input_text", "text": f"The image {part.path} could not be read: {reason}"}]
    shown: dict[str, Any] = {"type": "input_image", "image_url": image.data_url}
    if part.detail is not None:
        shown["detail"] = part.detail
    return [
        {"type": "input_text", "text": f'<image name=[LoadedImage #{number}] path="{part.path}">'},
        shown,
        {"type": "input_text", "text": "</image>"},
    ]


async def _skill(
    part: SkillUserInput, places: Sequence[ProjectFiles], own: Collection[str], problems: list[str] | None
) -> str:
    found, reason = None, ""
    try:
        path = native_path(part.path)
        for place in places:
            is_own = path in own or (place.home is not None and contains(os.path.join(place.home, "skills"), path))
            read = partial(read_regular if is_own else place.read, path, MAX_SKILL_BYTES)
            found = await read_in_thread(read, readers=place.readers)
            if found is not None:
                break
            reason = reason or place.left_out.get(path, "")
    except (ExecError, TimeoutError) as error:
        reason = str(error) or _SILENT
    reason = reason or "there is no such file"
    if found is None and problems is not None:
        problems.append(f"the skill `{part.name}` could not be read: {part.path}: {reason}")
    body = f"This skill could not be read: {reason}" if found is None else found[0].decode("utf-8", "replace")
    return f"<skill>\n<name>{part.name}</name>\n<path>{part.path}</path>\n{body}\n</skill>"
