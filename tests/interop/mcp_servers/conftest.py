from __future__ import annotations

import pytest
from scripts.install_peers import cache_folder


@pytest.fixture(autouse=True)
def user_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents run commands in login shells: a profile of the user would decide how long one takes."""
    monkeypatch.setenv("TREADLE_PEERS", str(cache_folder()))
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("user")))
