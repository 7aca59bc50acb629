"""`EngineItems`: the events of a run as the items of a turn. Pure.

An engine reports actions and an answer. Commands, files and tools become items; commentary on the way becomes
reasoning; what people should know becomes a notice. What becomes of an item is up to its `ItemSink`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeAlias

from treadle.protocol.app.item_parts import (
    AddPatchChangeKind,
    DeletePatchChangeKind,
    FileUpdateChange,
    InputTextDynamicToolCallOutputContentItem,
    PatchChangeKind,
    UpdatePatchChangeKind,
)
from treadle.protocol.app.items import (
    AgentMessageThreadItem,
    CommandExecutionThreadItem,
    DynamicToolCallThreadItem,
    FileChangeThreadItem,
    ReasoningThreadItem,
    WebSearchThreadItem,
)
from treadle.runners.run_events import Action, ActionEvent, ActionKind, CompletedEvent, Event, TextDelta

ActionItem: TypeAlias = (
    CommandExecutionThreadItem | FileChangeThreadItem | WebSearchThreadItem | DynamicToolCallThreadItem
)
EngineItem: TypeAlias = ActionItem | AgentMessageThreadItem | ReasoningThreadItem
_SHOWN = ("command", "file_change", "web_search", "tool", "subagent")


class ItemSink(Protocol):
    """Where the items of a run go."""

    def started(self, item: EngineItem) -> None: ...

    def grown(self, message_id: str, text: str) -> None:
        """A message that has started goes on with this text."""

    def completed(self, item: EngineItem) -> None:
        """An item has ended; one that was not started before is over as soon as it begins."""

    def notice(self, text: str) -> None: ...


class EngineItems:
    """The items of one run.

    Args:
        prefix: What the ids of the items begin with: an engine counts anew in every run.
        cwd: Where the engine works.
        sink: Where they go.
    """

    def __init__(self, prefix: str, cwd: str, sink: ItemSink) -> None:
        self._prefix = prefix
        self._cwd = cwd
        self._sink = sink
        self._open: dict[str, Action] = {}
        self._noticed: dict[str, str] = {}
        self._messages = 0
        self._grows = False  # whether a message has started and not ended
        self._text = ""

    def receive(self, event: Event) -> None:
        """Report what an event means; of the last one, what it says beside how the run ended."""
        match event:
            case TextDelta():
                if not self._grows:
                    self._grows = True
                    self._sink.started(AgentMessageThreadItem(id=self._message_id, text=""))
                self._text += event.text
                self._sink.grown(self._message_id, event.text)
            case ActionEvent():
                self._action(event)
            case CompletedEvent():
                # What the engine began and will not end any more.
                left, self._open = list(self._open.values()), {}
                for action in left:
                    self._sink.completed(self._item(action, ok=False))
                if self._text.strip() and self._text.strip() != event.answer.strip():
                    # What grew was something else, said on the way or cut off.
                    self._end_message(self._text, "commentary" if event.ok else "partial_answer")
                if event.answer:
                    self._end_message(event.answer, "final_answer" if event.ok else "partial_answer")

    def start(self, action: Action) -> ActionItem:
        """The item of an action, started if it has not been: the engine asks about it before it reports it."""
        item = self._item(action, ok=None)
        if action.id not in self._open:
            self._open[action.id] = action
            self._sink.started(item)
        return item

    @property
    def _message_id(self) -> str:
        return f"{self._prefix}/message-{self._messages}"

    def _end_message(self, text: str, phase: str) -> None:
        item = AgentMessageThreadItem(id=self._message_id, text=text, phase=phase)
        self._messages, self._grows, self._text = self._messages + 1, False, ""
        self._sink.completed(item)

    def _action(self, event: ActionEvent) -> None:
        action, said = event.action, event.message
        if action.kind in _SHOWN:
            if event.phase == "completed":
                self._open.pop(action.id, None)
                self._sink.completed(self._item(action, ok=event.ok is not False))
            else:
                self.start(action)
                self._open[action.id] = action
            return
        if action.kind not in ("note", "warning"):
            return
        if action.kind == "note" and said:
            if event.phase != "completed":
                return
            if said.strip() == self._text.strip():
                self._end_message(said, "commentary")
            else:
                self._sink.completed(ReasoningThreadItem(id=self._id(action), summary=(said,)))
            return
        text = f"{action.title}: {said}" if said else action.title
        if self._noticed.get(action.id) != text and not (event.phase == "completed" and action.id in self._noticed):
            self._noticed[action.id] = text
            self._sink.notice(text)

    def _id(self, action: Action) -> str:
        return f"{self._prefix}/{action.id}"

    def _item(self, action: Action, *, ok: bool | None) -> ActionItem:
        status = "inProgress" if ok is None else "completed" if ok else "failed"
        detail = action.detail
        match action.kind:
            case "command":
                code = detail.get("exit_code")
                return CommandExecutionThreadItem(
                    id=self._id(action),
                    command=_text(detail.get("command")) or _text(_given(detail).get("command")) or action.title,
                    command_actions=(),
                    cwd=self._cwd,
                    status=status,
                    aggregated_output=_text(detail.get("output")),
                    exit_code=code if isinstance(code, int) else 0 if status == "completed" else None,
                )
            case "file_change":
                return FileChangeThreadItem(id=self._id(action), changes=_changes(detail), status=status)
            case "web_search":
                return WebSearchThreadItem(id=self._id(action), query=action.title)
        said = _text(detail.get("output")) or _text(detail.get("error"))
        content = None if said is None else (InputTextDynamicToolCallOutputContentItem(text=said),)
        return DynamicToolCallThreadItem(
            id=self._id(action),
            arguments=_given(detail) or detail.get("arguments") or {},
            status=status,
            tool=_text(detail.get("tool")) or action.title,
            namespace=_text(detail.get("server")),
            content_items=content,
            success=ok,
        )


def _given(detail: dict[str, Any]) -> dict[str, Any]:
    given = detail.get("input")
    return given if isinstance(given, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _changes(detail: dict[str, Any]) -> tuple[FileUpdateChange, ...]:
    reported, diff = detail.get("changes"), ""
    if isinstance(reported, list):
        known = [(change.get("path"), change.get("kind")) for change in reported if isinstance(change, dict)]
    else:
        known = [(path, "update") for path in changed_paths(_given(detail))]
        diff = _diff(_given(detail))
    changes: list[FileUpdateChange] = []
    for path, word in known:
        kind: PatchChangeKind = UpdatePatchChangeKind()
        if word in ("add", "delete"):
            kind = AddPatchChangeKind() if word == "add" else DeletePatchChangeKind()
        if path:
            changes.append(FileUpdateChange(path=str(path), kind=kind, diff=diff))
    return tuple(changes)


# What stands in a file before and after, as tools of engines name it.
_EDITS: Final = (("old_string", "new_string"), ("oldString", "newString"), ("oldText", "newText"))
MAX_DIFF: Final = 100_000


def _diff(given: Mapping[str, Any]) -> str:
    """What a tool would change in a file, for who is asked whether it may: the engine has said no more of it. The lines
    are numbered from the first that it names."""
    from difflib import unified_diff  # few runs edit files

    edits = given.get("edits")
    pieces = [each for each in edits if isinstance(each, Mapping)] if isinstance(edits, list) else [given]
    texts = [(_text(piece.get(old)) or "", _text(piece.get(new)) or "") for piece in pieces for old, new in _EDITS]
    if content := _text(given.get("content")):
        texts.append(("", content))
    lines: list[str] = []
    for before, after in texts:
        if max(len(before), len(after)) <= MAX_DIFF:
            lines += [*unified_diff(before.splitlines(), after.splitlines(), lineterm="")][2:]
    return "\n".join(lines)[:MAX_DIFF]


def changed_paths(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The files that a tool of an engine would change, by what it is called with."""
    names = ("file_path", "filePath", "notebook_path", "path")
    return tuple(given[name] for name in names if isinstance(given.get(name), str))[:1]


# Of a command: said to people, or of no effect on what it does.
_WORDS_ONLY = frozenset({"description", "timeout"})


def session_key(tool: str, kind: ActionKind, given: Mapping[str, Any]) -> tuple[str, ...] | None:
    """What a yes for the session is a yes to: this tool, this command run in this way, or these files; None when nobody
    can say which files."""
    if kind == "command" and isinstance(given.get("command"), str):
        # How it is run counts too: outside of the engine's sandbox, or in the background.
        way = {name: value for name, value in given.items() if name not in _WORDS_ONLY}
        return ("command", tool, repr(sorted(way.items())))
    if kind == "file_change":
        paths = changed_paths(given)
        return ("patch", tool, *paths) if paths else None
    return ("tool", tool)
