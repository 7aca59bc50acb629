"""`AppServerRuntime` on the real codex: the cases of our own server, and none left out."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from host_stage import HostStage, alive, begin, descendants, pid_of
from interop.peers import installed
from system.host import test_app_server_death, test_app_server_runtime
from treadle.host import RuntimeFault

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

for module in (test_app_server_runtime, test_app_server_death):
    globals().update({name: case for name, case in vars(module).items() if name.startswith("test_")})


async def test_the_launcher_of_npm_takes_the_native_codex_with_it(codex_bin: Path, tmp_path: Path) -> None:
    """It is a program for node that starts the real one, which would go on when the launcher is killed."""
    package = installed("codex-ts-sdk") / "node_modules" / "@openai" / "codex"
    copy = tmp_path / "codex"
    shutil.copytree(package, copy)
    triple = f"{os.uname().machine}-unknown-linux-musl"
    (copy / "vendor").mkdir()
    (copy / "vendor" / triple).symlink_to(codex_bin.parent.parent)  # npm has it in a package of its own
    launcher = copy / "bin" / "codex.js"
    launcher.chmod(0o755)
    stage = HostStage(tmp_path, launcher)
    try:
        runtime, _ = await stage.opened()
        server = pid_of(runtime)
        family = {server, *descendants(server)}
        assert len(family) > 1
        turn_gate = threading.Event()
        stage.model.enqueue_assistant_message("never", gate=turn_gate)
        turn = await begin(runtime, "hi")
        os.kill(server, signal.SIGKILL)
        with pytest.raises(RuntimeFault) as raised:
            await turn.end()
        assert raised.value.fault.kind == "dead"
        assert not any(map(alive, family))
        turn_gate.set()
    finally:
        await stage.close()


@pytest.fixture
async def stage(codex_bin: Path, tmp_path: Path) -> AsyncIterator[HostStage]:
    made = HostStage(tmp_path, codex_bin)
    yield made
    await made.close()
