"""The commands that begin with a slash: their names, and how a line is read as one of them. What they do is in
`slash_actions`.
"""

from __future__ import annotations

import difflib
import re
from typing import Final

from msgspec import Struct

# A path such as /usr/bin has a second slash, and is no command.
_COMMAND: Final = re.compile(r"/([A-Za-z?][\w-]*)(?:\s+(.*))?", re.DOTALL)


class SlashCommand(Struct, frozen=True):
    name: str
    argument: str
    summary: str
    choices: tuple[str, ...] = ()
    """What the argument can be, where that is known."""


class Entered(Struct, frozen=True):
    command: SlashCommand
    argument: str


class UnknownCommand(Struct, frozen=True):
    name: str
    nearest: str | None

    def __str__(self) -> str:
        meant = f"did you mean /{self.nearest}? " if self.nearest else ""
        return (
            f"there is no /{self.name}; {meant}/help lists what there is (a space before the / sends it as a message)"
        )


COMMANDS: Final = (
    SlashCommand("help", "", "the commands and keys"),
    SlashCommand("model", "[NAME [EFFORT]]", "use another model, or choose from a list"),
    SlashCommand("sandbox", "[MODE]", "what commands may do", ("read-only", "workspace-write", "danger-full-access")),
    SlashCommand("approvals", "[POLICY]", "when you are asked", ("untrusted", "on-request", "never")),
    SlashCommand("diff", "[turn]", "what is changed and not committed, or what the last turn changed", ("turn",)),
    SlashCommand("status", "", "model, sandbox, thread, tokens"),
    SlashCommand("compact", "", "summarise the conversation, so that more fits in"),
    SlashCommand("resume", "[ID or NAME]", "go on with another thread, or choose from a list"),
    SlashCommand("fork", "", "go on in a copy of this thread"),
    SlashCommand("new", "", "begin a new thread"),
    SlashCommand("quit", "", "leave (also Ctrl-D)"),
)
_BY_NAME: Final = {command.name: command for command in COMMANDS}
_OTHER_NAMES: Final = {"exit": "quit", "q": "quit", "?": "help", "h": "help", "clear": "new"}


def parse(line: str) -> Entered | UnknownCommand | None:
    """None: it is a message. The beginning of a name will do where only one begins like that."""
    match = _COMMAND.fullmatch(line.rstrip())
    if match is None:
        return None
    name = match[1].lower()
    command = _BY_NAME.get(_OTHER_NAMES.get(name, name)) or _only_one(name)
    if command is None:
        near = difflib.get_close_matches(name, [*_BY_NAME, *_OTHER_NAMES], n=1, cutoff=0.5)
        return UnknownCommand(name, near[0] if near else None)
    return Entered(command, (match[2] or "").strip())


def _only_one(beginning: str) -> SlashCommand | None:
    found = [command for command in COMMANDS if command.name.startswith(beginning)]
    return found[0] if len(found) == 1 else None
