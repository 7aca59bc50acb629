"""`AppServerRuntime` on the real codex: the cases of our own server, and none left out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from host_stage import HostStage
from system.host import test_app_server_death, test_app_server_runtime

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

for module in (test_app_server_runtime, test_app_server_death):
    globals().update({name: case for name, case in vars(module).items() if name.startswith("test_")})


@pytest.fixture
async def stage(codex_bin: Path, tmp_path: Path) -> AsyncIterator[HostStage]:
    made = HostStage(tmp_path, codex_bin)
    yield made
    await made.close()
