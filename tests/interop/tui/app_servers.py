"""`AppServer`: an app-server of ours or of the real codex, listening on a port of its own, that can be started again.

Owns its process, its home and the secret of its listener.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, Literal, TypeAlias

from interop.programs import ROOT, START_SECONDS, STOP_SECONDS, codex_config
from interop.tui.told_model import ToldModel
from kit.ports import free_port

Kind: TypeAlias = Literal["ours", "codex"]
SECRET: Final = "a-secret-of-the-listener-in-a-test"
POLL_SECONDS: Final = 0.02
PATIENCE_SECONDS: Final = 1.0
PORTS: Final = range(20_000, 32_000)

COMPACT_PROMPT: Final = "Sum it up."  # of both, to tell their requests by
TOP: Final = f"""\
disable_paste_burst = true
compact_prompt = "{COMPACT_PROMPT}"
"""
TABLES: Final = """
[notice.model_migrations]
"gpt-5.5" = "gpt-6-sol"

[tui]
animations = false
"""


class AppServer:
    """Running from `start()` until `stop()`; threads stay in its home between the two."""

    def __init__(self, kind: Kind, codex: Path, home: Path, model: ToldModel) -> None:
        self.kind = kind
        self.model = model
        self.home = home
        self.settings = codex_config(model.base_url, "workspace-write", "on-request", top=TOP, tables=TABLES)
        (home / ".codex").mkdir()
        (home / ".codex" / "config.toml").write_text(self.settings)
        self._temporary = home / "tmp"
        self._temporary.mkdir()
        token = home / "token"
        token.write_text(SECRET)
        token.chmod(0o600)
        self._port = free_port()
        self.url = f"ws://127.0.0.1:{self._port}"
        self._command = [
            *([sys.executable, "-m", "treadle"] if kind == "ours" else [str(codex)]),
            *("app-server", "--listen", self.url, "--ws-token-file", str(token)),
            *(() if kind == "ours" else ("--ws-auth", "capability-token")),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def trust(self, folder: Path) -> None:
        """Else the first that a client shows there is the question whether to; the file is read again for each."""
        with (self.home / ".codex" / "config.toml").open("a") as file:
            file.write(f'[projects."{folder}"]\ntrust_level = "trusted"\n')

    def start(self) -> None:
        env = {
            "HOME": str(self.home),
            "CODEX_HOME": str(self.home / ".codex"),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT / "src"),
            # The real one links its sandbox into its home, but not if the home is in the folder for temporary files.
            "TMPDIR": str(self._temporary),
        }
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=self.home
            )
        end = time.monotonic() + START_SECONDS
        while not self._listens():
            assert self._process.poll() is None, f"the app-server ended; it said:\n{self.log}"
            assert time.monotonic() < end, f"the app-server does not listen; it said:\n{self.log}"
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """Both wait for running turns at the first signal, and end them at the second."""
        process, self._process = self._process, None
        if process is None:
            return
        for patience in (PATIENCE_SECONDS, STOP_SECONDS):
            process.terminate()
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                continue
            return
        process.kill()
        process.wait()

    @property
    def log(self) -> str:
        return (self.home / "log").read_text(errors="replace")[-4000:]

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0
