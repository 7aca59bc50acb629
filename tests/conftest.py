from __future__ import annotations

from collections.abc import Iterator

import pytest

from schema_proof import judged, listen_in


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def app_server_is_heard() -> None:
    """Everything that an app-server in this process sends is seen."""
    listen_in()


@pytest.fixture(autouse=True)
def schema_proof(app_server_is_heard: None) -> Iterator[None]:
    """A test in which an app-server sends something against the schema of the protocol fails."""
    with judged():
        yield
