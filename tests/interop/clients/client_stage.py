"""`ClientStage`: where a real client drives a server, ours or the real one: a home, a repository to work in, a model.

Owns the settings of the server, the environment of the client, and the end of all that they have started.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path
from typing import Final, Literal, TypeAlias

from interop.clients.client_model import ClientModel
from interop.programs import MARK, codex_config, sweep

Server: TypeAlias = Literal["ours", "codex"]
SERVERS: Final[tuple[Server, ...]] = ("ours", "codex")
MODEL: Final = "gpt-5.5"
OTHER_MODEL: Final = "gpt-5.6-sol"
# A busy machine is no reason to fail.
WAIT_S: Final = 45.0


class ClientStage:
    """`program` is what the client takes for codex."""

    def __init__(self, folder: Path, server: Server, program: Path) -> None:
        self.server = server
        self.program = program
        self.folder = folder
        self.home = folder / "home"
        self.workspace = folder / "workspace"
        self._mark = uuid.uuid4().hex
        self.model = ClientModel()
        (self.home / ".codex").mkdir(parents=True)
        self.workspace.mkdir()
        (folder / "tmp").mkdir()
        trusted = f'\n[projects."{self.workspace}"]\ntrust_level = "trusted"\n'
        config = codex_config(self.model.base_url, "workspace-write", "on-request", tables=trusted)
        (self.home / ".codex" / "config.toml").write_text(config)
        self._make_repository()

    def env(self, **more: str) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "CODEX_HOME": str(self.home / ".codex"),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            # In a home below it the real one makes no helpers, and has then no sandbox.
            "TMPDIR": str(self.folder / "tmp"),
            "NO_PROXY": "127.0.0.1",
            MARK: self._mark,
            **more,
        }

    def close(self) -> None:
        """Raises what went wrong on the side of the model: clients only saw a failed request."""
        sweep(self._mark)
        with self.model:
            pass

    def _make_repository(self) -> None:
        (self.workspace / "README.md").write_text("the workspace of a scenario\n")
        names = ["-c", "user.name=a", "-c", "user.email=a@example.invalid"]
        for command in (["init", "-q", "-b", "main"], ["add", "."], [*names, "commit", "-q", "-m", "first"]):
            subprocess.run(["git", *command], cwd=self.workspace, env=self.env(), check=True)
