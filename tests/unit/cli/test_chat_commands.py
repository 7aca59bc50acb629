"""Slash commands as they are typed, and what can be completed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from prompt_toolkit.completion import CompleteEvent, Completion
from prompt_toolkit.document import Document

from treadle.cli import (
    SLASH_COMMANDS,
    ChatCompleter,
    Entered,
    SlashActions,
    UnknownCommand,
    parse_command,
    prompt_arguments,
    prompt_commands,
)
from treadle.errors import TreadleError
from treadle.protocol.app import McpPrompt, McpPromptArgument

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("line", "name", "argument"),
    [
        ("/help", "help", ""),
        ("/model gpt-5.5 high", "model", "gpt-5.5 high"),
        ("/RESUME  my thread ", "resume", "my thread"),
        ("/stat", "status", ""),
        ("/exit", "quit", ""),
        ("/?", "help", ""),
        ("/undo", "undo", ""),
        ("!git status", "shell", "git status"),
        ("!", "shell", ""),
    ],
)
def test_a_command_and_its_argument(line: str, name: str, argument: str) -> None:
    found = parse_command(line)
    assert isinstance(found, Entered)
    assert (found.command.name, found.argument) == (name, argument)


@pytest.mark.parametrize("line", ["hello", "/usr/bin/ls is what?", " /help", "/", "//", "1/2", "/2", " !ls", "no!"])
def test_a_message_is_no_command(line: str) -> None:
    assert parse_command(line) is None


@pytest.mark.parametrize(
    ("line", "nearest"), [("/mdoel", "model"), ("/frok x", "fork"), ("/unod", "undo"), ("/xyzzy", None)]
)
def test_an_unknown_command_names_the_nearest(line: str, nearest: str | None) -> None:
    found = parse_command(line)
    assert isinstance(found, UnknownCommand)
    assert found.nearest == nearest
    assert "/help" in str(found)
    if nearest:
        assert f"did you mean /{nearest}?" in str(found)


def test_every_command_does_something() -> None:
    assert [command.name for command in SLASH_COMMANDS if not hasattr(SlashActions, f"_{command.name}")] == ["quit"]


# --- prompts of MCP servers ---

WHO = McpPromptArgument(name="who", required=True)
HOW = McpPromptArgument(name="how")
GREET = McpPrompt(server="my-server", name="greet", description="says hello", arguments=(WHO, HOW))
PLAIN = McpPrompt(server="a.b", name="see this")


def test_a_prompt_is_a_command_by_its_server_and_name() -> None:
    assert list(prompt_commands([GREET, PLAIN, McpPrompt(server="a b", name="see/this")])) == [
        "mcp__my-server__greet",
        "mcp__a_b__see_this",
        "mcp__a_b__see_this_2",
    ]
    found = parse_command("/mcp__My-server__greet  Ada ")
    assert isinstance(found, Entered)
    assert found.argument == "mcp__My-server__greet  Ada"
    assert hasattr(SlashActions, f"_{found.command.name}")


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ("Ada", {"who": "Ada"}),
        ("Ada three cheers", {"who": "Ada", "how": "three cheers"}),
        ('"Ada L." "three cheers"', {"who": "Ada L.", "how": "three cheers"}),
        ('"Ada L."  say "hello" to her ', {"who": "Ada L.", "how": 'say "hello" to her'}),
        ('Ada "hello" to her', {"who": "Ada", "how": '"hello" to her'}),
        ('"Ada', {"who": '"Ada'}),
        ('"a"b c', {"who": '"a"b', "how": "c"}),
        ("Ada one\ntwo", {"who": "Ada", "how": "one\ntwo"}),
        ("", None),
        (" ", None),
    ],
)
def test_what_is_typed_behind_a_prompt_are_its_arguments(typed: str, given: dict[str, str] | None) -> None:
    assert prompt_arguments(GREET, typed) == given


def test_a_prompt_without_arguments_takes_none() -> None:
    assert prompt_arguments(PLAIN, " ") == {}
    assert prompt_arguments(PLAIN, "more") is None


async def test_prompts_are_completed_after_the_commands() -> None:
    asked: list[str] = []

    async def prompts() -> Sequence[McpPrompt]:
        asked.append("")
        return [GREET, PLAIN]

    completer = ChatCompleter(Files(()).search)
    completer.prompts = prompts
    every = ["/mcp__my-server__greet ", "/mcp__a_b__see_this "]
    assert (await _texts(completer, "/"))[len(SLASH_COMMANDS) :] == every
    assert await _texts(completer, "/mc") == ["/mcp", *every]
    assert await _texts(completer, "/mcp__my") == every[:1]
    assert (await _completions(completer, "/mcp__my"))[0].display_text == "/mcp__my-server__greet who [how]"
    assert len(asked) == 4
    assert await _texts(completer, "/mcp__my-server__greet ") == []
    assert await _texts(completer, "/st") == ["/status"]
    assert await _texts(completer, "what is /mcp__my") == []


async def test_servers_that_cannot_be_asked_disturb_nobody() -> None:
    async def prompts() -> Sequence[McpPrompt]:
        raise TreadleError("no")

    completer = ChatCompleter(Files(()).search)
    completer.prompts = prompts
    assert len(await _texts(completer, "/")) == len(SLASH_COMMANDS)


# --- completion ---


class Files:
    """Stands for the server's search."""

    def __init__(self, found: Sequence[str] | Exception) -> None:
        self.asked: list[str] = []
        self._found = found

    async def search(self, letters: str) -> Sequence[str]:
        self.asked.append(letters)
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


async def _completions(completer: ChatCompleter, text: str) -> list[Completion]:
    found = completer.get_completions_async(Document(text), CompleteEvent())
    return [completion async for completion in found]


async def _texts(completer: ChatCompleter, text: str) -> list[str]:
    """What the text would be."""
    return [text[: len(text) + found.start_position] + found.text for found in await _completions(completer, text)]


async def test_commands_are_completed_and_what_they_take() -> None:
    completer = ChatCompleter(Files(()).search)
    assert await _texts(completer, "/st") == ["/status"]
    assert await _texts(completer, "/mod") == ["/model "]
    assert await _texts(completer, "/sandbox w") == ["/sandbox workspace-write"]
    assert await _texts(completer, "/model ") == []
    completer.models = ["gpt-5.5", "gpt-5.5-mini", "o9"]
    assert await _texts(completer, "/model gpt") == ["/model gpt-5.5", "/model gpt-5.5-mini"]
    assert len(await _texts(completer, "/")) == len(SLASH_COMMANDS)
    assert await _texts(completer, "what is /st") == []


async def test_files_are_completed_anywhere_in_a_message() -> None:
    files = Files(["src/main.py", "with space.txt", "bad\nname"])
    completer = ChatCompleter(files.search)
    assert await _texts(completer, "see @ma") == ["see @src/main.py ", 'see @"with space.txt" ']
    assert await _texts(completer, 'see @"with sp') == ["see @src/main.py ", 'see @"with space.txt" ']
    assert files.asked == ["ma", "with sp"]
    assert await _texts(completer, "me@ma") == []


async def test_a_search_that_fails_disturbs_nobody() -> None:
    assert await _texts(ChatCompleter(Files(TreadleError("no")).search), "@x") == []


async def test_a_name_that_a_terminal_would_act_upon_is_not_offered() -> None:
    files = Files(["a\u202eb", "a\x1b[2Jb", "ab"])
    assert await _texts(ChatCompleter(files.search), "@a") == ["@ab "]
