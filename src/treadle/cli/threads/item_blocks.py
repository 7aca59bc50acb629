"""`item_blocks`: an item of the protocol as `Block`s. The one place here that knows the types of items. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from treadle.cli.threads.figures import duration
from treadle.cli.threads.page_blocks import Block, Changed, Noted, Picture, Proposed, Ran, Said, Thought, Used
from treadle.cli.turn.command_view import asked_for
from treadle.protocol.app.actions import FileUpdateChange
from treadle.protocol.app.dynamic_tools import (
    InputImageDynamicToolCallOutputContentItem,
    InputTextDynamicToolCallOutputContentItem,
)
from treadle.protocol.app.inputs import (
    ImageUserInput,
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
from treadle.protocol.app.outputs import InputImageFunctionCallOutputContentItem, InputTextFunctionCallOutputContentItem

_VERBS = {"add": "added", "delete": "deleted", "update": "changed"}


def item_blocks(item: ThreadItem, cwd: str = "") -> Iterator[Block]:
    """What there is to show of it; nothing of an item that says nothing. Files below `cwd` are named from there."""
    match item:
        case UserMessageThreadItem():
            yield _user(item)
        case AgentMessageThreadItem() if item.text.strip():
            yield Said("agent", item.text, aside=item.phase == "commentary")
        case ReasoningThreadItem() if (text := "\n\n".join(item.summary or item.content)).strip():
            yield Thought(text)
        case CommandExecutionThreadItem():
            yield _ran(item)
        case FileChangeThreadItem():
            yield from (_changed(change, str(item.status), cwd) for change in item.changes)
        case PlanThreadItem() if item.text.strip():
            yield Proposed(item.text)
        case AgentMessageThreadItem() | ReasoningThreadItem() | PlanThreadItem():
            return
        case _:
            yield _other(item)


def _user(item: UserMessageThreadItem) -> Said:
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
    return Said("user", "\n\n".join(texts), tuple(pictures))


def _ran(item: CommandExecutionThreadItem) -> Ran:
    failed = item.exit_code not in (0, None) or item.status in ("failed", "declined")
    return Ran(asked_for(item), item.cwd, item.aggregated_output or "", _end(item), failed, item.duration_ms or None)


def _end(item: CommandExecutionThreadItem) -> str:
    if item.status == "inProgress":
        return "still running"
    if item.status == "declined":
        return "declined, and not run"
    return str(item.status) if item.exit_code is None else f"exit {item.exit_code}"


def _changed(change: FileUpdateChange, status: str, cwd: str) -> Changed:
    kind = str(change.kind.type)
    sign = {"add": "+", "delete": "-"}.get(kind, "")
    lines = tuple(f"{sign}{line}" for line in change.diff.splitlines())
    moved = getattr(change.kind, "move_path", None)
    path = _from(cwd, change.path) + (f" → {_from(cwd, moved)}" if moved else "")
    return Changed(_VERBS.get(kind, kind), path, lines, None if status == "completed" else _words(status))


def _from(cwd: str, path: str) -> str:
    return path.removeprefix(f"{cwd.rstrip('/')}/") if cwd.strip("/") else path


# --- tools and the rest ----------------------------------------------------------------------------------------------


def _other(item: Any) -> Block:
    match item:
        case McpToolCallThreadItem():
            return _mcp(item)
        case DynamicToolCallThreadItem():
            return _dynamic(item)
        case FunctionCallOutputThreadItem():
            return _function_output(item)
        case WebSearchThreadItem():
            return Used(f"searched the web: {item.query}", "", False, got=_json(item.results))
        case ImageViewThreadItem():
            return Used(f"looked at {item.path}", "", False, pictures=(Picture(path=item.path),))
        case ImageGenerationThreadItem():
            return _generated(item)
        case CollabAgentToolCallThreadItem():
            title = f"agents: {_words(str(item.tool))}"
            return Used(title, _words(str(item.status)), item.status == "failed", given=item.prompt or "")
        case _:
            return _note(item)


def _note(item: Any) -> Block:
    match item:
        case ContextCompactionThreadItem():
            return Noted("the conversation was summarised to make room")
        case EnteredReviewModeThreadItem():
            return Noted(f"review begun: {item.review}")
        case ExitedReviewModeThreadItem():
            return Noted("review done", item.review)
        case HookPromptThreadItem():
            return Noted("a hook said", "\n\n".join(fragment.text for fragment in item.fragments))
        case SleepThreadItem():
            return Noted(f"waited {duration(item.duration_ms)}")
        case SubAgentActivityThreadItem():
            return Noted(f"agent {item.agent_path}: {_words(str(item.kind))}")
        case UnknownItem():
            return Used(str(item.type or "unknown item"), "", False, given=_json(dict(item)))
    call = item.as_tool_call()
    return Noted(str(item.type)) if call is None else _dynamic(call)


def _mcp(item: McpToolCallThreadItem) -> Used:
    got = "" if item.error is None else item.error.message
    if item.result is not None:
        texts = [part["text"] for part in item.result.content if isinstance(part, dict) and "text" in part]
        got = "\n".join(map(str, texts)) or _json(item.result.structured_content or item.result.content)
    return Used(
        f"{item.server}.{item.tool}",
        _words(str(item.status)),
        item.status == "failed",
        given=_json(item.arguments),
        got=got,
        duration_ms=item.duration_ms,
    )


def _dynamic(item: DynamicToolCallThreadItem) -> Used:
    parts = item.content_items or ()
    texts = [part.text for part in parts if isinstance(part, InputTextDynamicToolCallOutputContentItem)]
    images = [part.image_url for part in parts if isinstance(part, InputImageDynamicToolCallOutputContentItem)]
    return Used(
        f"{item.namespace}.{item.tool}" if item.namespace else item.tool,
        _words(str(item.status)),
        item.status == "failed" or item.success is False,
        given=_json(item.arguments),
        got="\n".join(texts),
        pictures=tuple(Picture(url=url) for url in images),
        duration_ms=item.duration_ms,
    )


def _function_output(item: FunctionCallOutputThreadItem) -> Used:
    if isinstance(item.output, str):
        return Used(item.name, "", False, got=item.output)
    texts = [part.text for part in item.output if isinstance(part, InputTextFunctionCallOutputContentItem)]
    images = [part.image_url for part in item.output if isinstance(part, InputImageFunctionCallOutputContentItem)]
    pictures = tuple(Picture(url=url) for url in images if isinstance(url, str))
    return Used(item.name, "", False, got="\n".join(texts), pictures=pictures)


def _generated(item: ImageGenerationThreadItem) -> Used:
    pictures: tuple[Picture, ...] = ()
    if item.saved_path:
        pictures = (Picture(path=item.saved_path),)
    elif isinstance(item.result, str):
        pictures = (Picture(url=f"data:image/png;base64,{item.result}"),)
    return Used(
        "made a picture", item.status, item.failure is not None, got=item.revised_prompt or "", pictures=pictures
    )


def _json(value: Any) -> str:
    if value in (None, {}, (), []):
        return ""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _words(name: str) -> str:
    """`inProgress` is `in progress`."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
