"""What the tests of our runners on real agent programs have in common: the stage, and waiting with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from treadle.runners import ActionEvent, Event
from treadle.testing import EngineHome, EngineModel

# At the load of a whole test suite a program takes many times as long as alone.
DEADLINE_S: Final = 110.0


@contextmanager
def staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineHome]:
    """A model and a home; what we remember of sessions is there too."""
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "treadle"))
    with EngineModel() as model:
        yield EngineHome(tmp_path / "stage", model)


async def drain(run: AsyncIterator[Event]) -> list[Any]:
    async with asyncio.timeout(DEADLINE_S):
        return [event async for event in run]


async def appears(path: Path) -> str:
    async with asyncio.timeout(DEADLINE_S):
        while not (path.exists() and path.read_text()):
            await asyncio.sleep(0.02)
    return path.read_text()


def ends(events: list[Any]) -> list[tuple[str, str, bool | None]]:
    """What was done: kind, title and success of each action that has ended."""
    actions = [event for event in events if isinstance(event, ActionEvent) and event.phase == "completed"]
    return [(event.action.kind, event.action.title, event.ok) for event in actions]
