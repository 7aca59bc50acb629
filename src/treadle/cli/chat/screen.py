"""`ChatScreen`: the terminal of a session. The conversation scrolls by; below it are the lines of the running turn, a
question if there is one, the input, and the status line.

The module owns the prompt_toolkit application, its layout and its keys. It knows no server: what is typed is handed on,
what is shown is given to it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from msgspec import Struct
from prompt_toolkit.application import Application, in_terminal, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText
from prompt_toolkit.history import History
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
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

from treadle.cli.chat.desktop import FOCUS_REPORTS, NO_FOCUS_REPORTS, Attention
from treadle.cli.chat.picker import Choice, Picker
from treadle.cli.chat.terminal_output import FOCUS_KEYS, painted
from treadle.cli.terminal import TICK_S
from treadle.cli.turn.rich_blocks import Hanging
from treadle.config.file_settings import TerminalSettings

# Longer than the pause between two keys of somebody who types, shorter than it takes to read a question.
REST_S: Final = 0.5
# Two Ctrl-C within this time mean it.
TWICE_S: Final = 2.0
CLOSED: Final = 128 + signal.SIGHUP
"""What a program ends with whose terminal is closed."""
_INPUT_ROWS: Final = 10
_MENU_ROWS: Final = 8
# Not for the lines of the running turn: the input, the status line, and some of the conversation.
_OTHER_ROWS: Final = 6
# No colours of a background, and none that cannot be read on one of the two: the terminal may be dark or light.
_STYLE: Final = Style.from_dict(
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


class Option(Struct, frozen=True):
    """An answer to choose."""

    key: str
    """A letter or digit."""
    label: str


class KeyQuestion:
    """A question that is answered with a key, and when a key counts. Pure: time is passed in.

    A question comes up while somebody may be typing. A key that was meant for the message must not be a yes: keys count
    only when the keyboard has rested, and while there is text in the input they go there. `title` is one line; what it
    is about was shown before it. `first_marked`: Enter takes the first option; else none is taken that was not gone to.
    """

    def __init__(self, title: str, options: Sequence[Option], *, now: float, first_marked: bool) -> None:
        self.title: str = title
        self.options: tuple[Option, ...] = tuple(options)
        self.selected: int | None = 0 if first_marked else None
        self._quiet_since = now

    def key_pressed(self, now: float) -> None:
        """Take note of a key that did not count."""
        self._quiet_since = now

    def counts(self, now: float, draft: str) -> bool:
        """Whether a key that is pressed now answers it."""
        return not draft and now - self._quiet_since >= REST_S

    def move(self, by: int) -> None:
        start = self.selected if self.selected is not None else -1 if by > 0 else 0
        self.selected = (start + by) % len(self.options)

    @property
    def marked(self) -> Option | None:
        return None if self.selected is None else self.options[self.selected]

    def option_of(self, key: str) -> Option | None:
        return next((option for option in self.options if option.key == key.lower()), None)


class ScreenUser(Protocol):
    """What the screen is for: it takes what is typed, and says what there is to draw."""

    @property
    def working(self) -> bool:
        """Whether a turn runs."""

    @property
    def interrupting(self) -> bool: ...
    def interrupt(self) -> None: ...
    def submitted(self, text: str) -> None: ...
    def status(self, width: int) -> str: ...
    def live(self, now: float, width: int, height: int) -> Sequence[Text]: ...


class ChatScreen:
    """The terminal of a session."""

    def __init__(
        self,
        user: ScreenUser,
        *,
        history: History,
        completer: Completer,
        output: Output,
        input: Input | None = None,
        colors: bool = True,
        calls: TerminalSettings | None = None,
    ) -> None:
        self.user: ScreenUser = user
        self.colors: bool = colors
        self.question: KeyQuestion | None = None
        self.text_label: str | None = None
        """What is asked for as text; then the input is for that."""
        self.hint: str = ""
        self.attention: Attention = Attention(calls or TerminalSettings(), self.send)
        self._asking = asyncio.Lock()  # one question at a time
        self._picker: Picker | None = None  # drawn instead of all else, while there is one
        self._answered: asyncio.Future[Option | None] | None = None
        self._text_given: asyncio.Future[str | None] | None = None
        self._stopped = float("-inf")
        self._left: int | None = None
        self.buffer: Buffer = Buffer(
            history=history,
            completer=completer,
            complete_while_typing=Condition(lambda: self.text_label is None),
            multiline=True,
            on_text_changed=self._typed,
        )
        self.app: Application[int] = Application(
            layout=_ScreenLayout(self).layout,
            key_bindings=_key_bindings(self),
            style=_STYLE,
            output=output,
            input=input,
            mouse_support=False,
            erase_when_done=True,
        )
        self.app.key_processor.before_key_press += lambda _: self.attention.key_pressed()
        self.app.ttimeoutlen = 0.1  # how long an Esc may be the beginning of another key
        self.app.timeoutlen = 0.3

    # --- life ---

    async def run(self) -> int:
        """Run until `leave`; gives the code that `leave` was given. The input ends when the terminal is closed."""
        if self._left is not None:
            return self._left

        async def redraw() -> None:
            """Draw again and again as long as a turn runs or a question waits."""
            while True:
                await asyncio.sleep(TICK_S)
                if self.user.working or self.question is not None:
                    self.app.invalidate()

        ticking = asyncio.create_task(redraw())
        self.send(FOCUS_REPORTS)
        try:
            return await self.app.run_async(set_exception_handler=False, handle_sigint=False)
        except EOFError:
            return CLOSED
        finally:
            self.send(NO_FOCUS_REPORTS)
            ticking.cancel()

    def leave(self, code: int = 0) -> None:
        """End `run` with an exit code; before `run`, that ends at once."""
        if self._left is None:
            self._left = code
            if self._picker is not None:
                self._picker.cancel()
            if self.app.is_running and not self.app.is_done:  # the end of the input may have come first
                self.app.exit(result=code)

    # --- showing ---

    def print(self, *renderables: RenderableType) -> None:
        """Print above the input, to stay."""
        if renderables:
            self.write(painted(renderables, self.width, colors=self.colors))

    def write(self, text: str) -> None:
        """Write whole lines above the input: their sequences are obeyed."""
        app = self.app if self._picker is None else self._picker.app
        if app.is_running:
            app.renderer.erase()
        self.send(text.replace("\n", "\r\n"))
        app.invalidate()

    def send(self, sequence: str) -> None:
        """Send a sequence that draws nothing."""
        self.app.output.write_raw(sequence)
        self.app.output.flush()

    @property
    def width(self) -> int:
        # The last column stays empty: some terminals wrap when it is written.
        return max(10, self.app.output.get_size().columns - 1)

    def show_hint(self, text: str, seconds: float) -> None:
        """Show a text in place of the status line, for a while."""

        def clear() -> None:
            if self.hint == text:
                self.hint = ""
                self.app.invalidate()

        self.hint = text
        asyncio.get_running_loop().call_later(seconds, clear)

    # --- asking ---

    async def choose(
        self,
        title: str,
        options: Sequence[Option],
        *,
        about: Sequence[RenderableType] = (),
        first_marked: bool = True,
    ) -> Option | None:
        """Show what the question is about, and wait for a key. None: the user wants none of it (Esc, Ctrl-C)."""
        async with self._asking:
            self.print(*about)
            self.question = KeyQuestion(title, options, now=time.monotonic(), first_marked=first_marked)
            self._answered = asyncio.get_running_loop().create_future()
            self.app.invalidate()
            try:
                return await self._answered
            finally:
                self.question = None
                self.app.invalidate()

    async def pick(self, title: str, choices: Iterable[Choice], **how: Any) -> Any:
        """Let the user choose one of many, with what else a `Picker` takes; gives its value. None: none of them."""
        async with self._asking:
            self._picker = picker = Picker(
                title, choices, output=self.app.output, input=self.app.input, colors=self.colors, **how
            )
            try:
                async with in_terminal():
                    taken = await picker.run()
            finally:
                self._picker = None
        if picker.input_ended:
            self.leave(CLOSED)
        return None if taken is None else taken.value

    async def ask_text(self, label: str) -> str | None:
        """Ask for a line of text. None: the user has thought better of it."""
        async with self._asking:
            draft = self.buffer.text
            self.buffer.reset()
            self.text_label = label
            self._text_given = asyncio.get_running_loop().create_future()
            self.app.invalidate()
            try:
                return await self._text_given
            finally:
                self.text_label = None
                self.buffer.reset()
                self.buffer.insert_text(draft)
                self.app.invalidate()

    def answer(self, option: Option | None) -> None:
        """Answer the question that waits for a key."""
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(option)

    def _give_text(self, text: str | None) -> None:
        if self._text_given is not None and not self._text_given.done():
            self._text_given.set_result(text)

    @property
    def takes_keys(self) -> bool:
        """Whether a key that is pressed now answers the question."""
        return self.question is not None and self.question.counts(time.monotonic(), self.buffer.text)

    # --- typing ---

    def _typed(self, _: object) -> None:
        if self.question is not None:
            self.question.key_pressed(time.monotonic())

    def submit(self) -> None:
        """Handle Enter: send the message, or give the text that was asked for."""
        text = self.buffer.text
        if self.text_label is not None:
            self._give_text(text.strip() or None)
            return
        if text.strip():
            self.buffer.append_to_history()
        self.buffer.reset()
        if text.strip():
            self.user.submitted(text)

    def interrupt(self) -> None:
        """Handle Esc: close the menu, the question for text, or interrupt the turn."""
        if self.buffer.complete_state is not None:
            self.buffer.cancel_completion()
        elif self.text_label is not None:
            self._give_text(None)
        elif self.user.working:
            self.user.interrupt()

    def end(self) -> None:
        """Handle Ctrl-D at an empty prompt: leave. What is asked for as text gets no answer."""
        self._give_text(None)
        self.leave()

    def stop(self) -> None:
        """Handle Ctrl-C: cancel the nearest thing that can be cancelled."""
        now = time.monotonic()
        if self.text_label is not None:
            self._give_text(None)
        elif self.user.working and not self.user.interrupting:
            self.user.interrupt()
        elif self.buffer.text:
            self.buffer.reset()
        elif now - self._stopped < TWICE_S:
            self.leave()
        else:
            self._stopped = now
            self.show_hint("Ctrl-C again leaves, and so does Ctrl-D", TWICE_S)


# --- layout ---


class _ScreenLayout:
    """Where things are on the screen, and how they are drawn."""

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

        def status() -> AnyFormattedText:
            return [("class:status", (screen.hint or screen.user.status(screen.width))[: screen.width])]

        menu = Float(CompletionsMenu(max_height=_MENU_ROWS), xcursor=True, ycursor=True)
        body = HSplit(
            [
                _lines(self._live, lambda: screen.user.working and screen.question is None),
                _lines(self._question, lambda: screen.question is not None),
                FloatContainer(typed, [menu]),
                search,
                Window(FormattedTextControl(status), height=1),
            ]
        )
        self.layout: Layout = Layout(body, focused_element=typed)

    def _rows(self) -> int:
        return self._screen.app.output.get_size().rows

    def _input_height(self) -> Dimension:
        """The height of the input, with space for the menu of completions below the cursor."""
        rows = _MENU_ROWS + 1 if self._screen.buffer.complete_state is not None else 1
        rows = max(1, min(rows, self._rows() - 4))
        return Dimension(min=rows, max=max(rows, min(_INPUT_ROWS, self._rows() - 4)))

    def _line_prefix(self, line: int, wrapped: int) -> AnyFormattedText:
        if line or wrapped:
            return "  "
        label = self._screen.text_label
        return [("class:prompt", "› ")] if label is None else [("class:label", f"{label} ")]

    def _live(self) -> AnyFormattedText:
        screen, rows = self._screen, max(1, self._rows() - _OTHER_ROWS)
        lines = list(screen.user.live(time.monotonic(), screen.width, rows))[-rows:]
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


def _lines(text: Callable[[], AnyFormattedText], shown: Callable[[], bool]) -> ConditionalContainer:
    window = Window(FormattedTextControl(text), dont_extend_height=True, wrap_lines=True)
    return ConditionalContainer(window, Condition(shown))


# --- keys ---


def _key_bindings(screen: ChatScreen) -> KeyBindings:
    """The keys that are not as in readline, which prompt_toolkit has."""
    keys = KeyBindings()
    buffer = screen.buffer

    # --- typing ---
    completing = Condition(lambda: buffer.complete_state is not None)
    chosen = Condition(
        lambda: buffer.complete_state is not None and buffer.complete_state.current_completion is not None
    )

    @keys.add("enter")
    def enter(event: KeyPressEvent) -> None:
        """Send. A backslash before the cursor at the end of a line begins a new one instead."""
        if buffer.document.text_before_cursor.endswith("\\") and screen.text_label is None:
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            screen.submit()

    @keys.add("enter", filter=chosen)
    def take(event: KeyPressEvent) -> None:
        """Close the menu: what is marked in it is in the text already."""
        buffer.complete_state = None

    @keys.add("tab", filter=completing)
    def complete(event: KeyPressEvent) -> None:
        """Take the only completion at once."""
        state = buffer.complete_state
        if state is not None and len(state.completions) == 1:
            buffer.apply_completion(state.completions[0])
        else:
            buffer.complete_next()

    @keys.add("tab", filter=~completing)
    def complete_now(event: KeyPressEvent) -> None:
        buffer.start_completion()

    for combination in (("escape", "enter"), ("c-j",)):

        @keys.add(*combination)
        def newline(event: KeyPressEvent) -> None:
            buffer.newline(copy_margin=False)

    @keys.add("c-z")
    async def suspend(event: KeyPressEvent) -> None:
        """Stop, with all of the job: the shell is not to hear of the focus."""
        screen.send(NO_FOCUS_REPORTS)
        await run_in_terminal(lambda: os.kill(0, signal.SIGTSTP))
        screen.send(FOCUS_REPORTS)

    for focus_key, focused in zip(FOCUS_KEYS, (True, False), strict=True):

        @keys.add(focus_key, eager=True)
        def focus_changed(event: KeyPressEvent, focused: bool = focused) -> None:
            screen.attention.focus_changed(focused)

    # --- ending ---

    @keys.add("escape")
    def escape(event: KeyPressEvent) -> None:
        screen.interrupt()

    @keys.add("c-c")
    def stop(event: KeyPressEvent) -> None:
        screen.stop()

    @keys.add("c-d", filter=Condition(lambda: not buffer.text))
    def end(event: KeyPressEvent) -> None:
        screen.end()

    # --- answering a question: these go before the others while keys count ---

    counts = Condition(lambda: screen.takes_keys)

    def on(*names: str) -> Callable[[Callable[[KeyPressEvent], None]], None]:
        def add(function: Callable[[KeyPressEvent], None]) -> None:
            for name in names:
                keys.add(name, filter=counts, eager=True)(function)

        return add

    @on(Keys.Any)
    def answer(event: KeyPressEvent) -> None:
        question = screen.question
        pasted = event.key_sequence[-1].key == Keys.BracketedPaste
        found = None if question is None or pasted else question.option_of(event.data)
        if found is not None:
            screen.answer(found)
        elif pasted or event.data.isprintable():
            screen.buffer.insert_text(event.data)  # the beginning of a message: the question waits until that is sent

    @on("enter")
    def take_marked(event: KeyPressEvent) -> None:
        if screen.question is not None and screen.question.marked is not None:
            screen.answer(screen.question.marked)

    @on("escape", "c-c")
    def refuse(event: KeyPressEvent) -> None:
        screen.answer(None)

    @on("c-d")
    def refuse_and_leave(event: KeyPressEvent) -> None:
        screen.answer(None)
        screen.leave()

    for name, by in (("up", -1), ("down", 1), ("tab", 1), ("s-tab", -1)):

        @on(name)
        def move(event: KeyPressEvent, by: int = by) -> None:
            if screen.question is not None:
                screen.question.move(by)

    return keys
