"""A log record as a line: text for people, or a JSON object. Secrets are taken out, and what could fool a terminal."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from treadle import secrets
from treadle.logs.trace import IDS

# A newline in what a client has said would begin a line that nobody logged; escape sequences would reach the terminal.
_VISIBLE: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {10: "\\n", 13: "\\r", 9: "\\t"}
_VISIBLE_IN_TRACE: Final = {code: shown for code, shown in _VISIBLE.items() if code != 10}


class Line(logging.Formatter):
    """What both formats share. `hidden` are values that no line shows, beside those that become known later."""

    def __init__(self, hidden: Iterable[str] = ()) -> None:
        super().__init__()
        self._hidden = tuple(hidden)

    def clean(self, text: str) -> str:
        return secrets.redact(text, (*self._hidden, *secrets.known()))

    def members(self, record: logging.LogRecord) -> dict[str, Any]:
        """The fields that were logged, and the ids."""
        given = record.args if isinstance(record.args, Mapping) else {}
        fields = {name: self._clean_value(value) for name, value in given.items() if value is not None}
        return fields | {name: value for name, value in IDS.get().items() if name not in fields}

    def _clean_value(self, value: object) -> object:
        return value if isinstance(value, bool | int | float) else self.clean(str(value))

    def error_of(self, record: logging.LogRecord) -> dict[str, str] | None:
        if not record.exc_info or record.exc_info[1] is None:
            return None
        error = record.exc_info[1]
        return {
            "type": type(error).__name__,
            "message": self.clean(str(error)),
            "traceback": self.clean(self.formatException(record.exc_info)),
        }


class JsonLine(Line):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.clean(record.getMessage()),
        }
        for name, value in self.members(record).items():
            line.setdefault(name, value)
        error = self.error_of(record)
        if error is not None:
            line["error"] = error
        return _json(line)


class TextLine(Line):
    def format(self, record: logging.LogRecord) -> str:
        members = " ".join(f"{name}={_word(value)}" for name, value in self.members(record).items())
        said = self.clean(record.getMessage()).translate(_VISIBLE)
        line = f"{self.formatTime(record)} {record.levelname} {record.name}: {said}{' ' if members else ''}{members}"
        error = self.error_of(record)
        return line if error is None else f"{line}\n{error['traceback'].translate(_VISIBLE_IN_TRACE)}"


def _word(value: object) -> str:
    text = str(value)
    if isinstance(value, str) and (not text or any(sign in text for sign in ' "=')):
        text = _json(text)
    return text.translate(_VISIBLE)


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # half a surrogate pair, from a file name say
        import json  # for those alone: it writes them as escapes

        return json.dumps(value)
