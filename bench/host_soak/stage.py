"""Where the soak takes place: a home, a workspace and a store in a fresh folder, and agents on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

from bench.host_soak.plan import Program
from treadle.client import CodexConfig
from treadle.host import HostAgent, Timeouts
from treadle.host.app_server.runtime import AppServerRuntime
from treadle.host.runtime import Runtime, RuntimeEvent

SESSION_ID: Final = "soak"
# A process that was stopped costs five seconds, not ten minutes.
TIMEOUTS: Final = Timeouts(
    startup=60.0, request=8.0, interrupt=1.0, idle=4.0, quiet=1.5, probe=1.5, tool=10.0, close=5.0, review=30.0
)
_WIRES: Final = {"chat_completions": "chat", "anthropic": "anthropic"}
_CONFIG: Final = """\
model = "gpt-5.5"
model_provider = "soak"
check_for_update_on_startup = false

[model_providers.soak]
name = "soak"
base_url = "{base_url}"
wire_api = "{wire}"
request_max_retries = 1
stream_max_retries = 1

[analytics]
enabled = false
"""


@dataclass(frozen=True, slots=True)
class Stage:
    program: Program
    codex: str | None
    home: Path
    workspace: Path
    store: Path

    def agent(self, on_event: Callable[[RuntimeEvent], object], tool: Callable[..., Any]) -> HostAgent:
        """One that goes on with the conversation, if it has begun."""
        return HostAgent(
            self._codex if self.program == "codex" else self.program,
            memory=self.home / "memory",
            skills=self.home / "skills",
            store=self.store,
            session_id=SESSION_ID,
            cwd=self.workspace,
            sandbox="danger-full-access" if self.program in ("app_server", "codex") else None,
            timeouts=TIMEOUTS,
            on_event=on_event,
            tools=[tool],
        )

    def _codex(self) -> Runtime:
        env = {"HOME": str(self.home), "CODEX_HOME": str(self.home)}
        config = CodexConfig(codex_bin=self.codex, env=env, cwd=str(self.workspace))
        return AppServerRuntime(config, tool_timeout=TIMEOUTS.tool)


@contextmanager
def staged(program: Program, base_url: str) -> Iterator[Stage]:
    """The home is in the environment meanwhile: what the agent starts finds it there."""
    with TemporaryDirectory(prefix="treadle-host-soak-", ignore_cleanup_errors=True) as folder:
        home, workspace = Path(folder) / "home", Path(folder) / "work"
        home.mkdir()
        workspace.mkdir()
        wire = _WIRES.get(program, "responses")
        (home / "config.toml").write_text(_CONFIG.format(base_url=base_url, wire=wire))
        codex = _codex() if program == "codex" else None  # before there is another home
        places = {"HOME": str(home), "TREADLE_HOME": str(home), "CODEX_HOME": str(home)}
        with patch.dict(os.environ, places):
            yield Stage(program, codex, home, workspace, Path(folder) / "conversations.db")


def _codex() -> str:
    from scripts.install_peers import PEERS, ensure

    return str(ensure(PEERS["codex"]))
