"""The input of a turn: text, images, skills and mentions, or a message from outside that is not from the user."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from treadle.arguments import path, text, wrong_type
from treadle.errors import ArgumentTypeError, ArgumentValueError

if TYPE_CHECKING:
    from treadle.protocol.app.base import JsonObject


@dataclass(slots=True)
class TextInput:
    """Text from the user.

    Args:
        text: What the user says.
    """

    text: str


@dataclass(slots=True)
class ImageInput:
    """An image by its URL.

    Args:
        url: Where the image is; it may be a data URL.
    """

    url: str


@dataclass(slots=True)
class LocalImageInput:
    """An image in a file that the server can read.

    Args:
        path: The file, as the server sees it.
    """

    path: str | os.PathLike[str]


@dataclass(slots=True)
class SkillInput:
    """A skill that the agent is to use.

    Args:
        name: What the skill is called.
        path: Its `SKILL.md`, as the server sees it.
    """

    name: str
    path: str | os.PathLike[str]


@dataclass(slots=True)
class MentionInput:
    """Something that the user points at, a file or an app.

    Args:
        name: What the user calls it.
        path: The file, or the address of an app.
    """

    name: str
    path: str | os.PathLike[str]


@dataclass(slots=True)
class ExternalMessage:
    """Something that a tool, an agent or another program says. It has the weight of a tool's output, not of the user.

    It is a turn's whole input, or joins the turn that runs.

    Args:
        tool_name: Who delivers it.
        content: A text, or content items of a function's output.
        namespace: The namespace of the tool, if it has one.
    """

    tool_name: str
    content: str | Sequence[JsonObject]
    namespace: str | None = None


InputItem: TypeAlias = TextInput | ImageInput | LocalImageInput | SkillInput | MentionInput
Input: TypeAlias = list[InputItem] | InputItem
RunInput: TypeAlias = Input | str | ExternalMessage


def wire_input(given: RunInput) -> list[JsonObject]:
    """The items of an input, as they are sent. An `ExternalMessage` has none."""
    if isinstance(given, ExternalMessage):
        return []
    if isinstance(given, str):
        return [{"type": "text", "text": given}]
    return [_wire_item(item) for item in given] if isinstance(given, list) else [_wire_item(given)]


def tool_output(given: RunInput) -> dict[str, Any] | None:
    """What an `ExternalMessage` is sent as."""
    if not isinstance(given, ExternalMessage):
        return None
    if not text("ExternalMessage.tool_name", given.tool_name).strip():
        problem = "ExternalMessage.tool_name must not be empty: name the tool that delivers the message"
        raise ArgumentValueError("tool_name", problem)
    if not isinstance(given.content, str | list | tuple):
        raise wrong_type("ExternalMessage.content", "a str or a list of content items", given.content)
    output = given.content if isinstance(given.content, str) else list(given.content)
    sent = {"name": given.tool_name, "output": output}
    if given.namespace is None:
        return sent
    return {**sent, "namespace": text("ExternalMessage.namespace", given.namespace)}


def _wire_item(item: InputItem) -> JsonObject:
    match item:
        case TextInput():
            return {"type": "text", "text": text("TextInput.text", item.text)}
        case ImageInput():
            return {"type": "image", "url": text("ImageInput.url", item.url)}
        case LocalImageInput():
            return {"type": "localImage", "path": path("LocalImageInput.path", item.path)}
        case SkillInput():
            name = text("SkillInput.name", item.name)
            return {"type": "skill", "name": name, "path": path("SkillInput.path", item.path)}
        case MentionInput():
            name = text("MentionInput.name", item.name)
            return {"type": "mention", "name": name, "path": path("MentionInput.path", item.path)}
    problem = f"{type(item).__name__} is no input: use a str, or TextInput, ImageInput and so on, or a list of those"
    raise ArgumentTypeError("input", problem)
