"""What the model gets before the conversation: who it is, what it may do, where it is, what the project says.

All of it goes as developer messages, so that the user's role carries only what the user said, as a goal is. It is that
of the settings as they are when a turn begins, and is not part of the history.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw

from treadle.agent.thread.model_history import user_message
from treadle.agent.thread.thread import Thread
from treadle.agent.thread.thread_state import Settings
from treadle.agent.tools.agent_tools import offered_spec
from treadle.agent.tools.toolbox import specifications
from treadle.agent.turn.turn import SideConversation, Turn, developer_message
from treadle.config import (
    BASE_INSTRUCTIONS,
    PERSONALITIES,
    Config,
    ConfigError,
    InstructionFile,
    environment_text,
    find_instructions,
    goal_text,
    instructions_text,
    permissions_text,
)
from treadle.execution.bounded_reads import FileSnapshot, KnownReads, read_in_thread
from treadle.execution.project_files import ProjectFiles
from treadle.protocol.app.threads import ThreadGoal
from treadle.skills.skill_files import SkillSet, known_skills, look_for_skills
from treadle.tools.command.command_shell import default_shell

if TYPE_CHECKING:
    from treadle.agent.thread.thread import Thread
    from treadle.agent.thread.thread_state import Settings


class Context(NamedTuple):
    """The fixed beginning of every request of a turn, its tools, and what stands after the history."""

    messages: list[Raw]
    tools: tuple[Raw, ...]
    last: Sequence[Raw] = ()


class _Basis(NamedTuple):
    """What the cached part of a context is made from. All of it is replaced, never changed."""

    base: str
    settings: Settings
    config: Config
    goal: ThreadGoal | None
    date: str
    skills: SkillSet
    agents: Raw | None

    def is_same(self, other: _Basis) -> bool:
        # By identity first: settings and configuration are long to compare.
        return all(one is two or one == two for one, two in zip(self, other, strict=True))


class CachedContext(NamedTuple):
    """The part of a context that follows from the settings, before and after what the project says."""

    basis: _Basis
    before: list[Raw]
    after: list[Raw]
    tools: tuple[Raw, ...]
    warning: str | None


class Instructions(NamedTuple):
    """The instructions that apply in a directory, and why others that are there do not."""

    files: list[InstructionFile]
    warnings: list[str]


# By what decides them. A set of them has at most `project_doc_max_bytes`, 32 KiB unless somebody wants more.
_known: Final[KnownReads[tuple[object, ...], Instructions]] = KnownReads()
_cached_contexts: Final[WeakKeyDictionary[Thread, CachedContext]] = WeakKeyDictionary()


async def build_context(turn: Turn) -> Context:
    thread, settings = turn.thread, turn.thread.settings
    config = thread.services.config_for(settings)
    files = await _instructions_of(turn, settings, config) if settings.has_environment else []
    skills = SkillSet()
    if settings.has_environment and config.skills.include_instructions:
        place = settings.skill_place(config, thread.services.skill_roots)
        try:
            skills = await known_skills.find(place, lambda: look_for_skills(place)[0])
        except TimeoutError:
            thread.warn_once(turn, f"skills were not looked for: the file system of {place.cwd} does not answer")
    agents = await offered_spec(turn, settings, config)
    base, date = await _base(settings, config), time.strftime("%Y-%m-%d")
    basis = _Basis(base, settings, config, thread.state.goal, date, skills, agents)
    cached = _cached_contexts.get(thread)
    if cached is None or not cached.basis.is_same(basis):
        cached = _cached_contexts[thread] = _make_cached(thread, basis)
    if cached.warning is not None:
        thread.warn_once(turn, cached.warning)
    project = [developer_message(instructions_text(file.path, file.text)) for file in files]
    return Context([*cached.before, *project, *cached.after], cached.tools)


async def side_context(turn: Turn, side: SideConversation, base: str) -> Context:
    """The same for a side conversation, which has other instructions than the thread."""
    thread, settings = turn.thread, turn.settings
    config = thread.services.config_for(settings)
    files = await _instructions_of(turn, thread.settings, config)
    texts = [
        base,
        permissions_text(settings.approval_policy, settings.in_force, settings.cwd),
        *(instructions_text(file.path, file.text) for file in files),
        _environment(settings, time.strftime("%Y-%m-%d")),
    ]
    return Context(_messages(texts), specifications(thread, side))


def _make_cached(thread: Thread, basis: _Basis) -> CachedContext:
    base, settings, config, goal, date, skills, agents = basis
    mode, personality = settings.instructions_of_mode, PERSONALITIES.get(settings.personality or "")
    # Without an environment there is nothing to run, to write or to look at: the model reads of no such thing.
    there = settings.has_environment
    listed, warning = "", None
    if skills.skills:
        from treadle.agent.turn.turn_skills import listed_skills  # only where there are some

        listed, warning = listed_skills(thread, skills, config.skills)
    before = [
        base,
        settings.developer_instructions or config.developer_instructions or "",
        listed,
        permissions_text(settings.approval_policy, settings.in_force, settings.cwd) if there else "",
        f"<collaboration_mode>\n{mode}\n</collaboration_mode>" if mode else "",
        f"<personality>\n{personality}\n</personality>" if personality else "",
    ]
    after = _messages([_environment(settings, date)]) if there else []
    if goal is not None and thread.goal.is_pursued:
        text = goal_text(goal.objective, token_budget=goal.token_budget, tokens_used=goal.tokens_used)
        after.append(Raw(msgspec.json.encode(user_message(text))))
    tools = specifications(thread)
    return CachedContext(basis, _messages(before), after, tools if agents is None else (*tools, agents), warning)


def _environment(settings: Settings, date: str) -> str:
    return environment_text(settings.cwd, shell=default_shell().rpartition("/")[2], date=date)


def _messages(texts: list[str]) -> list[Raw]:
    return [developer_message(text) for text in texts if text]


async def _base(settings: Settings, config: Config) -> str:
    """The instructions that say who the model is."""
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


async def _instructions_of(turn: Turn, settings: Settings, config: Config) -> list[InstructionFile]:
    found = await project_instructions(settings, config)
    for warning in found.warnings:
        turn.thread.warn_once(turn, warning)
    return found.files


async def project_instructions(settings: Settings, config: Config) -> Instructions:
    """The AGENTS.md files that apply in the working directory."""
    try:
        return await _known.find(_place(settings, config), lambda: read_instructions(settings, config))
    except TimeoutError:
        problem = f"AGENTS.md was not looked for: the file system of {settings.cwd} does not answer"
        return Instructions([], [problem])


def known_instructions(settings: Settings, config: Config) -> Instructions | None:
    """The instructions that were read before, when nothing has changed; None when somebody has to look."""
    return _known.current(_place(settings, config))


def read_instructions(settings: Settings, config: Config) -> Instructions:
    """The instructions that apply now; they are cached from then on. Blocking."""
    home = str(config.home)
    snapshot = FileSnapshot(settings.cwd, home)
    project = ProjectFiles(settings.cwd, home, settings.confinement, snapshot)
    files = find_instructions(
        project,
        max_bytes=config.project_doc_max_bytes,
        fallback_names=config.project_doc_fallback_filenames,
    )
    return _known.store(_place(settings, config), Instructions(files, project.warnings), snapshot)


def _place(settings: Settings, config: Config) -> tuple[object, ...]:
    """All that decides which files apply; the sandbox and its roots decide the confinement."""
    return (
        settings.cwd,
        settings.sandbox,
        settings.workspace_roots,
        config.home,
        config.project_doc_max_bytes,
        config.project_doc_fallback_filenames,
    )
