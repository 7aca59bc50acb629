"""Fixtures of the interop tests, and what happens when a peer program cannot be had."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from interop.programs import (
    FULL_ACCESS,
    ROOT,
    CodexRun,
    RunCodex,
    codex_command,
    codex_exec,
    exec_server,
    treadle_command,
)
from interop.proxy import RecordingProxy
from interop.scripted_model import Script, ScriptedModel

sys.path.append(str(ROOT))  # for `scripts`, which is no part of the package

from interop.interop_table import InteropTable
from interop.peers import NOT_INSTALLED, installed, leave_nothing

Proxied = Callable[[str], AbstractAsyncContextManager[RecordingProxy]]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(InteropTable(config), "interop-table")
    leave_nothing(config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = [str(report.longrepr) for report in terminalreporter.getreports("skipped")]
    missing = sum(NOT_INSTALLED in reason for reason in reasons)
    if missing:
        text = f"{NOT_INSTALLED}: {missing} interop tests proved nothing (TREADLE_REQUIRE_PEERS=1 makes them fail)"
        terminalreporter.write_line(text, red=True, bold=True)


@pytest.fixture(scope="session")
def codex_bin() -> Path:
    return installed("codex")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """The working folder of the agent, on the machine of the exec-server."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def mock_model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture
async def real_exec_server(codex_bin: Path, tmp_path: Path) -> AsyncIterator[str]:
    home = tmp_path / "codex-server-home"
    home.mkdir()
    async with exec_server(codex_command(codex_bin), home) as url:
        yield url


@pytest.fixture
async def treadle_exec_server(tmp_path: Path) -> AsyncIterator[str]:
    home = tmp_path / "treadle-server-home"
    home.mkdir()
    async with exec_server(treadle_command(), home) as url:
        yield url


@pytest.fixture
def recording_proxy() -> Proxied:
    return lambda url: RecordingProxy(url).running()


@pytest.fixture
def run_codex(codex_bin: Path, mock_model: ScriptedModel, tmp_path: Path) -> RunCodex:
    """Run the real `codex exec` once; the model plays the script, commands go to the exec-server."""

    async def run(script: Script, exec_server_url: str, cwd: Path, *, sandbox: str = FULL_ACCESS) -> CodexRun:
        mock_model.script = script
        result = await codex_exec(
            codex_bin,
            home=tmp_path / "codex-home",
            cwd=cwd,
            base_url=mock_model.base_url,
            exec_server_url=exec_server_url,
            sandbox=sandbox,
        )
        mock_model.check()
        return result

    return run
