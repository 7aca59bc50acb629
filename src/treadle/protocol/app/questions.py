"""What the server asks of a person, through its client, and the answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from msgspec import UNSET, UnsetType, field

from treadle.protocol.app.base import Open, Wire


class ToolRequestUserInputOption(Wire, frozen=True, kw_only=True):
    description: str
    label: str


class ToolRequestUserInputQuestion(Wire, frozen=True, kw_only=True):
    id: str
    header: str
    question: str
    is_other: bool = False
    is_secret: bool = False
    options: tuple[ToolRequestUserInputOption, ...] | None = None


class ToolRequestUserInputParams(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    item_id: str
    is_blocking: bool
    questions: tuple[ToolRequestUserInputQuestion, ...]
    auto_resolution_ms: int | None = None


class ToolRequestUserInputAnswer(Wire, frozen=True, kw_only=True):
    """May answer a question that is marked secret, so it does not show itself."""

    _hidden: ClassVar = ("answers",)

    answers: tuple[str, ...]


class ToolRequestUserInputResponse(Wire, frozen=True, kw_only=True):
    answers: Mapping[str, ToolRequestUserInputAnswer]


class McpServerElicitationRequestParams(Wire, frozen=True, kw_only=True):
    """`requested_schema` belongs to the form modes, `url` and `elicitation_id` to the mode `url`."""

    thread_id: str
    server_name: str
    mode: Open[Literal["form", "openai/form", "openaiForm", "url"]]
    message: str
    turn_id: str | None = None
    requested_schema: Any | UnsetType = UNSET
    url: str | UnsetType = UNSET
    elicitation_id: str | UnsetType = UNSET
    meta: Any = field(name="_meta", default=None)


class McpServerElicitationRequestResponse(Wire, frozen=True, kw_only=True):
    """`content` may be what a person typed into a form, so it does not show itself."""

    _hidden: ClassVar = ("content",)

    action: Literal["accept", "decline", "cancel"]
    content: Any = None
    meta: Any = field(name="_meta", default=None)
