"""What engines have in common in their reports: numbered notes, warnings, and ending without a verdict. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treadle.runners.engine import Ending
from treadle.runners.run_events import Action, ActionEvent, CompletedEvent, Event, Level


class Notes:
    """Numbers the notes of one run: `codex.note.1`, `codex.note.2`, …"""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._last = 0

    def note(self, title: str, *, message: str | None = None, detail: Mapping[str, Any] | None = None) -> ActionEvent:
        """Something to know, nothing to worry about."""
        return self._event("note", title, ok=True, message=message, level="info", detail=detail)

    def warning(
        self, title: str, *, message: str | None = None, detail: Mapping[str, Any] | None = None
    ) -> ActionEvent:
        """Something that went wrong on the way."""
        return self._event("warning", title, ok=False, message=message, level="warning", detail=detail)

    def _event(
        self, kind: Any, title: str, *, ok: bool, message: str | None, level: Level, detail: Mapping[str, Any] | None
    ) -> ActionEvent:
        self._last += 1
        action = Action(f"{self._engine}.note.{self._last}", kind, title, dict(detail or {}))
        return ActionEvent(self._engine, action, "completed", ok=ok, message=message, level=level)


def end_by_code(
    engine: str,
    label: str,
    ending: Ending,
    notes: Notes,
    *,
    answer: str,
    completed: CompletedEvent | None,
    ok: bool,
    usage: dict[str, Any] | None = None,
) -> list[Event]:
    """The end of a process, for engines whose exit code is true.

    Args:
        engine: Its name.
        label: What is run, as in "codex exec failed (rc=1).".
        ending: How the process ended.
        notes: The run's notes.
        answer: The answer so far.
        completed: What the engine itself said about its end, if it did.
        ok: Whether an end without that, with code 0, is a good one.
        usage: What the run used until then.
    """
    code = ending.exit_code
    if completed is not None:
        if completed.ok and code not in (0, None) and ending.stopped is None:
            return [notes.warning(f"{label} ended with rc={code} after its answer"), completed]
        return [completed]
    if ending.stopped is not None:
        return [CompletedEvent(engine, ok=False, answer=answer, error=ending.stopped, usage=usage)]
    if code != 0:
        error = f"{label} failed (rc={'unknown' if code is None else code})."
        return [notes.warning(error), CompletedEvent(engine, ok=False, answer=answer, error=error, usage=usage)]
    if ok:
        return [CompletedEvent(engine, ok=True, answer=answer, usage=usage)]
    hint = "" if ending.lines == 0 else ": what it printed was not understood; its version may be too old or too new"
    error = f"{label} ended without an answer{hint}."
    return [CompletedEvent(engine, ok=False, answer=answer, error=error, usage=usage)]
