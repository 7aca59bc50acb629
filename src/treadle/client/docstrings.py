"""Parses docstrings for the description of a function and its parameters: Google, NumPy and reST style. Pure."""

from __future__ import annotations

import re
from typing import Final

_GOOGLE: Final = re.compile(r"(?:Args|Arguments|Parameters|Params|Keyword Arg(?:ument)?s):\s*")
_OTHER: Final = re.compile(r"(?:Returns?|Yields?|Raises|Examples?|Attributes|See Also|Warns|References):\s*")
_UNDERLINE: Final = re.compile(r"-{3,}\s*")
_FIELD: Final = re.compile(r":(?:param(?:eter)?|arg(?:ument)?)\s+(?:[^:]*\s)?(?P<name>\w+)\s*:\s*(?P<text>.*)")
_OTHER_FIELD: Final = re.compile(r":(?:type|returns?|rtype|raises?|yields?|var|ivar|cvar)\b[^:]*:.*")
_GOOGLE_ENTRY: Final = re.compile(r"(?P<name>\w+)\s*(?:\(.*?\))?\s*:\s*(?P<text>.*)")
_NUMPY_ENTRY: Final = re.compile(r"(?P<name>\w+(?:\s*,\s*\w+)*)\s*(?::.*)?")


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description, which ends where the first section begins, and what is said of each parameter."""
    lines = text.split("\n")
    first = next((at for at, line in enumerate(lines) if _starts_section(lines, at, line)), len(lines))
    told: dict[str, list[str]] = {}
    for at in range(first, len(lines)):
        line = lines[at]
        if (field := _FIELD.fullmatch(line)) is not None:
            told[field["name"]] = [field["text"], *_block(lines, at + 1)]
        elif _UNDERLINE.fullmatch(line) and lines[at - 1].strip() in ("Parameters", "Other Parameters"):
            _numpy_entries(lines, at + 1, told)
        elif _GOOGLE.fullmatch(line):
            _google_entries(_block(lines, at + 1), told)
    description = "\n".join(lines[:first]).strip()
    return description, {name: " ".join(" ".join(words).split()) for name, words in told.items() if any(words)}


def _starts_section(lines: list[str], at: int, line: str) -> bool:
    below = lines[at + 1] if at + 1 < len(lines) else ""
    patterns = (_GOOGLE, _OTHER, _FIELD, _OTHER_FIELD)
    return any(pattern.fullmatch(line) for pattern in patterns) or (bool(line) and bool(_UNDERLINE.fullmatch(below)))


def _block(lines: list[str], at: int) -> list[str]:
    """The indented lines from here on."""
    found = []
    for line in lines[at:]:
        if line and not line.startswith((" ", "\t")):
            break
        found.append(line)
    return found


def _google_entries(block: list[str], told: dict[str, list[str]]) -> None:
    indents = [len(line) - len(line.lstrip()) for line in block if line.strip()]
    name = None
    for line in block:
        entry = _GOOGLE_ENTRY.fullmatch(line.strip())
        if entry is not None and len(line) - len(line.lstrip()) == min(indents):
            name = entry["name"]
            told[name] = [entry["text"]]
        elif name is not None:
            told[name].append(line)


def _numpy_entries(lines: list[str], at: int, told: dict[str, list[str]]) -> None:
    while at < len(lines):
        if _UNDERLINE.fullmatch(lines[at + 1] if at + 1 < len(lines) else ""):
            return
        entry = _NUMPY_ENTRY.fullmatch(lines[at].strip())
        block = _block(lines, at + 1)
        if entry is not None:
            for name in re.split(r"\s*,\s*", entry["name"]):
                told[name] = block
        at += 1 + len(block)
