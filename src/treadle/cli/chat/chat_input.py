"""What a person types: slash commands, `@path` in a message, completion of both, and the history of messages."""

from __future__ import annotations

import asyncio
import difflib
import itertools
import json
import os
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History

from treadle.cli.chat.chat_session import ChatMessage
from treadle.cli.exec.exec_arguments import APPROVALS, SANDBOXES
from treadle.config.home_files import PRIVATE, make_home, replace_file
from treadle.errors import TreadleError
from treadle.pages.safe_text import printable_line
from treadle.protocol.app.ours import McpPrompt

# --- commands ---

# A path such as /usr/bin has a second slash, and is no command.
_COMMAND: Final = re.compile(r"/([A-Za-z?][\w-]*)(?:\s+(.*))?", re.DOTALL)


class SlashCommand(Struct, frozen=True):
    """A command that begins with a slash. `SlashActions` has what it does."""

    name: str
    argument: str
    summary: str
    choices: tuple[str, ...] = ()
    """What the argument can be, where that is known."""


class Entered(Struct, frozen=True):
    """A command that was typed."""

    command: SlashCommand
    argument: str


class UnknownCommand(Struct, frozen=True):
    """A line that looks like a command, and is none."""

    name: str
    nearest: str | None

    def __str__(self) -> str:
        meant = f"did you mean /{self.nearest}? " if self.nearest else ""
        return (
            f"there is no /{self.name}; {meant}/help lists what there is (a space before the / sends it as a message)"
        )


SLASH_COMMANDS: Final = (
    SlashCommand("help", "", "the commands and keys"),
    SlashCommand("model", "[NAME [EFFORT]]", "choose what model and reasoning effort to use"),
    SlashCommand("environment", "[NAME [DIR]]", "choose the machine to work on"),
    SlashCommand("permissions", "", "choose what the agent may do: sandbox and approvals together"),
    SlashCommand("sandbox", "[MODE]", "what commands may do", SANDBOXES),
    SlashCommand("approvals", "[POLICY]", "when you are asked", APPROVALS),
    SlashCommand("plan", "[PROMPT or off]", "plan mode: the agent looks, asks and proposes a plan", ("off",)),
    SlashCommand("review", "[WHAT TO LOOK FOR]", "review changes and find issues"),
    SlashCommand("diff", "[turn]", "what is changed and not committed, or what the last turn changed", ("turn",)),
    SlashCommand("undo", "", "take back the last turn, with what it has changed in files"),
    SlashCommand("copy", "", "copy the last answer as Markdown"),
    SlashCommand("export", "[FILE]", "write the thread to a file: .md, .html or .json"),
    SlashCommand("init", "", "create an AGENTS.md file with instructions for agents"),
    SlashCommand("mcp", "", "list the MCP servers and their tools"),
    SlashCommand("skills", "", "list the skills, and name one in your message"),
    SlashCommand("agents", "", "list the agents that this thread has begun, and go to one"),
    SlashCommand("status", "", "model, sandbox, thread, tokens"),
    SlashCommand("compact", "", "summarise the conversation, so that more fits in"),
    SlashCommand("resume", "[ID or NAME]", "go on with another thread, or choose from a list"),
    SlashCommand("fork", "", "go on in a copy of this thread"),
    SlashCommand("rename", "[NAME]", "rename this thread"),
    SlashCommand("new", "", "begin a new thread"),
    SlashCommand("quit", "", "leave (also Ctrl-D)"),
)
_BY_NAME: Final = {command.name: command for command in SLASH_COMMANDS}
_OTHER_NAMES: Final = {"exit": "quit", "q": "quit", "?": "help", "h": "help", "clear": "new", "agent": "agents"}
_SHELL: Final = SlashCommand("shell", "COMMAND", "run a command yourself, beside the conversation")


def parse_command(line: str) -> Entered | UnknownCommand | None:
    """The command in a line; None: it is a message. The beginning of a name will do where only one begins like that.
    What stands behind a `!` is a command of the shell."""
    if line.startswith("!"):
        return Entered(_SHELL, line[1:].strip())
    match = _COMMAND.fullmatch(line.rstrip())
    if match is None:
        return None
    if match[1].startswith(PROMPT_MARK):  # which there are is known when it is run
        return Entered(_MCP_PROMPT, line.strip()[1:])
    name = match[1].lower()
    command = _BY_NAME.get(_OTHER_NAMES.get(name, name))
    beginning = [command for command in SLASH_COMMANDS if command.name.startswith(name)]
    if command is None and len(beginning) == 1:
        command = beginning[0]
    if command is None:
        near = difflib.get_close_matches(name, [*_BY_NAME, *_OTHER_NAMES], n=1, cutoff=0.5)
        return UnknownCommand(name, near[0] if near else None)
    return Entered(command, (match[2] or "").strip())


# --- prompts of MCP servers ---

