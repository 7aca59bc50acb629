"""Slash commands as they are typed, and what can be completed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from prompt_toolkit.completion import CompleteEvent, Completion
from prompt_toolkit.document import Document

from treadle.cli.chat.chat_completer import ChatCompleter
from treadle.cli.chat.slash_actions import SlashActions
from treadle.cli.chat.slash_commands import COMMANDS, Entered, UnknownCommand, parse
from treadle.errors import TreadleError

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
    ],
)
def test_a_command_and_its_argument(line: str, name: str, argument: str) -> None:
    found = parse(line)
    assert isinstance(found, Entered)
    assert (found.command.name, found.argument) == (name, argument)


@pytest.mark.parametrize("line", ["hello", "/usr/bin/ls is what?", " /help", "/", "//", "1/2", "/2"])
def test_a_message_is_no_command(line: str) -> None:
    assert parse(line) is None


@pytest.mark.parametrize(("line", "nearest"), [("/mdoel", "model"), ("/frok x", "fork"), ("/xyzzy", None)])
def test_an_unknown_command_names_the_nearest(line: str, nearest: str | None) -> None:
    found = parse(line)
    assert isinstance(found, UnknownCommand)
    assert found.nearest == nearest
    assert "/help" in str(found)
    if nearest:
        assert f"did you mean /{nearest}?" in str(found)


def test_every_command_does_something() -> None:
    assert [command.name for command in COMMANDS if not hasattr(SlashActions, f"_{command.name}")] == ["quit"]


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
    assert len(await _texts(completer, "/")) == len(COMMANDS)
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
