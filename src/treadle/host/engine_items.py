"""`EngineItems`: the events of a run as the events of a turn. Pure.

An engine reports actions and an answer. Commands, files and tools become items; commentary on the way becomes
reasoning; what people should know becomes a notice.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from treadle.agent.event import new_id
from treadle.host.runtime import Delta, ItemCompleted, ItemStarted, Notice, RuntimeEvent, ThreadNamed
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
from treadle.runners.run_events import Action, ActionEvent, CompletedEvent, Event, StartedEvent, TextDelta

_Item: TypeAlias = CommandExecutionThreadItem | FileChangeThreadItem | WebSearchThreadItem | DynamicToolCallThreadItem
_SHOWN = ("command", "file_change", "web_search", "tool", "subagent")


class EngineItems:
    """The events of one run.

    Args:
        turn_id: The turn that it is: items have ids of their own, because an engine counts anew in every run.
        cwd: Where the engine works.
    """

    def __init__(self, turn_id: str, cwd: str) -> None:
        self._turn_id = turn_id
        self._cwd = cwd
        self._open: dict[str, Action] = {}
        self._told: dict[str, str] = {}
        self._message_id: str | None = None  # of the message that grows
        self._text = ""

    def receive(self, event: Event) -> list[RuntimeEvent]:
        """What an event means; of the last one, what it says beside how the run ended."""
        match event:
            case StartedEvent():
                return [ThreadNamed(event.resume.value)]
            case TextDelta():
                began: list[RuntimeEvent] = []
                if self._message_id is None:
                    self._message_id = new_id()
                    began = [ItemStarted(AgentMessageThreadItem(id=self._message_id, text=""))]
                self._text += event.text
                return [*began, Delta(self._message_id, event.text)]
            case ActionEvent():
                return self._action(event)
            case CompletedEvent():
                # What the engine began and will not end any more.
                left, self._open = list(self._open.values()), {}
                found: list[RuntimeEvent] = [ItemCompleted(self._item(action, ok=False)) for action in left]
                if self._text.strip() and self._text.strip() != event.answer.strip():
                    # What grew was something else, said on the way or cut off.
                    found += self._end_message(self._text, "commentary" if event.ok else "partial_answer")
                if event.answer:
                    found += self._end_message(event.answer, "final_answer" if event.ok else "partial_answer")
                return found

    def _end_message(self, text: str, phase: str) -> list[RuntimeEvent]:
        item_id, self._message_id, self._text = self._message_id or new_id(), None, ""
        return [ItemCompleted(AgentMessageThreadItem(id=item_id, text=text, phase=phase))]

    def _action(self, event: ActionEvent) -> list[RuntimeEvent]:
        action, said = event.action, event.message
        if action.kind in _SHOWN:
            if event.phase == "completed":
                self._open.pop(action.id, None)
                return [ItemCompleted(self._item(action, ok=event.ok is not False))]
            known, self._open[action.id] = action.id in self._open, action
            return [] if known else [ItemStarted(self._item(action, ok=None))]
        if action.kind not in ("note", "warning"):
            return []
        if action.kind == "note" and said:
            if event.phase != "completed":
                return []
            if said.strip() == self._text.strip():
                return self._end_message(said, "commentary")
            return [ItemCompleted(ReasoningThreadItem(id=self._id(action), summary=(said,)))]
        told = f"{action.title}: {said}" if said else action.title
        if self._told.get(action.id) == told or (event.phase == "completed" and action.id in self._told):
            return []
        self._told[action.id] = told
        return [Notice(told)]

    def _id(self, action: Action) -> str:
        return f"{self._turn_id}/{action.id}"

    def _item(self, action: Action, *, ok: bool | None) -> _Item:
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
    told = detail.get("changes")
    if isinstance(told, list):
        known = [(change.get("path"), change.get("kind")) for change in told if isinstance(change, dict)]
    else:
        known = [(path, "update") for path in changed_paths(_given(detail))]
    changes: list[FileUpdateChange] = []
    for path, word in known:
        kind: PatchChangeKind = UpdatePatchChangeKind()
        if word in ("add", "delete"):
            kind = AddPatchChangeKind() if word == "add" else DeletePatchChangeKind()
        if path:
            changes.append(FileUpdateChange(path=str(path), kind=kind, diff=""))
    return tuple(changes)


def changed_paths(given: dict[str, Any]) -> tuple[str, ...]:
    """The files that a tool of an engine would change, by what it is called with."""
    names = ("file_path", "filePath", "notebook_path", "path")
    return tuple(given[name] for name in names if isinstance(given.get(name), str))[:1]
