"""The benchmark of the search in small."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.search import COMMON, MISSING, OF_A_THREAD, QUESTIONS, ask, write

pytestmark = pytest.mark.anyio


async def test_every_question_is_answered(tmp_path: Path) -> None:
    await write(tmp_path, 4 * OF_A_THREAD)
    for method in dict(QUESTIONS):
        assert (await ask(tmp_path, method, COMMON)).found > 2, method
        assert (await ask(tmp_path, method, MISSING)).found == 0, method
