"""`LiveTurn`: a turn drawn on a terminal, and `TerminalApprover`, which asks the person there.

A `TurnRenderer` decides what is to be seen; `LiveTurn` has the clock and the screen, `Keyboard` what is typed. While
somebody is asked, nothing is drawn; what happens meanwhile is shown afterwards. Whatever is not a clear yes is a no.
"""

from __future__ import annotations

import asyncio
import os
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, TextIO

from rich.console import Console
from rich.text import Text

from treadle.cli.streams import OutputFailed
from treadle.cli.terminal import LiveArea
from treadle.cli.turn.approval_question import ApprovalChoice, Question, approval_question, no_answer, params_of_request
from treadle.cli.turn.rich_blocks import Hanging, note
from treadle.cli.turn.turn_header import TurnHeader, confinement
from treadle.cli.turn.turn_renderer import TurnRenderer
from treadle.pages.safe_text import printable, printable_line
from treadle.protocol.app.turns import Turn

# The end of input, as a line has it and as a key.
_END_OF_INPUT: Final = ("", "\x04")
# A line that is longer is cut by the terminal itself.
_LONGEST_LINE: Final = 4096
_NOT_NEEDED: Final = "no answer is needed any more"


class LiveTurn:
    """Draws until `close`.

    Args:
        stream: The terminal.
        header: The facts before and after the turn.
        color: `auto`, `always` or `never`.
        holds_answer: Whether the last message is left to the caller.
        on_lost: Called when the terminal has gone away.
    """

    def __init__(
        self, stream: TextIO, header: TurnHeader, *, color: str, holds_answer: bool, on_lost: Callable[[], None]
    ) -> None:
        self._header = header
        self._holds_answer = holds_answer
        self._began = time.monotonic()
        self.renderer: TurnRenderer = TurnRenderer(self._began)
        self._area = LiveArea(
            stream,
            lambda width, height: self.renderer.live(time.monotonic(), width, height),
            color=color,
            on_lost=on_lost,
        )

    def started(self, started: Any) -> None:
        confined, network = confinement(started.sandbox, started.active_permission_profile)
        self.renderer = TurnRenderer(
            self._began, confinement=confined, network=network, holds_answer=self._holds_answer
        )
        facts = self._header.facts(started)
        table = [Hanging(Text(f"{name:9}", "dim"), Text(printable_line(fact))) for name, fact in facts.items()]
        self._area.print(*table, "")

    def show(self, method: str, params: Any) -> None:
        self._area.print(*self.renderer.show(method, params, time.monotonic()))

    def note(self, text: str) -> None:
        self.renderer.note = printable(text)

    def ended(self, turn: Turn) -> None:
        used = Hanging(Text(), Text(self.renderer.used(turn.duration_ms), "dim"))
        # Broken by the terminal alone: what is copied from there has no line ends in it.
        steps = [
            Text.assemble((f"{name:9}", "dim"), printable_line(fact), no_wrap=True, overflow="ignore")
            for name, fact in self._header.next_steps(turn.error).items()
        ]
        self._area.close(used, *steps)

    def close(self) -> None:
        self._area.close()

    def aside(self) -> AbstractContextManager[Console]:
        """The screen for a question. Raises `OutputFailed` if it is gone."""
        return self._area.aside()


class Keyboard:
    """Keys and lines that a person types at the terminal while a question is open.

    It owns the mode of the terminal, and puts it back. It reads nothing between questions: what was typed before a
    question was asked is no answer to it, and is thrown away.
    """

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._before: list[Any] | None = None  # the mode to put back

    def is_ours(self) -> bool:
        """Whether the person who types talks to us: a program in the background may not read, and would be stopped."""
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return False

    @contextmanager
    def keys(self) -> Iterator[None]:
        """What is typed comes key by key, and is not shown. Raises `OutputFailed` if the terminal is gone."""
        try:
            self._before = termios.tcgetattr(self._descriptor)
            tty.setcbreak(self._descriptor, termios.TCSAFLUSH)
        except termios.error as error:
            raise OutputFailed(f"the terminal is gone: {error.args[-1]}") from None
        try:
            yield
        finally:
            self.restore()

    async def read(self) -> str:
        """What is typed next: a key, or else a line. Empty at the end of input."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._descriptor)
        try:
            return os.read(self._descriptor, _LONGEST_LINE).decode("utf-8", "replace")
        except OSError:  # the terminal is gone
            return ""

    def restore(self) -> None:
        """The terminal as it was. May be called again, and by a handler of signals."""
        before, self._before = self._before, None
        if before is not None:
            try:
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, before)
            except termios.error:  # the terminal is gone
                return


class TerminalApprover:
    """Puts the server's questions to the person at the terminal, one after the other.

    The first answer counts, whoever gives it: a question that was answered elsewhere, or needs no answer any more, is
    withdrawn by cancelling `ask`.

    Args:
        turn: Where the questions are shown.
        keyboard: Where they are answered.
    """

    def __init__(self, turn: LiveTurn, keyboard: Keyboard) -> None:
        self._turn = turn
        self._keyboard = keyboard
        self._one_at_a_time = asyncio.Lock()

    def close(self) -> None:
        """The keyboard as it was. May be called again, and by a handler of signals."""
        self._keyboard.restore()

    async def ask(self, method: str, params: dict[str, Any]) -> tuple[Any, str]:
        """The answer for the server, and what the person wants the agent to do instead. Raises `RpcError` for what
        cannot be asked here, and `OutputFailed` if the terminal is gone."""
        given = params_of_request(method, params)
        async with self._one_at_a_time:
            renderer = self._turn.renderer
            question = approval_question(method, given, renderer.changes(getattr(given, "item_id", "")))
            if question is None:
                raise no_answer(method)
            with self._turn.aside() as console:
                for block in renderer.said(question.item_id):
                    console.print(block)
                choice, instead = await choose(question, console, self._keyboard)
            if choice is None or not choice.allows:
                renderer.decided(question.item_id, "you said no" if choice is not None else "nobody answered")
            return (question.no, "") if choice is None else (choice.answer, instead)


async def choose(question: Question, console: Console, keyboard: Keyboard) -> tuple[ApprovalChoice | None, str]:
    """Show a question and wait for its answer: the choice, and what to do instead; None if there is no answer."""
    for block in question.blocks():
        console.print(block)
    if not keyboard.is_ours():
        console.print(note("declined: the program runs in the background, where nobody can be asked", ""))
        return None, ""
    choice = None
    try:
        with keyboard.keys():
            console.print(Text("  > ", "bold cyan"), end="")
            while choice is None and (typed := await keyboard.read()) not in _END_OF_INPUT:
                choice = question.choose(typed)
        if choice is None:
            console.print()
            console.print(note("no answer: that is a no", ""))
            return None, ""
        console.print(Text(choice.short_label))
        if not choice.tells:
            return choice, ""
        console.print(Text("  what instead? (Enter: nothing) ", "bold cyan"), end="")
        return choice, (await keyboard.read()).strip()
    except asyncio.CancelledError:
        console.print()
        console.print(note(_NOT_NEEDED, ""))
        raise
    finally:
        console.print()
