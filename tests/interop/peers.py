"""`installed`: a peer program for a test, and what happens when it cannot be had."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest
from scripts import install_peers

NOT_INSTALLED: Final = "PEER PROGRAM NOT INSTALLED"  # counted by the summary of the interop tests


def installed(name: str) -> Path:
    """Where a peer is, installed first if need be; the test is skipped when its registry cannot be asked."""
    try:
        return install_peers.ensure(install_peers.PEERS[name])
    except install_peers.RegistryUnreachable as error:
        if os.environ.get("TREADLE_REQUIRE_PEERS") == "1":
            pytest.fail(f"{NOT_INSTALLED}: {error}")
        pytest.skip(f"{NOT_INSTALLED}: {error}")
