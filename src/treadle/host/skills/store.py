"""`SkillStore`: the skills in a folder."""

from __future__ import annotations

import os

from treadle.client.tools import Tool


class SkillStore:
    def __init__(self, folder: str | os.PathLike[str]) -> None:
        raise NotImplementedError

    def prompt(self) -> str:
        """What the model is told of them at the start of a session; empty when there are none."""
        raise NotImplementedError

    def tools(self) -> list[Tool]:
        """`skills_list`, `skill_view` and `skill_manage`."""
        raise NotImplementedError
