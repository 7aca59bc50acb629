"""Colours, where they are wanted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TextIO


class Paint:
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
    """`asked` is always, never, or auto: then a terminal gets them unless its user has said no."""
    if asked != "auto":
        return asked == "always"
    return stream is not None and stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
