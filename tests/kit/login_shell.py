"""A home without profiles, for the login shells in which agents run commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_profiles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The profile of whoever runs the tests must not decide how long a command takes, or whether it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("user")))
        yield
