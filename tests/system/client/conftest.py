from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from system.client.faces import FACES, Face, Fake, Looping, nothing_left_over


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers here are often deaf; they need not be waited for as long as real ones."""
    monkeypatch.setattr("treadle.client.server_child.GRACE_S", 0.5)


@pytest.fixture(params=sorted(FACES))
def face(request: pytest.FixtureRequest) -> Iterator[Face]:
    """The SDK, blocking or with asyncio. Everything that was opened is closed at the end, and nothing is left of it."""
    with nothing_left_over():
        made = FACES[request.param]()
        yield made
        made.end()


@pytest.fixture
def looping() -> Iterator[Looping]:
    """The SDK with asyncio, for what the blocking one does not have."""
    with nothing_left_over():
        made = Looping()
        yield made
        made.end()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Fake]]:
    """Makes scripted servers."""
    made: list[Fake] = []

    def make(deed: str, **config: Any) -> Fake:
        if deed == "close":  # it runs on: there is no exit code to wait for
            monkeypatch.setattr("treadle.client.server_child.LAST_WORDS_S", 0.5)
        made.append(Fake(deed, **config))
        return made[-1]

    yield make
    for one in made:
        one.close()
