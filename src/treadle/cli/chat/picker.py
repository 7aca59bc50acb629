"""`Picker`: a person chooses one of many things: arrows, typing to search, a preview of what is marked.

One component for all that is chosen from a list: threads (`threads_to_pick`), models, sandboxes, what is reviewed.
`PickList` is the pure part. The picker is a prompt_toolkit application of its own, at the bottom of the terminal: a
session runs it while its own rests (`ChatScreen.pick`), a command before anything else is drawn. Text of others is made
printable here.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from typing import Any, Final, TextIO

from msgspec import Struct
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import BufferControl, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.output import Output
from rich.text import Text

from treadle.cli.chat.terminal_output import make_output, painted
from treadle.cli.terminal import wants_color
from treadle.cli.thread_choice import short_id
from treadle.cli.threads.thread_library import ThreadLibrary
from treadle.cli.turn.rich_blocks import rendered
from treadle.errors import TreadleError
from treadle.pages.figures import at_home, when
from treadle.pages.page import title_of, without_input
from treadle.pages.safe_text import printable, printable_line
from treadle.pages.view_blocks import MessageBlock, item_blocks
from treadle.protocol.app.threads import Thread

# More are not listed; they can still be named.
MAX_CHOICES: Final = 5000
# A preview is asked for when the mark has rested so long, and given up when its server does not answer.
_REST_S: Final = 0.1
_PREVIEW_S: Final = 5.0
_LIST_ROWS: Final = 12
_PREVIEW_ROWS: Final = 8
# Of a row: the detail is left out where less than this would be left for the label.
_LEAST_LABEL: Final = 24
# Of what is not shown, such as an id, shorter words would fit everywhere.
_LEAST_WORD: Final = 4
# What joins pictures, or changes their form or colour: terminals do not agree on how wide the whole is then.
_JOINED: Final = re.compile("(?<=[\u2600-\u27bf\U0001f000-\U0001faff])[\ufe0e\ufe0f\u200d\U0001f3fb-\U0001f3ff]+")
# Of each message in the preview of a thread, and of the directory behind its title.
_MAX_MESSAGE: Final = 200
_MAX_PLACE: Final = 24
_KEYS: Final = "↑↓ move · type to search · Enter takes · Esc leaves"


class Choice(Struct, frozen=True):
    """A thing to choose."""

    label: str
    value: Any = None
    detail: str = ""
    """What stands behind the label, where there is space."""
    about: str = ""
    """Its preview, where that is known from the start."""
    words: str = ""
    """What is searched too, and not shown."""


class PickList:
    """Choices, those that fit what was typed, and the one that is marked."""

    def __init__(self, choices: Iterable[Choice] = (), *, marked: int = 0) -> None:
        self.choices: list[Choice] = list(choices)
        self.matches: list[Choice] = list(self.choices)
        self._marked = marked
        self._words: list[str] = []

    @property
    def marked(self) -> Choice | None:
        return self.matches[self._marked] if self.matches else None

    def add(self, choice: Choice) -> None:
        """Add at the end: the mark stays where it is."""
        self.choices.append(choice)
        if self._fits(choice):
            self.matches.append(choice)

    def search(self, typed: str) -> None:
        """Reduce the list to the choices with all these words; the first is marked."""
        words = typed.casefold().split()
        if words != self._words:
            self._words, self._marked = words, 0
            self.matches = [choice for choice in self.choices if self._fits(choice)]

    def move(self, by: int) -> None:
        self._marked = max(0, min(len(self.matches) - 1, self._marked + by))

    def rows(self, count: int) -> list[tuple[Choice, bool]]:
        """So many rows around the marked one, and whether each is that."""
        first = max(0, min(self._marked - count // 2, len(self.matches) - count))
        return [(choice, first + row == self._marked) for row, choice in enumerate(self.matches[first : first + count])]

    def _fits(self, choice: Choice) -> bool:
        text, hidden = f"{choice.label} {choice.detail}".casefold(), choice.words.casefold()
        return all(word in text or (len(word) >= _LEAST_WORD and word in hidden) for word in self._words)


class Picker:
    """A list on the terminal.

    Args:
        title: What is to be chosen.
        choices: What there is from the start.
        output: Where it is drawn.
        input: Where keys come from.
        colors: Whether with colours.
        marked: The number of the choice that is marked first.
        more: Further choices, which are added as they come.
        preview: Makes the preview of a choice; without it, that is its `about`.
    """

    def __init__(
        self,
        title: str,
        choices: Iterable[Choice],
        *,
        output: Output,
        input: Input | None = None,
        colors: bool = True,
        marked: int = 0,
        more: AsyncIterator[Choice] | None = None,
        preview: Callable[[Any], Awaitable[str]] | None = None,
    ) -> None:
        self.list: PickList = PickList(choices, marked=marked)
        self.input_ended: bool = False
        self._title = title
        self._colors = colors
        self._more = more
        self._preview = preview
        self._about: dict[int, str] = {}
        self._moved = asyncio.Event()
        self._moved.set()
        self.buffer: Buffer = Buffer(multiline=False, on_text_changed=self._typed)
        search = Window(BufferControl(self.buffer), height=1, get_line_prefix=lambda *_: [("bold fg:ansicyan", "› ")])
        body = HSplit(
            [Window(FormattedTextControl(self._head), height=1), search, Window(FormattedTextControl(self._rows))]
        )
        self.app: Application[Choice | None] = Application(
            layout=Layout(body, focused_element=search),
            key_bindings=self._key_bindings(),
            output=output,
            input=input,
            erase_when_done=True,
        )
        self.app.ttimeoutlen = 0.1  # how long an Esc may be the beginning of another key

    async def run(self) -> Choice | None:
        """Run until something is chosen. None: nothing is."""
        async with asyncio.TaskGroup() as tasks:
            jobs = [tasks.create_task(self._load()), tasks.create_task(self._load_previews())]
            try:
                return await self.app.run_async(set_exception_handler=False, handle_sigint=False)
            except EOFError:
                self.input_ended = True
                return None
            finally:
                for job in jobs:
                    job.cancel()

    def cancel(self) -> None:
        """Choose nothing."""
        self._end(None)

    def _end(self, choice: Choice | None) -> None:
        if self.app.is_running and not self.app.is_done:
            self.app.exit(result=choice)

    # --- what comes later ---

    async def _load(self) -> None:
        if self._more is None:
            return
        with suppress(TreadleError):  # what has come can be chosen
            async for choice in self._more:
                if len(self.list.choices) >= MAX_CHOICES:
                    return
                self.list.add(choice)
                self._moved.set()
                self.app.invalidate()

    async def _load_previews(self) -> None:
        while self._preview is not None:
            await self._moved.wait()
            await asyncio.sleep(_REST_S)
            self._moved.clear()
            choice = self.list.marked
            if choice is None or id(choice) in self._about:
                continue
            text = ""
            with suppress(TreadleError, TimeoutError):
                async with asyncio.timeout(_PREVIEW_S):
                    text = await self._preview(choice.value)
            self._about[id(choice)] = text
            self.app.invalidate()

    # --- drawing ---

    def _head(self) -> AnyFormattedText:
        there, fit = len(self.list.choices), len(self.list.matches)
        count = f"{there:,}" if fit == there else f"{fit:,} of {there:,}"
        width = self._width()
        title = Text(self._title, "bold")
        title.truncate(width - len(count) - 2, overflow="ellipsis")
        return self._painted([Text.assemble(title, "  ", (count, "dim"))])

    def _rows(self) -> AnyFormattedText:
        height, width = self.app.output.get_size().rows, self._width()
        preview_rows = min(_PREVIEW_ROWS, max(0, height - 10) // 2)
        shown = self.list.rows(max(1, min(_LIST_ROWS, height - preview_rows - 5)))
        lines = [self._row(choice, marked, width) for choice, marked in shown]
        if not shown:
            lines.append(Text("  nothing fits", "dim"))
        choice = self.list.marked
        rows = [] if choice is None else _about_rows(self._about.get(id(choice), choice.about), width - 2)
        if self._preview is None:
            preview_rows = min(
                preview_rows, max((len(_about_rows(each.about, width - 2)) for each, _ in shown), default=0)
            )
        if preview_rows:
            rows = [*rows, *[Text()] * preview_rows][:preview_rows]  # nothing jumps when another is marked
            lines += [Text("─" * width, "dim"), *(Text.assemble("  ", row) for row in rows)]
        keys = Text(_KEYS, "dim")
        keys.truncate(width, overflow="ellipsis")
        return self._painted([*lines, keys])

    def _row(self, choice: Choice, marked: bool, width: int) -> Text:
        label, detail = (Text(_JOINED.sub("", printable_line(text))) for text in (choice.label, choice.detail))
        if width - 4 - detail.cell_len < min(label.cell_len, _LEAST_LABEL):
            detail = Text()
        label.truncate(width - 2 - (detail.cell_len + 2 if detail else 0), overflow="ellipsis", pad=bool(detail))
        row = Text.assemble("❯ " if marked else "  ", label, ("  ", ""), (detail.plain, "" if marked else "dim"))
        row.rstrip()
        if marked:
            row.stylize("bold cyan")
        return row

    def _painted(self, lines: list[Text]) -> ANSI:
        return ANSI(painted(tuple(lines), self._width(), colors=self._colors).removesuffix("\n"))

    def _width(self) -> int:
        # The last column stays empty: some terminals wrap when it is written.
        return max(10, self.app.output.get_size().columns - 1)

    # --- keys ---

    def _typed(self, _: object) -> None:
        self.list.search(self.buffer.text)
        self._moved.set()

    def _key_bindings(self) -> KeyBindings:
        keys = KeyBindings()
        moves = {"up": -1, "down": 1, "c-p": -1, "c-n": 1, "s-tab": -1, "tab": 1, "pageup": -10, "pagedown": 10}
        for name, by in moves.items():

            @keys.add(name)
            def move(event: KeyPressEvent, by: int = by) -> None:
                self.list.move(by)
                self._moved.set()

        @keys.add("enter")
        def take(event: KeyPressEvent) -> None:
            if self.list.marked is not None:
                self._end(self.list.marked)

        for name in ("escape", "c-c", "c-d"):

            @keys.add(name, eager=True)
            def leave(event: KeyPressEvent) -> None:
                self._end(None)

        return keys


def _about_rows(about: str, width: int) -> list[Text]:
    text = _JOINED.sub("", printable(about)).expandtabs(4).strip("\n")
    return rendered(Text(text, overflow="fold"), width) if text else []


async def pick(title: str, stream: TextIO, **how: Any) -> Any:
    """Let a person choose where nothing else is drawn, with what else a `Picker` takes; gives the value. None: none of
    them. The terminal may go away: that is none, too."""
    picker = Picker(
        title,
        (),
        output=make_output(stream, lambda: picker.cancel()),
        colors=wants_color("auto", stream, os.environ),
        **how,
    )
    taken = await picker.run()
    return None if taken is None else taken.value


def threads_to_pick(library: ThreadLibrary, cwd: str, *, leave_out: str | None = None) -> dict[str, Any]:
    """What a `Picker` of threads takes besides its title. The threads of the directory come first; `leave_out` is the
    id of one that is not listed."""

    async def choices() -> AsyncIterator[Choice]:
        now = time.time()
        async with aclosing(library.all(cwd)) as threads:
            async for thread in threads:
                if thread.id == leave_out:
                    continue
                place = "" if thread.cwd == cwd else at_home(thread.cwd)
                if len(place) > _MAX_PLACE:
                    place = f"…{place[1 - _MAX_PLACE :]}"
                used = when(thread.updated_at, now)
                yield Choice(
                    title_of(thread) or "(nothing was said)",
                    thread,
                    f"{place} · {used}" if place else used,
                    words=f"{thread.id} {thread.cwd}",
                )

    async def preview(thread: Thread) -> str:
        blocks = (block for item in await library.last_items(thread.id) for block in item_blocks(item))
        messages = [block for block in blocks if isinstance(block, MessageBlock)]
        texts = [(block.by, " ".join(without_input(block.text).split())[:_MAX_MESSAGE]) for block in messages]
        facts = f"{short_id(thread.id)} · {thread.model or thread.model_provider} · {at_home(thread.cwd)}"
        return "\n".join([*(f"› {text}" if by == "user" else text for by, text in texts), facts])

    return {"more": choices(), "preview": preview}
