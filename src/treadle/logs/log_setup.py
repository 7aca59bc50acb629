"""What the environment asks for: `TREADLE_LOG`, `TREADLE_LOG_FORMAT` and `TREADLE_LOG_FILE`.

A value that cannot be used is told as a warning, and the program runs: a log is no reason not to.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from typing import Final

from treadle import secrets
from treadle.logs.log_file import LogFile
from treadle.logs.log_format import JsonLine, Line, TextLine
from treadle.logs.log_stream import LogStream

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_FORMATS: Final[Mapping[str, type[Line]]] = {"json": JsonLine, "text": TextLine, "": TextLine}
_LEVEL_HELP: Final = "one of debug, info, warning and error, and pairs such as treadle.llm=debug, with commas"

logger: logging.Logger = logging.getLogger(__name__)


def set_up_logging(
    environ: Mapping[str, str], default: str, given: str | None = None, settings: Iterable[str] = ()
) -> None:
    """Log as the environment says: to standard error, or to a file in place of it.

    `given` is the level of the command line, which comes before the environment, as the environment does before
    `default`. `settings` are those of the command line, whose secrets are not shown. A program that has set logging
    up before is left alone.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    problems: list[str] = []
    levels = _levels(environ.get("TREADLE_LOG", ""), problems)
    handler = _handler(environ.get("TREADLE_LOG_FILE", ""), problems)
    kind = _format(environ.get("TREADLE_LOG_FORMAT", ""), problems)
    handler.setFormatter(kind(secrets.secrets_in(environ, settings)))
    root.addHandler(handler)
    for name, level in {**levels, "": given or levels.get("", default)}.items():
        logging.getLogger(name).setLevel(level.upper())
    for problem in problems:  # whatever the level: who sets a variable wants to know
        handler.handle(logger.makeRecord(__name__, logging.WARNING, __file__, 0, "%s", (problem,), None))


def _levels(text: str, problems: list[str]) -> dict[str, str]:
    """By name; that of everything else has none."""
    levels: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, level = part.rpartition("=")
        if level.strip().lower() in LEVELS and (name.strip() or "=" not in part):
            levels[name.strip()] = level.strip().lower()
        else:
            problems.append(f"TREADLE_LOG has {part!r}, which is no level; use {_LEVEL_HELP}")
    return levels


def _format(name: str, problems: list[str]) -> type[Line]:
    kind = _FORMATS.get(name.strip().lower())
    if kind is None:
        problems.append(f"TREADLE_LOG_FORMAT is {name!r}; use json or text")
        return TextLine
    return kind


def _handler(path: str, problems: list[str]) -> logging.Handler:
    if path:
        try:
            return LogFile(path)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            problems.append(f"TREADLE_LOG_FILE {path!r} cannot be opened: {why}; this goes to standard error instead")
    try:
        return LogStream(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # there is none, or it is something in memory
        return logging.StreamHandler(sys.stderr)
