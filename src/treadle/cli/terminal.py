"""The terminal of people's commands: whether a stream is one that can be drawn on, and rich on top of it.

rich is loaded here, and only when something is drawn. What does not get out is said as everywhere: `OutputFailed`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from treadle.cli.paint import wants_color
from treadle.cli.streams import OutputFailed

if TYPE_CHECKING:
    from rich.console import Console


def is_terminal(stream: TextIO | None) -> bool:
    """Whether what is drawn there is seen as it is meant; a dumb terminal gets plain lines."""
    return stream is not None and stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def make_console(stream: TextIO, color: str = "auto") -> Console:
    """rich on a terminal."""
    from rich.console import Console

    colors = wants_color(color, stream, os.environ)
    # Nothing is guessed about what somebody else wrote: no markup, no emoji codes, no coloured numbers.
    return Console(file=stream, no_color=not colors, highlight=False, markup=False, emoji=False, soft_wrap=False)


@contextmanager
def console(stream: TextIO, color: str = "auto") -> Iterator[Console]:
    """The same for as long as something is shown. Raises `OutputFailed` when the terminal is gone."""
    try:
        yield make_console(stream, color)
    except OSError as error:
        raise OutputFailed(f"the terminal cannot be written: {error.strerror}") from None
