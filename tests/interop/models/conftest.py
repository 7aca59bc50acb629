"""The official clients, each started once: their import takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interop.models.official import PACKAGE, Official, running


@pytest.fixture(scope="session")
def openai_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Official]:
    with running("openai", tmp_path_factory.mktemp("openai")) as client:
        yield client


@pytest.fixture(scope="session")
def anthropic_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Official]:
    with running("anthropic", tmp_path_factory.mktemp("anthropic")) as client:
        yield client


@pytest.fixture
def official(api: str, request: pytest.FixtureRequest) -> Official:
    """The client that speaks the wire API of the test."""
    client: Official = request.getfixturevalue(f"{PACKAGE[api]}_client")
    return client
