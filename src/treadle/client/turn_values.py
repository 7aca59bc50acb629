"""What goes into a turn (text, images, skills, mentions, or a message from outside that is not from the user), and
`TurnResult`, what comes out of it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, cast

from msgspec import UNSET

from treadle.arguments import path, text, wrong_type
from treadle.client.sdk_errors import CodexError, TurnFailed, TurnLimitReached
from treadle.errors import ArgumentTypeError, ArgumentValueError

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from treadle.client.notification import Notification
    from treadle.client.schemas import OutputType
    from treadle.protocol.app.base import JsonObject
    from treadle.protocol.app.items import ThreadItem
    from treadle.protocol.app.threads import ThreadTokenUsage, TokenUsageBreakdown
    from treadle.protocol.app.turns import Turn, TurnError, TurnLimit, TurnStatus

    OutputT = TypeVar("OutputT", default=Any)
else:
    from typing import TypeVar

    OutputT = TypeVar("OutputT")  # with a default only from Python 3.13 on


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
        path: The file, as the server sees it. It must exist where the server is on this machine.
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
        given = TextInput(text("input", given))
    items = [_wire_item(item) for item in given] if isinstance(given, list) else [_wire_item(given)]
    if all(item["type"] == "text" and not item["text"].strip() for item in items):
        raise ArgumentValueError("input", "input is empty: say what the agent is to do")
    return items


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


# --- the result ---


@dataclass(frozen=True, slots=True)
class TokensUsed:
    """Tokens, and what they cost.

    Args:
        input_tokens: What the model read, with what came from the cache.
        cached_input_tokens: How much of that came from the cache.
        output_tokens: What the model wrote, with its thoughts.
        reasoning_output_tokens: How much of that were thoughts.
        total_tokens: Input and output together.
        cost_usd: What they cost in dollars; None when a price is not known.
    """

    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0
    total_tokens: int = 0
    cost_usd: float | None = None


@dataclass(slots=True)
class TurnResult(Generic[OutputT]):
    """What came of a turn.

    Two results are equal when what the agent did and said is: which turn it was, and when, is not compared. A type
    checker knows `output`: `run(…, output_type=Answer)` gives a `TurnResult[Answer]`.

    Args:
        id: The id of the turn.
        status: How it ended: `completed` or `interrupted`. (One that failed raises `TurnFailed`.)
        error: What the server says went wrong, if something did.
        started_at: When it began, in Unix seconds.
        completed_at: When it ended, in Unix seconds.
        duration_ms: How long it took, in milliseconds.
        final_response: The answer of the agent, or None when it gave none.
        items: What the agent did and said; the user's own message is not among them.
        usage: What the server reported last: `total` are the tokens of the thread, `last` those of the last request.
        turn_usage: What the turn has used alone; None when the server reported nothing.
        thread_usage: What the thread has used so far, this turn included; None when the server reported nothing.
        limit: The limit that it ended at while the model wanted more tool calls, `max_turns`; None when it did not.
        output: The answer as the `output_type` that was asked for; None without one, and for an interrupted turn.
    """

    id: str = field(default="", compare=False)
    status: TurnStatus = field(default=cast("TurnStatus", "completed"), compare=False)
    error: TurnError | None = field(default=None, compare=False)
    started_at: int | None = field(default=None, compare=False)
    completed_at: int | None = field(default=None, compare=False)
    duration_ms: int | None = field(default=None, compare=False)
    final_response: str | None = None
    items: list[ThreadItem] = field(default_factory=list)
    usage: ThreadTokenUsage | None = None
    _: KW_ONLY  # what is only ours: the next field of the official SDK has its place after `usage`
    output: OutputT = field(default=cast("Any", None))
    turn_usage: TokensUsed | None = field(default=None, compare=False)
    thread_usage: TokensUsed | None = field(default=None, compare=False)
    limit: TurnLimit | None = field(default=None, compare=False)

    def _repr_html_(self) -> str:
        from treadle.client.notebook import result_html  # only in notebooks

        return result_html(self)


class Collector:
    """The events of one turn, collected for its result."""

    def __init__(self, turn_id: str) -> None:
        self._turn_id = turn_id
        self._items: list[Any] = []
        self._usage: ThreadTokenUsage | None = None
        self._before: TokensUsed | None = None  # what the thread had used when the turn began
        self._limit: TurnLimit | None = None
        self._turn: Turn | None = None

    def add(self, event: Notification) -> None:
        payload: Any = event.payload
        if event.method == "item/completed":
            if hasattr(payload, "item") and payload.turn_id == self._turn_id:
                self._items.append(payload.item)
        elif event.method == "thread/tokenUsage/updated":
            if hasattr(payload, "token_usage") and payload.turn_id == self._turn_id:
                self._usage = usage = payload.token_usage
                if self._before is None:
                    self._before = _difference(_tokens(usage.total), _tokens(usage.last))
        elif event.method == "warning":
            if getattr(payload, "turn_id", None) == self._turn_id and payload.limit is not UNSET:
                self._limit = payload.limit
        elif event.method == "turn/completed" and hasattr(payload, "turn") and payload.turn.id == self._turn_id:
            self._turn = payload.turn

    @property
    def turn_usage(self) -> TokensUsed | None:
        """What the turn has used so far; None as long as the server has reported nothing."""
        if self._usage is None or self._before is None:
            return None
        ours = self._usage.turn  # which other servers do not send
        used = _difference(_tokens(self._usage.total), self._before) if ours is UNSET else _tokens(ours)
        return replace(used, cost_usd=self._usage.cost_usd)

    @property
    def thread_usage(self) -> TokensUsed | None:
        """What the thread has used so far; None as long as the server has reported nothing."""
        return (
            None if self._usage is None else replace(_tokens(self._usage.total), cost_usd=self._usage.thread_cost_usd)
        )

    def result(self, output_type: OutputType[OutputT] | None = None) -> TurnResult[OutputT]:
        """Raises `TurnFailed` for a turn that failed, and `OutputError` for a response of the wrong shape."""
        turn = self._turn
        if turn is None:
            raise CodexError(f"the stream of turn {self._turn_id} ended without its completion")
        if turn.status == "failed":
            message = turn.error.message if turn.error is not None else ""
            kind = TurnFailed if turn.error is None or turn.error.limit is UNSET else TurnLimitReached
            raise kind(message or "the turn failed, and the server does not say why", turn)
        response = final_response(self._items)
        output = output_type.read(response) if output_type is not None and turn.status == "completed" else None
        return TurnResult(
            id=turn.id,
            status=cast("TurnStatus", turn.status),
            error=turn.error,
            started_at=turn.started_at,
            completed_at=turn.completed_at,
            duration_ms=turn.duration_ms,
            final_response=response,
            items=[item for item in self._items if item.type != "userMessage"],
            usage=self._usage,
            output=cast("OutputT", output),
            turn_usage=self.turn_usage,
            thread_usage=self.thread_usage,
            limit=self._limit,
        )


def _tokens(counted: TokenUsageBreakdown) -> TokensUsed:
    return TokensUsed(
        input_tokens=counted.input_tokens,
        cached_input_tokens=counted.cached_input_tokens,
        output_tokens=counted.output_tokens,
        reasoning_output_tokens=counted.reasoning_output_tokens,
        total_tokens=counted.total_tokens,
    )


def _difference(one: TokensUsed, other: TokensUsed) -> TokensUsed:
    return TokensUsed(
        **{
            name: max(0, getattr(one, name) - getattr(other, name))
            for name in TokensUsed.__dataclass_fields__
            if name != "cost_usd"
        }
    )


def final_response(items: list[Any]) -> str | None:
    """The last message that is marked as the answer; else the last one without a mark, an empty one too."""
    messages = [item.root for item in items if item.type == "agentMessage" and hasattr(item.root, "text")]
    for wanted in ("final_answer", None):
        for message in reversed(messages):
            if message.phase == wanted:
                text: str = message.text
                return text
    return None
