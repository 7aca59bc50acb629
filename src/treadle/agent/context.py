"""What the model is told before the conversation: who it is, what it may do, where it is, what the project says.

All of it goes as developer messages, so that the user's role carries only what the user said, as a goal is. It is that
of the settings as they are when a turn begins, and is not part of the history.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from treadle.agent.aside import Aside
from treadle.agent.state import Settings
from treadle.agent.summary import user_message
from treadle.agent.thread import Thread
from treadle.agent.thread_goal import is_pursued
from treadle.agent.tools.toolbox import specifications
from treadle.agent.turn import Turn, developer_message
from treadle.config import (
    BASE_INSTRUCTIONS,
    Config,
    ConfigError,
    InstructionFile,
    environment_text,
    find_instructions,
    goal_text,
    instructions_text,
    permissions_text,
)
from treadle.execution.bounded_reads import read_in_thread
from treadle.execution.file_snapshot import FileSnapshot
from treadle.protocol.app.threads import ThreadGoal
from treadle.tools.command.command_shell import default_shell


class Context(NamedTuple):
    """The fixed beginning of every request of a turn, and its tools."""

    messages: list[Raw]
    tools: tuple[Raw, ...]


class _Basis(NamedTuple):
    """What the cached part of a context is made from. All of it is replaced, never changed."""

    base: str
    settings: Settings
    config: Config
    goal: ThreadGoal | None
    date: str

    def is_same(self, other: _Basis) -> bool:
        # By identity first: settings and configuration are long to compare.
        return all(one is two or one == two for one, two in zip(self, other, strict=True))


class CachedContext(NamedTuple):
    """What of it follows from the settings, before and after what the project says; kept while they are the same."""

    basis: _Basis
    before: list[Raw]
    after: list[Raw]
    tools: tuple[Raw, ...]


class KnownFiles:
    """Instructions, and how their files looked when they were read."""

    def __init__(self, files: list[InstructionFile], snapshot: FileSnapshot) -> None:
        self.files = files
        self._snapshot = snapshot
        self._seen_by: asyncio.AbstractEventLoop | None = None  # in its present step

    def are_current(self) -> bool:
        """Turns that begin in one step of a loop look once: a system call is dear while other threads are busy."""
        loop = asyncio.get_running_loop()
        if self._seen_by is loop:
            return True
        if not self._snapshot.is_current():
            return False
        self._seen_by = loop
        loop.call_soon(self._end_step)
        return True

    def _end_step(self) -> None:
        self._seen_by = None


# By what decides them. A set of them has at most `project_doc_max_bytes`, 32 KiB unless somebody wants more.
_known_files: Final[dict[tuple[object, ...], KnownFiles]] = {}
MAX_KNOWN_FILES: Final = 64


async def build_context(turn: Turn) -> Context:
    config = turn.thread.services.config_for(turn.thread.settings)
    files = await _instructions_of(turn, config)
    cached = _cached(turn.thread, config, await _base(turn.thread.settings, config))
    project = [developer_message(instructions_text(file.path, file.text)) for file in files]
    return Context([*cached.before, *project, *cached.after], cached.tools)


async def aside_context(turn: Turn, aside: Aside, base: str) -> Context:
    """The same for an aside, which has other instructions than the thread."""
    thread, settings = turn.thread, turn.settings
    config = thread.services.config_for(settings)
    files = await _instructions_of(turn, config)
    texts = [
        base,
        permissions_text(settings.approval_policy, settings.confinement, settings.cwd),
        *(instructions_text(file.path, file.text) for file in files),
        _environment(settings, time.strftime("%Y-%m-%d")),
    ]
    return Context(_messages(texts), specifications(thread, aside))


def _environment(settings: Settings, date: str) -> str:
    return environment_text(settings.cwd, shell=default_shell().rpartition("/")[2], date=date)


def _cached(thread: Thread, config: Config, base: str) -> CachedContext:
    settings = thread.settings
    basis = _Basis(base, settings, config, thread.state.goal, time.strftime("%Y-%m-%d"))
    known = thread.cached_context
    if known is None or not known.basis.is_same(basis):
        known = thread.cached_context = _make_cached(thread, basis)
    return known


def _make_cached(thread: Thread, basis: _Basis) -> CachedContext:
    base, settings, config, goal, date = basis
    before = [
        base,
        settings.developer_instructions or config.developer_instructions or "",
        permissions_text(settings.approval_policy, settings.confinement, settings.cwd),
        _mode_text(settings),
    ]
    after = _messages([_environment(settings, date)])
    if goal is not None and is_pursued(thread):
        text = goal_text(goal.objective, token_budget=goal.token_budget, tokens_used=goal.tokens_used)
        after.append(Raw(msgspec.json.encode(user_message(text))))
    return CachedContext(basis, _messages(before), after, specifications(thread))


def _mode_text(settings: Settings) -> str:
    told = settings.instructions_of_mode
    return f"<collaboration_mode>\n{told}\n</collaboration_mode>" if told else ""


def _messages(texts: list[str]) -> list[Raw]:
    return [developer_message(text) for text in texts if text]


async def _base(settings: Settings, config: Config) -> str:
    if settings.base_instructions is not None:
        return settings.base_instructions
    if config.model_instructions_file is None:
        return BASE_INSTRUCTIONS if config.instructions is None else config.instructions
    try:
        # For every turn: it may have changed.
        return await read_in_thread(config.base_instructions) or ""
    except TimeoutError:
        problem = f"the file system of `{config.model_instructions_file}` (model_instructions_file) does not answer"
        raise ConfigError(f"{problem}; correct the path") from None


async def _instructions_of(turn: Turn, config: Config) -> list[InstructionFile]:
    thread, cwd = turn.thread, turn.thread.settings.cwd
    found = await project_instructions(cwd, config)
    if found is None:
        thread.warn_once(turn, f"AGENTS.md was not looked for: the file system of {cwd} does not answer")
    return found or []


async def project_instructions(cwd: str, config: Config) -> list[InstructionFile] | None:
    """The AGENTS.md files that apply in `cwd`; None when its file system does not answer."""
    known = known_instructions(cwd, config)
    if known is not None:
        return known
    try:
        return await read_in_thread(lambda: read_instructions(cwd, config))
    except TimeoutError:
        return None


def known_instructions(cwd: str, config: Config) -> list[InstructionFile] | None:
    """Those that were read before, when nothing has changed; None when somebody has to look. To change threads and back
    takes ten times as long as to see that."""
    known = _known_files.get(_place(cwd, config))
    return known.files if known is not None and known.are_current() else None


def read_instructions(cwd: str, config: Config) -> list[InstructionFile]:
    """Those that apply in `cwd` now; they are known from then on. Blocking."""
    snapshot = FileSnapshot(cwd) if config.home is None else FileSnapshot(cwd, str(config.home))
    files = find_instructions(
        cwd,
        config.home,
        max_bytes=config.project_doc_max_bytes,
        fallback_names=config.project_doc_fallback_filenames,
        snapshot=snapshot,
    )
    if len(_known_files) >= MAX_KNOWN_FILES:
        _known_files.clear()
    _known_files[_place(cwd, config)] = KnownFiles(files, snapshot)
    return files


def _place(cwd: str, config: Config) -> tuple[object, ...]:
    """All that decides which files apply."""
    return cwd, config.home, config.project_doc_max_bytes, config.project_doc_fallback_filenames
