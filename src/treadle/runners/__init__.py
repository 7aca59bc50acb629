"""Drive agent programs headless, all in the same way: start or resume, watch, cancel, queue.

from treadle.runners import CodexRunner

async for event in CodexRunner().run("explain what this project does"):
    print(event)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.runners.claude import ClaudeRunner
    from treadle.runners.codex import CodexRunner
    from treadle.runners.engine import (
        ApprovalAnswer,
        ApprovalAsk,
        CloseInput,
        Ending,
        Engine,
        GiveUp,
        Reply,
        RunChoices,
        RunOptions,
        RunRequest,
        Timeouts,
        Waits,
        Withdrawn,
    )
    from treadle.runners.engine_registry import UnknownEngine, engine_names, find_engine, make_runner
    from treadle.runners.message_router import EngineEntry, Route, RouteError, Router
    from treadle.runners.native import TreadleRunner
    from treadle.runners.opencode import OpenCodeRunner
    from treadle.runners.pi import PiRunner
    from treadle.runners.progress import Progress, Snapshot, Step
    from treadle.runners.projects.checkouts import Worktree, WorktreeError
    from treadle.runners.projects.projects import Project, ProjectError, Projects
    from treadle.runners.projects.worktrees import Worktrees
    from treadle.runners.resume import ResumeLine
    from treadle.runners.run_events import (
        Action,
        ActionEvent,
        CompletedEvent,
        Event,
        ResumeToken,
        StartedEvent,
        TextDelta,
    )
    from treadle.runners.runner import Run, Runner
    from treadle.runners.scheduling.job_journal import JournalError, JournalInUse
    from treadle.runners.scheduling.jobs import Job, JobHandle
    from treadle.runners.scheduling.queues import Limits, QueueFull
    from treadle.runners.scheduling.recovery import Interrupted, Recovery
    from treadle.runners.scheduling.scheduler import Scheduler, SchedulerStats
    from treadle.runners.status import EngineStatus, engine_statuses

# Loaded when first used: a program that drives one engine does not pay for the others.
_HOME = {
    "Action": "run_events",
    "ActionEvent": "run_events",
    "ApprovalAnswer": "engine",
    "ApprovalAsk": "engine",
    "ClaudeRunner": "claude",
    "CloseInput": "engine",
    "CodexRunner": "codex",
    "CompletedEvent": "run_events",
    "Ending": "engine",
    "Engine": "engine",
    "EngineEntry": "message_router",
    "EngineStatus": "status",
    "Event": "run_events",
    "GiveUp": "engine",
    "Interrupted": "scheduling.recovery",
    "Job": "scheduling.jobs",
    "JobHandle": "scheduling.jobs",
    "JournalError": "scheduling.job_journal",
    "JournalInUse": "scheduling.job_journal",
    "Limits": "scheduling.queues",
    "OpenCodeRunner": "opencode",
    "PiRunner": "pi",
    "Progress": "progress",
    "Project": "projects.projects",
    "ProjectError": "projects.projects",
    "Projects": "projects.projects",
    "QueueFull": "scheduling.queues",
    "Recovery": "scheduling.recovery",
    "Reply": "engine",
    "ResumeLine": "resume",
    "ResumeToken": "run_events",
    "Route": "message_router",
    "RouteError": "message_router",
    "Router": "message_router",
    "Run": "runner",
    "RunChoices": "engine",
    "RunOptions": "engine",
    "RunRequest": "engine",
    "Runner": "runner",
    "Scheduler": "scheduling.scheduler",
    "SchedulerStats": "scheduling.scheduler",
    "Snapshot": "progress",
    "StartedEvent": "run_events",
    "Step": "progress",
    "TextDelta": "run_events",
    "Timeouts": "engine",
    "TreadleRunner": "native",
    "UnknownEngine": "engine_registry",
    "Waits": "engine",
    "Withdrawn": "engine",
    "Worktree": "projects.checkouts",
    "WorktreeError": "projects.checkouts",
    "Worktrees": "projects.worktrees",
    "engine_names": "engine_registry",
    "engine_statuses": "status",
    "find_engine": "engine_registry",
    "make_runner": "engine_registry",
}

__all__ = [
    "Action",
    "ActionEvent",
    "ApprovalAnswer",
    "ApprovalAsk",
    "ClaudeRunner",
    "CloseInput",
    "CodexRunner",
    "CompletedEvent",
    "Ending",
    "Engine",
    "EngineEntry",
    "EngineStatus",
    "Event",
    "GiveUp",
    "Interrupted",
    "Job",
    "JobHandle",
    "JournalError",
    "JournalInUse",
    "Limits",
    "OpenCodeRunner",
    "PiRunner",
    "Progress",
    "Project",
    "ProjectError",
    "Projects",
    "QueueFull",
    "Recovery",
    "Reply",
    "ResumeLine",
    "ResumeToken",
    "Route",
    "RouteError",
    "Router",
    "Run",
    "RunChoices",
    "RunOptions",
    "RunRequest",
    "Runner",
    "Scheduler",
    "SchedulerStats",
    "Snapshot",
    "StartedEvent",
    "Step",
    "TextDelta",
    "Timeouts",
    "TreadleRunner",
    "UnknownEngine",
    "Waits",
    "Withdrawn",
    "Worktree",
    "WorktreeError",
    "Worktrees",
    "engine_names",
    "engine_statuses",
    "find_engine",
    "make_runner",
]


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(f"treadle.runners.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
