"""`HostAgent` on the real codex: the cases of our own server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_stage import AgentStage
from system.host import test_agent_wire

pytestmark = pytest.mark.interop

globals().update({name: case for name, case in vars(test_agent_wire).items() if name.startswith("test_")})


@pytest.fixture
def stage(codex_bin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentStage]:
    made = AgentStage(tmp_path, codex_bin)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    yield made
    made.close_all()
