"""What skills cost a turn: part `skills` of `python -m bench hands`.

In this process, so that nothing else is measured: how long it takes to see that nothing has changed, and to look anew.
And a whole turn on an app-server with a mock model, with no skills and with many.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from treadle.config.file_settings import SkillSettings
from treadle.execution.bounded_reads import SETTLED_NS
from treadle.skills.skill_files import SkillPlace, known_skills, look_for_skills
from treadle.testing import AppServerHarness

SKILLS: Final = 200
CHECKS: Final = 500
LOOKS: Final = 9
TURNS: Final = 40
# What a turn may pay for skills in which nothing has changed.
TARGET_MS: Final = 1.0


def measure() -> Mapping[str, float]:
    """Milliseconds by what was measured; medians."""
    found: dict[str, float] = {}
    for name, number, metadata in (
        ("no skills", 0, False),
        (f"{SKILLS} skills", SKILLS, False),
        (f"{SKILLS} skills with metadata", SKILLS, True),
    ):
        with _user(number, metadata=metadata) as folder:
            place = SkillPlace(str(folder / "project"), None, str(folder / "home"), SkillSettings())
            found[f"{name}: nothing has changed"], found[f"{name}: looked anew"] = asyncio.run(_looks(place))
            if not metadata:
                found[f"{name}: a whole turn"] = asyncio.run(_turns(folder))
    return found


async def _looks(place: SkillPlace) -> tuple[float, float]:
    anew = [await _timed(lambda: asyncio.to_thread(look_for_skills, place)) for _ in range(LOOKS)]
    known = []
    for _ in range(CHECKS):
        await asyncio.sleep(0)  # turns that begin in one step of the loop look once
        assert known_skills.current(place) is not None
        await asyncio.sleep(0)
        known.append(await _timed(lambda: known_skills.find(place, lambda: look_for_skills(place)[0])))
    return statistics.median(known), statistics.median(anew)


async def _turns(folder: Path) -> float:
    with AppServerHarness(folder / "server") as harness:
        async with harness.server() as server, harness.connect(server=server) as client:
            thread = (await client.request("thread/start", {}))["thread"]["id"]
            given = {"threadId": thread, "input": [{"type": "text", "text": "hello"}]}
            taken = []
            for _ in range(TURNS):
                harness.model.enqueue_assistant_message("hello")
                begun = time.perf_counter()
                turn = (await client.request("turn/start", given))["turn"]["id"]
                await client.turn_end(turn)
                taken.append((time.perf_counter() - begun) * 1e3)
            return statistics.median(taken[TURNS // 4 :])


async def _timed(call: object) -> float:
    begun = time.perf_counter()
    await call()  # type: ignore[operator]
    return (time.perf_counter() - begun) * 1e3


@contextmanager
def _user(number: int, *, metadata: bool) -> Iterator[Path]:
    """A home directory with so many skills, which have not just been written."""
    with TemporaryDirectory(prefix="bench-skills-") as name:
        folder = Path(name).resolve()
        (folder / "project/.git").mkdir(parents=True)
        for each in range(number):
            skill = folder / f".agents/skills/skill-{each:03}"
            (skill / "agents").mkdir(parents=True)
            text = f"---\nname: skill-{each:03}\ndescription: {'what it is for ' * 8}\n---\nDo it.\n"
            (skill / "SKILL.md").write_text(text)
            if metadata:
                (skill / "agents/openai.yaml").write_text("interface:\n  display_name: A skill\n")
        before, os.environ["HOME"] = os.environ.get("HOME"), str(folder)
        time.sleep(2 * SETTLED_NS / 1e9)
        try:
            yield folder
        finally:
            if before is None:
                del os.environ["HOME"]
            else:
                os.environ["HOME"] = before
