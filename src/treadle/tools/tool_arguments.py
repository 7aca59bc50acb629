"""`parse`: the arguments of a tool, as a model writes them; `ToolInputError`: they cannot be used.

Members that are not known are ignored: models invent some.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from treadle.errors import TreadleError
from treadle.rpc.nesting import TOO_DEEP, is_too_deep

T = TypeVar("T")

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}  # by the structs of the tools: a model cannot add to it


class ToolInputError(TreadleError):
    """A tool was called wrongly. The message goes to the model, so it says what to do instead."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def parse(raw: str, wanted: type[T]) -> T:
    """The arguments in the JSON that a model wrote; raises `ToolInputError`, which is its answer.

    No text at all is an empty object: models leave it out where nothing is required.
    """
    if wanted not in _decoders:
        _decoders[wanted] = msgspec.json.Decoder(wanted)
    data = raw.encode("utf-8", "surrogatepass") or b"{}"
    if is_too_deep(data):
        raise ToolInputError(f"failed to parse function arguments: {TOO_DEEP}")
    try:
        # A lone surrogate has no UTF-8; the decoder then says that the text is not valid.
        value: T = _decoders[wanted].decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ToolInputError(f"failed to parse function arguments: {error}") from None
    return value
