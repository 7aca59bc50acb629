"""`MemoryStore`: two small files of entries, written by many, read into the prompt at the start of a session."""

from __future__ import annotations

import os

from treadle.client.tools import Tool


class MemoryStore:
    def __init__(self, folder: str | os.PathLike[str]) -> None:
        raise NotImplementedError

    def prompt(self) -> str:
        """What the model is told of it at the start of a session; empty when nothing is remembered."""
        raise NotImplementedError

    def tool(self) -> Tool:
        """The tool `memory`."""
        raise NotImplementedError
