"""`normal`: values without what is different in every run, so that two runs can be compared. Pure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PORT: Final = re.compile(r"(?<=127\.0\.0\.1:)\d+")
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d[-:]\d\d[-:]\d\d(\.\d+Z)?")
_DAY: Final = re.compile(r"/\d{4}/\d\d/\d\d/")
_TIMES: Final = re.compile(r"(_at|At|_ms|Ms)$")
_PROCESSES: Final = ("process_id", "processId")


def normal(value: Any, folder: Path) -> Any:
    """Ids, times, ports and the folder of the stage become words. What is None stays None."""
    if isinstance(value, dict):
        return {_text(name, folder): _member(name, member, folder) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [normal(each, folder) for each in value]
    return _text(value, folder) if isinstance(value, str) else value


def _member(name: str, value: Any, folder: Path) -> Any:
    if _TIMES.search(name) is not None and isinstance(value, int | float):
        return "TIME"
    if name in _PROCESSES and value is not None:
        return "PROCESS"
    return normal(value, folder)


def _text(text: str, folder: Path) -> str:
    text = _MOMENT.sub("TIME", _ID.sub("ID", text.replace(str(folder), "FOLDER")))
    return _DAY.sub("/DAY/", _PORT.sub("PORT", text))
