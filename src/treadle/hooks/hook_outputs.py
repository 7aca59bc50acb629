"""What hooks say: `HookResult`, and how it is read from the exit code and the output of a command (`read_output`).

A run ends as a `HookOutcome`: what clients see of it, and its result. The rules are those of Codex: nothing printed is
nothing said; a JSON object is checked against what its event takes, and one unknown member makes it invalid; other text
is context where the event takes context; exit code 2 refuses, with the reason on standard error. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct, field, structs

from treadle.hooks.hook_events import kebab_case

RunStatus: TypeAlias = Literal["completed", "failed", "blocked", "stopped"]
EntryKind: TypeAlias = Literal["warning", "stop", "feedback", "context", "error"]


class HookResult(Struct, frozen=True, kw_only=True):
    """What a hook says; nothing is said by None. A member that the event does not take makes the run a failed one.

    Args:
        block: The reason why it must not be: a call (`PreToolUse`), a permission (`PermissionRequest`), a message
            (`UserPromptSubmit`). After a call it replaces the output for the model; of a turn that would end (`Stop`)
            it is what the model has to do before.
        allow: `PermissionRequest`: allow it without asking anybody.
        updated_input: `PreToolUse`: run the call with this in place of its `tool_input`.
        context: A text that the model gets too.
        stop: The reason why it ends here: the turn before it has begun (`SessionStart`, `UserPromptSubmit`), the
            compaction (`PreCompact`), or the turn whatever other hooks say (`Stop`).
        message: A text for people.
    """

    block: str | None = None
    allow: bool = False
    updated_input: Mapping[str, Any] | None = None
    context: str | None = None
    stop: str | None = None
    message: str | None = None


class Entry(NamedTuple):
    """A line of what a run shows."""

    kind: EntryKind
    text: str


class HookOutcome(Struct, frozen=True):
    """How a run ended. `error` says why it failed."""

    status: RunStatus = "completed"
    entries: tuple[Entry, ...] = ()
    result: HookResult = HookResult()
    error: str | None = None


# What a hook can say to an event; it can always say something to people.
TAKES: Final[Mapping[str, frozenset[str]]] = {
    "SessionStart": frozenset({"context", "stop"}),
    "UserPromptSubmit": frozenset({"block", "context", "stop"}),
    "PreToolUse": frozenset({"block", "updated_input", "context"}),
    "PermissionRequest": frozenset({"block", "allow"}),
    "PostToolUse": frozenset({"block", "context", "stop"}),
    "PreCompact": frozenset({"stop"}),
    "PostCompact": frozenset({"stop"}),
    "SubagentStart": frozenset({"context"}),
    "SubagentStop": frozenset({"block", "stop"}),
    "Stop": frozenset({"block", "stop"}),
}
_NOTHING: Final[frozenset[str]] = frozenset()
# Where a hook that fails can refuse in place of what it would have said.
REFUSING: Final = frozenset({"PreToolUse", "PermissionRequest", "UserPromptSubmit", "PostToolUse"})
# What they print is not even read.
_DEAF: Final = frozenset({"PreModelRequest", "PostModelRequest"})
_TEXT_IS_CONTEXT: Final = frozenset({"SessionStart", "UserPromptSubmit"})


def failed(error: str) -> HookOutcome:
    return HookOutcome("failed", (Entry("error", error),), error=error)


def outcome_of(event: str, result: HookResult) -> HookOutcome:
    """The outcome of a run with this result."""
    takes = TAKES.get(event, _NOTHING)
    for name in ("block", "allow", "updated_input", "context", "stop"):
        if getattr(result, name) not in (None, False) and name not in takes:
            return failed(f"{event} hook returned unsupported {name}")
    entries: list[Entry] = []
    status: RunStatus = "completed"
    if result.message is not None:
        entries.append(Entry("warning", result.message))
    if result.stop is not None:
        status = "stopped"
        entries.append(Entry("stop", result.stop))
    elif result.block is not None:
        status = "blocked"
        entries.append(Entry("feedback", result.block))
    if result.context is not None:
        entries.append(Entry("context", result.context))
    return HookOutcome(status, tuple(entries), result)


def closed(outcome: HookOutcome, hook: str) -> HookOutcome:
    """The outcome of a run that has failed, for a hook that refuses then."""
    reason = f"the hook `{hook}` failed ({outcome.error}), and refuses when it fails"
    return structs.replace(outcome, result=HookResult(block=reason))


# --- what a command printed -------------------------------------------------------------------------------------------


class _Output(Struct, forbid_unknown_fields=True, rename="camel"):
    goes_on: bool = field(name="continue", default=True)
    stop_reason: str | None = None
    suppress_output: bool = False
    system_message: str | None = None
    decision: Literal["approve", "block"] | None = None
    reason: str | None = None
    hook_specific_output: dict[str, Any] | None = None


class _Behavior(Struct, forbid_unknown_fields=True, rename="camel"):
    behavior: Literal["allow", "deny"]
    message: str | None = None
    updated_input: Any = None
    updated_permissions: Any = None
    interrupt: bool = False


class _Specific(Struct, rename="camel"):
    hook_event_name: str | None = None
    additional_context: str | None = None
    permission_decision: Literal["allow", "deny", "ask"] | None = None
    permission_decision_reason: str | None = None
    updated_input: dict[str, Any] | None = None
    updated_output: Any = field(name="updatedMCPToolOutput", default=None)
    decision: _Behavior | None = None


_SPECIFIC: Final[Mapping[str, frozenset[str]]] = {
    "SessionStart": frozenset({"additionalContext"}),
    "UserPromptSubmit": frozenset({"additionalContext"}),
    "SubagentStart": frozenset({"additionalContext"}),
    "PreToolUse": frozenset(
        {"additionalContext", "permissionDecision", "permissionDecisionReason", "updatedInput"},
    ),
    "PostToolUse": frozenset({"additionalContext", "updatedMCPToolOutput"}),
    "PermissionRequest": frozenset({"decision"}),
}
_DECIDING: Final = frozenset({"PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SubagentStop"})


class _Wrong(Exception):
    """The output cannot be used, for the reason in its text."""


def read_output(event: str, exit_code: int, stdout: bytes, stderr: bytes) -> HookOutcome:
    """The outcome of a command that has ended by itself."""
    if exit_code == 2:
        reason = stderr.decode("utf-8", "replace").strip()
        if "block" not in TAKES.get(event, _NOTHING):
            return failed(reason or "hook exited with code 2")
        if not reason:
            return failed(f"{event} hook exited with code 2 but did not write a blocking reason to stderr")
        return outcome_of(event, HookResult(block=reason))
    if exit_code != 0:
        return failed(f"hook exited with code {exit_code}")
    text = stdout.strip()
    if not text or event in _DEAF:
        return HookOutcome()
    if text[:1] not in (b"{", b"["):
        if event not in _TEXT_IS_CONTEXT:
            return HookOutcome()
        return outcome_of(event, HookResult(context=text.decode("utf-8", "replace")))
    try:
        return outcome_of(event, _read_json(event, text))
    except _Wrong as wrong:
        return failed(str(wrong))


def _read_json(event: str, text: bytes) -> HookResult:
    compact = event in ("PreCompact", "PostCompact")
    invalid = _Wrong(f"hook returned invalid {f'{event} hook' if compact else kebab_case(event)} JSON output")
    try:
        output = msgspec.json.decode(text, type=_Output)
        members = output.hook_specific_output or {}
        specific = msgspec.convert(members, _Specific)
    except (msgspec.DecodeError, RecursionError):
        raise invalid from None
    if members.keys() - _SPECIFIC.get(event, _NOTHING) - {"hookEventName"}:
        raise invalid
    if specific.hook_event_name not in (None, event):
        raise invalid
    if event not in _DECIDING and (output.decision is not None or output.reason is not None):
        raise invalid

    def unsupported(what: str) -> _Wrong:
        return _Wrong(f"{event} hook returned unsupported {what}")

    takes = TAKES.get(event, _NOTHING)
    if not output.goes_on and "stop" not in takes:
        raise unsupported("continue:false")
    if output.stop_reason is not None and "stop" not in takes:
        raise unsupported("stopReason")
    if output.suppress_output and event in ("PreToolUse", "PermissionRequest", "PostToolUse"):
        raise unsupported("suppressOutput")
    if output.decision == "approve":
        raise unsupported("decision:approve")
    if specific.updated_output is not None:
        raise unsupported("updatedMCPToolOutput")

    block, allow = None, False
    if output.decision == "block":
        block = _reason(event, "decision:block", "reason", output.reason)
    if specific.permission_decision == "ask":
        raise unsupported("permissionDecision:ask")
    if specific.permission_decision == "deny":
        block = _reason(
            event, "permissionDecision:deny", "permissionDecisionReason", specific.permission_decision_reason
        )
    if specific.updated_input is not None and specific.permission_decision != "allow":
        raise _Wrong(f"{event} hook returned updatedInput without permissionDecision:allow")
    if (behavior := specific.decision) is not None:
        for member, value in (
            ("updatedInput", behavior.updated_input),
            ("updatedPermissions", behavior.updated_permissions),
            ("interrupt", behavior.interrupt),
        ):
            if value not in (None, False):
                raise unsupported(member)
        allow = behavior.behavior == "allow"
        if not allow:
            block = behavior.message or "PermissionRequest hook denied approval"
    return HookResult(
        block=block,
        allow=allow,
        updated_input=specific.updated_input,
        context=specific.additional_context or None,
        stop=None if output.goes_on else output.stop_reason or f"{event} hook stopped execution",
        message=output.system_message,
    )


def _reason(event: str, said: str, member: str, reason: str | None) -> str:
    if reason is None or not reason.strip():
        raise _Wrong(f"{event} hook returned {said} without a non-empty {member}")
    return reason.strip()
