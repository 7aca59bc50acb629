"""Fixtures of the tests in which real clients drive a server: ours, and the real one as the oracle."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from interop.clients.acp_editor import AcpEditor
from interop.clients.client_stage import SERVERS, ClientStage, Server
from interop.peers import installed

OpenEditor: TypeAlias = Callable[..., AcpEditor]


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


@pytest.fixture(scope="module")
def open_editor(stage: ClientStage) -> Iterator[OpenEditor]:
    agent = installed("codex-acp")
    with ExitStack() as stack:

        def opened(**options: Any) -> AcpEditor:
            editor = AcpEditor(agent, stage, **options)
            stack.callback(editor.close)
            return editor

        yield opened


@pytest.fixture(scope="module")
def editor(open_editor: OpenEditor) -> AcpEditor:
    """One for most scenarios, each of which has a session of its own."""
    return open_editor()
