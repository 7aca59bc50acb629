"""`@path` in a message: found, and turned into what is sent.

The agent reads files itself, so a file is named by its plain path. A picture is sent along, since a model cannot open
one by itself. What names no file is left as it was typed: `@pytest.fixture`, `@someone`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

# After the start, a space or an opening bracket, so that a mail address is none; quoted when there are spaces in it.
_MENTION: Final = re.compile(r"""(?<![^\s(\[{<])@(?:"([^"\n]+)"|(\S+))""")
# What may be being typed at the end of a text.
_UNFINISHED: Final = re.compile(r"""(?<![^\s(\[{<])@(?:"([^"\n]*)|([^\s"]*))$""")
_AFTER_PATH: Final = ".,;:!?)]}>'\""
_PICTURES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp")


class Message(Struct, frozen=True):
    """What the user said, as it is sent: the text, and the pictures by their absolute paths."""

    text: str
    pictures: tuple[str, ...] = ()

    def items(self) -> list[Mapping[str, Any]]:
        """As the protocol has it: pictures first, as Codex sends them."""
        pictures: list[Mapping[str, Any]] = [{"type": "localImage", "path": path} for path in self.pictures]
        return [*pictures, {"type": "text", "text": self.text}] if self.text else pictures


def message_of(typed: str, cwd: str, pictures: tuple[str, ...] = ()) -> Message:
    found = list(pictures)

    def plain(match: re.Match[str]) -> str:
        path = match[1] or match[2]
        rest = ""
        if match[1] is None and not _exists(cwd, path):
            stem = path.rstrip(_AFTER_PATH)
            path, rest = stem, path[len(stem) :]
        if not path or not _exists(cwd, path):
            return match[0]
        absolute = os.path.join(cwd, path)
        if path.lower().endswith(_PICTURES) and os.path.isfile(absolute) and absolute not in found:
            found.append(absolute)
        return (f'"{path}"' if " " in path else path) + rest

    return Message(_MENTION.sub(plain, typed.strip()), tuple(found))


def unfinished_mention(before_cursor: str) -> str | None:
    """What stands behind the `@` that is being typed; None when there is none."""
    match = _UNFINISHED.search(before_cursor)
    return None if match is None else match[1] if match[1] is not None else match[2]


def mention(path: str) -> str:
    """How a path is written in a message."""
    return f'@"{path}"' if re.search(r"\s", path) else f"@{path}"


def _exists(cwd: str, path: str) -> bool:
    try:
        return os.path.exists(os.path.join(cwd, path))
    except ValueError:  # a zero byte in it
        return False
