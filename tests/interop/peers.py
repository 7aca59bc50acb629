"""`installed`: a peer program for a test, and what happens when it cannot be had; and what they leave behind."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from scripts import install_peers

NOT_INSTALLED: Final = "PEER PROGRAM NOT INSTALLED"  # counted by the summary of the interop tests
# What the sandbox of the real codex makes in a folder that it lets commands write to, to keep them from it, and leaves.
LEFT_BEHIND: Final = tuple(Path("/tmp", name) for name in (".git", ".codex", ".agents", ".aws"))


def leave_nothing(config: pytest.Config) -> None:
    """At the end of the run, remove what was not there at its beginning, and is empty."""
    if hasattr(config, "workerinput"):
        return
    made = [path for path in LEFT_BEHIND if not path.exists()]

    def clean() -> None:
        for path in made:
            with suppress(OSError):  # it is not there, or has something in it and is somebody's
                path.rmdir()

    config.add_cleanup(clean)


def installed(name: str) -> Path:
    """Where a peer is, installed first if need be; the test is skipped when its registry cannot be asked."""
    try:
        return install_peers.ensure(install_peers.PEERS[name])
    except install_peers.RegistryUnreachable as error:
        if os.environ.get("TREADLE_REQUIRE_PEERS") == "1":
            pytest.fail(f"{NOT_INSTALLED}: {error}")
        pytest.skip(f"{NOT_INSTALLED}: {error}")
