"""`Block`: what a person sees of an item, whatever the format, and `item_blocks`, which makes blocks from items.

The one module for people that knows the types of items: a new type is a case here, and every renderer shows it.
Renderers are `cli.turn.plain_turn` and `cli.turn.turn_renderer` (a turn as it happens), `html_page`, and the pages of
`cli.threads` (text, Markdown). Not here: `codex exec --json`, whose format is another program's (`cli.exec`).

Pure. Texts are as they came: each renderer makes them harmless in its own way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from treadle.pages.figures import duration, words
from treadle.protocol.app.extensions import HookCompletedNotification, McpServerStatusUpdatedNotification
from treadle.protocol.app.item_parts import (
    FileUpdateChange,
    ImageUserInput,
    InputImageDynamicToolCallOutputContentItem,
    InputImageFunctionCallOutputContentItem,
    InputTextDynamicToolCallOutputContentItem,
    InputTextFunctionCallOutputContentItem,
    LocalImageUserInput,
    MentionUserInput,
    SkillUserInput,
    TextUserInput,
)
from treadle.protocol.app.items import (
    AgentMessageThreadItem,
    CollabAgentToolCallThreadItem,
    CommandExecutionThreadItem,
    ContextCompactionThreadItem,
    DynamicToolCallThreadItem,
    EnteredReviewModeThreadItem,
    ExitedReviewModeThreadItem,
    FileChangeThreadItem,
    FunctionCallOutputThreadItem,
    HookPromptThreadItem,
    ImageGenerationThreadItem,
    ImageViewThreadItem,
    McpToolCallResult,
    McpToolCallThreadItem,
    PlanThreadItem,
    ReasoningThreadItem,
    SleepThreadItem,
    SubAgentActivityThreadItem,
    ThreadItem,
    UnknownItem,
    UserMessageThreadItem,
    WebSearchThreadItem,
)

if TYPE_CHECKING:
    from treadle.config import Config

# The signs in front of a line on a terminal, and their styles.
RUNNING: Final = "▸"
DONE: Final = "✓"
FAILED: Final = "✗"
WARNING: Final = "!"
NOTE: Final = "·"
UNFINISHED: Final = "–"
SIGN_STYLES: Final = {DONE: "green", FAILED: "red", WARNING: "yellow", RUNNING: "cyan", NOTE: "dim", UNFINISHED: "dim"}

_VERBS: Final = {"add": "added", "delete": "deleted", "update": "changed"}
_IN_PROGRESS: Final = "in progress"


# --- the kinds of blocks ---------------------------------------------------------------------------------------------


class Picture(Struct, frozen=True):
    """A picture, by the path that its file had, or by an address. `id` is that of the call that looked at the file."""

    path: str | None = None
    url: str | None = None
    id: str | None = None

    @property
    def name(self) -> str:
        if self.path is not None:
            return self.path.rsplit("/", 1)[-1] or self.path
        url = self.url or ""
        return "picture" if url.startswith("data:") else url


def sent_key(turn: int, path: str) -> str:
    """The key of a picture that a user sent: the number of the turn, and the path."""
    return f"{turn}:{path}"


class MessageBlock(Struct, frozen=True):
    """A message, in Markdown. `commentary`: of an agent that goes on working."""

    by: Literal["user", "agent"]
    text: str
    pictures: tuple[Picture, ...] = ()
    commentary: bool = False


class ThoughtBlock(Struct, frozen=True):
    text: str


class CommandBlock(Struct, frozen=True):
    """A command, without the shell around it. `status` is that of the protocol."""

    command: str
    cwd: str
    output: str
    status: str
    exit_code: int | None = None
    duration_ms: int | None = None

    @property
    def failed(self) -> bool:
        return self.exit_code not in (0, None) or self.status in ("failed", "declined")

    @property
    def outcome(self) -> str:
        """How it ended, in words."""
        if self.status == "inProgress":
            return "still running"
        if self.status == "declined":
            return "declined, and not run"
        return self.status if self.exit_code is None else f"exit {self.exit_code}"


class ChangeBlock(Struct, frozen=True):
    """A change of one file. `lines` are those of a diff; `status` is that of the protocol, in words; `file` is the path
    where the file is now."""

    kind: str
    path: str
    lines: tuple[str, ...]
    status: str
    file: str = ""

    @property
    def made(self) -> bool:
        return self.status == "completed"

    @property
    def running(self) -> bool:
        return self.status == _IN_PROGRESS

    @property
    def verb(self) -> str:
        """`changed`, for `update`."""
        return _VERBS.get(self.kind, self.kind)

    @property
    def added(self) -> int:
        return sum(line.startswith("+") for line in self.lines)

    @property
    def removed(self) -> int:
        return sum(line.startswith("-") for line in self.lines)


class ToolBlock(Struct, frozen=True):
    """The call of a tool. `arguments` and `result` are texts; `outcome` is empty where the title says all."""

    title: str
    outcome: str
    failed: bool
    arguments: str = ""
    result: str = ""
    pictures: tuple[Picture, ...] = ()
    duration_ms: int | None = None

    @property
    def running(self) -> bool:
        return self.outcome == _IN_PROGRESS


class PlanBlock(Struct, frozen=True):
    """A plan that the agent puts to the user, in Markdown."""

    text: str


class NoteBlock(Struct, frozen=True):
    """A note about the conversation, in a few words.

    Args:
        title: The few words.
        text: More of it, in Markdown.
        doing: What the agent does until it has happened, where that takes time.
    """

    title: str
    text: str = ""
    doing: str = ""


Block: TypeAlias = MessageBlock | ThoughtBlock | CommandBlock | ChangeBlock | ToolBlock | PlanBlock | NoteBlock


def connection_text(method: str, environment_id: str) -> str:
    """What people are shown when a machine on which a thread works is lost, and when it is there again."""
    if method.endswith("/connected"):
        return f"connected to the environment {environment_id} again"
    return f"the connection to the environment {environment_id} was lost: reconnecting …"


def server_block(params: McpServerStatusUpdatedNotification) -> ToolBlock | None:
    """How the start of an MCP server ended; None while it goes on, or when it was called off."""
    if params.status not in ("ready", "failed"):
        return None
    failed = params.status == "failed"
    return ToolBlock(f"MCP server {params.name}", str(params.status), failed, result=params.error or "")


def hook_block(params: HookCompletedNotification) -> ToolBlock | None:
    """A hook that has refused something, failed, or has a message for people; the others are not seen."""
    run = params.run
    event, said = str(run.event_name), "\n".join(entry.text for entry in run.entries if entry.kind != "context")
    title = f"hook {event[:1].upper()}{event[1:]}"
    if run.status != "completed":
        return ToolBlock(title, str(run.status), failed=True, result=said)
    return ToolBlock(f"{title}: {' '.join(said.split())}", "", failed=False) if said else None


def shortened(lines: list[str], head: int, tail: int) -> tuple[list[str], int, list[str]]:
    """The first and the last lines, and how many are left out between them."""
    hidden = len(lines) - head - tail
    if hidden <= 0:
        return lines, 0, []
    return lines[:head], hidden, lines[len(lines) - tail :] if tail else []


# --- from items ------------------------------------------------------------------------------------------------------


def item_blocks(item: ThreadItem, cwd: str = "") -> Iterator[Block]:
    """What there is to show of an item; nothing of one that says nothing. Files below `cwd` are named from there."""
    match item:
        case UserMessageThreadItem():
            texts: list[str] = []
            pictures: list[Picture] = []
            for part in item.content:
                match part:
                    case TextUserInput():
                        texts.append(part.text)
                    case LocalImageUserInput():
                        pictures.append(Picture(path=part.path))
                    case ImageUserInput() if isinstance(part.url, str):
                        pictures.append(Picture(url=part.url))
                    case MentionUserInput() | SkillUserInput():
                        texts.append(f"@{part.name}")
                    case _:
                        texts.append(f"({part.type or 'something that cannot be shown'})")
            yield MessageBlock("user", "\n\n".join(texts), tuple(pictures))
        case AgentMessageThreadItem():
            if item.text.strip():
                yield MessageBlock("agent", item.text, commentary=item.phase == "commentary")
        case ReasoningThreadItem():
            if (text := "\n\n".join(item.summary or item.content)).strip():
                yield ThoughtBlock(text)
        case PlanThreadItem():
            if item.text.strip():
                yield PlanBlock(item.text)
        case CommandExecutionThreadItem():
            commands = [action.command for action in item.command_actions if hasattr(action, "command")]
            yield CommandBlock(
                " && ".join(commands) if commands else item.command,
                item.cwd,
                item.aggregated_output or "",
                str(item.status),
                item.exit_code,
                item.duration_ms or None,
            )
        case FileChangeThreadItem():
            yield from (_change(change, words(item.status), cwd) for change in item.changes)
        case ContextCompactionThreadItem():
            yield NoteBlock("the conversation was summarised to make room", doing="making room in the conversation")
        case EnteredReviewModeThreadItem():
            yield NoteBlock(f"review begun: {item.review}")
        case ExitedReviewModeThreadItem():
            yield NoteBlock("review done", item.review)
        case HookPromptThreadItem():
            yield NoteBlock("a hook said", "\n\n".join(fragment.text for fragment in item.fragments))
        case SleepThreadItem():
            yield NoteBlock(f"waited {duration(item.duration_ms)}")
        case SubAgentActivityThreadItem():
            yield NoteBlock(f"agent {item.agent_path}: {words(item.kind)}")
        case _:
            yield _tool(item)


def with_reasoning(config: Config, method: str, params: Any) -> Any:
    """The params of a notification as the settings want thoughts to be shown while a turn runs; None: not at all."""
    item = getattr(params, "item", None)
    if not method.startswith("item/reasoning/") and not isinstance(item, ReasoningThreadItem):
        return params
    if config.hide_agent_reasoning:
        return None
    if isinstance(item, ReasoningThreadItem):
        summary = (*item.summary, *item.content) if config.show_raw_agent_reasoning else item.summary
        return structs.replace(params, item=structs.replace(item, summary=summary, content=()))
    return params


def _change(change: FileUpdateChange, status: str, cwd: str) -> ChangeBlock:
    kind = str(change.kind.type)
    # The diff of a new or a deleted file is its content.
    sign = {"add": "+", "delete": "-"}.get(kind, "")
    # By line ends alone: a form feed, at which `splitlines` splits, is a letter of its line.
    lines = change.diff.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not lines[-1]:
        lines.pop()
    below = f"{cwd.rstrip('/')}/" if cwd.strip("/") else ""
    path = change.path.removeprefix(below)
    moved = getattr(change.kind, "move_path", None)
    if moved:
        path += f" → {moved.removeprefix(below)}"
    return ChangeBlock(kind, path, tuple(f"{sign}{line}" for line in lines), status, moved or change.path)


def _mcp_result(result: McpToolCallResult) -> tuple[str, tuple[Picture, ...]]:
    """The texts of what a tool gave, and its pictures. Of sound and of data the kind is said, and nothing of what they
    are made of."""
    texts: list[str] = []
    pictures: list[Picture] = []
    for part in result.content:
        match part:
            case {"type": "image", "data": str(data), "mimeType": str(kind)}:
                pictures.append(Picture(url=f"data:{kind};base64,{data}"))
            case {"type": "text", "text": text} | {"type": "resource", "resource": {"text": text}}:
                texts.append(str(text))
            case {"type": "resource_link", "uri": uri} | {"type": "resource", "resource": {"uri": uri}}:
                texts.append(str(uri))
            case {"type": kind}:
                texts.append(f"({kind})")
    shown = "\n".join(texts)
    if not shown and result.structured_content is not None:
        shown = _json(result.structured_content)
    return shown, tuple(pictures)


def _tool(item: Any) -> Block:
    match item:
        case McpToolCallThreadItem():
            result = "" if item.error is None else item.error.message
            pictures: tuple[Picture, ...] = ()
            if item.result is not None:
                result, pictures = _mcp_result(item.result)
            return ToolBlock(
                f"{item.server}.{item.tool}",
                words(item.status),
                item.status == "failed",
                arguments=_json(item.arguments),
                result=result,
                pictures=pictures,
                duration_ms=item.duration_ms,
            )
        case DynamicToolCallThreadItem():
            return _client_tool(item)
        case FunctionCallOutputThreadItem():
            parts = item.output
            if isinstance(parts, str):
                return ToolBlock(item.name, "", False, result=parts)
            texts = [part.text for part in parts if isinstance(part, InputTextFunctionCallOutputContentItem)]
            urls = [part.image_url for part in parts if isinstance(part, InputImageFunctionCallOutputContentItem)]
            pictures = tuple(Picture(url=url) for url in urls if isinstance(url, str))
            return ToolBlock(item.name, "", False, result="\n".join(texts), pictures=pictures)
        case WebSearchThreadItem():
            return ToolBlock(f"searched the web: {item.query}", "", False, result=_json(item.results))
        case ImageViewThreadItem():
            return ToolBlock(f"looked at {item.path}", "", False, pictures=(Picture(path=item.path, id=item.id),))
        case ImageGenerationThreadItem():
            pictures = ()
            if isinstance(item.result, str):
                pictures = (Picture(url=f"data:image/png;base64,{item.result}"),)
            elif item.saved_path:
                pictures = (Picture(path=item.saved_path),)
            failed = item.failure is not None
            return ToolBlock("made a picture", item.status, failed, result=item.revised_prompt or "", pictures=pictures)
        case CollabAgentToolCallThreadItem():
            title = f"agents: {words(item.tool)}"
            states = (
                f"{words(state.status)}: {state.message}" if state.message else words(state.status)
                for state in item.agents_states.values()
            )
            return ToolBlock(
                title,
                words(item.status),
                item.status == "failed",
                arguments=item.prompt or "",
                result="\n".join(states),
            )
        case UnknownItem():
            return ToolBlock(str(item.type or "unknown item"), "", False, arguments=_json(dict(item)))
    # A type that somebody has added.
    call = item.as_tool_call()
    return NoteBlock(str(item.type)) if call is None else _client_tool(call)


def _client_tool(item: DynamicToolCallThreadItem) -> ToolBlock:
    parts = item.content_items or ()
    texts = [part.text for part in parts if isinstance(part, InputTextDynamicToolCallOutputContentItem)]
    urls = [part.image_url for part in parts if isinstance(part, InputImageDynamicToolCallOutputContentItem)]
    return ToolBlock(
        f"{item.namespace}.{item.tool}" if item.namespace else item.tool,
        words(item.status),
        item.status == "failed" or item.success is False,
        arguments=_json(item.arguments),
        result="\n".join(texts),
        pictures=tuple(Picture(url=url) for url in urls),
        duration_ms=item.duration_ms,
    )


def _json(value: Any) -> str:
    if value in (None, {}, (), []):
        return ""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
