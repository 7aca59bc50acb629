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

from treadle.agent.services import Services
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
    environments_text,
    find_instructions,
    goal_text,
    instructions_text,
    permissions_text,
)
from treadle.errors import ExecError
from treadle.execution.bounded_reads import FileSnapshot, KnownReads, read_in_thread
from treadle.execution.project_files import ProjectFiles
from treadle.protocol.app.threads import ThreadGoal
from treadle.skills.skill_files import SkillSet, known_skills, look_for_skills
from treadle.tools.command.command_shell import default_shell

if TYPE_CHECKING:
    from treadle.agent.thread.remote_project import ProjectFacts


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
    where: str
    """The date, and for a thread that works elsewhere all that is said of that."""
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
# What is known in a turn of projects on other machines, and until when it counts; by environment.
_facts_of_turns: Final[WeakKeyDictionary[Turn, dict[str, tuple[float, Settings, ProjectFacts]]]] = WeakKeyDictionary()
FRESH_S: Final = 1.0
_cached_contexts: Final[WeakKeyDictionary[Thread, CachedContext]] = WeakKeyDictionary()


async def build_context(turn: Turn) -> Context:
    thread, settings = turn.thread, turn.thread.settings
    config = thread.services.config_for(settings)
    files, skills = await _project_of(turn, settings, config)
    agents = await offered_spec(turn, settings, config)
    base, date = await _base(settings, config), time.strftime("%Y-%m-%d")
    where = date if settings.has_environment and not settings.others else await _environments(thread, settings, date)
    basis = _Basis(base, settings, config, thread.state.goal, where, skills, agents)
    cached = _cached_contexts.get(thread)
    if cached is None or not cached.basis.is_same(basis):
        cached = _cached_contexts[thread] = _make_cached(thread, basis)
    if cached.warning is not None:
        thread.warn_once(turn, cached.warning)
    project = [developer_message(instructions_text(file.path, file.text)) for file in files]
    return Context([*cached.before, *project, *cached.after], cached.tools)


async def _project_of(turn: Turn, settings: Settings, config: Config) -> tuple[list[InstructionFile], SkillSet]:
    """The instructions that apply where the thread works, and the skills."""
    thread, skills = turn.thread, SkillSet()
    if settings.remote is not None:
        found = await _facts_elsewhere(turn, settings, config)
        for warning in found.warnings:
            thread.warn_once(turn, warning)
        files, skills = list(found.instructions), found.skills
    elif settings.has_environment:
        files = await _instructions_of(turn, settings, config)
        if config.skills.include_instructions:
            looked_for = settings.skill_place(config, thread.services.skill_roots)
            try:
                skills = await known_skills.find(looked_for, lambda: look_for_skills(looked_for)[0])
            except TimeoutError:
                problem = f"skills were not looked for: the file system of {settings.cwd} does not answer"
                thread.warn_once(turn, problem)
    else:
        files = []
    for place in settings.others:
        known = {file.path for file in files if place.is_local}  # the home's own are in both
        for file in await _instructions_of(turn, settings.at(place), config):
            if file.path not in known:
                files.append(InstructionFile(f"{place.environment}:{file.path}", file.text))
    return files, skills


async def side_context(turn: Turn, side: SideConversation, base: str) -> Context:
    """The same for a side conversation, which has other instructions than the thread."""
    thread, settings = turn.thread, turn.settings
    config = thread.services.config_for(settings)
    files, _ = await _project_of(turn, thread.settings, config)
    texts = [
        base,
        permissions_text(settings.approval_policy, settings.in_force, settings.cwd),
        *(instructions_text(file.path, file.text) for file in files),
        await _environments(thread, settings, time.strftime("%Y-%m-%d")),
    ]
    return Context(_messages(texts), specifications(thread, side))


def _make_cached(thread: Thread, basis: _Basis) -> CachedContext:
    base, settings, config, goal, where, skills, agents = basis
    mode, personality = settings.instructions_of_mode, PERSONALITIES.get(settings.personality or "")
    # Without an environment there is nothing to run, to write or to look at: the model reads of no such thing.
    there = settings.environment is not None
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
    local = settings.is_local and not settings.others
    after = _messages([_here(settings, where) if local else where])
    if goal is not None and thread.goal.is_pursued:
        text = goal_text(goal.objective, token_budget=goal.token_budget, tokens_used=goal.tokens_used)
        after.append(Raw(msgspec.json.encode(user_message(text))))
    tools = specifications(thread)
    return CachedContext(basis, _messages(before), after, tools if agents is None else (*tools, agents), warning)


def _here(settings: Settings, date: str) -> str:
    return environment_text(settings.cwd, shell=_name(default_shell()), date=date)


async def _environments(thread: Thread, settings: Settings, date: str) -> str:
    """Where the model is. A machine that cannot be reached is named, too: it may come back."""
    if settings.is_local and not settings.others:
        return _here(settings, date)
    if settings.environment is None:
        return ""
    places: list[tuple[str, str, str | None]] = []
    for place in settings.workplaces:
        shell: str | None = default_shell()
        if not place.is_local:
            try:
                shell = await thread.services.machine(place.environment).shell()
            except ExecError:
                shell = None
        places.append((place.environment, place.cwd, None if shell is None else _name(shell)))
    if len(places) == 1:
        _, cwd, shell = places[0]
        return environment_text(cwd, shell=shell or "none: the machine cannot be reached now", date=date)
    return environments_text(places, date=date)


def _name(shell: str) -> str:
    return shell.rpartition("/")[2]


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
    if settings.remote is not None:
        facts = await _facts_elsewhere(turn, settings, config)
        found = Instructions(facts.instructions, facts.warnings)
    else:
        found = await project_instructions(turn.thread.services, settings, config)
    for warning in found.warnings:
        turn.thread.warn_once(turn, warning)
    return found.files


async def _facts_elsewhere(turn: Turn, settings: Settings, config: Config) -> ProjectFacts:
    """Where nobody can see at once whether anything has changed, a turn that goes on does not look each time."""
    from treadle.agent.thread.remote_project import remote_facts  # few threads are elsewhere

    assert settings.remote is not None
    known = _facts_of_turns.setdefault(turn, {})
    until, place, facts = known.get(settings.remote, (0.0, None, None))
    if facts is None or place != settings or time.monotonic() >= until:
        facts = await remote_facts(turn.thread.services, settings, config)
        known[settings.remote] = time.monotonic() + FRESH_S, settings, facts
    return facts


async def project_instructions(services: Services, settings: Settings, config: Config) -> Instructions:
    """The AGENTS.md files that apply in the working directory."""
    if settings.remote is not None:
        from treadle.agent.thread.remote_project import remote_facts  # few threads are elsewhere

        facts = await remote_facts(services, settings, config)
        return Instructions(facts.instructions, facts.warnings)
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
