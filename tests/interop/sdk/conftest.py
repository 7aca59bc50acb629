"""Fixtures of the tests in which the official SDK and ours drive a server: ours, and the real one as the oracle."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from interop.peers import installed
from interop.sdk.differences import Server
from interop.sdk.interpreter import Face, Play, SdkInterpreter
from interop.sdk.package import OFFICIAL
from interop.sdk.recordings import Recordings

SIDES: Final[list[tuple[Server, Face]]] = [
    ("treadle", "sync"),
    ("treadle", "async"),
    ("real", "sync"),
    ("real", "async"),
]


@pytest.fixture(scope="session")
def sdk_library() -> Path:
    return installed("codex-sdk")


@pytest.fixture(scope="session")
def sdk(sdk_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkInterpreter]:
    interpreter = SdkInterpreter(sdk_library, tmp_path_factory.mktemp("sdk"))
    yield interpreter
    interpreter.close()


@pytest.fixture(scope="session")
def recordings(
    sdk: SdkInterpreter, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Recordings:
    """Shared between all workers of a run, each of which has a folder of its own in that of the run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "recordings"
    folder.mkdir(exist_ok=True)

    def program_of(server: Server) -> Path:
        if server == "treadle":
            return Path(sys.executable).with_name("treadle")
        codex: Path = request.getfixturevalue("codex_bin")
        return codex

    return Recordings(folder, sdk, program_of)


@pytest.fixture(params=SIDES, ids="-".join)
def side(request: pytest.FixtureRequest) -> tuple[Server, Face]:
    pair: tuple[Server, Face] = request.param
    return pair


@pytest.fixture
def server(side: tuple[Server, Face]) -> Server:
    return side[0]


@pytest.fixture
def face(side: tuple[Server, Face]) -> Face:
    return side[1]


@pytest.fixture
def play(recordings: Recordings, server: Server, face: Face) -> Play:
    """A scenario with the official SDK; its value is what it saw. Every notification must fit its model in the SDK.

    What went over the wire is printed, so a failed test shows it.
    """

    def run(scenario: str) -> Any:
        recording = recordings.of(OFFICIAL, scenario, server, face)
        print(recording.wire)
        assert recording.unknown == []
        return recording.seen

    return run
