"""`ChatScreen`: the terminal of a session: what was said scrolls by above, below it are the lines of now, a question if
there is one, the input, and the status line.

It owns the prompt_toolkit application. It knows no server: what is typed is handed on, what is shown is given to it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText
from prompt_toolkit.history import History
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    Float,
    FloatContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.output import Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar
from rich.console import RenderableType
from rich.text import Text

from treadle.cli.chat.question import Choice, Question
from treadle.cli.chat.terminal_output import painted
from treadle.cli.live_area import TICK_S

MAX_INPUT_ROWS: Final = 10
_MENU_ROWS: Final = 8
# No colours of a background: the terminal may be dark or light.
_STYLE: Final = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "status": "ansibrightblack",
        "question": "bold",
        "selected": "reverse",
        "hint": "ansibrightblack",
    }
)


class ScreenUser(Protocol):
    """Who sits behind the screen."""

    def submitted(self, text: str) -> None: ...
    def interrupt(self) -> None:
        """Esc or Ctrl-C while something goes on."""

    @property
    def working(self) -> bool: ...
    def status(self, width: int) -> str: ...
    def live(self, now: float, width: int, height: int) -> Sequence[Text]: ...


class ChatScreen:
    def __init__(
        self,
        user: ScreenUser,
        *,
        history: History,
        completer: Completer,
        output: Output,
        input: Input | None = None,
        colors: bool = True,
    ) -> None:
        from treadle.cli.chat.keys import chat_keys  # it is about this class

        self._user = user
        self._colors = colors
        self._asking = asyncio.Lock()  # one question at a time
        self.question: Question | None = None
        self._answered: asyncio.Future[Choice | None] | None = None
        self._text_label: str | None = None
        self._text_given: asyncio.Future[str | None] | None = None
        self.hint = ""
        self.buffer = Buffer(
            history=history,
            completer=completer,
            complete_while_typing=Condition(lambda: not self.asks_for_text),
            multiline=True,
        )
        self.app: Application[int] = Application(
            layout=self._layout(),
            key_bindings=chat_keys(self),
            style=_STYLE,
            output=output,
            input=input,
            enable_page_navigation_bindings=False,
            mouse_support=False,
        )
        self.app.ttimeoutlen = 0.1  # how long an Esc may be the beginning of another key
        self.app.timeoutlen = 0.3

    # --- life ---

    async def run(self) -> int:
        """Until `leave`; gives what that was told. The end of the input ends it too."""
        ticking = asyncio.create_task(self._tick())
        try:
            return await self.app.run_async(set_exception_handler=False, handle_sigint=False)
        except EOFError:
            return 0
        finally:
            ticking.cancel()

    def leave(self, code: int = 0) -> None:
        if self.app.is_running and not self.app.is_done:
            self.app.exit(result=code)

    async def _tick(self) -> None:
        """What goes on is drawn again and again; when nothing does, nothing is drawn."""
        while True:
            await asyncio.sleep(TICK_S)
            if self._user.working or self.question is not None:
                self.app.invalidate()

    # --- showing ---

    def print(self, *renderables: RenderableType) -> None:
        """Above, to stay."""
        if not renderables:
            return
        text = painted(renderables, self.width, colors=self._colors)
        if self.app.is_running:
            self.app.renderer.erase()
        self.app.output.write_raw(text.replace("\n", "\r\n"))
        self.app.output.flush()
        self.app.invalidate()

    @property
    def width(self) -> int:
        # The last column stays empty: some terminals wrap when it is written.
        return max(10, self.app.output.get_size().columns - 1)

    # --- asking ---

    async def choose(self, title: str, choices: Sequence[Choice], *, before: Sequence[RenderableType] = ()) -> Choice | None:
        """Show what it is about, and wait for a key. None: the user wants none of it (Esc, Ctrl-C)."""
        async with self._asking:
            self.print(*before)
            self.question = Question(title, choices, now=time.monotonic())
            self._answered = asyncio.get_running_loop().create_future()
            self.app.invalidate()
            try:
                return await self._answered
            finally:
                self.question = None
                self.app.invalidate()

    async def ask_text(self, label: str) -> str | None:
        """A line of text. None: the user has thought better of it."""
        async with self._asking:
            draft, self.buffer.text = self.buffer.text, ""
            self._text_label = label
            self._text_given = asyncio.get_running_loop().create_future()
            self.app.invalidate()
            try:
                return await self._text_given
            finally:
                self._text_label = None
                self.buffer.reset()
                self.buffer.insert_text(draft)

    def answer(self, choice: Choice | None) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(choice)

    def give_text(self, text: str | None) -> None:
        if self._text_given is not None and not self._text_given.done():
            self._text_given.set_result(text)

    @property
    def asks_for_text(self) -> bool:
        return self._text_label is not None

    @property
    def asks_for_key(self) -> bool:
        """Whether a key that is pressed now answers the question."""
        return self.question is not None and self.question.counts(time.monotonic(), self.buffer.text)

    # --- typing ---

    def submit(self) -> None:
        """Enter."""
        text = self.buffer.text
        if self.asks_for_text:
            self.give_text(text.strip() or None)
            return
        if text.strip():
            self.buffer.append_to_history()
        self.buffer.reset()
        if text.strip():
            self._user.submitted(text)

    @property
    def working(self) -> bool:
        return self._user.working

    def interrupt(self) -> None:
        self._user.interrupt()

    # --- what it looks like ---

    def _layout(self) -> Layout:
        search = SearchToolbar(ignore_case=True)
        control = BufferControl(buffer=self.buffer, search_buffer_control=search.control)
        typed = Window(
            control,
            wrap_lines=True,
            height=self._input_height,
            get_line_prefix=self._line_prefix,
            dont_extend_height=True,
        )
        menu = Float(CompletionsMenu(max_height=_MENU_ROWS), xcursor=True, ycursor=True)
        body = HSplit(
            [
                self._lines(self._live_text, lambda: self._user.working and self.question is None),
                self._lines(self._question_text, lambda: self.question is not None),
                FloatContainer(typed, [menu]),
                search,
                Window(FormattedTextControl(self._status_text), height=1),
            ]
        )
        return Layout(body, focused_element=typed)

    def _lines(self, text: Callable[[], AnyFormattedText], shown: Callable[[], bool]) -> ConditionalContainer:
        window = Window(FormattedTextControl(text), dont_extend_height=True, wrap_lines=True)
        return ConditionalContainer(window, Condition(shown))

    def _input_height(self) -> Dimension:
        """With room for the menu of completions below the cursor."""
        rows = _MENU_ROWS + 1 if self.buffer.complete_state is not None else 1
        return Dimension(min=min(rows, self.app.output.get_size().rows - 4), max=max(rows, MAX_INPUT_ROWS))

    def _line_prefix(self, line: int, wrapped: int) -> AnyFormattedText:
        if line or wrapped:
            return "  "
        if self._text_label is not None:
            return [("class:question", f"{self._text_label} ")]
        return [("class:prompt", "› ")]

    def _live_text(self) -> AnyFormattedText:
        size = self.app.output.get_size()
        room = max(1, size.rows - 6)
        lines = list(self._user.live(time.monotonic(), self.width, room))[-room:]
        for line in lines:
            line.no_wrap = True
            line.truncate(self.width, overflow="ellipsis")
        return ANSI(painted(tuple(lines), self.width, colors=self._colors).removesuffix("\n")) if lines else ""

    def _question_text(self) -> AnyFormattedText:
        question = self.question
        assert question is not None
        shown: list[tuple[str, str]] = [("class:question", question.title)]
        if self.buffer.text:
            return [*shown, ("class:hint", "\n  send or clear your message first, then answer")]
        if not question.counts(time.monotonic(), ""):
            return [*shown, ("class:hint", "\n  …")]
        for number, choice in enumerate(question.choices):
            style = "class:selected" if number == question.selected else ""
            shown += [("", "\n  "), (style, f"{choice.key}  {choice.label}")]
        return shown

    def _status_text(self) -> AnyFormattedText:
        return [("class:status", (self.hint or self._user.status(self.width))[: self.width])]


def standard_input() -> TextIO:
    return sys.stdin
