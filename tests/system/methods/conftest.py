"""A client of the app-server: in this process (`client`; or `local`, where `here` is the server), or with `both_roads`
also of the program, for one test of each kind of method.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit.app_client import AppClient
from kit.app_program import stdio_server
from kit.in_process import ServerHere, server_here
from treadle.testing import AppServerHarness

ROADS = ("local", "stdio")


@pytest.fixture
def home(harness: AppServerHarness) -> Path:
    return harness.home


@pytest.fixture
def workspace(harness: AppServerHarness) -> Path:
    return harness.workspace


@contextmanager
def opened(road: str, harness: AppServerHarness, *overrides: str) -> Iterator[AppClient]:
    if road == "local":
        with server_here(harness, *overrides) as here:
            yield here.connect(experimentalApi=True)
        return
    flags = [word for override in overrides for word in ("-c", override)]
    with stdio_server(harness, command=harness.command(*flags)) as program:
        program.client.initialize(experimentalApi=True)
        yield program.client
        program.hang_up()
        assert program.wait() == 0
        assert "Traceback" not in program.stderr, program.stderr


@pytest.fixture
def client(request: pytest.FixtureRequest, harness: AppServerHarness) -> Iterator[AppClient]:
    with opened(getattr(request, "param", "local"), harness) as client:
        yield client


both_roads = pytest.mark.parametrize("client", ROADS, indirect=True)


@pytest.fixture
def here(harness: AppServerHarness) -> Iterator[ServerHere]:
    with server_here(harness) as here:
        yield here


@pytest.fixture
def local(here: ServerHere) -> AppClient:
    return here.connect(experimentalApi=True)
