"""How `treadle exec` shows its turn: drawn on a terminal, as plain lines, as JSON, or not at all.

It owns which stream gets what. A terminal is drawn on, standard output before standard error; when only the latter is
one, the answer still goes to the former. Nobody is asked unless the keyboard is a terminal too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from treadle.cli.exec.exec_arguments import ExecRequest
from treadle.cli.exec.exec_turn import TurnDisplay
from treadle.cli.streams import OutputFailed, write, write_stderr
from treadle.cli.terminal import is_terminal, wants_color
from treadle.cli.turn.frame import Frame
from treadle.cli.turn.turn_view import View
from treadle.cli.visible import visible
from treadle.protocol.app.turns import Turn

if TYPE_CHECKING:
    from treadle.cli.turn.terminal_approver import Approver


def drawn_on(request: ExecRequest) -> TextIO | None:
    """The terminal that the turn is drawn on, if any."""
    if request.as_json or request.quiet:
        return None
    return next((stream for stream in (sys.stdout, sys.stderr) if is_terminal(stream)), None)


def can_ask(request: ExecRequest) -> bool:
    """Whether somebody is there to be asked."""
    return drawn_on(request) is not None and is_terminal(sys.stdin)


def shows_answer(request: ExecRequest) -> bool:
    """Whether the answer is seen with the rest of the turn."""
    return sys.stdout is not None and sys.stdout.isatty() and not request.as_json and not request.quiet


class Quiet:
    """Shows that a turn failed or was interrupted, and nothing else."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def started(self, started: Any) -> None:
        self._frame.facts(started)

    def show(self, method: str, params: Any) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...

    def ended(self, turn: Turn) -> None:
        if turn.status == "failed":
            write_stderr("treadle exec: the turn failed")
            write_stderr(f"  why: {'it did not say' if turn.error is None else visible(turn.error.message)}")
            for step in list(self._frame.next_steps(turn.error).values())[:1]:
                write_stderr(f"  try: {step}")
        elif turn.status == "interrupted":
            write_stderr("treadle exec: interrupted")
            for step in list(self._frame.next_steps().values())[:1]:
                write_stderr(f"  try: {step}")


def drawn(
    stream: TextIO, request: ExecRequest, frame: Frame, on_lost: Callable[[], None]
) -> tuple[TurnDisplay, Approver | None]:
    # rich takes 60 ms: loaded when something is drawn
    from treadle.cli.turn.keyboard import Keyboard
    from treadle.cli.turn.live_turn import LiveTurn
    from treadle.cli.turn.terminal_approver import Approver

    turn = LiveTurn(stream, frame, color=request.color, holds_answer=not shows_answer(request), on_lost=on_lost)
    return turn, Approver(turn, Keyboard()) if can_ask(request) else None


def plain(request: ExecRequest, frame: Frame) -> View:
    """On standard output if that is a terminal, though a simple one. Else on standard error, while the answer is for
    standard output; who has closed it does not want to see anything."""
    if shows_answer(request):
        color = wants_color(request.color, sys.stdout, os.environ)
        return View(lambda text: write(sys.stdout, text), color=color, frame=frame)
    stream = sys.stderr

    def show(text: str) -> None:
        nonlocal stream
        if stream is not None:
            try:
                write(stream, text)
            except OutputFailed:
                stream = None

    return View(show, color=wants_color(request.color, sys.stderr, os.environ), holds_answer=True, frame=frame)


def write_answer(answer: str, *, color: str) -> None:
    """To standard output: as Markdown for a person, else as it is."""
    if is_terminal(sys.stdout):
        # rich takes 60 ms: loaded when something is drawn
        from treadle.cli.terminal import console
        from treadle.cli.turn.turn_blocks import markdown

        with console(sys.stdout, color) as screen:
            screen.print(markdown(answer))
    else:
        write(sys.stdout, answer if answer.endswith("\n") else f"{answer}\n")
