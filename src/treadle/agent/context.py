"""What the model is told before the conversation: who it is, what it may do, where it is, what the project says.

All of it goes as developer messages, so that the user's role carries only what the user said. It is made anew for
every turn, from the settings as they are then, and is not part of the history.
"""

from __future__ import annotations

import asyncio
import time

from msgspec import Raw

from treadle.agent.state import Settings
from treadle.agent.thread import Thread
from treadle.agent.turn import Turn, developer_message, facts_of
from treadle.config import Config, InstructionFile
from treadle.execution.bounded_reads import read_in_thread


class Context:
    """The fixed beginning of every request of a turn, and its tools."""

    __slots__ = ("messages", "tools")

    def __init__(self, messages: list[Raw], tools: tuple[Raw, ...]) -> None:
        self.messages: list[Raw] = messages
        self.tools: tuple[Raw, ...] = tools


async def build_context(turn: Turn) -> Context:
    from treadle.tools.specs import tool_specs

    thread = turn.thread
    settings = thread.settings
    config = thread.services.config_for(settings)
    facts = facts_of(thread)
    texts = [_base(settings, config), *await _about(turn, config)]
    tools = tool_specs(
        freeform_patch=facts.freeform_patch, images=facts.supports_images, dynamic=settings.dynamic_tools
    )
    return Context([developer_message(text) for text in texts if text], tools)


def _base(settings: Settings, config: Config) -> str:
    from treadle.config import BASE_INSTRUCTIONS

    if settings.base_instructions is not None:
        return settings.base_instructions
    configured = config.base_instructions()
    return BASE_INSTRUCTIONS if configured is None else configured


async def _about(turn: Turn, config: Config) -> list[str]:
    from treadle.config import environment_text, goal_text, instructions_text, permissions_text
    from treadle.tools.command.command_shell import default_shell

    thread, settings = turn.thread, turn.thread.settings
    texts = [
        settings.developer_instructions or config.developer_instructions or "",
        permissions_text(settings.approval_policy, settings.sandbox, settings.cwd),
    ]
    texts += [instructions_text(file.path, file.text) for file in await _instructions_of(turn, config)]
    shell = default_shell().rpartition("/")[2]
    texts.append(environment_text(settings.cwd, shell=shell, date=time.strftime("%Y-%m-%d")))
    goal = thread.state.goal
    if goal is not None and goal.status == "active":
        texts.append(goal_text(goal.objective, token_budget=goal.token_budget, tokens_used=goal.tokens_used))
    return texts


def look_ahead(thread: Thread) -> None:
    """Begin to look for the project's instructions now: a turn will want them in a moment."""
    settings = thread.settings
    finding = project_instructions(settings.cwd, thread.services.config_for(settings))
    thread.looked_ahead = (settings.cwd, asyncio.ensure_future(finding))


async def _instructions_of(turn: Turn, config: Config) -> list[InstructionFile]:
    thread, cwd = turn.thread, turn.thread.settings.cwd
    ahead, thread.looked_ahead = thread.looked_ahead, None
    found = await (ahead[1] if ahead is not None and ahead[0] == cwd else project_instructions(cwd, config))
    if found is None:
        thread.warn_once(turn, f"AGENTS.md was not looked for: the file system of {cwd} does not answer")
    return found or []


async def project_instructions(cwd: str, config: Config) -> list[InstructionFile] | None:
    """The AGENTS.md files that apply in `cwd`; None when its file system does not answer."""
    try:
        return await read_in_thread(lambda: read_instructions(cwd, config))
    except TimeoutError:
        return None


def read_instructions(cwd: str, config: Config) -> list[InstructionFile]:
    """The same; blocking."""
    from treadle.config import find_instructions

    return find_instructions(
        cwd,
        config.home,
        max_bytes=config.project_doc_max_bytes,
        fallback_names=config.project_doc_fallback_filenames,
    )