PROMPT_MARK: Final = "mcp__"
_MCP_PROMPT: Final = SlashCommand("mcp_prompt", "", "")
_WORD: Final = re.compile(r'\s*(?:"([^"]*)"(?!\S)|(\S+))')


def prompt_commands(prompts: Iterable[McpPrompt]) -> dict[str, McpPrompt]:
    """Prompts by the commands that they are: `mcp__SERVER__PROMPT`, as in Claude Code. What cannot be in a command is
    `_`, and a second prompt of the same name has a number."""
    named: dict[str, McpPrompt] = {}
    for prompt in prompts:
        name = PROMPT_MARK + re.sub(r"[^A-Za-z0-9_-]", "_", f"{prompt.server}__{prompt.name}")
        numbers = (f"{name}_{number}" for number in itertools.count(2))
        named[next(each for each in itertools.chain([name], numbers) if each not in named)] = prompt
    return named


def prompt_usage(prompt: McpPrompt) -> str:
    """Its arguments, those in brackets that can be left out."""
    arguments = prompt.arguments or ()
    return printable_line(" ".join(each.name if each.required else f"[{each.name}]" for each in arguments))


def prompt_arguments(prompt: McpPrompt, typed: str) -> dict[str, str] | None:
    """What was typed behind the command, word by word, with quotes where there are spaces in one; the last argument is
    the rest. None when one is missing or there are too many."""
    arguments = prompt.arguments or ()
    given: dict[str, str] = {}
    for number, argument in enumerate(arguments, 1):
        match = _WORD.match(typed)
        if match is None:
            break
        is_rest = number == len(arguments) and typed[match.end() :].strip()
        given[argument.name] = typed.strip() if is_rest else match[2] if match[1] is None else match[1]
        typed = "" if is_rest else typed[match.end() :]
    missing = any(argument.required and argument.name not in given for argument in arguments)
    return None if missing or typed.strip() else given


# --- @path ---

# After the start, a space or an opening bracket, so that a mail address is none; quoted when there are spaces in it.
_MENTION: Final = re.compile(r"""(?<![^\s(\[{<])@(?:"([^"\n]+)"|(\S+))""")
# What may be being typed at the end of a text.
_UNFINISHED: Final = re.compile(r"""(?<![^\s(\[{<])@(?:"([^"\n]*)|([^\s"]*))$""")
_AFTER_PATH: Final = ".,;:!?)]}>'\""
_PICTURES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp")


def message_of(
    typed: str, cwd: str, pictures: tuple[str, ...] = (), *, found: Collection[str] | None = None
) -> ChatMessage:
    """What was typed, as it is sent. The agent reads files itself, so a file is named by its plain path. A picture is
    sent along, since a model cannot open one by itself. What names no file is left as it was typed: `@pytest.fixture`,
    `@someone`. On another machine the files are those that searches have `found`: its answer is not waited for, and its
    pictures are for the agent to look at."""
    sent = list(pictures)

    def is_there(path: str) -> bool:
        return exists(cwd, path) if found is None else path in found

    def plain(match: re.Match[str]) -> str:
        path = match[1] or match[2]
        rest = ""
        if match[1] is None and not is_there(path):
            stem = path.rstrip(_AFTER_PATH)
            path, rest = stem, path[len(stem) :]
        if not path or not is_there(path):
            return match[0]
        absolute = os.path.join(cwd, path)
        is_picture = found is None and path.lower().endswith(_PICTURES) and os.path.isfile(absolute)
        if is_picture and absolute not in sent:
            sent.append(absolute)
        return (f'"{path}"' if " " in path else path) + rest

    return ChatMessage(_MENTION.sub(plain, typed.strip()), tuple(sent))


def unfinished_mention(before_cursor: str) -> str | None:
    """The text behind the `@` that is being typed; None when there is none."""
    match = _UNFINISHED.search(before_cursor)
    return None if match is None else match[1] if match[1] is not None else match[2]


def mention(path: str) -> str:
    """A path as it is written in a message."""
    return f'@"{path}"' if re.search(r"\s", path) else f"@{path}"


def in_folder(cwd: str, path: str) -> Path:
    """A path as it is typed, from the directory of the thread."""
    return Path(cwd, os.path.expanduser(path))


def exists(cwd: str, path: str) -> bool:
    try:
        return os.path.exists(os.path.join(cwd, path))
    except ValueError:  # a zero byte in it
        return False


# --- completion ---

FileSearch: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
"""The best paths for some letters, best first, relative to where the agent works."""

PromptSource: TypeAlias = Callable[[], Awaitable[Sequence[McpPrompt]]]

MAX_FILES: Final = 20
# A large folder on a slow disk: then there is no list, and typing goes on.
SEARCH_S: Final = 5.0


