"""The skills of a thread: which there are, their list for the model, and what is done when one is used.

A skill is used when the user names it, as `$name` in a text or as an input item; then the model gets the whole file,
and the MCP servers that the skill needs are started. What a project says of such a server is not enough to start it:
it would run outside of the sandbox. The user gets the command that adds it instead.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from treadle.errors import ExecError
from treadle.execution.uris import native_path
from treadle.protocol.app.item_parts import SkillUserInput, TextUserInput, UserInput
from treadle.protocol.app.notifications import WarningNotification
from treadle.skills.skill_files import Skill, SkillSet, is_enabled, known_skills, look_for_skills

if TYPE_CHECKING:
    from treadle.agent.thread.thread import Thread
    from treadle.config.file_settings import SkillSettings
    from treadle.config.mcp_settings import McpServerConfig
    from treadle.protocol.app.extensions import SkillToolDependency


def listed_skills(thread: Thread, found: SkillSet, settings: SkillSettings) -> tuple[str, str | None]:
    """The list for the model, empty when there is nothing in it; and a warning when it is not complete."""
    skills = [skill for skill in found.skills if skill.implicit and is_enabled(skill, settings.config)]
    if not skills:
        return "", None
    from treadle.skills.skill_list import list_budget, list_for_model  # only where there are some

    text, left_out = list_for_model(skills, list_budget(thread.model_facts.context_window, settings.max_context_tokens))
    if not left_out:
        return text, None
    problem = f"{left_out} of {len(skills)} skills do not fit into the list that the model gets"
    advice = "turn off some with `treadle skills disable NAME`, or set `skills.max_context_tokens`"
    return text, f"{problem}; {advice}. You can still use each as `$name`."


async def skills_of(thread: Thread) -> SkillSet:
    """The skills that count where the thread works. Raises `TimeoutError`."""
    settings, config = thread.settings, thread.services.config_for(thread.settings)
    if settings.remote is not None:
        from treadle.agent.thread.remote_project import remote_facts  # few threads are elsewhere

        return (await remote_facts(thread.services, settings, config)).skills
    place = settings.skill_place(config, thread.services.skill_roots)
    return await known_skills.find(place, lambda: look_for_skills(place)[0])


# --- use -------------------------------------------------------------------------------------------------------------


class UsedSkills(NamedTuple):
    """An input and its skills: the parts without the skills that are turned off, and with those that a text mentions.
    `own` are the paths that are read as files of the user's own."""

    parts: tuple[UserInput, ...]
    skills: Sequence[Skill] = ()
    own: frozenset[str] = frozenset()


async def find_used(thread: Thread, parts: tuple[UserInput, ...]) -> UsedSkills:
    """The skills that an input names. A `$name` that is no skill is a variable of the shell, or anything else."""
    from treadle.skills.skill_list import by_name, mentioned  # only where one may be named

    config = thread.services.config_for(thread.settings)
    found, rules = await skills_of(thread), config.skills.config
    enabled = by_name([skill for skill in found.skills if is_enabled(skill, rules)])
    disabled = by_name([skill for skill in found.skills if skill.name not in enabled])
    by_path = {skill.path: skill for skill in found.skills}
    used: dict[str, Skill] = {}
    kept: list[UserInput] = []
    for part in parts:
        skill = by_path.get(_path(part)) if isinstance(part, SkillUserInput) else None
        if skill is not None and not is_enabled(skill, rules):
            warn_disabled(thread, skill)
            continue
        kept.append(part)
        if skill is not None:
            used[skill.path] = skill
    for part in parts:
        if isinstance(part, TextUserInput):
            for skill in mentioned(part.text, disabled):
                warn_disabled(thread, skill)
            for skill in mentioned(part.text, enabled):
                if skill.path not in used:
                    used[skill.path] = skill
                    kept.append(SkillUserInput(name=skill.name, path=skill.path))
    own = frozenset(skill.path for skill in used.values() if skill.scope != "repo")
    return UsedSkills(tuple(kept), list(used.values()), own)


def _path(part: SkillUserInput) -> str:
    try:
        return native_path(part.path)
    except ExecError:
        return part.path


def warn(thread: Thread, message: str) -> None:
    thread.journal.emit("warning", WarningNotification(message=message, thread_id=thread.id))


def warn_disabled(thread: Thread, skill: Skill) -> None:
    warn(
        thread,
        f"the skill `{skill.name}` is turned off; turn it on with: treadle skills enable {shlex.quote(skill.name)}",
    )


# --- the MCP servers that skills need --------------------------------------------------------------------------------


async def start_servers(thread: Thread, skills: Sequence[Skill]) -> None:
    """Start the MCP servers that these skills need, and wait for them as a turn does."""
    needed = [(skill, tool) for skill in skills for tool in skill.tools if tool.type == "mcp"]
    added: dict[str, McpServerConfig] = {}
    for skill, tool in needed:
        config = thread.mcp_configs.get(tool.value)
        if config is not None:
            if not config.enabled:
                warn(thread, f"the skill `{skill.name}` needs the MCP server `{tool.value}`, which is disabled")
        elif skill.scope == "repo":
            problem = (
                f"the skill `{skill.name}` of this project needs the MCP server `{tool.value}`, which you do not have"
            )
            where = f"--url {shlex.quote(tool.url)}" if tool.url is not None else f"-- {tool.command or 'COMMAND'}"
            warn(thread, f"{problem}; if you trust it, type: treadle mcp add {shlex.quote(tool.value)} {where}")
        else:
            try:
                added[tool.value] = server_config(tool)
            except ValueError as error:
                warn(thread, f"the skill `{skill.name}` needs the MCP server `{tool.value}`: {error}")
    if added:
        thread.add_skill_servers(added)
    if needed and (mcp := thread.mcp) is not None:
        await mcp.prepare()


def server_config(tool: SkillToolDependency) -> McpServerConfig:
    """The settings of a server that a skill names. Raises `ValueError`."""
    from treadle.config.mcp_settings import McpServerConfig  # few skills need one
    from treadle.llm.provider import is_http_url

    if tool.url is not None:
        if not is_http_url(tool.url):
            raise ValueError("its `url` cannot be used; write an http or https address into agents/openai.yaml")
        return McpServerConfig(name=tool.value, url=tool.url)
    words = shlex.split(tool.command or "")
    if not words:
        raise ValueError("it has neither `url` nor `command`; write one of them into agents/openai.yaml")
    return McpServerConfig(name=tool.value, command=words[0], args=tuple(words[1:]))
