"""Text of others made safe for people to look at.

The output of a command, the words of a model or the name of a file may contain sequences that clear the screen, set
the title, fill the clipboard or reverse the writing direction. They are shown escaped, never passed to the terminal.
"""

from __future__ import annotations

import re
from typing import Final

# Colours and font weights, which are simply removed.
_COLOURS: Final = re.compile(r"\x1b\[[0-9;:]*m")
_LINE_END: Final = re.compile(r"\r\n?")
_ESCAPED: Final = (
    *(range(0x09), range(0x0B, 0x20), range(0x7F, 0xA0)),  # control characters but tab and newline
    *(range(0x061C, 0x061D), range(0x200E, 0x2010), range(0x2028, 0x202F), range(0x2066, 0x206A)),  # directions, lines
    *(range(0xD800, 0xE000), range(0xFFF9, 0xFFFC), range(0xE0000, 0xE0080)),  # halves of letters, hidden text
)
_TABLE: Final = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    for codes in _ESCAPED
    for code in codes
}


def printable(text: str) -> str:
    """The text without anything that a terminal would act upon, except tabs and line ends.

    A carriage return counts as a line end: what it would have overwritten is shown too.
    """
    if text.isascii() and text.isprintable():
        return text
    return _LINE_END.sub("\n", _COLOURS.sub("", text)).translate(_TABLE)


def printable_line(text: str) -> str:
    """The same on one line."""
    return printable(text).replace("\n", "\\n")
