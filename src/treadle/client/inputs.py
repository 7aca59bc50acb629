"""What a turn is given: text, images, skills and mentions, or something from outside that is not the user's word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from treadle.protocol.app.base import JsonObject


@dataclass(slots=True)
class TextInput:
    """Text from the user."""

    text: str


@dataclass(slots=True)
class ImageInput:
    """An image by its URL, which may be a data URL."""

    url: str


@dataclass(slots=True)
class LocalImageInput:
    """An image in a file that the server can read."""

    path: str


@dataclass(slots=True)
class SkillInput:
    """A skill that the agent is to use."""

    name: str
    path: str


@dataclass(slots=True)
class MentionInput:
    """Something that the user points at, a file or an app."""

    name: str
    path: str


@dataclass(slots=True)
class ExternalMessage:
    """Something that a tool, an agent or another program says. It has the weight of a tool's output, not of the user.

    It is a turn's whole input, or joins the turn that runs. `content` is a text, or content items of a function's
    output; `tool_name` says who delivers it.
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
    if not isinstance(given.tool_name, str) or not given.tool_name.strip():
        raise ValueError("ExternalMessage.tool_name must not be empty: name the tool that delivers the message")
    output = given.content if isinstance(given.content, str) else list(given.content)
    sent = {"name": given.tool_name, "output": output}
    return sent if given.namespace is None else {**sent, "namespace": given.namespace}


def _wire_item(item: InputItem) -> JsonObject:
    match item:
        case TextInput(text):
            return {"type": "text", "text": text}
        case ImageInput(url):
            return {"type": "image", "url": url}
        case LocalImageInput(path):
            return {"type": "localImage", "path": path}
        case SkillInput(name, path):
            return {"type": "skill", "name": name, "path": path}
        case MentionInput(name, path):
            return {"type": "mention", "name": name, "path": path}
    raise TypeError(f"{type(item).__name__} is no input: use a str, or TextInput, ImageInput and so on")
