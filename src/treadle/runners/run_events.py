"""What a run of any engine reports: the whole vocabulary on one screen.

    started?  action*  text*  completed

`StartedEvent` comes at most once, when the engine's session is known; actions may come before it. `CompletedEvent`
comes exactly once and last, for every end that is not a crash of this program.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import Struct

ActionKind: TypeAlias = Literal[
    "command", "tool", "file_change", "web_search", "subagent", "note", "turn", "warning", "telemetry"
]
Phase: TypeAlias = Literal["started", "updated", "completed"]
Level: TypeAlias = Literal["debug", "info", "warning", "error"]


class ResumeToken(Struct, frozen=True):
    """How to find an engine's conversation again.

    Args:
        engine: The engine that it belongs to, such as `codex`.
        value: The engine's own full id of the session.
    """

    engine: str
    value: str

    def __str__(self) -> str:
        return f"{self.engine}:{self.value}"


class StartedEvent(Struct, frozen=True, tag="started"):
    """The engine runs, and its session is known.

    Args:
        engine: The engine that reports it.
        resume: Its session.
        title: What a person may call the run, such as the model.
        meta: What else the engine reported at its start.
    """

    type: ClassVar[Literal["started"]] = "started"

    engine: str
    resume: ResumeToken
    title: str | None = None
    meta: dict[str, Any] | None = None


class Action(Struct, frozen=True):
    """Something that the engine does.

    Args:
        id: The same in all events about this action, and no other action's in this run.
        kind: What sort of thing it is.
        title: One line for people.
        detail: What else the engine reported about it, as it came.
    """

    id: str
    kind: ActionKind
    title: str
    detail: dict[str, Any] = {}


class ActionEvent(Struct, frozen=True, tag="action"):
    """An action began, changed or ended. Some are reported only when they have ended.

    Args:
        engine: The engine that reports it.
        action: What is done.
        phase: Where it stands.
        ok: Whether it went well, once that is known.
        message: More than fits in the title.
        level: How much it matters to people.
    """

    type: ClassVar[Literal["action"]] = "action"

    engine: str
    action: Action
    phase: Phase
    ok: bool | None = None
    message: str | None = None
    level: Level | None = None


class TextDelta(Struct, frozen=True, tag="text"):
    """A piece of the answer while it is being written; only from engines that stream.

    Args:
        engine: The engine that reports it.
        text: The piece.
    """

    type: ClassVar[Literal["text"]] = "text"

    engine: str
    text: str


class CompletedEvent(Struct, frozen=True, tag="completed"):
    """The run has ended, and its process is gone.

    Args:
        engine: The engine that ran.
        ok: Whether it did what it was asked.
        answer: What it answered; empty when it did not.
        resume: Its session, if it has one.
        error: Why it failed, for people.
        usage: What this run used: `input_tokens` (all, with those from the cache), `cached_input_tokens`,
            `cache_write_input_tokens`, `output_tokens` (all, with the thoughts), `reasoning_output_tokens`,
            `cost_usd`, those of them that the engine reports. With `scope: "session"` it is what the whole session used
            so far, because it is unknown what it had used before this run.
    """

    type: ClassVar[Literal["completed"]] = "completed"

    engine: str
    ok: bool
    answer: str
    resume: ResumeToken | None = None
    error: str | None = None
    usage: dict[str, Any] | None = None


Event: TypeAlias = StartedEvent | ActionEvent | TextDelta | CompletedEvent
