from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.app_program import Program, listening_server
from treadle.testing import AppServerHarness


@pytest.fixture(scope="module")
def shared_harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppServerHarness]:
    with AppServerHarness(tmp_path_factory.mktemp("app")) as made:
        yield made


@pytest.fixture(scope="module")
def shared_server(shared_harness: AppServerHarness) -> Iterator[Program]:
    """One server on a WebSocket for the tests of a module; it must survive them without a traceback."""
    with listening_server(shared_harness) as program:
        yield program
        program.check_well()