class ChatCompleter(Completer):
    """Files after `@`, commands and prompts after `/`, and the choices of a command."""

    def __init__(self, search: FileSearch) -> None:
        self._search = search
        self.models: Sequence[str] = ()
        self.prompts: PromptSource | None = None

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """The completions that need no search."""
        before = document.text_before_cursor
        if not before.startswith("/"):
            return
        name, space, argument = before[1:].partition(" ")
        if not space:
            for command in SLASH_COMMANDS:
                if command.name.startswith(name.lower()):
                    shown = f"/{command.name} {command.argument}".rstrip()
                    text = f"/{command.name} " if command.argument else f"/{command.name}"
                    yield Completion(text, -len(before), display=shown, display_meta=command.summary)
            return
        choices = next((command.choices for command in SLASH_COMMANDS if command.name == name), ())
        for choice in self.models if name == "model" else choices:
            if choice.startswith(argument):
                yield Completion(choice, -len(argument))

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        letters = unfinished_mention(document.text_before_cursor)
        if letters is None:
            for completion in self.get_completions(document, complete_event):
                yield completion
            async for completion in self._prompt_completions(document.text_before_cursor):
                yield completion
            return
        before = document.text_before_cursor
        typed = len(before) - before.rindex("@", 0, len(before) - len(letters))
        found: Sequence[str] = ()
        with suppress(TreadleError, TimeoutError):  # a list that does not come up is no reason to disturb the user
            async with asyncio.timeout(SEARCH_S):
                found = await self._search(letters)
        for path in found[:MAX_FILES]:
            if path.isprintable():  # a name with a line end in it cannot be typed
                yield Completion(f"{mention(path)} ", -typed, display=printable_line(path))

    async def _prompt_completions(self, before: str) -> AsyncGenerator[Completion, None]:
        """The prompts of MCP servers, after the commands: their servers may have to be started to be asked."""
        name = before[1:]
        if self.prompts is None or not before.startswith("/") or not PROMPT_MARK.startswith(name[: len(PROMPT_MARK)]):
            return
        for command, prompt in (await soon(self.prompts)).items():
            if command.startswith(name):
                shown = f"/{command} {prompt_usage(prompt)}".rstrip()
                meta = printable_line(prompt.description or prompt.title or "")
                yield Completion(f"/{command} ", -len(before), display=shown, display_meta=meta)


async def soon(prompts: PromptSource) -> dict[str, McpPrompt]:
    """The commands of prompts, for a list of them: none when their servers do not answer in time."""
    with suppress(TreadleError, TimeoutError):
        async with asyncio.timeout(SEARCH_S):
            return prompt_commands(await prompts())
    return {}


# --- history ---

FILE: Final = "chat_history.jsonl"
MAX_ENTRIES: Final = 1000
# Of the file when it is read. It is cut to MAX_ENTRIES then; what one session adds to that is what a person types.
MAX_BYTES: Final = 1 << 20
# A longer message is text that was pasted: nobody looks for it with the arrow keys.
MAX_ENTRY_BYTES: Final = 16 << 10


class MessageHistory(History):
    """The messages that were typed before, stored in the home for its owner alone, and bounded.

    One JSON object a line, so that a message of many lines is one entry. Several sessions may append at the same time.
    A home that cannot be written costs the history, not the session.
    """

    def __init__(self, home: Path) -> None:
        super().__init__()
        self._path = home / FILE

    def load_history_strings(self) -> Iterable[str]:
        """The newest first, as prompt_toolkit wants it."""
        entries, whole = self._read()
        newest = entries[-MAX_ENTRIES:]
        if not whole or len(entries) > len(newest):
            with suppress(OSError):  # else it is cut the next time
                replace_file(self._path, b"".join(_line(*entry) for entry in newest), PRIVATE)
        return reversed([text for _, text in newest])

    def store_string(self, string: str) -> None:
        line = _line(time.time(), string)
        if len(line) > MAX_ENTRY_BYTES:
            return
        with suppress(OSError):  # it is still in the memory of this session
            make_home(self._path.parent)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
            with open(descriptor, "ab") as file:
                os.fchmod(descriptor, PRIVATE)
                file.write(line)

    def _read(self) -> tuple[list[tuple[float, str]], bool]:
        """The entries, oldest first, and whether that is all of the file. Lines that are none are left out."""
        try:
            with open(self._path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - MAX_BYTES))
                lines = file.read(MAX_BYTES).splitlines()
        except OSError:
            return [], True
        whole = size <= MAX_BYTES
        entries: list[tuple[float, str]] = []
        for line in lines[0 if whole else 1 :]:
            with suppress(ValueError, KeyError, TypeError, RecursionError):
                found = json.loads(line)
                when, text = found["ts"], found["text"]
                if isinstance(text, str) and isinstance(when, int | float):
                    entries.append((when, text))
        return entries, whole


def _line(when: float, text: str) -> bytes:
    return json.dumps({"ts": int(when), "text": text}).encode() + b"\n"
