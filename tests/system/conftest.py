from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.exec_client import ExecClient, connected
from kit.exec_program import running
from kit.sandboxes import usable
from kit.server_process import ServerProcess
from kit.user_home import user_home
from treadle.execution import Mechanism
from treadle.testing import AppServerHarness

__all__ = ["user_home"]


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[AppServerHarness]:
    """What an app-server needs: a home, a workspace and a mock model."""
    with AppServerHarness(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for the tests of a module; it must survive them without a traceback."""
    secrets = {"SRVVAR": "fromserver", "SRV_API_KEY": "hidden"}
    with running(tmp_path_factory.mktemp("server"), env=secrets) as server:
        yield server
        server.check_well()


@pytest.fixture
def bare(server: ServerProcess) -> Iterator[ExecClient]:
    """A connection on which nothing was said yet."""
    with connected(server.url) as client:
        yield client


@pytest.fixture
def client(bare: ExecClient) -> ExecClient:
    """A connection with its handshake done."""
    return bare.handshake()


@pytest.fixture
def marker() -> str:
    """A number that occurs nowhere else, and that `sleep` takes as an hour."""
    return f"3600.{uuid.uuid4().int % 10**15:015d}"


@pytest.fixture(params=["bubblewrap", "landlock"])
def mechanism(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Mechanism:
    """What commands are confined with, for each of them."""
    return _confining(request.param, monkeypatch)


@pytest.fixture
def bubblewrap(monkeypatch: pytest.MonkeyPatch) -> Mechanism:
    return _confining("bubblewrap", monkeypatch)


@pytest.fixture
def landlock(monkeypatch: pytest.MonkeyPatch) -> Mechanism:
    return _confining("landlock", monkeypatch)


def _confining(mechanism: Mechanism, monkeypatch: pytest.MonkeyPatch) -> Mechanism:
    monkeypatch.setenv("TREADLE_SANDBOX", usable(mechanism))
    return mechanism


@pytest.fixture(params=["here", "there"])
def machine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where the threads work: on this machine, or by an exec-server."""
    if request.param == "here":
        monkeypatch.delenv("CODEX_EXEC_SERVER_URL", raising=False)
        yield request.param
        return
    folder = tmp_path / "executor"
    (folder / "user").mkdir(parents=True)
    with running(folder, "--listen", f"unix://{folder / 'socket'}", env={"HOME": str(folder / "user")}) as server:
        monkeypatch.setenv("CODEX_EXEC_SERVER_URL", server.url)
        yield request.param
