"""Fixtures of the tests in which real clients drive a server: ours, and the real one as the oracle."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.clients.client_stage import SERVERS, ClientStage, Server
from interop.peers import installed


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Server:
    name: Server = request.param
    return name


@pytest.fixture(scope="module")
def stage(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientStage]:
    program = Path(sys.executable).with_name("treadle") if server == "ours" else installed("codex-npm")
    stage = ClientStage(tmp_path_factory.mktemp(f"on-{server}"), server, program)
    yield stage
    stage.close()
