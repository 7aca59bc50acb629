"""Drive agent programs headless, all in the same way: start or resume, watch, cancel, queue.

from treadle.runners import CodexRunner

async for event in CodexRunner().run("explain what this project does"):
    print(event)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.errors import load_name
from treadle.internal_names import internal_name

if TYPE_CHECKING:
    from treadle.execution.worktrees import Worktree, WorktreeError, Worktrees
    from treadle.runners.claude import ClaudeRunner
    from treadle.runners.codex import CodexRunner
    from treadle.runners.engine import (
        ApprovalAnswer,
        ApprovalAsk,
        CloseInput,
        Ending,
        Engine,
        GiveUp,
        McpCommand,
        Reply,
        ResumeLine,
        RunChoices,
        RunOptions,
        RunRequest,
        Timeouts,
        UnknownEngine,
        Waits,
        Withdrawn,
    )
    from treadle.runners.engine_registry import engine_names, find_engine, make_runner
    from treadle.runners.logins import LoginStatus, look_for_login
    from treadle.runners.message_router import EngineEntry, Route, RouteError, Router
    from treadle.runners.native import TreadleRunner
    from treadle.runners.opencode import OpenCodeRunner
    from treadle.runners.pi import PiRunner
    from treadle.runners.progress import Progress, Snapshot, Step
    from treadle.runners.projects import Project, ProjectError, Projects
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
    from treadle.runners.scheduling.cron import Cron
    from treadle.runners.scheduling.job_journal import JournalError, JournalInUse
    from treadle.runners.scheduling.jobs import Job, JobHandle
    from treadle.runners.scheduling.queues import Limits, QueueFull
    from treadle.runners.scheduling.repeats import Rate, Repeat
    from treadle.runners.scheduling.scheduler import Interrupted, Recovery, Scheduler, SchedulerStats
    from treadle.runners.status import EngineStatus, engine_statuses

# Loaded when first used: a program that drives one engine does not pay for the others.
_NAMES = {
    "claude": "ClaudeRunner",
    "codex": "CodexRunner",
    "engine": (
        "ApprovalAnswer ApprovalAsk CloseInput Ending Engine GiveUp McpCommand Reply ResumeLine RunChoices "
        "RunOptions RunRequest Timeouts UnknownEngine Waits Withdrawn"
    ),
    "engine_registry": "engine_names find_engine make_runner",
    "logins": "LoginStatus look_for_login",
    "message_router": "EngineEntry Route RouteError Router",
    "native": "TreadleRunner",
    "opencode": "OpenCodeRunner",
    "pi": "PiRunner",
    "progress": "Progress Snapshot Step",
    "projects": "Project ProjectError Projects",
    "run_events": "Action ActionEvent CompletedEvent Event ResumeToken StartedEvent TextDelta",
    "runner": "Run Runner",
    "scheduling.cron": "Cron",
    "scheduling.job_journal": "JournalError JournalInUse",
    "scheduling.jobs": "Job JobHandle",
    "scheduling.queues": "Limits QueueFull",
    "scheduling.repeats": "Rate Repeat",
    "scheduling.scheduler": "Interrupted Recovery Scheduler SchedulerStats",
    "status": "EngineStatus engine_statuses",
    "treadle.execution.worktrees": "Worktree WorktreeError Worktrees",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Action",
    "ActionEvent",
    "ApprovalAnswer",
    "ApprovalAsk",
    "ClaudeRunner",
    "CloseInput",
    "CodexRunner",
    "CompletedEvent",
    "Cron",
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
    "LoginStatus",
    "McpCommand",
    "OpenCodeRunner",
    "PiRunner",
    "Progress",
    "Project",
    "ProjectError",
    "Projects",
    "QueueFull",
    "Rate",
    "Recovery",
    "Repeat",
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
    "look_for_login",
    "make_runner",
]


def __getattr__(name: str) -> object:
    if name in _HOME:
        module = _HOME[name]
        return load_name(module if module.startswith("treadle.") else f"treadle.runners.{module}", name)
    return internal_name(__name__, name)


def __dir__() -> list[str]:
    return sorted(__all__)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.runners.claude import MAX_OPEN
    from treadle.runners.codex import find_exec_only_flag
    from treadle.runners.engine import Output, login_status
    from treadle.runners.engine_items import EngineItem, EngineItems
    from treadle.runners.engine_process import DEFAULTS, shared_supervisor
    from treadle.runners.engine_registry import BUILT_IN
    from treadle.runners.engine_reports import read_object
    from treadle.runners.opencode import MAX_CIRCLES
    from treadle.runners.output_reader import OutputReader
    from treadle.runners.pi import MAX_RUNNING, PiState
    from treadle.runners.progress import KEEP_RUNNING, KEEP_TEXT, elapsed, one_line
    from treadle.runners.run_events import ActionKind, Phase
    from treadle.runners.scheduling.job_journal import COMPACT_BYTES, JobDone, JobJournal, JobQueued, JobRunning
    from treadle.runners.scheduling.job_journal import JobSession, JournalFile, JournalLine, Ledger, UnfinishedJob
    from treadle.runners.scheduling.job_journal import decode, encode, journal_path
    from treadle.runners.scheduling.jobs import LOG_BYTES
    from treadle.runners.scheduling.queues import SessionQueues
    from treadle.runners.scheduling.scheduler import Policy, plan_recovery
    from treadle.runners.session_lock import SessionLock, SessionState, check_locks, process_start_time
    from treadle.runners.session_lock import remove_old_records
    from treadle.runners.status import LastError, LastErrors, MAX_ERROR, is_older, read_version
