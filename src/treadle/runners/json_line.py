"""`read_object`: parses a line of an engine as a JSON object, even if its text is broken. Pure.

JavaScript programs cut strings between the two halves of a surrogate pair and print the remaining half. That is no
reason to lose the line, which may be the answer.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode


def read_object(line: bytes) -> dict[str, Any] | None:
    """The object, or None for anything else, such as a warning of a library that was printed on the wrong stream."""
    try:
        value = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = _mended(line)
    return value if isinstance(value, dict) else None


def _mended(line: bytes) -> Any:
    try:
        value = json.loads(line.decode("utf-8", "replace"))
        return _decode(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError, msgspec.DecodeError):
        return None
