"""`MessageHistory`: what was typed before, kept in the home for its owner alone, and bounded.

One JSON object a line, so that a message of many lines is one entry. Several sessions may append at the same time. A
home that cannot be written costs the history, not the session.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prompt_toolkit.history import History

from treadle.config.atomic_write import PRIVATE, make_home, replace_file

FILE: Final = "chat_history.jsonl"
MAX_ENTRIES: Final = 1000
# Of the file when it is read. It is cut to MAX_ENTRIES then; what one session adds to that is what a person types.
MAX_BYTES: Final = 1 << 20
# A longer message is text that was pasted: nobody looks for it with the arrow keys.
MAX_ENTRY_BYTES: Final = 16 << 10


class MessageHistory(History):
    def __init__(self, home: Path) -> None:
        super().__init__()
        self._path = home / FILE

    def load_history_strings(self) -> Iterable[str]:
        """The newest first, as prompt_toolkit wants it."""
        entries, whole = _read(self._path)
        kept = entries[-MAX_ENTRIES:]
        if not whole or len(entries) > len(kept):
            self._rewrite(kept)
        return reversed([text for _, text in kept])

    def store_string(self, string: str) -> None:
        line = _line(time.time(), string)
        if len(line) > MAX_ENTRY_BYTES:
            return
        try:
            make_home(self._path.parent)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
            with open(descriptor, "ab") as file:
                os.fchmod(descriptor, PRIVATE)
                file.write(line)
        except OSError:
            return  # it is still in the memory of this session

    def _rewrite(self, entries: list[tuple[float, str]]) -> None:
        try:
            replace_file(self._path, b"".join(_line(*entry) for entry in entries), PRIVATE)
        except OSError:
            return  # then it is cut the next time


def _line(when: float, text: str) -> bytes:
    return json.dumps({"ts": int(when), "text": text}).encode() + b"\n"


def _read(path: Path) -> tuple[list[tuple[float, str]], bool]:
    """The entries, oldest first, and whether that is all of the file. Lines that are none are left out."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - MAX_BYTES))
            lines = file.read(MAX_BYTES).splitlines()
    except OSError:
        return [], True
    whole = size <= MAX_BYTES
    return [entry for line in lines[0 if whole else 1 :] if (entry := _entry(line)) is not None], whole


def _entry(line: bytes) -> tuple[float, str] | None:
    try:
        found = json.loads(line)
        when, text = found["ts"], found["text"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (when, text) if isinstance(text, str) and isinstance(when, int | float) else None
