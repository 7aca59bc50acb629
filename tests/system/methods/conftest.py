"""A server with a home and a workspace of its own, and a client: in this process, or over the pipes of a child."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kit.async_app_client import ROADS, AsyncAppClient, InProcess, opened

DEADLINE_S = 100


@pytest.fixture(autouse=True)
async def deadline() -> AsyncIterator[None]:
    async with asyncio.timeout(DEADLINE_S):
        yield


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def workspace(tmp_path: Path, home: Path) -> Path:
    (tmp_path / "ws").mkdir()
    return tmp_path / "ws"


@pytest.fixture(params=ROADS)
async def client(request: pytest.FixtureRequest, home: Path, workspace: Path) -> AsyncIterator[AsyncAppClient]:
    async with opened(request.param, home, workspace) as client:
        yield client


@pytest.fixture
async def local(home: Path, workspace: Path) -> AsyncIterator[InProcess]:
    async with opened("local", home, workspace) as client:
        assert isinstance(client, InProcess)
        yield client
