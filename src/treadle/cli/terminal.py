"""The terminal: colours, whether a stream can be drawn on, and rich on top of it.

rich is imported here, and only when something is drawn. A terminal that is gone raises `OutputFailed`, like any output.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from treadle.cli.streams import OutputFailed

if TYPE_CHECKING:
    from rich.console import Console


class Colors:
    def __init__(self, on: bool) -> None:
        self._on = on

    def dim(self, text: str) -> str:
        return self._in(text, "2")

    def bold(self, text: str) -> str:
        return self._in(text, "1")

    def red(self, text: str) -> str:
        return self._in(text, "31")

    def green(self, text: str) -> str:
        return self._in(text, "32")

    def cyan(self, text: str) -> str:
        return self._in(text, "36")

    def _in(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._on and text else text


def wants_color(asked: str, stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """`asked` is always, never or auto; auto means on terminals, unless the user has opted out."""
    if asked != "auto":
        return asked == "always"
    return stream is not None and stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def is_terminal(stream: TextIO | None) -> bool:
    """Whether drawing works there; a dumb terminal gets plain lines."""
    return stream is not None and stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def make_console(stream: TextIO, color: str = "auto") -> Console:
    """rich on a terminal."""
    # rich takes 60 ms: loaded when something is drawn
    from rich.console import Console
    from rich.theme import Theme

    colors = wants_color(color, stream, os.environ)
    # Text of others is shown verbatim: no markup, no emoji codes, no coloured numbers.
    return Console(
        file=stream,
        no_color=not colors,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
        theme=Theme({"markdown.code": "bold cyan"}),  # without the black behind it, which only suits black terminals
    )


@contextmanager
def console(stream: TextIO, color: str = "auto") -> Iterator[Console]:
    """A console for as long as something is shown. Raises `OutputFailed` if the terminal is gone."""
    try:
        yield make_console(stream, color)
    except OSError as error:
        raise OutputFailed(f"the terminal cannot be written: {error.strerror}") from None
