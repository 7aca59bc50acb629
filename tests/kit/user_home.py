"""An empty home for the tests, which neither have the user's profiles and skills nor write into the user's files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def user_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Agents run commands in login shells: a profile would decide how long one takes, or whether it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("user")))
        yield
