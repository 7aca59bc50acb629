"""`Data`: what may be written to a process or a file, and the bytes that it is."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from typing import TypeAlias, TypeGuard

Data: TypeAlias = str | bytes | bytearray | memoryview
"""Text is written as UTF-8."""


def as_bytes(data: Data, what: str) -> bytes:
    """The bytes of it, which nobody changes any more. Raises `TypeError`, which names it as `what`."""
    if type(data) is bytes:
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"{what} must be text (written as UTF-8) or bytes, not {type(data).__name__}")


def blocks_of(given: AsyncIterable[Data] | Iterable[Data]) -> AsyncIterable[Data] | Iterable[Data]:
    """Blocks to be written: a text or bytes are one block, not many of one character."""
    if _is_data(given):
        return [given]
    if not isinstance(given, AsyncIterable | Iterable):
        raise TypeError(f"blocks must be an iterable of text or bytes, not {type(given).__name__}")
    return given


def _is_data(given: object) -> TypeGuard[Data]:
    return isinstance(given, str | bytes | bytearray | memoryview)
