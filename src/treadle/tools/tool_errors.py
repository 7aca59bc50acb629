"""`ToolInputError`: what a model asked of a tool cannot be done as asked."""

from __future__ import annotations

from treadle.errors import TreadleError


class ToolInputError(TreadleError):
    """A tool was called wrongly. The message goes to the model, so it says what to do instead."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
