"""Hooks: programs and functions that are called when something happens in a thread, and may refuse or change it.

from treadle import Codex
from treadle.hooks import HookResult, PreToolUse

def careful(call: PreToolUse) -> HookResult | None:
    return HookResult(block="not here") if "rm" in call.tool_input.get("command", "") else None

codex = Codex(hooks={"PreToolUse": careful})

`hook_events` has the input of hooks, `hook_outputs` their output, `hook_settings` reads and trusts those of files,
`hook_files` finds them, and `hook_runner` runs one. When they are called, and what follows from what they say, is
`treadle.agent.thread.thread_hooks`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from treadle.internal_names import internal_name

if TYPE_CHECKING:
    from treadle.hooks.hook_events import (
        HookInput,
        Interrupt,
        PermissionRequest,
        PostCompact,
        PostModelRequest,
        PostToolUse,
        PreCompact,
        PreModelRequest,
        PreToolUse,
        SessionEnd,
        SessionStart,
        Stop,
        SubagentStart,
        SubagentStop,
        UserPromptSubmit,
    )
    from treadle.hooks.hook_outputs import HookResult
    from treadle.hooks.python_hooks import PythonHook

_HOME = {"HookResult": "hook_outputs", "PythonHook": "python_hooks"}

__all__ = [
    "HookInput",
    "HookResult",
    "Interrupt",
    "PermissionRequest",
    "PostCompact",
    "PostModelRequest",
    "PostToolUse",
    "PreCompact",
    "PreModelRequest",
    "PreToolUse",
    "PythonHook",
    "SessionEnd",
    "SessionStart",
    "Stop",
    "SubagentStart",
    "SubagentStop",
    "UserPromptSubmit",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        return internal_name(__name__, name)
    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'hook_events')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.hooks.hook_events import EVENTS, snake_case
    from treadle.hooks.hook_files import HookPlace, HookSet, read_hook_files, with_settings
    from treadle.hooks.hook_outputs import HookOutcome, REFUSING, TAKES, closed, failed, outcome_of, read_output
    from treadle.hooks.hook_runner import run_hook
    from treadle.hooks.hook_settings import Hook, HookFile, STATE, read_hooks, trust_warnings, with_trust
    from treadle.hooks.python_hooks import read_python_hooks
