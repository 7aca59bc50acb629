"""What a project on another machine says: instructions, skills, where its repository stands.

Owns what of it counts: hooks, agent roles and MCP servers of such a project do not, because they would act on this
machine. The user's own instructions and skills are those of this machine, and stay so; only that the model cannot open
the files of such a skill there, so it is offered none of them, and gets one when the user names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from treadle.agent.services import Services
from treadle.agent.thread.thread_state import Settings
from treadle.config import Config, InstructionFile, find_instructions
from treadle.errors import ExecError
from treadle.execution.bounded_reads import READ_S, read_in_thread
from treadle.execution.project_files import read_git_info
from treadle.execution.remote_machine import Question, RemoteProject
from treadle.protocol.app.threads import GitInfo
from treadle.skills.skill_files import SkillSet, find_remote_skills, known_skills, look_for_skills

T = TypeVar("T")


class ProjectFacts(NamedTuple):
    instructions: list[InstructionFile]
    skills: SkillSet
    warnings: list[str]


async def read_remote(
    services: Services, settings: Settings, function: Callable[[RemoteProject], T], *about: object
) -> T:
    """Have a function read the project, in a thread, unless it would be told what it was told before. `about` is what
    it goes by beside the project. Raises `ExecError` when the machine does not answer."""
    where = settings.cwd, settings.confinement, settings.remote_roots.get(settings.cwd)
    question = (function.__name__, *where, *about)
    assert settings.remote is not None
    try:
        try:
            return await _ask(await remote_project(services, settings), question, function)
        except ExecError:
            machine = services.machine(settings.remote)  # raises that again for one that nobody knows
            if machine.connected is not None:
                raise
            # The connection was lost for good meanwhile, as it is when an executor is started anew.
            return await _ask(await remote_project(services, settings), question, function)
    except TimeoutError:
        raise _silent(settings) from None


async def _ask(project: RemoteProject, question: Question, function: Callable[[RemoteProject], T]) -> T:
    async with asyncio.timeout(READ_S):
        known = await project.look_again(question)
    if known is not None:
        value: T = known.value
        return value
    found = await read_in_thread(lambda: function(project), readers=project.readers)
    project.note_answer(question, found)
    return found


async def remote_project(services: Services, settings: Settings) -> RemoteProject:
    """The project of a thread. Raises `ExecError` when its machine does not answer."""
    assert settings.remote is not None
    machine = services.machine(settings.remote)
    try:
        async with asyncio.timeout(READ_S):
            return await machine.project(settings.cwd, services.home, settings.confinement, settings.remote_roots)
    except TimeoutError:
        raise _silent(settings) from None


def _silent(settings: Settings) -> ExecError:
    return ExecError(f"the machine `{settings.remote}` does not answer")


async def remote_facts(services: Services, settings: Settings, config: Config) -> ProjectFacts:
    """The instructions and skills of a thread. What cannot be read is a warning."""

    def read_facts(project: RemoteProject) -> ProjectFacts:
        files = find_instructions(
            project, max_bytes=config.project_doc_max_bytes, fallback_names=config.project_doc_fallback_filenames
        )
        skills = find_remote_skills(project, config.skills) if config.skills.include_instructions else SkillSet()
        return ProjectFacts(files, skills, project.warnings)

    try:
        about = config.project_doc_max_bytes, config.project_doc_fallback_filenames, config.skills
        found = await read_remote(services, settings, read_facts, *about)
    except ExecError as error:
        problem = f"AGENTS.md and skills were not looked for: {error.message}"
        return ProjectFacts([], SkillSet(), [problem])
    place = settings.skill_place(config, services.skill_roots)._replace(cwd=str(config.home), confinement=None)
    own = await known_skills.find(place, lambda: look_for_skills(place)[0])
    mine = tuple(skill._replace(implicit=False) for skill in own.skills if skill.scope != "repo")
    return found._replace(skills=found.skills._replace(skills=(*found.skills.skills, *mine)))


async def remote_git_info(services: Services, settings: Settings) -> GitInfo | None:
    try:
        return await read_remote(services, settings, read_git_info)
    except ExecError:
        return None  # its commands will say what is wrong
