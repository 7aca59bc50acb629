"""The events that hooks are called for, each with the input of a hook: one struct is both the JSON that a command reads
on its standard input and the value that a Python function gets. Members are written as the JSON has them.

`subjects` is what the matcher of a hook is held against; None where every hook of the event is called. Nothing is run
or decided here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from treadle.llm.model import TokenUsage

PermissionMode: TypeAlias = Literal["default", "bypassPermissions", "plan"]
SessionSource: TypeAlias = Literal["startup", "resume", "clear", "compact"]
# What else a hook for files or for agents may call these tools.
_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {"apply_patch": ("Write", "Edit"), "spawn_agent": ("Agent",)}


class HookInput(Struct, frozen=True, kw_only=True, tag_field="hook_event_name"):
    """The input that every hook gets. `session_id` is the thread; in a sub-agent it is the one that it works for, and
    `agent_id` its own. There is no transcript in a file."""

    session_id: str
    cwd: str
    transcript_path: str | None = None
    agent_id: str | UnsetType = UNSET
    agent_type: str | UnsetType = UNSET

    @property
    def event(self) -> str:
        """The name of the event."""
        return str(self.__struct_config__.tag)

    @property
    def subjects(self) -> tuple[str, ...] | None:
        """What a matcher is compared with; None for an event that has none."""
        return None


class TurnHookInput(HookInput, frozen=True, kw_only=True):
    turn_id: str
    model: str


class SessionStart(HookInput, frozen=True, kw_only=True, tag="SessionStart"):
    """The first turn of a thread begins, in this server or after a compaction."""

    model: str
    permission_mode: PermissionMode
    source: SessionSource

    @property
    def subjects(self) -> tuple[str, ...]:
        return (self.source,)


class SessionEnd(HookInput, frozen=True, kw_only=True, tag="SessionEnd"):
    """The thread leaves the memory of the server."""

    reason: str = "other"

    @property
    def subjects(self) -> tuple[str, ...]:
        return (self.reason,)


class UserPromptSubmit(TurnHookInput, frozen=True, kw_only=True, tag="UserPromptSubmit"):
    """The model is about to get a message of the user."""

    permission_mode: PermissionMode
    prompt: str


class PreModelRequest(TurnHookInput, frozen=True, kw_only=True, tag="PreModelRequest"):
    """The model is about to be asked."""


class PostModelRequest(TurnHookInput, frozen=True, kw_only=True, tag="PostModelRequest"):
    """The model has answered, or not."""

    status: Literal["completed", "failed", "cancelled"]
    error: str | None
    token_usage: TokenUsage | None


class PermissionRequest(TurnHookInput, frozen=True, kw_only=True, tag="PermissionRequest"):
    """A question is about to be asked: whether a call may run."""

    permission_mode: PermissionMode
    tool_name: str
    tool_input: Any

    @property
    def subjects(self) -> tuple[str, ...]:
        return (self.tool_name, *_ALIASES.get(self.tool_name, ()))


class PreToolUse(PermissionRequest, frozen=True, kw_only=True, tag="PreToolUse"):
    """A call of the model is about to run. A command is the tool `Bash`, whatever it was called as."""

    tool_use_id: str


class PostToolUse(PreToolUse, frozen=True, kw_only=True, tag="PostToolUse"):
    """A call has run to its end."""

    tool_response: Any


class PreCompact(TurnHookInput, frozen=True, kw_only=True, tag="PreCompact"):
    """The history is about to be compacted."""

    trigger: Literal["manual", "auto"]

    @property
    def subjects(self) -> tuple[str, ...]:
        return (self.trigger,)


class PostCompact(PreCompact, frozen=True, kw_only=True, tag="PostCompact"):
    """The history was compacted."""


class SubagentStart(TurnHookInput, frozen=True, kw_only=True, tag="SubagentStart"):
    """A sub-agent begins."""

    permission_mode: PermissionMode

    @property
    def subjects(self) -> tuple[str, ...]:
        return (self.agent_type,) if isinstance(self.agent_type, str) else ()


class Stop(TurnHookInput, frozen=True, kw_only=True, tag="Stop"):
    """The model has nothing more to say. `stop_hook_active`: it said so before, and a hook had it go on."""

    permission_mode: PermissionMode
    stop_hook_active: bool
    last_assistant_message: str | None


class SubagentStop(Stop, frozen=True, kw_only=True, tag="SubagentStop"):
    """The same for a sub-agent."""

    agent_transcript_path: str | None = None

    @property
    def subjects(self) -> tuple[str, ...]:
        return (self.agent_type,) if isinstance(self.agent_type, str) else ()


class Interrupt(TurnHookInput, frozen=True, kw_only=True, tag="Interrupt"):
    """A turn was interrupted."""

    permission_mode: PermissionMode


# In the order in which the hooks of one file are listed.
EVENTS: Final[Mapping[str, type[HookInput]]] = {
    str(event.__struct_config__.tag): event
    for event in (
        *(PreModelRequest, PostModelRequest, PreToolUse, PermissionRequest, PostToolUse, PreCompact, PostCompact),
        *(SessionStart, SessionEnd, UserPromptSubmit, SubagentStart, SubagentStop, Stop, Interrupt),
    )
}
# Those whose hooks have no matcher.
UNMATCHED: Final = frozenset(name for name, event in EVENTS.items() if event.subjects is HookInput.subjects)
# Somebody waits for the end of a thread or of a turn: for these hooks not long.
BRIEF: Final = frozenset({"SessionEnd", "Interrupt"})


def snake_case(event: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()


def kebab_case(event: str) -> str:
    return snake_case(event).replace("_", "-")


def camel_case(event: str) -> str:
    return event[0].lower() + event[1:]
