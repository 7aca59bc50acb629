"""One app-server and one model for the tests of a module; a home, a folder and a terminal for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Protocol

import pytest

from interop.peers import installed
from interop.tui.app_servers import SECRET, AppServer, Kind
from interop.tui.told_model import ToldModel
from interop.tui.tui import Tui

CLIENT: Final = "codex TUI"
TERMINAL: Final = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PATH": os.environ["PATH"]}

# What is shown when there is a thread to speak to; what is typed before may be lost.
READY: Final = "To get started, describe a task"


class OpenTui(Protocol):
    """The fixture `tui`: it is shown when this returns."""

    def __call__(self, *arguments: str, ready: str = READY, secret: str = SECRET) -> Tui: ...


@pytest.fixture(scope="session")
def codex_npm() -> Path:
    """The program itself: what npm has on the path is a script of Node.js that starts it."""
    folder = installed("codex-npm").parent.parent
    (program,) = folder.glob("@openai/codex-*/vendor/*/bin/codex")
    return program


@pytest.fixture(scope="module", params=["ours", "codex"])
def server(
    request: pytest.FixtureRequest, codex_npm: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AppServer]:
    kind: Kind = request.param
    with ToldModel() as model:
        server = AppServer(kind, codex_npm, tmp_path_factory.mktemp(kind), model)
        try:
            server.start()
            yield server
        finally:
            server.stop()


@pytest.fixture
def model(server: AppServer) -> ToldModel:
    return server.model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the agent works."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def tui(codex_npm: Path, server: AppServer, folder: Path, tmp_path: Path) -> Iterator[OpenTui]:
    """Opens a terminal interface on the server; all of them share a home."""
    home = tmp_path / "home"
    (home / ".codex").mkdir(parents=True)
    (home / ".codex" / "config.toml").write_text(server.settings)
    server.trust(folder)
    env = {"HOME": str(home), "CODEX_HOME": str(home / ".codex"), **TERMINAL}
    remote = ["-C", str(folder), "--remote", server.url, "--remote-auth-token-env", "SECRET"]
    with ExitStack() as opened:

        def open_tui(*arguments: str, ready: str = READY, secret: str = SECRET) -> Tui:
            command = [str(codex_npm), *arguments, *remote]
            tui = opened.enter_context(Tui(command, folder, {**env, "SECRET": secret}))
            tui.wait_for(ready)
            return tui

        yield open_tui
