"""Ids of tool calls: those of any provider, made valid for this one and unique within a request."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

_VALID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NINE: Final = re.compile(r"[A-Za-z0-9]{9}")


class CallIds:
    """The ids of one request. The same history always gets the same ids, so that the provider's cache still matches.

    Args:
        nine: Whether the server wants exactly nine letters and digits.
    """

    def __init__(self, *, nine: bool = False) -> None:
        self._nine = nine
        self._used: set[str] = set()

    def take(self, call_id: str) -> str:
        """A valid id for the next call, its own where possible."""
        valid = (_NINE if self._nine else _VALID).fullmatch(call_id)
        taken = call_id if valid else self._made(call_id, 0)
        count = 0
        while taken in self._used:
            count += 1
            taken = self._made(call_id, count)
        self._used.add(taken)
        return taken

    def _made(self, call_id: str, count: int) -> str:
        mark = sha256(f"{count}\0{call_id}".encode("utf-8", "replace")).hexdigest()
        return mark[:9] if self._nine else f"call_{mark[:24]}"
