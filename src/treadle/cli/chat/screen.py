"""`ChatScreen`: the terminal of a session. What was said scrolls by; below it are the lines of now, a question if there
is one, the input, and the status line.

It owns the prompt_toolkit application. It knows no server: what is typed is handed on, what is shown is given to it.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from typing import Final, Protocol

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import History
from prompt_toolkit.input import Input
from prompt_toolkit.output import Output
from rich.console import RenderableType
from rich.text import Text

from treadle.cli.chat.key_question import KeyQuestion, Option
from treadle.cli.chat.terminal_output import painted
from treadle.cli.live_area import TICK_S

# Two Ctrl-C within this time mean it.
TWICE_S: Final = 2.0
CLOSED: Final = 128 + signal.SIGHUP
"""What a program ends with whose terminal is closed."""


class ScreenUser(Protocol):
    """Who sits behind the screen."""

    @property
    def working(self) -> bool:
        """Whether something goes on."""

    @property
    def interrupting(self) -> bool: ...
    def interrupt(self) -> None: ...
    def submitted(self, text: str) -> None: ...
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
        from treadle.cli.chat.keys import chat_keys  # both are about this class
        from treadle.cli.chat.screen_layout import STYLE, ScreenLayout

        self.user: ScreenUser = user
        self.colors: bool = colors
        self.question: KeyQuestion | None = None
        self.text_label: str | None = None
        """What is asked for as text; then the input is for that."""
        self.hint: str = ""
        self._asking = asyncio.Lock()  # one question at a time
        self._answered: asyncio.Future[Option | None] | None = None
        self._text_given: asyncio.Future[str | None] | None = None
        self._stopped = float("-inf")
        self._left: int | None = None
        self.buffer: Buffer = Buffer(
            history=history,
            completer=completer,
            complete_while_typing=Condition(lambda: self.text_label is None),
            multiline=True,
            on_text_changed=lambda _: self._typed(),
        )
        self.app: Application[int] = Application(
            layout=ScreenLayout(self).layout,
            key_bindings=chat_keys(self),
            style=STYLE,
            output=output,
            input=input,
            mouse_support=False,
            erase_when_done=True,
        )
        self.app.ttimeoutlen = 0.1  # how long an Esc may be the beginning of another key
        self.app.timeoutlen = 0.3

    # --- life ---

    async def run(self) -> int:
        """Until `leave`; gives what that was told. The input ends when the terminal is closed."""
        if self._left is not None:
            return self._left
        ticking = asyncio.create_task(self._tick())
        try:
            return await self.app.run_async(set_exception_handler=False, handle_sigint=False)
        except EOFError:
            return CLOSED
        finally:
            ticking.cancel()

    def leave(self, code: int = 0) -> None:
        """Also before `run`, which then ends at once."""
        if self._left is None:
            self._left = code
            if self.app.is_running and not self.app.is_done:  # the end of the input may have come first
                self.app.exit(result=code)

    async def _tick(self) -> None:
        """What goes on is drawn again and again; when nothing does, nothing is drawn."""
        while True:
            await asyncio.sleep(TICK_S)
            if self.user.working or self.question is not None:
                self.app.invalidate()

    # --- showing ---

    def print(self, *renderables: RenderableType) -> None:
        """Above, to stay."""
        if not renderables:
            return
        text = painted(renderables, self.width, colors=self.colors)
        if self.app.is_running:
            self.app.renderer.erase()
        self.app.output.write_raw(text.replace("\n", "\r\n"))
        self.app.output.flush()
        self.app.invalidate()

    @property
    def width(self) -> int:
        # The last column stays empty: some terminals wrap when it is written.
        return max(10, self.app.output.get_size().columns - 1)

    def show_hint(self, text: str, seconds: float) -> None:
        """In place of the status line, for a while."""

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
        """Show what it is about, and wait for a key. None: the user wants none of it (Esc, Ctrl-C)."""
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

    async def ask_text(self, label: str) -> str | None:
        """A line of text. None: the user has thought better of it."""
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
        """To the question that waits for a key."""
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

    def _typed(self) -> None:
        if self.question is not None:
            self.question.key_pressed(time.monotonic())

    def submit(self) -> None:
        """Enter."""
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
        """Esc."""
        if self.buffer.complete_state is not None:
            self.buffer.cancel_completion()
        elif self.text_label is not None:
            self._give_text(None)
        elif self.user.working:
            self.user.interrupt()

    def stop(self) -> None:
        """Ctrl-C: the nearest thing that can be given up."""
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
