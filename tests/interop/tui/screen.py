"""`Screen`: what a person would see of a program that draws on a terminal.

Owns the emulator (`pyte`), and what a terminal answers when the program asks it something. Knows no processes.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping
from typing import Final

import pyte
from pyte.screens import Char

COLUMNS: Final = 200  # paths of folders for tests are long, and what does not fit is left out
ROWS: Final = 50

# What a program asks before it draws, and what a plain terminal says to it. `{row}` and `{column}` are the cursor's.
_QUESTIONS: Final = re.compile(r"\x1b\[6n|\x1b\[c|\x1b\]1[01];\?")
_ANSWERS: Final = {
    "\x1b[6n": "\x1b[{row};{column}R",
    "\x1b[c": "\x1b[?62;c",
    "\x1b]10;?": "\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    "\x1b]11;?": "\x1b]11;rgb:0000/0000/0000\x1b\\",
}
# Colours, titles, links and keyboard modes: nothing that is read here, and pyte takes some of it for text.
_UNSEEN: Final = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[\d;:]*m|\x1b\[[<>=][\d;:]*[ -/]*[@-~]|\x1b\[\?[\d;]*\$?[a-gi-km-z]"
)
_UNFINISHED: Final = re.compile(r"\x1b(?:\[[\d;:<>=?]*[ -/]*|\][^\x07\x1b]*\x1b?)?$")


class Screen:
    """The screen, and the lines that have been scrolled off it."""

    def __init__(self, columns: int = COLUMNS, rows: int = ROWS) -> None:
        self._columns = columns
        self._rows = rows
        self._screen = pyte.HistoryScreen(columns, rows, history=5000)
        self._stream = pyte.Stream(self._screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> bytes:
        """Draw; returns what the terminal has to answer."""
        text = self._rest + self._decoder.decode(data)
        cut = _UNFINISHED.search(text)
        self._rest = text[cut.start() :] if cut else ""
        text = text[: cut.start()] if cut else text
        answers, drawn = "", 0
        for question in _QUESTIONS.finditer(text):
            self._draw(text[drawn : question.start()])
            drawn = question.start()
            cursor = self._screen.cursor
            answers += _ANSWERS[question[0]].format(row=cursor.y + 1, column=cursor.x + 1)
        self._draw(text[drawn:])
        return answers.encode()

    def _draw(self, text: str) -> None:
        self._stream.feed(_UNSEEN.sub("", text))

    @property
    def text(self) -> str:
        """What is on the screen now."""
        return self._drawn(self._screen.buffer[row] for row in range(self._rows)).strip("\n")

    @property
    def history(self) -> str:
        """The same with what has been scrolled off before it."""
        return self._drawn(self._screen.history.top) + "\n" + self.text

    def resize(self, columns: int, rows: int) -> None:
        self._columns, self._rows = columns, rows
        self._screen.resize(rows, columns)

    def _drawn(self, lines: Iterable[Mapping[int, Char]]) -> str:
        """Not `Screen.display` of pyte, which fails where half of a wide character has been drawn over."""
        return "\n".join("".join(line[column].data for column in range(self._columns)).rstrip() for line in lines)
