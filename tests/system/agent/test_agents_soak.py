"""Trees of agents with faults at random; the whole of it is `python -m bench agents-soak`."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.agents_soak import soak

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_nothing_is_lost_doubled_or_left(tmp_path: Path, seed: int) -> None:
    tally = await soak(tmp_path, 9, seed)
    assert tally.problems == []
    assert tally.trees == 9
