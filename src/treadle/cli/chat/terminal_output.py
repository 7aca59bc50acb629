"""The terminal as prompt_toolkit and rich write on it: one that may go away at any time, without a traceback.

The module owns the descriptor of the terminal, what happens when that fails, and how renderables of rich become text.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable
from typing import Any, Final, TextIO

from prompt_toolkit.data_structures import Size
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.output.vt100 import Vt100_Output
from rich.console import RenderableType

from treadle.cli.streams import OutputFailed, write
from treadle.cli.terminal import make_console, wants_color

# The reports of the focus, which prompt_toolkit does not know, as keys that no keyboard has.
FOCUS_KEYS: Final = (Keys.F23, Keys.F24)
ANSI_SEQUENCES.update(zip(("\x1b[I", "\x1b[O"), FOCUS_KEYS, strict=True))


class TerminalStream(io.TextIOBase):
    """Writes until the terminal is gone; then `gone` is called once, and what is written goes nowhere."""

    def __init__(self, stream: TextIO, gone: Callable[[], None]) -> None:
        self._stream = stream
        self._gone: Callable[[], None] | None = gone

    def write(self, text: str) -> int:
        if self._gone is not None:
            try:
                write(self._stream, text)
            except OutputFailed:
                gone, self._gone = self._gone, None
                gone()
        return len(text)

    def flush(self) -> None:
        """Do nothing: `write` flushes."""

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return True


def make_output(stream: TextIO, gone: Callable[[], None]) -> Output:
    """The output of prompt_toolkit. The terminal is not asked where its cursor is: some never answer."""

    def size() -> Size:
        try:
            found = os.get_terminal_size(stream.fileno())
        except (OSError, ValueError):
            found = shutil.get_terminal_size()
        return Size(rows=found.lines or 24, columns=found.columns or 80)

    guarded: Any = TerminalStream(stream, gone)
    depth = None if wants_color("auto", stream, os.environ) else ColorDepth.DEPTH_1_BIT
    return Vt100_Output(
        guarded,
        size,
        term=os.environ.get("TERM"),
        default_color_depth=depth,
        enable_cpr=False,
    )


def painted(renderables: tuple[RenderableType, ...], width: int, *, colors: bool) -> str:
    """Renderables of rich as text with the sequences that colour it."""
    file = io.StringIO()
    console = make_console(file, "always" if colors else "never", width=width)
    for renderable in renderables:
        console.print(renderable)
    return file.getvalue()
