"""How the screen of a session looks: where things are, and how they are drawn. `ChatScreen` says what there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText
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
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar
from rich.console import RenderableType
from rich.text import Text

from treadle.cli.chat.terminal_output import painted
from treadle.cli.turn.turn_blocks import Hanging

if TYPE_CHECKING:
    from treadle.cli.chat.screen import ChatScreen

_INPUT_ROWS: Final = 10
_MENU_ROWS: Final = 8
# What is not for the lines of now: the input, the status line, and some of what was said.
_OTHER_ROWS: Final = 6
# No colours of a background, and none that cannot be read on one of the two: the terminal may be dark or light.
STYLE: Final = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "status": "dim",
        "label": "bold",
        "completion-menu": "bg:default fg:default",
        "completion-menu.completion": "bg:default fg:ansicyan",
        "completion-menu.completion.current": "bg:default fg:default reverse",
        "completion-menu.meta.completion": "bg:default fg:default dim",
        "completion-menu.meta.completion.current": "bg:default fg:default reverse",
    }
)


class ScreenLayout:
    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        search = SearchToolbar(ignore_case=True)
        typed = Window(
            BufferControl(buffer=screen.buffer, search_buffer_control=search.control),
            wrap_lines=True,
            height=self._input_height,
            get_line_prefix=self._line_prefix,
            dont_extend_height=True,
        )
        menu = Float(CompletionsMenu(max_height=_MENU_ROWS), xcursor=True, ycursor=True)
        body = HSplit(
            [
                _lines(self._live, lambda: screen.user.working and screen.question is None),
                _lines(self._question, lambda: screen.question is not None),
                FloatContainer(typed, [menu]),
                search,
                Window(FormattedTextControl(self._status), height=1),
            ]
        )
        self.layout: Layout = Layout(body, focused_element=typed)

    def _rows(self) -> int:
        return self._screen.app.output.get_size().rows

    def _input_height(self) -> Dimension:
        """With room for the menu of completions below the cursor."""
        rows = _MENU_ROWS + 1 if self._screen.buffer.complete_state is not None else 1
        rows = max(1, min(rows, self._rows() - 4))
        return Dimension(min=rows, max=max(rows, min(_INPUT_ROWS, self._rows() - 4)))

    def _line_prefix(self, line: int, wrapped: int) -> AnyFormattedText:
        if line or wrapped:
            return "  "
        label = self._screen.text_label
        return [("class:prompt", "› ")] if label is None else [("class:label", f"{label} ")]

    def _live(self) -> AnyFormattedText:
        screen, room = self._screen, max(1, self._rows() - _OTHER_ROWS)
        lines = list(screen.user.live(time.monotonic(), screen.width, room))[-room:]
        for line in lines:
            line.no_wrap = True
            line.truncate(screen.width, overflow="ellipsis")
        return self._painted(lines)

    def _question(self) -> AnyFormattedText:
        screen, question = self._screen, self._screen.question
        if question is None:
            return ""
        title = Text(question.title, "bold")
        if screen.buffer.text:
            return self._painted([title, Text("  send or clear your message first, then answer", "dim")])
        if not screen.takes_keys:
            return self._painted([title, Text("  …", "dim")])
        options = [
            Hanging(
                Text(f"  {option.key}  ", "bold cyan"),
                Text(option.label, "reverse" if number == question.selected else ""),
            )
            for number, option in enumerate(question.options)
        ]
        return self._painted([title, *options])

    def _painted(self, lines: Sequence[RenderableType]) -> ANSI:
        return ANSI(painted(tuple(lines), self._screen.width, colors=self._screen.colors).removesuffix("\n"))

    def _status(self) -> AnyFormattedText:
        screen = self._screen
        return [("class:status", (screen.hint or screen.user.status(screen.width))[: screen.width])]


def _lines(text: Callable[[], AnyFormattedText], shown: Callable[[], bool]) -> ConditionalContainer:
    window = Window(FormattedTextControl(text), dont_extend_height=True, wrap_lines=True)
    return ConditionalContainer(window, Condition(shown))
