"""`Plan`: what the model does, as its user told it to. The language of the prompts, without any wire.

Owns reading a prompt. `planned_reply` reads the request that has it, and writes what the plan says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Ending: TypeAlias = Literal["whole", "early", "cut"]

MAX_SAID: Final = 200  # of a tool's output: enough to recognise it, little enough to read

# What programs add to a prompt by themselves; their words are not the user's.
_ADDED: Final = re.compile(r"<(system-reminder|environment_context|user_instructions)>.*?</\1>", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request, whichever API it came over.

    Args:
        text: The last item of the conversation: what the user said, or what a tool gave.
        by_tool: Whether a tool gave it.
        users: How many messages the user has sent in all.
        tools: The names of the tools that the model is offered.
    """

    text: str
    by_tool: bool = False
    users: int = 0
    tools: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool, with its arguments as JSON."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the model does.

    Args:
        text: What it says at the end; before a call, nothing.
        call: The tool that it calls.
        search: What it looks up on the web by itself, before its text.
        think: Whether it thinks aloud before.
        commentary: Whether a message comes before the answer.
        status: The HTTP status that it fails with.
        flaky: How many times it fails first, and the name under which that is counted.
        ending: Whether the stream is whole, ends early as if it were whole, or breaks off.
        delay_s: Seconds before it answers.
        gate: The gate that it waits at before it answers.
    """

    text: str = ""
    call: Call | None = None
    search: str | None = None
    think: bool = False
    commentary: bool = False
    status: int | None = None
    flaky: tuple[int, str] | None = None
    ending: Ending = "whole"
    delay_s: float = 0.0
    gate: str | None = None


def plan_for(asked: Asked) -> Plan:
    """What the last item of a conversation makes the model do."""
    if asked.by_tool:
        return Plan(text=f"tool said: {asked.text.strip()[:MAX_SAID]}")
    prompt = _ADDED.sub("", asked.text)
    call = _call(prompt, asked.tools)
    flaky = re.search(r"FLAKY:(\d+):(\w+)", prompt)
    status = _word(prompt, r"HTTP:(\d{3})")
    return Plan(
        text="" if call else _text(prompt, asked),
        call=call,
        search=_word(prompt, r"SEARCH:(.+)"),
        think="THINK" in prompt,
        commentary="TWOMSG" in prompt,
        status=int(status) if status else None,
        flaky=(int(flaky[1]), flaky[2]) if flaky else None,
        ending="early" if "DROP" in prompt else "cut" if "CUT" in prompt else "whole",
        delay_s=float(_word(prompt, r"SLEEP:(\d+(?:\.\d+)?)") or 0),
        gate=_word(prompt, r"GATE:(\w+)"),
    )


def _word(prompt: str, pattern: str) -> str | None:
    found = re.search(pattern, prompt)
    return found[1].strip() if found else None


def _text(prompt: str, asked: Asked) -> str:
    if "USERS?" in prompt:
        return f"users={asked.users}"
    lines = [line.strip() for line in prompt.splitlines() if line.strip()]
    return f"pong: {lines[-1] if lines else ''}"


def _call(prompt: str, tools: Collection[str]) -> Call | None:
    """None also where no tool fits: programs ask for a title of the conversation with the same words and no tools."""
    if not tools:
        return None
    if named := re.search(r"CALL:(\S+) (.+)", prompt):
        return Call(named[1], named[2].strip())
    command = _word(prompt, r"RUN:(.+)")
    return _shell_call(command, tools) if command else None


def _shell_call(command: str, tools: Collection[str]) -> Call | None:
    described = {"command": command, "description": "mock command"}
    known = {
        "exec_command": {"cmd": command},
        "shell_command": {"command": command},
        "shell": {"command": ["bash", "-lc", command]},
        "Bash": described,
        "bash": described,
    }
    for name, arguments in known.items():
        if name in tools:
            return Call(name, json.dumps(arguments))
    return None


def flat(content: object) -> str:
    """The text of a string, of a block, or of blocks in blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return flat(content.get("text") or content.get("content") or content.get("output"))
    if isinstance(content, list):
        return "\n".join(flat(block) for block in content)
    return ""
