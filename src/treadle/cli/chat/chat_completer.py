"""`ChatCompleter`: files after `@`, commands after `/`, and what a command can be given. It asks others for the
files.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeAlias

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from treadle.cli.chat.mentions import mention, unfinished_mention
from treadle.cli.chat.slash_commands import COMMANDS, SlashCommand
from treadle.cli.visible import visible_line
from treadle.errors import TreadleError

FileSearch: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
"""The best paths for some letters, best first, relative to where the agent works."""

MAX_FILES: Final = 20
# A large folder on a slow disk: then there is no list, and typing goes on.
SEARCH_S: Final = 5.0


class ChatCompleter(Completer):
    def __init__(self, search: FileSearch) -> None:
        self._search = search
        self.models: Sequence[str] = ()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What needs no search."""
        before = document.text_before_cursor
        if not before.startswith("/"):
            return
        name, space, argument = before[1:].partition(" ")
        if not space:
            for command in COMMANDS:
                if command.name.startswith(name.lower()):
                    yield _completion(command, len(before))
            return
        for choice in self._choices(name):
            if choice.startswith(argument):
                yield Completion(choice, -len(argument))

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        letters = unfinished_mention(document.text_before_cursor)
        if letters is None:
            for completion in self.get_completions(document, complete_event):
                yield completion
            return
        before = document.text_before_cursor
        typed = len(before) - before.rindex("@", 0, len(before) - len(letters))
        for path in (await self._found(letters))[:MAX_FILES]:
            if path.isprintable():  # a name with a line end in it cannot be typed
                yield Completion(f"{mention(path)} ", -typed, display=visible_line(path))

    async def _found(self, letters: str) -> Sequence[str]:
        try:
            async with asyncio.timeout(SEARCH_S):
                return await self._search(letters)
        except (TreadleError, TimeoutError):
            return ()  # a list that does not come up is no reason to disturb who types

    def _choices(self, name: str) -> Sequence[str]:
        if name == "model":
            return self.models
        return next((command.choices for command in COMMANDS if command.name == name), ())


def _completion(command: SlashCommand, typed: int) -> Completion:
    shown = f"/{command.name} {command.argument}".rstrip()
    text = f"/{command.name} " if command.argument else f"/{command.name}"
    return Completion(text, -typed, display=shown, display_meta=command.summary)
